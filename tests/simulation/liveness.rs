//! How long a waiter was held up while nobody held the lock, against what the faults around that time allow.

use crate::dice::{MILLI, Nanos, SECOND, nanos};
use crate::faults::{Fault, Incident};
use crate::history::{History, Hold, Violation, Wait};
use crate::mix::config;

/// A time in which nobody validly held the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub from: Nanos,
    pub to: Nanos,
}

impl Gap {
    fn cut(self, from: Nanos, to: Nanos) -> Self {
        Self { from: self.from.max(from), to: self.to.min(to) }
    }

    pub fn length(self) -> Nanos {
        self.to.saturating_sub(self.from)
    }
}

/// The gaps between these spans, in order, from the beginning to `end`.
pub fn gaps(mut held: Vec<(Nanos, Nanos)>, end: Nanos) -> Vec<Gap> {
    held.sort_unstable();
    let (mut gaps, mut from) = (Vec::new(), 0);
    for (granted, ended) in held {
        if granted > from {
            gaps.push(Gap { from, to: granted });
        }
        from = from.max(ended);
    }
    if end > from {
        gaps.push(Gap { from, to: end });
    }
    gaps
}

/// For any run of gaps, the longest of them: a sparse table.
pub struct Longest<'a> {
    gaps: &'a [Gap],
    rows: Vec<Vec<usize>>,
}

impl<'a> Longest<'a> {
    pub fn new(gaps: &'a [Gap]) -> Self {
        let mut rows: Vec<Vec<usize>> = vec![(0..gaps.len()).collect()];
        let mut width = 1;
        while 2 * width <= gaps.len() {
            let last = &rows[rows.len() - 1];
            let row = (0..=gaps.len() - 2 * width).map(|at| longer(gaps, last[at], last[at + width]));
            let row = row.collect();
            rows.push(row);
            width *= 2;
        }
        Self { gaps, rows }
    }

    /// The longest part of a gap within this time.
    pub fn within(&self, from: Nanos, to: Nanos) -> Option<Gap> {
        let first = self.gaps.partition_point(|gap| gap.to <= from);
        let last = self.gaps.partition_point(|gap| gap.from < to).checked_sub(1)?;
        if first > last {
            return None;
        }
        let mut found = vec![self.gaps[first].cut(from, to), self.gaps[last].cut(from, to)];
        if last - first >= 2 {
            found.push(self.gaps[self.inner(first + 1, last - 1)]);
        }
        found.into_iter().max_by_key(|gap| gap.length())
    }

    fn inner(&self, first: usize, last: usize) -> usize {
        let row = (last - first + 1).ilog2() as usize;
        longer(self.gaps, self.rows[row][first], self.rows[row][last + 1 - (1 << row)])
    }
}

fn longer(gaps: &[Gap], one: usize, other: usize) -> usize {
    if gaps[one].length() >= gaps[other].length() { one } else { other }
}

/// What the bounds depend on.
#[derive(Clone, Copy, Debug)]
pub struct Far {
    pub lease: Nanos,
    pub hop: Nanos,
    /// Whether requests overtake each other, so that one may come after the leaving of its ticket: its hold is told
    /// of by somebody's next poll.
    pub ghosts: bool,
}

/// The waits of one lock that were held up for too long.
pub fn held_up(history: &History, lock: usize, end: Nanos, far: Far) -> Vec<Violation> {
    let held = history.holds.iter().filter(|hold| hold.lock == lock);
    let gaps = gaps(held.map(|hold| (hold.granted, hold.kept().max(hold.granted))).collect(), end);
    let longest = Longest::new(&gaps);
    let mut found = Vec::new();
    for wait in history.waits.iter().filter(|wait| wait.lock == lock && wait.patient) {
        let until = wait.ended.unwrap_or(end);
        let Some(gap) = longest.within(wait.asked, until) else { continue };
        if gap.length() < MARGIN || !is_healthy(history, wait, gap) {
            continue;
        }
        // The end of `max_hold` is the guard's alone: the server hears of it when somebody polls.
        let capped = |hold: &&Hold| {
            hold.lock == lock && hold.capped && hold.end() <= gap.to && hold.trusted >= gap.from
        };
        let poll = if history.holds.iter().any(|hold| capped(&hold)) { nanos(config().claim) / 2 } else { 0 };
        let allowed = allowed(history, gap, far) + poll;
        if gap.length() > allowed {
            let what = format!(
                "client {} asked for lock {lock} at {} and was held up from {} to {}: {} ms instead of {} ms",
                wait.client,
                wait.asked,
                gap.from,
                gap.to,
                gap.length() / MILLI,
                allowed / MILLI
            );
            found.push(Violation { rule: "held up", what, excused: false });
        }
    }
    found
}

/// What the table of bounds calls margin.
const MARGIN: Nanos = 250 * MILLI;

/// Whether nothing was wrong with the waiter itself.
pub fn is_healthy(history: &History, wait: &Wait, gap: Gap) -> bool {
    !history.gone.contains(&wait.client)
        && !history.incidents.iter().any(|incident| {
            let mine = incident.client == Some(wait.client);
            mine && is_silence(incident.fault) && incident.began <= gap.to && incident.ended >= gap.from
        })
}

fn is_silence(fault: Fault) -> bool {
    matches!(fault, Fault::Quit | Fault::Stop | Fault::Die | Fault::Close | Fault::HalfOpen | Fault::Down)
}

/// How long the faults around a gap may have made it: each adds what the table says.
pub fn allowed(history: &History, gap: Gap, Far { lease, hop, ghosts }: Far) -> Nanos {
    let claim = nanos(config().claim);
    let reach = lease + claim;
    let near = history
        .incidents
        .iter()
        .filter(|incident| incident.began <= gap.to && incident.ended.saturating_add(reach) >= gap.from);
    let mut silent = Vec::new();
    // A hand-over is a request and a message, and where the message is of no use, two requests more.
    let poll = if ghosts { nanos(config().claim) / 2 } else { 0 };
    let mut allowed = MARGIN + 8 * (hop - 5 * MILLI) + poll;
    for incident in near {
        allowed += cost(incident, lease, &mut silent);
        // Nobody gives a ghost back before its client hears of it, or its lease ends.
        if ghosts && incident.fault == Fault::HalfOpen {
            allowed += (incident.ended - incident.began).min(lease).saturating_sub(claim);
        }
    }
    allowed
}

fn cost(incident: &Incident, lease: Nanos, silent: &mut Vec<usize>) -> Nanos {
    let claim = nanos(config().claim);
    let (poll, timeout) = (claim / 2, nanos(config().command_timeout));
    match incident.fault {
        Fault::HalfOpen | Fault::Close => claim,
        Fault::Stop | Fault::Die | Fault::Down => {
            let client = incident.client.unwrap_or(usize::MAX);
            if silent.contains(&client) {
                return 0;
            }
            silent.push(client);
            lease + claim
        }
        Fault::MessageLost => claim + poll,
        Fault::RequestLost | Fault::RequestLate | Fault::ReplyLost => timeout + 300 * MILLI,
        Fault::Slow => 2 * (incident.ended - incident.began),
        Fault::Lag => claim + poll,
        Fault::FlushScripts => 50 * MILLI,
        Fault::DropToken | Fault::Force | Fault::Quit => MARGIN,
        Fault::Stall => lease + poll + (incident.ended - incident.began),
        Fault::DropLock | Fault::DropReaders | Fault::DropQueue | Fault::DropWaiting | Fault::FlushAll => {
            poll + timeout
        }
        Fault::Failover => lease + poll + 4 * SECOND,
        Fault::StepClock => lease + 12 * SECOND,
    }
}

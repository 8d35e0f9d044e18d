//! Judges a lock that reads share: one writes, or many read, and nobody is passed over.

use std::collections::BTreeMap;

use lockwright::Mode;

use crate::audit::Grant;
use crate::checker::{Judge, Turn, misordered, overlaps, shared, turns};
use crate::dice::Nanos;
use crate::history::{History, Hold, Violation, Wait};
use crate::liveness::{Far, Gap, allowed, is_healthy};

impl Judge<'_> {
    /// Writes are turns, as those of any lock. A read is beside no write but its own owner's, and its version says
    /// between which two writes it was.
    pub fn judge_phases(&mut self, lock: usize) {
        let of = |mode: Mode| {
            let holds = self.history.holds.iter();
            holds.filter(move |hold| hold.lock == lock && hold.mode == mode).cloned().collect::<Vec<Hold>>()
        };
        let (writes, reads) = (of(Mode::Write), of(Mode::Read));
        let (turns, grants) = (turns(writes.iter()), self.grants_of(lock));
        for token in shared(writes.iter()) {
            let excused = self.clock_moved_before(Nanos::MAX);
            self.report("tokens", format!("lock {lock}: token {token} was granted twice"), excused);
        }
        for (first, second) in misordered(&turns) {
            self.wrong("order", lock, &grants, &turns[first], &turns[second]);
        }
        for (first, second) in overlaps(&turns) {
            self.wrong("exclusion", lock, &grants, &turns[first], &turns[second]);
        }
        for read in &reads {
            self.judge_read(lock, &grants, &turns, &writes, read);
        }
        for hold in writes.iter().chain(&reads) {
            self.judge_promise(lock, &grants, hold);
        }
    }

    fn judge_read(
        &mut self,
        lock: usize,
        grants: &BTreeMap<u64, Grant>,
        turns: &[Turn],
        writes: &[Hold],
        hold: &Hold,
    ) {
        let read = crate::checker::turns(std::iter::once(hold)).remove(0);
        for write in turns {
            if write.token == read.token {
                let is_owner = |other: &Hold| {
                    other.token == read.token && hold.owner.is_some() && other.owner == hold.owner
                };
                if !writes.iter().any(is_owner) {
                    self.wrong("exclusion", lock, grants, write, &read);
                }
                continue;
            }
            let (first, second) = if write.token < read.token { (write, &read) } else { (&read, write) };
            if first.end > second.granted {
                return self.wrong("exclusion", lock, grants, first, second);
            }
            if second.granted < first.asked {
                return self.wrong("order", lock, grants, first, second);
            }
        }
    }

    fn wrong(
        &mut self,
        rule: &'static str,
        lock: usize,
        grants: &BTreeMap<u64, Grant>,
        first: &Turn,
        second: &Turn,
    ) {
        let excused = self.explains(grants, first, second);
        self.report(rule, format!("lock {lock}: {first:?} and {second:?}"), excused);
    }

    /// A holder never trusts its hold for longer than the server promised. A read that began under a write goes on
    /// under that write's second token.
    fn judge_promise(&mut self, lock: usize, grants: &BTreeMap<u64, Grant>, hold: &Hold) {
        let near = grants.range(hold.token.saturating_sub(1)..=hold.token + 1).map(|(_, grant)| grant);
        let Some((at, ends)) =
            near.map(|grant| (grant.at, grant.ends)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        else {
            let excused = self.clock_moved_before(hold.granted);
            return self.report(
                "validity",
                format!("lock {lock}: {hold:?} was never granted by the server"),
                excused,
            );
        };
        if hold.trusted > ends {
            let what = format!("lock {lock}: {hold:?} is trusted beyond {ends}");
            self.report("validity", what, self.is_excused(at, hold.trusted));
        }
    }
}

/// Waits that others were let in before who had come later, and owners that waited for themselves. No crowd of readers,
/// however busy, keeps a writer out.
pub fn passed_over(history: &History, lock: usize, end: Nanos, far: Far) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut report = |rule, wait: &Wait, hold: &Hold, late: Nanos| {
        let what = format!("{wait:?} and {hold:?}, {} ms late", late / crate::dice::MILLI);
        found.push(Violation { rule, what, excused: false });
    };
    for wait in history.waits.iter().filter(|wait| wait.lock == lock && wait.patient) {
        // A ticket that waits already when its owner gets in elsewhere hears of that by its next poll.
        let waits_since = queued_since(history, wait.client, lock, (wait.mode, wait.owner), wait.asked);
        let until = wait.ended.unwrap_or(end);
        for hold in history.holds.iter().filter(|hold| hold.lock == lock && hold.granted < until) {
            // How long who came later came later, and how long an owner waited beside its own read.
            let since = queued_since(history, hold.client, lock, (hold.mode, hold.owner), hold.asked);
            let overtakes = since.saturating_sub(wait.asked);
            let is_beside = wait.mode == Mode::Read
                && hold.mode == Mode::Read
                && hold.owner.is_some()
                && hold.owner == wait.owner
                && hold.granted <= waits_since;
            let beside = if is_beside { until.min(hold.kept()).saturating_sub(wait.asked) } else { 0 };
            let (rule, late) = if is_beside { ("inside", beside) } else { ("passed over", overtakes) };
            // Whatever cost it its place did so before the other one was let in.
            let gap = Gap { from: wait.asked, to: hold.granted.max(wait.asked + late) };
            if late == 0
                || !is_beside && !is_in_turn(history, wait, hold)
                || late <= allowed(history, gap, far)
            {
                continue;
            }
            if is_healthy(history, wait, gap) {
                report(rule, wait, hold, late);
                break;
            }
        }
    }
    found
}

/// Since when this client has had a ticket by which that attempt could wait: one owner's attempts share it, and
/// anonymous readers do.
fn queued_since(
    history: &History,
    client: usize,
    lock: usize,
    kind: (Mode, Option<u64>),
    asked: Nanos,
) -> Nanos {
    let shares = |wait: &&Wait| wait.client == client && wait.lock == lock && (wait.mode, wait.owner) == kind;
    if kind == (Mode::Write, None) {
        return asked;
    }
    let waits: Vec<&Wait> = history.waits.iter().filter(shares).collect();
    let mut since = asked;
    loop {
        let pending = |wait: &&&Wait| wait.asked < since && wait.ended.is_none_or(|ended| ended >= since);
        match waits.iter().filter(pending).map(|wait| wait.asked).min() {
            Some(earlier) => since = earlier,
            None => return since,
        }
    }
}

/// Whether this hold had to wait behind an attempt that came before it: an owner that was inside had not, nor had a read
/// beside a read, if nobody waited to write.
fn is_in_turn(history: &History, wait: &Wait, hold: &Hold) -> bool {
    let is_inside = |other: &Hold| {
        other.lock == hold.lock
            && other.owner == hold.owner
            && (other.granted < hold.granted || other.asked < hold.asked && other.granted == hold.granted)
            && other.promised.max(other.kept()) > hold.asked
    };
    // The hold by which its owner was inside may be one that its client never heard of.
    let re_enters = hold.owner.is_some() && (hold.joins || history.holds.iter().any(is_inside));
    !re_enters && (wait.mode == Mode::Write || hold.mode == Mode::Write)
}

//! What a history records: every attempt, hold, write and fault, as they were seen from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwright::{LockError, LossReason, Mode, Position};

use crate::client::Pace;
use crate::dice::{Nanos, SECOND};
use crate::faults::Incident;

/// One attempt to get a lock, from the call on.
#[derive(Clone, Debug)]
pub struct Wait {
    pub client: usize,
    pub lock: usize,
    pub asked: Nanos,
    /// When it was told its place in the queue.
    pub placed: Option<Nanos>,
    pub ended: Option<Nanos>,
    pub mode: Mode,
    pub owner: Option<u64>,
    /// Whether it was to wait for others.
    pub patient: bool,
    /// When it was to have ended at the latest.
    pub deadline: Nanos,
    /// Whether somebody held the lock when it was asked for.
    pub contended: bool,
    pub hold: Option<usize>,
    /// Whether it was refused, since its owner reads.
    pub refused: bool,
}

/// How a hold is kept.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    pub mode: Mode,
    pub owner: Option<u64>,
    pub endless: bool,
    pub capped: bool,
}

/// One guard.
#[derive(Clone, Debug)]
pub struct Hold {
    pub client: usize,
    pub lock: usize,
    pub mode: Mode,
    pub owner: Option<u64>,
    /// Of a read, its version.
    pub token: u64,
    /// Whether it is renewed for as long as it lives.
    pub endless: bool,
    /// Whether its guard ends before its lease.
    pub capped: bool,
    pub asked: Nanos,
    pub granted: Nanos,
    /// The latest time until which it was seen to be trusted.
    pub trusted: Nanos,
    /// Whether the server let its owner in beside another hold of its own.
    pub joins: bool,
    /// Until when the server kept what it granted this client with that token.
    pub promised: Nanos,
    /// When its holder began to give it back.
    pub released: Option<Nanos>,
    pub lost: Option<(Nanos, LossReason)>,
}

impl Hold {
    /// When its holder stopped trusting it, as far as it was seen to.
    pub fn end(&self) -> Nanos {
        self.trusted.min(self.given_up())
    }

    /// When nobody else was kept waiting by it any more: a holder that is not looked at has it renewed all the same.
    pub fn kept(&self) -> Nanos {
        let renewed = if self.capped { 0 } else { self.promised };
        self.trusted.max(renewed).min(self.given_up())
    }

    fn given_up(&self) -> Nanos {
        let lost = self.lost.map_or(Nanos::MAX, |(at, _)| at);
        self.released.unwrap_or(Nanos::MAX).min(lost)
    }
}

/// A write to the guarded resource, which refuses tokens smaller than the largest it has seen.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub hold: usize,
    pub at: Nanos,
    pub trusted: bool,
    pub accepted: bool,
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub rule: &'static str,
    pub what: String,
    /// Whether lost data, a clock step or force explains it.
    pub excused: bool,
}

#[derive(Debug, Default)]
pub struct History {
    pub operations: u64,
    pub waits: Vec<Wait>,
    pub holds: Vec<Hold>,
    pub writes: Vec<Write>,
    pub incidents: Vec<Incident>,
    pub violations: Vec<Violation>,
    pub contended: u64,
    /// Places that did not move forward: when, and whose.
    pub setbacks: Vec<(Nanos, usize, String)>,
    /// Attempts that ended since no server answered.
    pub unavailable: Vec<(Nanos, usize)>,
    /// Clients that died, and clients that were closed.
    pub gone: BTreeSet<usize>,
    pub closed: BTreeSet<usize>,
    /// By client: how many of its tasks still work.
    pub working: BTreeMap<usize, u32>,
    /// By lock: guards that are neither released nor lost, and the largest token that was written.
    open: BTreeMap<usize, u64>,
    largest: BTreeMap<usize, u64>,
    now: Nanos,
    goal: u64,
    trace: Option<Vec<String>>,
}

/// The one history that everybody writes to, one after the other.
#[derive(Clone)]
pub struct Book(Arc<Mutex<History>>);

impl Book {
    pub fn new(goal: u64, traced: bool) -> Self {
        let trace = traced.then(Vec::new);
        Self(Arc::new(Mutex::new(History { goal, trace, ..History::default() })))
    }

    pub fn with<R>(&self, act: impl FnOnce(&mut History) -> R) -> R {
        act(&mut self.0.lock().expect("nobody panics while writing"))
    }

    /// Writes a line of the trace, if there is one.
    pub fn note(&self, line: impl FnOnce() -> String) {
        self.with(|history| history.note(line));
    }

    pub fn set_now(&self, now: Nanos) {
        self.with(|history| history.now = now);
    }

    pub fn violation(&self, rule: &'static str, what: String) {
        self.with(|history| history.violation(rule, what));
    }
}

impl History {
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12.6} {}", self.now as f64 / 1e9, line()));
        }
    }

    pub fn violation(&mut self, rule: &'static str, what: String) {
        self.note(|| format!("VIOLATION {rule}: {what}"));
        self.violations.push(Violation { rule, what, excused: false });
    }

    /// The client is gone: its holds end here, and its attempts bring nothing.
    pub fn bury(&mut self, client: usize) {
        self.gone.insert(client);
        self.working.remove(&client);
        let now = self.now;
        for hold in self.holds.iter_mut().filter(|hold| hold.client == client && hold.released.is_none()) {
            hold.released = Some(now);
            if hold.lost.is_none() {
                *self.open.entry(hold.lock).or_default() -= 1;
            }
        }
    }

    /// Whether a task of this client has waited since before `since`, and none has held since then: only the oldest
    /// ticket of a client is asked for, and the next one when that is granted.
    pub fn waits_in_vain(&self, client: usize, since: Nanos) -> bool {
        let open = |wait: &Wait| wait.client == client && wait.ended.is_none() && wait.asked < since;
        let held = |hold: &Hold| hold.client == client && (hold.released.is_none() || hold.granted >= since);
        self.waits.iter().any(open) && !self.holds.iter().any(held)
    }

    /// The client is closed: its holds are lost at this moment.
    pub fn closes(&mut self, client: usize) {
        self.closed.insert(client);
        let now = self.now;
        let mine = |hold: &&mut Hold| hold.client == client && hold.released.is_none() && hold.lost.is_none();
        for hold in self.holds.iter_mut().filter(mine) {
            hold.lost = Some((now, LossReason::Closed));
            *self.open.entry(hold.lock).or_default() -= 1;
        }
    }

    /// Whether the owner of this attempt to write has read the lock while it waited.
    fn may_deadlock(&self, wait: usize) -> bool {
        let Wait { lock, mode, owner, asked, .. } = self.waits[wait];
        // A hold that was given up lives on at the server until it hears of that, or until its lease ends.
        let reads = |hold: &Hold| {
            let still = hold.released.is_none_or(|at| at + SECOND > asked || hold.promised > asked);
            hold.lock == lock && hold.owner == owner && hold.mode == Mode::Read && still
        };
        let asks = |other: &Wait| {
            // A grant that its client never heard of lasts for its lease, a claim first.
            let lately = other.ended.is_none_or(|at| at + 10 * SECOND > asked);
            other.lock == lock && other.owner == owner && other.mode == Mode::Read && lately
        };
        mode == Mode::Write
            && owner.is_some()
            && (self.holds.iter().any(reads) || self.waits.iter().any(asks))
    }

    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// Whether the clients have done what the history is for.
    pub fn is_enough(&self) -> bool {
        self.operations >= self.goal
    }
}

/// One client's hand in the history.
#[derive(Clone)]
pub struct Scribe {
    pub book: Book,
    pub client: usize,
    pub pace: Pace,
}

impl Scribe {
    pub fn operation(&self, line: impl FnOnce() -> String) {
        self.book.with(|history| {
            history.operations += 1;
            history.note(|| format!("client {} {}", self.client, line()));
        });
    }

    /// Whether its tasks have nothing more to do.
    pub fn is_done(&self) -> bool {
        self.book.with(|history| history.is_enough() || history.closed.contains(&self.client))
    }

    /// An attempt begins; `limit` is how long it may wait for others.
    pub fn asked(&self, lock: usize, limit: Option<Duration>, kept: Kept) -> usize {
        self.book.with(|history| {
            let asked = history.now;
            let contended = history.open.get(&lock).is_some_and(|&open| open > 0);
            let patient = limit.is_none_or(|limit| !limit.is_zero());
            let limit = limit.filter(|limit| !limit.is_zero());
            let deadline = limit.map_or(Nanos::MAX, |limit| self.until(asked, limit));
            let (client, placed, ended, hold) = (self.client, None, None, None);
            history.waits.push(Wait {
                client,
                lock,
                asked,
                mode: kept.mode,
                owner: kept.owner,
                placed,
                ended,
                patient,
                deadline,
                contended,
                hold,
                refused: false,
            });
            history.waits.len() - 1
        })
    }

    /// The attempt has a place in the queue.
    pub fn placed(&self, wait: usize, position: Position) {
        self.book.with(|history| {
            history.waits[wait].placed = Some(history.now);
            history.note(|| format!("client {} has a place, {position} before it", self.client));
        });
    }

    /// A place moved.
    pub fn moved(&self, from: Position, to: Position) {
        self.book.with(|history| {
            if to >= from {
                let what = format!("client {} moved from {from} to {to}", self.client);
                history.setbacks.push((history.now, self.client, what));
            }
        });
    }

    /// The attempt ended, if it had not before.
    pub fn ended(&self, wait: usize, line: impl FnOnce() -> String) {
        self.book.with(|history| {
            let now = history.now;
            history.waits[wait].ended.get_or_insert(now);
            history.note(|| format!("client {} {}", self.client, line()));
        });
    }

    pub fn granted(&self, wait: usize, terms: Kept, token: u64, left: Duration) -> usize {
        self.book.with(|history| {
            let (now, hold) = (history.now, history.holds.len());
            let Wait { lock, asked, contended, .. } = history.waits[wait];
            (history.waits[wait].ended, history.waits[wait].hold) = (Some(now), Some(hold));
            history.contended += u64::from(contended);
            *history.open.entry(lock).or_default() += 1;
            history.note(|| format!("client {} holds lock {lock}, token {token}, for {left:?}", self.client));
            let Kept { mode, owner, endless, capped } = terms;
            history.holds.push(Hold {
                client: self.client,
                lock,
                mode,
                owner,
                token,
                endless,
                capped,
                asked,
                granted: now,
                trusted: self.until(now, left),
                joins: false,
                promised: 0,
                released: None,
                lost: None,
            });
            hold
        })
    }

    fn until(&self, now: Nanos, left: Duration) -> Nanos {
        let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        self.pace.global(self.pace.local(now) + left)
    }

    /// The guard was asked for how long it can be trusted.
    pub fn seen(&self, hold: usize, left: Duration) {
        self.book.with(|history| {
            let trusted = self.until(history.now, left);
            let known = &mut history.holds[hold];
            if !left.is_zero() {
                known.trusted = known.trusted.max(trusted);
            }
        });
        if left.is_zero() {
            self.lost(hold, LossReason::Expired);
        }
    }

    pub fn lost(&self, hold: usize, reason: LossReason) {
        self.book.with(|history| {
            if history.holds[hold].lost.is_none() && history.holds[hold].released.is_none() {
                history.holds[hold].lost = Some((history.now, reason));
                let Hold { lock, token, .. } = history.holds[hold];
                *history.open.entry(lock).or_default() -= 1;
                history.note(|| format!("client {} lost token {token}: {reason:?}", self.client));
            }
        });
    }

    /// A `run` says that its hold was lost; its section was dropped before.
    pub fn lost_in_run(&self, wait: usize, reason: LossReason) {
        self.book.with(|history| {
            let now = history.now;
            // The section may never have begun.
            history.waits[wait].ended.get_or_insert(now);
            if let Some(hold) = history.waits[wait].hold {
                history.holds[hold].lost.get_or_insert((now, reason));
                history.note(|| format!("client {} lost in a run: {reason:?}", self.client));
            }
        });
    }

    /// The attempt failed. One with a limit may end before the server can have answered.
    pub fn failed(&self, wait: usize, error: &LockError, limited: bool) {
        self.book.with(|history| match error {
            LockError::WouldDeadlock if history.may_deadlock(wait) => history.waits[wait].refused = true,
            LockError::Unavailable { .. } if limited => {}
            LockError::Unavailable { .. } => history.unavailable.push((history.now, self.client)),
            LockError::Closed if history.closed.contains(&self.client) => {}
            error => history.violation("errors", format!("client {}: {error}", self.client)),
        });
    }

    /// The second hold has taken the place of the first one, and waited for nobody.
    pub fn continues(&self, first: usize, second: usize) {
        self.book.with(|history| history.holds[second].asked = history.holds[first].asked);
    }

    pub fn released(&self, hold: usize, how: &str) {
        self.book.with(|history| {
            let Hold { lock, token, lost, client, .. } = history.holds[hold];
            if history.gone.contains(&client) {
                return;
            }
            history.operations += 1;
            history.holds[hold].released = Some(history.now);
            if lost.is_none() {
                *history.open.entry(lock).or_default() -= 1;
            }
            history.note(|| format!("client {} {how} token {token}", self.client));
        });
    }

    /// The holder writes to the resource, whether it should or not.
    pub fn write(&self, hold: usize, trusted: bool) {
        self.book.with(|history| {
            let Hold { lock, token, mode, .. } = history.holds[hold];
            let largest = history.largest.entry(lock).or_default();
            // What a reader shows is remembered, and no reason to refuse it.
            let accepted = token >= *largest || mode == Mode::Read;
            *largest = token.max(*largest);
            let at = history.now;
            history.writes.push(Write { hold, at, trusted, accepted });
        });
    }

    pub fn began(&self) {
        self.book.with(|history| *history.working.entry(self.client).or_default() += 1);
    }

    pub fn finished(&self) {
        self.book.with(|history| {
            *history.working.entry(self.client).or_default() -= 1;
            history.note(|| format!("client {}: a task is done", self.client));
        });
    }
}

//! What is due when, and the alarm of the task that sees to it.

use std::collections::BTreeSet;

use super::lane::LaneId;
use crate::clock::Moment;
use crate::mutant::{self, Mutant};

/// Lanes by the moments at which they are due, and when their task looks next.
#[derive(Debug)]
pub struct Agenda {
    due: BTreeSet<(Moment, LaneId)>,
    /// The task looks then, at the latest. Whoever makes it earlier has the task told, and others rely on that.
    alarm: Moment,
}

impl Agenda {
    /// An empty one, whose task has not looked yet: it is about to.
    pub fn new() -> Self {
        Self { due: BTreeSet::new(), alarm: Moment::ORIGIN }
    }

    /// Enters a lane. Returns whether the task must be told to look sooner than it would.
    pub fn insert(&mut self, at: Moment, lane: LaneId) -> bool {
        self.due.insert((at, lane));
        let is_sooner = at < self.alarm;
        self.alarm = self.alarm.min(at);
        is_sooner
    }

    pub fn remove(&mut self, at: Moment, lane: LaneId) {
        self.due.remove(&(at, lane));
    }

    /// All that is due until then, in its order.
    pub fn until(&self, latest: Moment) -> impl Iterator<Item = LaneId> + '_ {
        self.due.range(..=(latest, LaneId::MAX)).map(|&(_, lane)| lane)
    }

    /// The first of them.
    pub fn first(&self, latest: Moment) -> Option<LaneId> {
        self.until(latest).next()
    }

    #[cfg(lockwright_internals)]
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// The task has looked, and looks again then. An alarm that is still to come stays, though what it was for is gone:
    /// put off, it would be set anew, and the task woken for it, by each hold that ends before it is renewed.
    pub fn set_alarm(&mut self, now: Moment) -> Moment {
        let first = self.due.first().map_or(Moment::NEVER, |&(at, _)| at);
        let next = if self.alarm > now { self.alarm.min(first) } else { first };
        if !mutant::is(Mutant::ArmedApart) {
            self.alarm = next;
        }
        next
    }

    /// [`Mutant::ArmedApart`]: the alarm of a look that was before.
    pub fn set_alarm_apart(&mut self, next: Moment) {
        self.alarm = next;
    }
}

#[cfg(all(test, not(lockwright_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(second: u64) -> Moment {
        Moment::ORIGIN.plus(Duration::from_secs(second))
    }

    /// Fails where each short hold wakes the watchdog: one that looks when the hold is gone has nothing to wait for.
    #[test]
    fn an_alarm_that_is_to_come_stays() {
        let mut agenda = Agenda::new();
        assert!(!agenda.insert(at(9), 1), "the task is about to look for the first time");
        agenda.remove(at(9), 1);
        assert_eq!(agenda.set_alarm(at(0)), Moment::NEVER);
        assert!(agenda.insert(at(10), 2));
        agenda.remove(at(10), 2);
        assert_eq!(agenda.set_alarm(at(1)), at(10));
        assert!(!agenda.insert(at(11), 3), "the task looks before that");
        assert!(agenda.insert(at(8), 4), "the task looks behind that");
        assert!(!agenda.insert(at(9), 5), "the task was told to look before that");
        assert_eq!(agenda.until(at(9)).collect::<Vec<_>>(), [4, 5]);
        // It has rung, and what is left counts.
        agenda.remove(at(8), 4);
        agenda.remove(at(9), 5);
        assert_eq!(agenda.set_alarm(at(8)), at(11));
        agenda.remove(at(11), 3);
        assert_eq!(agenda.set_alarm(at(11)), Moment::NEVER);
    }
}

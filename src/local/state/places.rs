//! Where waiters stand in the queue.

use super::waits::{Outcome, WaiterRef};
use super::{Lock, State};
use crate::local::lane::{Lane, LaneId, Phase, QueuePlace, Waiting};
use crate::local::outbox::Outbox;

/// What became of a watched wait.
#[derive(Debug)]
pub enum Stepped {
    Settled(Outcome),
    At(Standing),
}

/// Where a waiter stands.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// At most so many stand before it.
    pub ahead: u64,
    /// How often the client has lost its places before. Of an earlier place nothing is known of this one.
    losses: u64,
}

impl State {
    /// The outcome of a wait, or a standing that is better than `seen`, or not of the same place, once it is there.
    pub fn step(&mut self, wait: WaiterRef, seen: Option<Standing>) -> Option<Stepped> {
        if let Some(outcome) = self.take_outcome(wait) {
            return Some(Stepped::Settled(outcome));
        }
        let lane = self.lanes.get(&wait.lane)?;
        let lock = self.locks.get_mut(&lane.request.lock)?;
        lock.watched.insert(wait.lane);
        let standing = Standing { ahead: ahead(lane, lock.front)?, losses: lock.losses };
        let is_news = |seen: Standing| standing.ahead < seen.ahead || standing.losses != seen.losses;
        seen.is_none_or(is_news).then_some(Stepped::At(standing))
    }

    /// Whether the server has known this ticket by another number than this.
    pub fn has_another_number(&mut self, id: LaneId, sequence: u64) -> bool {
        let place = self.lanes.get_mut(&id).and_then(Lane::waiting).and_then(|waiting| waiting.place);
        place.is_some_and(|known| known.sequence != sequence)
    }

    /// The server has said where a ticket stands. Where it is the eldest, all places of its lock may have moved forward.
    pub fn placed(&mut self, id: LaneId, place: QueuePlace, out: &mut Outbox) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let name = lane.request.lock.clone();
        let known = lane.waiting().and_then(|waiting| waiting.place.replace(place));
        let Some(lock) = self.locks.get_mut(&name) else { return };
        if known.is_none() && place.sequence <= lock.last_sequence {
            lock.forget_numbers();
        }
        // What is known of a later ticket says nothing of an earlier one: those between may have left.
        lock.last_sequence = lock.last_sequence.max(place.sequence);
        let moves_all = lock.waiting.first().is_some_and(|&(_, eldest)| eldest == id);
        if moves_all {
            lock.front = Some(QueuePlace { up_to: lock.last_sequence, ..place });
        }
        let all = lock.watched.iter().filter(|_| moves_all);
        for id in all.chain(lock.watched.get(&id).filter(|_| !moves_all)) {
            let waiters = self.lanes.get_mut(id).into_iter().flat_map(|lane| lane.waiters.values_mut());
            out.wakers.extend(waiters.filter_map(|waiter| waiter.waker.take()));
        }
    }
}

impl Lock {
    /// The server's numbers begin anew with each queue: those of one that has ended, or is lost, say nothing of the
    /// next one. Two tickets of this client would seem to stand one behind the other that have many between them.
    pub(super) fn forget_numbers(&mut self) {
        self.front = None;
        self.last_sequence = 0;
    }
}

/// At most how many stand before this lane's ticket.
fn ahead(lane: &Lane, front: Option<QueuePlace>) -> Option<u64> {
    let Phase::Waiting(Waiting { place: Some(own), .. }) = &lane.phase else { return None };
    let known = front.filter(|front| front.sequence <= own.sequence);
    let bound = known.map_or(own.ahead, |front| {
        let between = front.ahead + (own.sequence - front.sequence);
        if own.sequence <= front.up_to { between.min(front.living.saturating_sub(1)) } else { between }
    });
    Some(bound.min(own.ahead))
}

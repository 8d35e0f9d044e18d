//! Where waiters stand in the queue.

use super::State;
use super::waits::{Outcome, WaiterRef};
use crate::local::lane::{Lane, LaneId, Phase, QueuePlace, Waiting};
use crate::local::outbox::Outbox;

/// What became of a watched wait.
#[derive(Debug)]
pub enum Stepped {
    Settled(Outcome),
    /// At most so many stand before it.
    At(u64),
}

impl State {
    /// The outcome of a wait, or a position in front of `seen`, once it is there.
    pub fn step(&mut self, wait: WaiterRef, seen: Option<u64>) -> Option<Stepped> {
        if let Some(outcome) = self.take_outcome(wait) {
            return Some(Stepped::Settled(outcome));
        }
        let lane = self.lanes.get(&wait.lane)?;
        let lock = self.locks.get_mut(&lane.request.lock)?;
        lock.watched.insert(wait.lane);
        let ahead = ahead(lane, lock.front)?;
        seen.is_none_or(|seen| ahead < seen).then_some(Stepped::At(ahead))
    }

    /// The server has said where a ticket stands: all places of its lock may have moved forward.
    pub fn placed(&mut self, id: LaneId, place: QueuePlace, out: &mut Outbox) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let name = lane.request.lock.clone();
        if let Some(waiting) = lane.waiting() {
            waiting.place = Some(place);
        }
        let Some(lock) = self.locks.get_mut(&name) else { return };
        // What is known of a later ticket says nothing of an earlier one: those between may have left.
        lock.last_sequence = lock.last_sequence.max(place.sequence);
        if lock.waiting.first().is_some_and(|&(_, eldest)| eldest == id) {
            lock.front = Some(QueuePlace { up_to: lock.last_sequence, ..place });
        }
        for id in &lock.watched {
            let waiters = self.lanes.get_mut(id).into_iter().flat_map(|lane| lane.waiters.values_mut());
            out.wakers.extend(waiters.filter_map(|waiter| waiter.waker.take()));
        }
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

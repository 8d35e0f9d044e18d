//! Asking for a ticket, and the answers that are no grant.

use super::State;
use crate::clock::Moment;
use crate::error::Fault;
use crate::local::lane::{Lane, LaneId, LockRef, Phase, QueuePlace, Share, WaiterId};
use crate::local::outbox::{Errand, Outbox};
use crate::scripts::{Mode, Queued};
use crate::ticket::Ticket;

impl State {
    /// Has the courier ask for the lane's ticket; once, however often this is called while it is under way.
    pub fn ask(&mut self, id: LaneId, poll: bool, out: &mut Outbox) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let ticket = lane.ticket();
        let Some(waiting) = lane.waiting() else { return };
        if waiting.asking {
            waiting.again = Some(poll || waiting.again == Some(true));
        } else {
            waiting.asking = true;
            out.errands.push(Errand::Ask { lane: id, ticket, poll });
        }
    }

    /// The courier has an answer to, or is done with, its asking.
    pub fn asked(&mut self, id: LaneId, ticket: Ticket, out: &mut Outbox) {
        let Some(lane) = self.wanted(id, ticket) else { return };
        let waiting = lane.waiting().expect("a wanted lane waits");
        waiting.asking = false;
        waiting.asking_since = None;
        if let Some(poll) = waiting.again.take() {
            self.ask(id, poll, out);
        }
    }

    /// The lane's ticket is in the server's queue. Returns whether it was known to be there before.
    pub fn mark_queued(&mut self, id: LaneId) -> bool {
        let waiting = self.lanes.get_mut(&id).and_then(Lane::waiting);
        waiting.is_some_and(|waiting| std::mem::replace(&mut waiting.queued, true))
    }

    /// Until when a wait of this lane for a silent server lasts. A server that was not asked is not silent: between
    /// two polls nothing may be heard for longer than that.
    pub fn patience(&self, lane: &Lane) -> Moment {
        let asked = match &lane.phase {
            Phase::Waiting(waiting) => waiting.asking_since.unwrap_or(lane.since),
            Phase::Held(_) => lane.since,
        };
        asked.max(self.heard).plus(self.spans.unavailable_after)
    }

    /// Ends all waits of the lane's lock that have waited too long for a server.
    pub fn give_up_waiting(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let lanes: Vec<LaneId> = self.locks[&lane.request.lock].lanes.iter().copied().collect();
        let fault = Fault::Unavailable { detail: self.trouble.clone() };
        for id in lanes {
            let lane = &self.lanes[&id];
            if matches!(lane.phase, Phase::Waiting(_)) && now >= self.patience(lane) {
                self.fail(id, &fault.clone().into(), now, out);
            }
        }
    }

    /// Whether this is a write, which did not enter, of an owner that reads here: it would wait for itself. (The server
    /// says so, unless it has lost `K`: written again, that no longer knows whose the reads are. A read that the server
    /// has lost, and whose guard has not heard of it, refuses, too.)
    pub fn would_deadlock(&self, id: LaneId, now: Moment) -> bool {
        let lane = &self.lanes[&id];
        let Share::Owner(owner, Mode::Write) = lane.share else { return false };
        let reading = Share::Owner(owner, Mode::Read);
        self.locks[&lane.request.lock].sharing(&reading).any(|read| self.lanes[&read].is_held(now))
    }

    /// Others hold the lock and the ticket is not queued.
    pub fn busy(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        self.refuse_tries(id, now, out);
        // Somebody who waits has come meanwhile.
        self.ask(id, false, out);
    }

    fn refuse_tries(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if let Some(waiting) = lane.waiting() {
            waiting.answered = true;
        }
        let tries: Vec<WaiterId> = lane
            .waiters
            .iter()
            .filter(|(_, waiter)| !waiter.request.waits)
            .map(|(&waiter, _)| waiter)
            .collect();
        for waiter in tries {
            let entry = self.lanes.get_mut(&id).and_then(|lane| lane.waiters.remove(&waiter));
            self.settle(waiter, entry.expect("it was listed above"), Ok(None), out);
        }
        self.close_if_deserted(id, now, out);
    }

    /// The ticket waits in the queue at the server.
    pub fn queued(&mut self, id: LaneId, queued: &Queued, now: Moment, out: &mut Outbox) {
        let lock = self.lanes[&id].request.lock.clone();
        self.refuse_tries(id, now, out);
        let place = QueuePlace {
            sequence: queued.sequence,
            ahead: queued.place.saturating_sub(1),
            living: queued.living,
            up_to: queued.sequence,
        };
        self.placed(id, place, out);
        for &ticket in &queued.holds {
            self.named(ticket, &lock, now, out);
        }
        if queued.more {
            self.ask(id, true, out);
        }
        self.queued_with(id, queued.left_millis, now, out);
    }

    /// The client's tickets of a lock had been dropped at the server: sends them again, oldest first.
    pub fn send_again(&mut self, lock: &LockRef, except: LaneId, out: &mut Outbox) {
        let Some(lock) = self.locks.get_mut(lock) else { return };
        lock.forget_numbers();
        lock.losses += 1;
        let mut lanes = Vec::new();
        for &id in &lock.lanes {
            let lane = self.lanes.get_mut(&id).expect("a lock's lanes exist");
            let ticket = lane.ticket();
            if let Some(waiting) = lane.waiting() {
                waiting.place = None;
                // Called new these find out nothing more.
                waiting.queued = false;
                lanes.push((ticket.number, id));
            }
        }
        lanes.sort_unstable();
        for (_, id) in lanes.into_iter().filter(|&(_, id)| id != except) {
            self.ask(id, false, out);
        }
    }
}

//! Entering, waiting and giving up.

use std::task::Waker;

use super::State;
use crate::clock::Moment;
use crate::error::{LockError, LossReason};
use crate::local::lane::{HoldRef, Lane, LaneId, Phase, Request, Share, Waiter, WaiterId};
use crate::local::outbox::Outbox;

/// Where a waiting future stands.
#[derive(Clone, Copy, Debug)]
pub struct WaiterRef {
    pub lane: LaneId,
    pub waiter: WaiterId,
}

/// How a wait ended: `None` is contention.
pub type Outcome = Result<Option<HoldRef>, LockError>;

/// What entering brings.
#[derive(Debug)]
pub enum Entered {
    Now(Outcome),
    Wait(WaiterRef),
}

enum Joined {
    Enters(HoldRef),
    Busy,
    Waits(LaneId),
}

impl State {
    pub fn enter(
        &mut self,
        request: Request,
        task: Option<tokio::task::Id>,
        now: Moment,
        out: &mut Outbox,
    ) -> Entered {
        if self.closed {
            return Entered::Now(Err(LockError::Closed));
        }
        let share = request.share();
        let lock = self.locks.get(&request.lock);
        let lane = match lock.and_then(|lock| lock.shared.get(&share)).copied() {
            Some(id) => match self.join(id, &request, now, out) {
                Joined::Enters(held) => return Entered::Now(Ok(Some(held))),
                Joined::Busy => return Entered::Now(Ok(None)),
                Joined::Waits(id) => id,
            },
            None => self.open(request.clone(), share, now),
        };
        let waiter = self.new_id();
        let entry = Waiter { waits: request.waits, waker: None, task, since: now, warned: false };
        let books = self.lanes.get_mut(&lane).expect("the lane was found or made above");
        books.waiters.insert(waiter, entry);
        if books.waiting().is_some_and(|waiting| !waiting.asking && !waiting.answered) {
            self.ask(lane, false, out);
        }
        Entered::Wait(WaiterRef { lane, waiter })
    }

    fn join(&mut self, id: LaneId, request: &Request, now: Moment, out: &mut Outbox) -> Joined {
        let over = self.lanes[&id].held_is_over(now);
        if over {
            // Its watchdog has not run yet. What is lost is lost: this is a new acquisition.
            self.lose(id, LossReason::Expired, now, out);
            return match self.lanes.contains_key(&id) {
                true if !request.waits => Joined::Busy,
                true => Joined::Waits(id),
                false => Joined::Waits(self.open(request.clone(), request.share(), now)),
            };
        }
        let lane = self.lanes.get_mut(&id).expect("lanes of the index exist");
        let owned = matches!(lane.share, Share::Owner(_));
        match &mut lane.phase {
            Phase::Held(held) if owned => {
                held.guards += 1;
                let held = held.hold.clone();
                Joined::Enters(lane.hold_ref(id, held))
            }
            Phase::Held(_) if !request.waits => Joined::Busy,
            Phase::Waiting(waiting) if waiting.answered && !request.waits => Joined::Busy,
            _ => Joined::Waits(id),
        }
    }

    fn open(&mut self, request: Request, share: Share, now: Moment) -> LaneId {
        let id = self.new_id();
        let lane = Lane::new(request, self.tickets.next(), now);
        let lock = self.locks.entry(lane.request.lock.clone()).or_default();
        lock.lanes.insert(id);
        *lock.leases.entry(lane.request.lease.length()).or_default() += 1;
        if share != Share::Alone {
            lock.shared.insert(share, id);
        }
        self.lanes.insert(id, lane);
        self.begin_waiting(id);
        id
    }

    /// Registers the lane's ticket, before it is sent.
    pub(super) fn begin_waiting(&mut self, id: LaneId) {
        let lane = &self.lanes[&id];
        self.by_ticket.insert(lane.ticket().number, id);
        if !lane.polls_itself() {
            let lock = self.locks.get_mut(&lane.request.lock).expect("a lane's lock is indexed");
            lock.waiting.insert((lane.ticket().number, id));
        }
    }

    /// Takes the lane's ticket off the books of those who wait.
    pub(super) fn end_waiting(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        self.set_poll(id, None, out);
        let lane = &self.lanes[&id];
        let place = (lane.ticket().number, id);
        let Some(lock) = self.locks.get_mut(&lane.request.lock) else { return };
        let was_eldest = lock.waiting.first() == Some(&place);
        lock.waiting.remove(&place);
        if let Some(&(_, eldest)) = lock.waiting.first().filter(|_| was_eldest) {
            self.poll_in_time(eldest, now, out);
        }
    }

    /// The outcome of a wait, once it is there; else whom to wake.
    pub fn poll(&mut self, wait: WaiterRef, waker: &Waker) -> Option<Outcome> {
        if let Some(outcome) = self.outcomes.remove(&wait.waiter) {
            return Some(outcome);
        }
        let lane = self.lanes.get_mut(&wait.lane)?;
        let waiter = lane.waiters.get_mut(&wait.waiter)?;
        match &mut waiter.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        None
    }

    /// Whether this wait has met another holder: in this process, or by the server's word.
    pub fn is_contended(&self, wait: WaiterRef) -> bool {
        self.lanes.get(&wait.lane).is_some_and(|lane| match &lane.phase {
            Phase::Waiting(waiting) => waiting.answered || wait.waiter <= lane.contended_up_to,
            Phase::Held(_) => true,
        })
    }

    /// Ends a wait. Returns what it had brought meanwhile: a hold among it must be released.
    pub fn cancel(&mut self, wait: WaiterRef, now: Moment, out: &mut Outbox) -> Option<Outcome> {
        if let Some(outcome) = self.outcomes.remove(&wait.waiter) {
            return Some(outcome);
        }
        if let Some(lane) = self.lanes.get_mut(&wait.lane) {
            lane.waiters.remove(&wait.waiter);
            self.close_if_deserted(wait.lane, now, out);
        }
        None
    }

    /// Ends a lane for which nobody waits any more, and takes its ticket back.
    pub(super) fn close_if_deserted(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let lane = &self.lanes[&id];
        let Phase::Waiting(waiting) = &lane.phase else { return };
        if !lane.waiters.is_empty() {
            return;
        }
        if waiting.sent {
            let (lock, ticket, owner) = (lane.request.lock.clone(), lane.ticket(), lane.request.owner);
            let life = self.life_without_word(lane.request.lease.length());
            self.leave(lock, ticket, owner, None, now.plus(life), now, None, out);
        }
        self.remove_lane(id, now, out);
    }

    pub(super) fn remove_lane(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        self.end_waiting(id, now, out);
        self.set_due(id, None, out);
        let Some(lane) = self.lanes.remove(&id) else { return };
        self.by_ticket.remove(&lane.ticket().number);
        if let Some(lock) = self.locks.get_mut(&lane.request.lock) {
            lock.lanes.remove(&id);
            let length = lane.request.lease.length();
            let alike = lock.leases.entry(length).or_default();
            *alike = alike.saturating_sub(1);
            if *alike == 0 {
                lock.leases.remove(&length);
            }
            lock.watched.remove(&id);
            if lock.shared.get(&lane.share) == Some(&id) {
                lock.shared.remove(&lane.share);
            }
            if lock.lanes.is_empty() {
                self.locks.remove(&lane.request.lock);
            }
        }
    }

    /// Ends all waits of a lane with an error, and the lane.
    pub fn fail(&mut self, id: LaneId, error: &LockError, now: Moment, out: &mut Outbox) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let waiters = std::mem::take(&mut lane.waiters);
        for (waiter, entry) in waiters {
            self.settle(waiter, entry, Err(error.clone()), out);
        }
        self.close_if_deserted(id, now, out);
    }

    pub(super) fn settle(&mut self, waiter: WaiterId, entry: Waiter, outcome: Outcome, out: &mut Outbox) {
        self.outcomes.insert(waiter, outcome);
        out.wakers.extend(entry.waker);
    }
}

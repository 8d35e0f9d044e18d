//! Entering, waiting and giving up.

use std::sync::Arc;
use std::task::Waker;

use super::State;
use crate::clock::Moment;
use crate::error::{LockError, LossReason};
use crate::local::lane::{HoldRef, Lane, LaneId, Phase, Request, Share, Waiter, WaiterId};
use crate::local::outbox::Outbox;
use crate::mutant::{self, Mutant};
use crate::ticket::Ticket;

/// Where a waiting future stands.
#[derive(Clone, Copy, Debug)]
pub struct WaiterRef {
    pub lane: LaneId,
    pub waiter: WaiterId,
}

/// How a wait ended: `None` is contention.
pub type Outcome = Result<Option<Arc<HoldRef>>, LockError>;

/// What entering brings.
#[derive(Debug)]
pub enum Entered {
    Now(Outcome),
    Wait(WaiterRef),
}

enum Joined {
    Enters(Arc<HoldRef>),
    Busy,
    Waits(LaneId),
}

/// How a wait stood when its time was over.
#[derive(Debug)]
pub enum GaveUp {
    Settled(Outcome),
    /// Others hold the lock.
    Busy,
    /// The server has not answered, and this was heard last.
    Unheard(String),
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
        let lane = match self.lane_for(&request, now) {
            Some(id) => match self.join(id, &request, now, out) {
                Joined::Enters(held) => return Entered::Now(Ok(Some(held))),
                Joined::Busy => return Entered::Now(Ok(None)),
                Joined::Waits(id) => id,
            },
            None => self.open(request.clone(), now),
        };
        let waiter = self.new_id();
        let entry = Waiter { request, waker: None, task, since: now, warned: false };
        let books = self.lanes.get_mut(&lane).expect("the lane was found or made above");
        books.waiters.insert(waiter, entry);
        if books.waiting().is_some_and(|waiting| !waiting.asking && !waiting.answered) {
            self.ask(lane, false, out);
        }
        Entered::Wait(WaiterRef { lane, waiter })
    }

    /// What `request` can have at once, of a hold that is there: nothing is sent for it.
    pub fn reenter(&mut self, request: &Request, now: Moment, out: &mut Outbox) -> Option<Arc<HoldRef>> {
        let id = self.lane_for(request, now)?;
        if self.closed || self.lanes[&id].held_is_over(now) {
            return None;
        }
        self.held_lane(id, self.lanes[&id].ticket())?;
        match self.join(id, request, now, out) {
            Joined::Enters(held) => Some(held),
            Joined::Busy | Joined::Waits(_) => None,
        }
    }

    /// The lane that this request shares with others: one that holds, or an owner that is inside would wait behind another
    /// of its tickets.
    fn lane_for(&self, request: &Request, now: Moment) -> Option<LaneId> {
        let (lock, share) = (self.locks.get(&request.lock)?, request.share());
        let mut waiting = None;
        for id in lock.sharing(&share) {
            let lane = &self.lanes[&id];
            if lane.is_held(now) {
                return Some(id);
            }
            waiting = waiting.or_else(|| lane.suits(request).then_some(id));
        }
        waiting
    }

    fn join(&mut self, id: LaneId, request: &Request, now: Moment, out: &mut Outbox) -> Joined {
        let over = self.lanes[&id].held_is_over(now);
        if over {
            // Its watchdog has not run yet. What is lost is lost: this is a new acquisition.
            self.lose(id, LossReason::Expired, now, out);
            return match self.lanes.contains_key(&id) {
                true if !request.waits => Joined::Busy,
                true => Joined::Waits(id),
                false => Joined::Waits(self.open(request.clone(), now)),
            };
        }
        let lane = self.lanes.get_mut(&id).expect("lanes of the index exist");
        let shares = matches!(lane.share, Share::Owner(..) | Share::Readers(..));
        match &mut lane.phase {
            Phase::Held(held) if shares => {
                held.admit(None);
                let held = held.hold.clone();
                if request.keep {
                    self.keep(id, now, out);
                }
                Joined::Enters(held)
            }
            Phase::Held(_) if !request.waits => Joined::Busy,
            Phase::Waiting(waiting) if waiting.answered && !request.waits => Joined::Busy,
            _ => {
                lane.request.keep |= request.keep;
                Joined::Waits(id)
            }
        }
    }

    fn open(&mut self, request: Request, now: Moment) -> LaneId {
        let ticket = self.tickets.next();
        self.open_for(ticket, request, now)
    }

    /// A lane for a ticket that is there already.
    pub(super) fn open_for(&mut self, ticket: Ticket, request: Request, now: Moment) -> LaneId {
        let id = self.new_id();
        let lane = Lane::new(request, ticket, now);
        let lock = self.locks.entry(lane.request.lock.clone()).or_default();
        lock.lanes.insert(id);
        if lane.share != Share::Alone {
            lock.shared.insert((lane.share.clone(), id));
        }
        self.lanes.insert(id, lane);
        self.begin_waiting(id);
        id
    }

    /// Registers the lane's ticket, before it is sent.
    pub(super) fn begin_waiting(&mut self, id: LaneId) {
        let lane = &self.lanes[&id];
        self.by_ticket.insert(lane.ticket().number, id);
        let lock = self.locks.get_mut(&lane.request.lock).expect("a lane's lock is indexed");
        lock.leases.insert((lane.request.lease.length(), id));
        if !lane.polls_itself() {
            lock.waiting.insert((lane.ticket().number, id));
        }
    }

    /// Takes the lane's ticket off the books of those who wait.
    pub(super) fn end_waiting(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        self.set_poll(id, None, out);
        let lane = &self.lanes[&id];
        let place = (lane.ticket().number, id);
        let Some(lock) = self.locks.get_mut(&lane.request.lock) else { return };
        lock.leases.remove(&(lane.request.lease.length(), id));
        let was_eldest = lock.waiting.first() == Some(&place);
        lock.waiting.remove(&place);
        if let Some(&(_, eldest)) = lock.waiting.first().filter(|_| was_eldest) {
            self.poll_in_time(eldest, now, out);
        }
    }

    /// The outcome of a wait, once it is there.
    pub fn take_outcome(&mut self, wait: WaiterRef) -> Option<Outcome> {
        self.outcomes.remove(&wait.waiter)
    }

    /// Keeps the waker of a wait that goes on, in exchange for the one before it.
    pub fn register(&mut self, wait: WaiterRef, waker: &mut Option<Waker>) {
        let lane = self.lanes.get_mut(&wait.lane);
        if let Some(waiter) = lane.and_then(|lane| lane.waiters.get_mut(&wait.waiter)) {
            std::mem::swap(&mut waiter.waker, waker);
        }
    }

    pub fn is_settled(&self, wait: WaiterRef) -> bool {
        self.outcomes.contains_key(&wait.waiter)
    }

    /// Whether this wait has met another holder: in this process, or by the server's word.
    fn is_contended(&self, wait: WaiterRef) -> bool {
        self.lanes.get(&wait.lane).is_some_and(|lane| match &lane.phase {
            Phase::Waiting(waiting) => waiting.answered || wait.waiter <= lane.contended_up_to,
            Phase::Held(_) => true,
        })
    }

    /// Ends a wait. Returns what it had brought meanwhile: a hold among it must be released.
    pub(super) fn cancel(&mut self, wait: WaiterRef, now: Moment, out: &mut Outbox) -> Option<Outcome> {
        let outcome = self.take_outcome(wait);
        if outcome.is_none() {
            self.leave_lane(wait, now, out);
        }
        outcome
    }

    /// Ends a wait that has brought nothing.
    pub fn leave_lane(&mut self, wait: WaiterRef, now: Moment, out: &mut Outbox) {
        if let Some(lane) = self.lanes.get_mut(&wait.lane) {
            out.unwanted.extend(lane.waiters.remove(&wait.waiter).and_then(|waiter| waiter.waker));
            self.follow_the_first(wait.lane);
            self.close_if_deserted(wait.lane, now, out);
        }
    }

    /// Ends a wait whose time is over. What came in the last moment counts.
    pub fn give_up(&mut self, wait: WaiterRef, now: Moment, out: &mut Outbox) -> GaveUp {
        let contended = self.is_contended(wait);
        match self.cancel(wait, now, out) {
            Some(outcome) => GaveUp::Settled(outcome),
            None if contended => GaveUp::Busy,
            None => GaveUp::Unheard(self.trouble.clone()),
        }
    }

    /// Ends a wait whose future was dropped, and releases what it was given unseen.
    pub fn abandon(&mut self, wait: WaiterRef, now: Moment, out: &mut Outbox) {
        if let Some(Ok(Some(held))) = self.cancel(wait, now, out)
            && held.leave(|| now)
        {
            self.release(&held, None, now, out);
        }
    }

    /// The grant is bounded as the first waiter wants it: those of one owner may differ in that.
    fn follow_the_first(&mut self, id: LaneId) {
        let lane = self.lanes.get_mut(&id).expect("the caller has it");
        if let (Phase::Waiting(_), Some(first)) = (&lane.phase, lane.waiters.values().next()) {
            lane.request.max_hold = first.request.max_hold;
        }
    }

    /// Gives the lane a new ticket, to wait with.
    pub(super) fn renumber(&mut self, id: LaneId, now: Moment) -> Ticket {
        let lane = self.lanes.get_mut(&id).expect("the caller has it");
        self.by_ticket.remove(&lane.ticket().number);
        let ticket = if mutant::is(Mutant::TicketUsedTwice) { lane.ticket() } else { self.tickets.next() };
        lane.renumber(ticket, now);
        self.begin_waiting(id);
        ticket
    }

    /// Ends a lane for which nobody waits any more, and takes its ticket back.
    pub(super) fn close_if_deserted(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let lane = &self.lanes[&id];
        let Phase::Waiting(waiting) = &lane.phase else { return };
        if !lane.waiters.is_empty() {
            return;
        }
        if waiting.sent {
            self.leave(self.departure(id, now), out);
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
            lock.watched.remove(&id);
            lock.shared.remove(&(lane.share.clone(), id));
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

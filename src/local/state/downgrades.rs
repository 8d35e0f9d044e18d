//! A write becomes a read: from its last moment in the books to the first one of the read.

use std::sync::Arc;
use std::time::Duration;

use super::State;
use super::waits::WaiterRef;
use crate::backend::Epoch;
use crate::clock::Moment;
use crate::error::LossReason;
use crate::lease::Lease;
use crate::local::lane::{HoldRef, LaneId, LockRef, Request, Waiter, attempt};
use crate::local::outbox::{Departure, Outbox};
use crate::scripts::{Attempt, Granted, Mode};
use crate::ticket::Ticket;

/// A write that is to become a read. Until the answer it is in nobody's hands: no guard has it, nothing renews it.
#[derive(Debug)]
pub struct Downgrading {
    pub lock: LockRef,
    pub write: Ticket,
    pub read: Attempt,
    request: Request,
    limits: Limits,
    /// What gives the write back.
    departure: Departure,
}

/// How a downgrade begins.
#[derive(Debug)]
pub enum Begun {
    Alone(Box<Downgrading>),
    /// Other guards share the write, which stays: the read is asked for beside it.
    Within(Request),
}

/// When a write ends by its fixed lease, and by its `max_hold`, and so does the read that it becomes: neither begins anew.
#[derive(Clone, Copy, Debug)]
struct Limits {
    fixed_end: Moment,
    max_end: Moment,
}

impl Limits {
    /// Has what is left of them be the limits of `request`.
    fn apply(self, request: &mut Request, now: Moment) {
        request.max_hold = (self.max_end != Moment::NEVER).then(|| self.max_end.since(now));
        if !request.lease.is_renewed() {
            // The server's unit: a lease of less is none.
            let left = self.fixed_end.since(now).max(Duration::from_millis(1));
            request.lease = Lease::fixed(left);
        }
    }
}

impl State {
    /// Takes a write off the books, and the ticket of the read on it.
    pub fn begin_downgrade(
        &mut self,
        held: &HoldRef,
        now: Moment,
        out: &mut Outbox,
    ) -> Result<Begun, LossReason> {
        if let Some(reason) = self.loss(held, now, out) {
            return Err(reason);
        }
        let lane = self.lanes.get_mut(&held.lane).expect("a hold that is not lost has a lane");
        let mut request = Request { mode: Mode::Read, waits: true, ..lane.request.clone() };
        let books = lane.held().expect("a hold that is not lost is held");
        let limits = Limits { fixed_end: books.fixed_end, max_end: books.max_end };
        limits.apply(&mut request, now);
        if books.guards > 1 {
            return Ok(Begun::Within(request));
        }
        let departure = self.departure(held.lane, now);
        self.remove_lane(held.lane, now, out);
        self.leaving.insert(held.ticket.number);
        let read = attempt(&request, &request.share(), self.tickets.next());
        self.downgrading.insert(read.ticket.number, false);
        let (lock, write) = (held.lock.clone(), held.ticket);
        Ok(Begun::Alone(Box::new(Downgrading { lock, write, read, request, limits, departure })))
    }

    /// The server has made it a read. `None` where that was over before it was heard of.
    pub fn downgraded(
        &mut self,
        work: &Downgrading,
        granted: &Granted,
        sent: (Moment, Epoch),
        now: Moment,
        out: &mut Outbox,
    ) -> Option<Arc<HoldRef>> {
        self.left(work.write);
        let is_asked_back = self.downgrading.remove(&work.read.ticket.number) == Some(true);
        let mut request = work.request.clone();
        // Less is left by now: the answer may have taken long.
        work.limits.apply(&mut request, now);
        let id = self.open_for(work.read.ticket, request.clone(), now);
        // It is let in as if it had waited for its own grant.
        let waiter = self.new_id();
        let lane = self.lanes.get_mut(&id).expect("it was opened above");
        lane.waiters.insert(waiter, Waiter { request, waker: None, task: None, since: now, warned: false });
        lane.waiting().expect("a new lane waits").sent = true;
        self.granted(id, granted, sent, now, out);
        let outcome = self.cancel(WaiterRef { lane: id, waiter }, now, out);
        // Readers that waited behind the write have a ticket of their own, and are joined instead.
        if is_asked_back || !self.is_joined(id) {
            self.ask_back(id, now, out);
        }
        outcome?.ok()?
    }

    /// The downgrade is given up: both tickets are to be left, in this order. A late request then finds no write to end,
    /// and whatever an early one has brought is left after it.
    pub fn give_up_downgrade(&mut self, work: Downgrading, now: Moment) -> [Departure; 2] {
        let Downgrading { lock, read: Attempt { ticket, .. }, request, departure, .. } = work;
        self.downgrading.remove(&ticket.number);
        self.leaving.insert(ticket.number);
        let give_up = departure.give_up.max(now.plus(self.life_without_word(request.lease.length())));
        let read = Departure { lock, ticket, next: None, give_up, trusted: departure.trusted, done: None };
        [departure, read]
    }

    /// The server says that nothing is held by these tickets.
    pub fn downgrade_lost(&mut self, work: &Downgrading) {
        self.left(work.write);
        self.downgrading.remove(&work.read.ticket.number);
    }

    fn is_joined(&self, id: LaneId) -> bool {
        self.lanes.get(&id).is_some_and(|lane| {
            self.locks.get(&lane.request.lock).and_then(|lock| lock.sharing(&lane.share).next()) == Some(id)
        })
    }
}

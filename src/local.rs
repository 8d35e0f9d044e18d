//! What one client knows of its locks: passing, re-entry, and the way from each event to what is sent.
//!
//! | file | what is in it |
//! |---|---|
//! | `books.rs` | the books under their lock |
//! | `agenda.rs` | which lanes are due when, for the watchdog and for the polls |
//! | `lane.rs` | a ticket at the server and the local waiters that share it |
//! | `gate.rs` | how readers come and go through a hold that they share, without the books |
//! | `state.rs`, `state/` | what is in the books: what each event does to the lanes, without I/O |
//! | `outbox.rs` | what an event leaves to be done: what must be sent, who must be woken |
//! | `errands.rs`, `errands/` | what the courier carries: asking, leaving, renewing, and what the answers mean |
//! | `tether.rs` | what handles, guards and waiters have of their client |
//! | `fixture.rs` | books for the tests and the models |
//!
//! What one has of a hold:
//!
//! | type | who has it | what it knows |
//! |---|---|---|
//! | `Hold` (`guard.rs`) | one for each grant, in its `HoldRef` | the token; until when it is trusted; why it was lost, and who waits to hear that |
//! | `HoldRef` | the books, the guards, whoever waits for its loss | a `Hold`, and where that stands: lock, ticket, lane; the gate of readers |
//! | `Held` | the books, in the lane | what is decided in a section: how many guards, when to renew, the limits, who waits |
//! | `Grip` (`guard.rs`) | one for each guard | a `HoldRef` and the client; it gives the guard's share back when it is dropped |
//!
//! One mutex guards the books, and every event is one critical section: a grant, its registration with the watchdog
//! and the waiter's outcome happen together, as do a release and the end of its renewals. Commands are handed to
//! the courier inside the section, so their order is the order of the events, and a closing finds each one either still
//! to come, and refuses it, or with the courier, which carries it through. Their first step, which sends them, is made
//! behind it, where they were left. Whatever is the user's code runs outside it: wakers are cloned before it, and woken
//! and dropped behind it, as are log lines written. (A waker that is dropped may be the last that keeps its task, and the
//! task may have a guard: its release would wait for the section in which it is dropped.)

mod agenda;
mod books;
mod errands;
#[cfg(any(test, lockwright_loom))]
pub mod fixture;
mod gate;
mod lane;
mod outbox;
mod state;
mod tether;

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use tokio::sync::{Notify, watch};

use crate::backend::{Backend, Event};
use crate::chance::Chance;
use crate::clock::{Clock, Moment};
use crate::courier::Courier;
use crate::scripts::Message;
use crate::ticket::{ClientId, Tickets};
use crate::wakeup::Waiting;
use crate::watchdog::Renewing;

use books::{Books, Surroundings};
pub use lane::{HoldRef, LockRef, Request};
use outbox::{Errand, Outbox, Report};
use state::State;
pub use state::{Entered, GaveUp, Outcome, Spans, Standing, Stepped, WaiterRef};
pub use tether::{Downgraded, Tether};

/// The parts that models of the books are made with.
#[cfg(lockwright_loom)]
pub mod parts {
    pub use super::books::{Books, Surroundings};
    pub use super::fixture;
    pub use super::gate::Gate;
    pub use super::lane::{HoldRef, LockRef, Request};
    pub use super::outbox::{Due, Errand};
    pub use super::state::{Entered, Released, Spans, State, Stepped, WaiterRef};
}

/// The books of one client, and what it needs to act on them.
pub struct Local {
    books: Books,
    client: ClientId,
    spans: Spans,
    backend: Arc<dyn Backend>,
    courier: Courier,
    clock: Clock,
    chance: Chance,
    renew_sooner: Arc<Notify>,
    poll_sooner: Arc<Notify>,
    stop: watch::Sender<bool>,
}

/// What [`Local::new`] takes.
pub struct Parts {
    pub client: ClientId,
    pub spans: Spans,
    pub backend: Arc<dyn Backend>,
    pub courier: Courier,
    pub clock: Clock,
    pub chance: Chance,
}

impl Local {
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { client, spans, backend, courier, clock, chance } = parts;
        let tickets = Tickets::new(client);
        let books = Books::new(State::new(spans.clone(), tickets, chance.clone(), clock.now()));
        let (stop, _) = watch::channel(false);
        let (renew_sooner, poll_sooner) = Default::default();
        Arc::new(Self {
            books,
            client,
            spans,
            backend,
            courier,
            clock,
            chance,
            renew_sooner,
            poll_sooner,
            stop,
        })
    }

    /// One critical section, and what follows from it.
    fn with<T>(self: &Arc<Self>, event: impl FnOnce(&mut State, Moment, &mut Outbox) -> T) -> T {
        self.books.with(self, event)
    }

    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn renew_sooner(&self) -> Arc<Notify> {
        self.renew_sooner.clone()
    }

    pub fn poll_sooner(&self) -> Arc<Notify> {
        self.poll_sooner.clone()
    }

    /// Becomes true when the client's tasks are to end.
    pub fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    pub fn enter(self: &Arc<Self>, request: Request) -> Entered {
        let task = tokio::task::try_id();
        self.with(|state, now, out| state.enter(request, task, now, out))
    }

    /// See [`Books::poll`].
    pub fn poll(&self, wait: WaiterRef, waker: &Waker) -> Poll<Outcome> {
        self.books.poll(wait, waker)
    }

    /// See [`Books::step`].
    pub fn step(&self, wait: WaiterRef, seen: Option<Standing>, waker: &Waker) -> Poll<Stepped> {
        self.books.step(wait, seen, waker)
    }

    /// See [`State::give_up`].
    pub fn give_up(self: &Arc<Self>, wait: WaiterRef) -> GaveUp {
        self.with(|state, now, out| state.give_up(wait, now, out))
    }

    /// See [`Books::abandon`].
    pub fn abandon(self: &Arc<Self>, wait: WaiterRef) {
        self.books.abandon(self, wait);
    }

    /// Refuses all further work, gives back every hold, and has the tasks end when everything is sent.
    pub fn close(self: &Arc<Self>) {
        self.with(|state, now, out| state.close(now, out));
        self.stop.send_replace(true);
    }

    #[cfg(lockwright_internals)]
    pub fn entries(&self) -> usize {
        self.books.look(State::entries)
    }

    pub fn is_closed(&self) -> bool {
        self.books.look(|state| state.closed)
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Surroundings for Arc<Local> {
    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn send(&self, errand: Errand) {
        self.courier.post(errands::carry(self.clone(), errand));
    }

    fn set_out(&self) {
        self.courier.set_out();
    }

    fn look_sooner(&self, renew: bool, poll: bool) {
        if renew {
            self.renew_sooner.notify_one();
        }
        if poll {
            self.poll_sooner.notify_one();
        }
    }
}

impl Renewing for Arc<Local> {
    fn renew_due(&self) -> Moment {
        self.books.renew_due(self)
    }
}

impl Waiting for Arc<Local> {
    fn told(&self, event: Event) {
        self.with(|state, now, out| match event {
            Event::Message { text, epoch } => match Message::parse(&text) {
                Some(message) => state.tell(message, epoch, now, out),
                None => out.reports.push(Report::Unreadable),
            },
            Event::Up(up) => state.up(&up, now, out),
            Event::Deaf => state.deafened(now, out),
            Event::Down { detail } => state.down(detail),
            Event::Lagged => state.poll_all(out),
            Event::Refused(fault) => state.refuse(fault, now, out),
        });
    }

    fn poll_due(&self) -> Moment {
        self.with(State::poll_due)
    }
}

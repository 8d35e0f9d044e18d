//! What one client knows of its locks: passing, re-entry, and the way from each event to what is sent.
//!
//! | file | what is in it |
//! |---|---|
//! | `lane.rs` | a ticket at the server and the local waiters that share it |
//! | `state.rs`, `state/` | the books: what each event does to the lanes, without I/O |
//! | `outbox.rs` | what an event leaves to be done: what must be sent, who must be woken |
//! | `errands.rs`, `errands/` | what the courier carries: asking, leaving, renewing, and what the answers mean |
//! | `tether.rs` | what handles, guards and waiters have of their client |
//!
//! One mutex guards the books, and every event is one critical section: a grant, its registration with the watchdog
//! and the waiter's outcome happen together, as do a release and the end of its renewals. Commands are handed to
//! the courier inside the section, so their order is the order of the events; wakers, which are the user's code,
//! are called outside it.

mod errands;
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
use crate::sync::{Mutex, lock};
use crate::ticket::{ClientId, Tickets};
use crate::wakeup::Waiting;
use crate::watchdog::Renewing;

pub use lane::{HoldRef, LockRef, Request};
use outbox::Outbox;
use state::State;
pub use state::{Entered, Outcome, Spans, Standing, Stepped, WaiterRef};
pub use tether::Tether;

/// The books of one client, and what it needs to act on them.
pub struct Local {
    state: Mutex<State>,
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
        let state = Mutex::new(State::new(spans.clone(), tickets, chance.clone(), clock.now()));
        let (stop, _) = watch::channel(false);
        let (renew_sooner, poll_sooner) = Default::default();
        Arc::new(Self {
            state,
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
        let mut out = Outbox::default();
        let mut state = lock(&self.state);
        // Read inside: a later section never sees an earlier time.
        let now = self.clock.now();
        let result = event(&mut state, now, &mut out);
        for errand in out.errands.drain(..) {
            self.courier.post(errands::carry(self.clone(), errand));
        }
        drop(state);
        if out.renew_sooner {
            self.renew_sooner.notify_one();
        }
        if out.poll_sooner {
            self.poll_sooner.notify_one();
        }
        out.wakers.drain(..).for_each(Waker::wake);
        result
    }

    /// A look into the books that changes nothing.
    fn with_state<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&lock(&self.state))
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

    pub fn poll(&self, wait: WaiterRef, waker: &Waker) -> Poll<Outcome> {
        lock(&self.state).poll(wait, waker).map_or(Poll::Pending, Poll::Ready)
    }

    /// As [`poll`](Self::poll), and completes too when fewer than were `seen` stand before it, or the place is lost.
    pub fn step(&self, wait: WaiterRef, seen: Option<Standing>, waker: &Waker) -> Poll<Stepped> {
        lock(&self.state).step(wait, seen, waker).map_or(Poll::Pending, Poll::Ready)
    }

    /// Ends a wait whose time is over. What came in the last moment counts.
    pub fn give_up(self: &Arc<Self>, wait: WaiterRef) -> GaveUp {
        self.with(|state, now, out| {
            let contended = state.is_contended(wait);
            match state.cancel(wait, now, out) {
                Some(outcome) => GaveUp::Settled(outcome),
                None if contended => GaveUp::Busy,
                None => GaveUp::Unheard(state.trouble.clone()),
            }
        })
    }

    /// Ends a wait whose future was dropped, and releases what it was given unseen.
    pub fn abandon(self: &Arc<Self>, wait: WaiterRef) {
        self.with(|state, now, out| {
            if let Some(Ok(Some(held))) = state.cancel(wait, now, out) {
                state.release(&held, None, now, out);
            }
        });
    }

    /// Refuses all further work, gives back every hold, and has the tasks end when everything is sent.
    pub fn close(self: &Arc<Self>) {
        self.with(|state, now, out| state.close(now, out));
        self.stop.send_replace(true);
    }

    #[cfg(lockwright_internals)]
    pub fn entries(&self) -> usize {
        self.with_state(State::entries)
    }

    pub fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }
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

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Renewing for Arc<Local> {
    fn renew_due(&self) -> Moment {
        self.with(State::renew_due)
    }
}

impl Waiting for Arc<Local> {
    fn told(&self, event: Event) {
        self.with(|state, now, out| match event {
            Event::Message { text, epoch } => match Message::parse(&text) {
                Some(message) => state.tell(message, epoch, now, out),
                None => tracing::debug!("a message that is none of ours was ignored"),
            },
            Event::Up(up) => state.up(&up, now, out),
            Event::Deaf => {
                state.deaf = true;
                state.poll_all(out);
            }
            Event::Down { detail } => state.down(detail),
            Event::Lagged => state.poll_all(out),
            Event::Refused(fault) => state.refuse(fault, now, out),
        });
    }

    fn poll_due(&self) -> Moment {
        self.with(State::poll_due)
    }
}

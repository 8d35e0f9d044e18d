//! What one client knows of its locks: passing, re-entry, and the way from each event to what is sent.
//!
//! | file | what is in it |
//! |---|---|
//! | `lane.rs` | a ticket at the server and the local waiters that share it |
//! | `state.rs` | the books: what each event does to the lanes, without I/O |
//! | `errands.rs` | what the courier carries: asking, leaving, renewing, and what the answers mean |
//!
//! One mutex guards the books, and every event is one critical section: a grant, its registration with the watchdog
//! and the waiter's outcome happen together, as do a release and the end of its renewals. Commands are handed to
//! the courier inside the section, so their order is the order of the events; wakers, which are the user's code,
//! are called outside it.

mod errands;
mod lane;
mod state;

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};

use crate::backend::{Backend, Event};
use crate::chance::Chance;
use crate::clock::{Clock, Moment};
use crate::courier::Courier;
use crate::error::{ExtendError, LossReason, UnlockError};
use crate::lease::Lease;
use crate::scripts::{Kind, Message, News};
use crate::sync::{Mutex, lock};
use crate::ticket::{ClientId, Tickets};
use crate::wakeup::Waiting;
use crate::watchdog::Renewing;

pub use lane::{LockRef, Request};
pub use state::{Entered, HoldRef, Outcome, Place, Spans, Stepped};
use state::{MessageGrant, Outbox, Released, State};

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

    pub fn poll(&self, place: Place, waker: &Waker) -> Poll<Outcome> {
        lock(&self.state).poll(place, waker).map_or(Poll::Pending, Poll::Ready)
    }

    /// As [`poll`](Self::poll), and completes too when fewer than `seen` stand before it.
    pub fn poll_place(&self, place: Place, seen: Option<u64>, waker: &Waker) -> Poll<Stepped> {
        lock(&self.state).step(place, seen, waker).map_or(Poll::Pending, Poll::Ready)
    }

    /// Ends a wait whose time is over. What came in the last moment counts.
    pub fn give_up(self: &Arc<Self>, place: Place) -> GaveUp {
        self.with(|state, now, out| {
            let contended = state.is_contended(place);
            match state.cancel(place, now, out) {
                Some(outcome) => GaveUp::Settled(outcome),
                None if contended => GaveUp::Busy,
                None => GaveUp::Unheard(state.trouble.clone()),
            }
        })
    }

    /// Ends a wait whose future was dropped, and releases what it was given unseen.
    pub fn abandon(self: &Arc<Self>, place: Place) {
        self.with(|state, now, out| {
            if let Some(Ok(Some(held))) = state.cancel(place, now, out) {
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
                Some(message) => self.heard(state, message, epoch, now, out),
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

impl Local {
    fn heard(&self, state: &mut State, message: Message, epoch: u64, now: Moment, out: &mut Outbox) {
        let Message { ticket, kind, keys, news } = message;
        // Of a kind that this version does not have it cannot be ours, whoever sent it.
        if ticket.client != self.client || kind == Kind::ReadWrite {
            return;
        }
        match (news, state.lane_of(ticket)) {
            (News::Lost { .. }, lane) => {
                if let Some(lane) = lane {
                    state.lose(lane, LossReason::TakenByForce, now, out);
                }
            }
            (News::Grant { token, end_millis, now_millis, waiting }, Some(lane)) => {
                let grant = MessageGrant { token, end_millis, now_millis, waiting, epoch };
                let waits = state.wanted(lane, ticket).is_some();
                if waits && !state.granted_by_message(lane, &grant, now, out) {
                    state.ask(lane, true, out);
                }
            }
            (News::Grant { .. } | News::Held, _) => state.told_of(ticket, &LockRef { kind, keys }, now, out),
        }
    }
}

/// Keeps a client alive: its handles, guards and waiters have it, its tasks do not. The last one to go closes it.
pub struct Tether(Arc<Local>);

impl Tether {
    pub fn new(local: Arc<Local>) -> Arc<Self> {
        Arc::new(Self(local))
    }

    pub fn local(&self) -> &Arc<Local> {
        &self.0
    }

    pub fn now(&self) -> Moment {
        self.0.clock.now()
    }

    /// Releases a hold without waiting for the answer.
    pub fn release(&self, held: &HoldRef) {
        self.0.with(|state, now, out| state.release(held, None, now, out));
    }

    pub async fn unlock(&self, held: &HoldRef) -> Result<(), UnlockError> {
        let (done, answer) = oneshot::channel();
        match self.0.with(|state, now, out| state.release(held, Some(done), now, out)) {
            Released::Locally => return Ok(()),
            Released::Lost(reason) => return Err(UnlockError::Lost(reason)),
            Released::Sent => {}
        }
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_else(|_| {
                Err(UnlockError::Unanswered { detail: "the client's runtime is gone".to_owned() })
            }),
            () = self.0.clock.sleep(self.0.spans.unavailable_after) => {
                Err(UnlockError::Unanswered { detail: lock(&self.0.state).trouble.clone() })
            }
        }
    }

    pub async fn extend(&self, held: &HoldRef, length: Duration) -> Result<(), ExtendError> {
        Lease::renewed(length).check()?;
        let local = &self.0;
        let due = local.with(|state, now, _| state.may_extend(held, length, now))?;
        let (done, answer) = oneshot::channel();
        local.courier.post(errands::extend(local.clone(), due, length, done));
        match answer.await.unwrap_or(Err(ExtendError::Closed)) {
            Err(ExtendError::Lost(reason)) => Err(ExtendError::Lost(held.hold.reason().unwrap_or(reason))),
            result => result,
        }
    }
}

impl Drop for Tether {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl fmt::Debug for Tether {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

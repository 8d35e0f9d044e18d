//! The books under their lock: every event is one critical section.

use std::task::{Poll, Waker};

use super::outbox::{Errand, Outbox, Report};
use super::state::{Outcome, Standing, State, Stepped, WaiterRef};
use crate::clock::Moment;
use crate::mutant::{self, Mutant};
use crate::sync::{Mutex, lock};

/// What is around the books.
pub trait Surroundings {
    /// Read inside each section, so that a later one never sees an earlier time.
    fn now(&self) -> Moment;

    /// Takes what must be sent. Called inside each section, so that what is sent has the order of the events.
    fn send(&self, errand: Errand);

    /// Sets out with what was sent. Called behind each section that has left something to be sent.
    fn set_out(&self);

    /// Has the watchdog look again, or the poller: something is due before they would.
    fn look_sooner(&self, renew: bool, poll: bool);
}

pub struct Books(Mutex<State>);

impl Books {
    pub fn new(state: State) -> Self {
        Self(Mutex::new(state))
    }

    /// One critical section, and what follows from it.
    pub fn with<T>(
        &self,
        around: &impl Surroundings,
        event: impl FnOnce(&mut State, Moment, &mut Outbox) -> T,
    ) -> T {
        let mut out = Outbox::default();
        let mut state = lock(&self.0);
        let result = event(&mut state, around.now(), &mut out);
        let state = mutant::apart(&self.0, state, Mutant::SentApart);
        let sends = !out.errands.is_empty();
        out.errands.drain(..).for_each(|errand| around.send(errand));
        drop(state);
        // First of all: others who come meanwhile rely on that call, and to set out may take long.
        around.look_sooner(out.renew_sooner, out.poll_sooner);
        if sends {
            around.set_out();
        }
        out.wakers.drain(..).for_each(Waker::wake);
        out.reports.drain(..).for_each(Report::log);
        result
    }

    /// A look into the books that changes nothing.
    pub fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&lock(&self.0))
    }

    /// The outcome of a wait; else `waker` is woken when it is there.
    pub fn poll(&self, wait: WaiterRef, waker: &Waker) -> Poll<Outcome> {
        self.register(wait, waker, |state| state.take_outcome(wait))
    }

    /// As [`poll`](Self::poll), and completes too when fewer than were `seen` stand before it, or the place is lost.
    pub fn step(&self, wait: WaiterRef, seen: Option<Standing>, waker: &Waker) -> Poll<Stepped> {
        self.register(wait, waker, |state| state.step(wait, seen))
    }

    fn register<T>(
        &self,
        wait: WaiterRef,
        waker: &Waker,
        look: impl FnOnce(&mut State) -> Option<T>,
    ) -> Poll<T> {
        // Cloned before the section, and what it takes the place of dropped behind it.
        let mut waker = Some(waker.clone());
        let mut state = lock(&self.0);
        if let Some(found) = look(&mut state) {
            drop(state);
            return Poll::Ready(found);
        }
        mutant::apart(&self.0, state, Mutant::RegisteredApart).register(wait, &mut waker);
        Poll::Pending
    }

    /// Renews what is due. Returns when the watchdog is to look next.
    pub fn renew_due(&self, around: &impl Surroundings) -> Moment {
        let next = self.with(around, State::renew_due);
        if mutant::is(Mutant::ArmedApart) {
            self.with(around, |state, _, _| state.due.set_alarm_apart(next));
        }
        next
    }

    /// Ends a wait whose future was dropped, and releases what it was given unseen.
    pub fn abandon(&self, around: &impl Surroundings, wait: WaiterRef) {
        let missed = mutant::is(Mutant::AbandonedApart) && self.look(|state| !state.is_settled(wait));
        self.with(around, |state, now, out| match missed {
            true => state.leave_lane(wait, now, out),
            false => state.abandon(wait, now, out),
        });
    }
}

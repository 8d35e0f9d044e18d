//! One parcel, and who has its future.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::unconstrained;

use super::Bag;
use crate::backend::Pending;
use crate::mutant::{self, Mutant};
use crate::sync::{Arc, Mutex, lock};

/// What is carried.
pub struct Parcel {
    bag: Arc<Bag>,
    pub number: u64,
    place: Mutex<Place>,
}

/// Where a parcel's future is.
enum Place {
    /// It is to be polled: by whoever sets out with it, or by the task, among whose woken it stands.
    Due(Pending<()>),
    /// It waits to be woken.
    Parked(Pending<()>),
    /// Somebody polls it; and whether it was woken meanwhile.
    Polled { again: bool },
    /// It has arrived, or the task is gone.
    Gone,
}

impl Parcel {
    pub fn new(bag: Arc<Bag>, number: u64, future: Pending<()>) -> Self {
        Self { bag, number, place: Mutex::new(Place::Due(future)) }
    }

    /// The first step, on a caller's stack, to which a panic is of no concern.
    pub fn set_out(self: &Arc<Self>) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.go_on())) {
            self.bag.call_task(|load| load.panic = Some(panic));
        }
    }

    pub fn go_on(self: &Arc<Self>) {
        let Some(mut future) = self.take() else { return };
        let waker = Waker::from(self.clone());
        // A caller who has done much in one go has no budget left: the step would end before its command is sent, and
        // others would overtake it.
        let step = pin!(unconstrained(future.as_mut())).poll(&mut Context::from_waker(&waker));
        match step {
            Poll::Pending => self.park(future),
            Poll::Ready(()) => {
                *lock(&self.place) = Place::Gone;
                // What it drops is a part of it.
                drop(future);
                self.bag.arrived(self.number);
            }
        }
    }

    fn take(&self) -> Option<Pending<()>> {
        let mut place = lock(&self.place);
        match std::mem::replace(&mut *place, Place::Polled { again: false }) {
            Place::Due(future) => Some(future),
            other => {
                *place = other;
                None
            }
        }
    }

    fn park(self: &Arc<Self>, future: Pending<()>) {
        let place = lock(&self.place);
        let Place::Polled { again } = *place else {
            drop(place);
            return drop(future);
        };
        let mut place = mutant::apart(&self.place, place, Mutant::ParkedApart);
        *place = if again { Place::Due(future) } else { Place::Parked(future) };
        drop(place);
        if again {
            self.bag.wake(self.clone());
        }
    }

    /// Drops the future, now or when it is no longer polled.
    pub fn give_up(&self) {
        let place = std::mem::replace(&mut *lock(&self.place), Place::Gone);
        drop(place);
    }
}

impl Wake for Parcel {
    fn wake(self: Arc<Self>) {
        let mut place = lock(&self.place);
        match std::mem::replace(&mut *place, Place::Gone) {
            Place::Parked(future) => {
                *place = Place::Due(future);
                drop(place);
                let bag = self.bag.clone();
                bag.wake(self);
            }
            Place::Polled { .. } => *place = Place::Polled { again: true },
            other => *place = other,
        }
    }
}

#[cfg(all(test, not(lockwright_loom)))]
mod tests {
    use super::*;
    use crate::courier::Courier;

    /// Fails where a parcel that has arrived looks as if somebody polled it.
    #[test]
    fn what_has_arrived_is_gone() {
        let (courier, _parcels) = Courier::new();
        let parcel = Arc::new(Parcel::new(courier.0.clone(), 1, Box::pin(std::future::ready(()))));
        parcel.set_out();
        assert!(matches!(*lock(&parcel.place), Place::Gone));
    }
}

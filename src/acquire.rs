//! The one waiting loop, under every kind of lock.

use std::future::poll_fn;
use std::sync::Arc;

use crate::clock::Moment;
use crate::error::LockError;
use crate::guard::Grip;
use crate::local::{Entered, GaveUp, Outcome, Place, Request, Tether};

/// Waits for the lock until `deadline`. `Ok(None)` says that others held it.
///
/// # Cancel safety
/// The future only watches: what it asked for is carried on by the client's tasks, and when it is dropped its ticket
/// is given back, and with it a hold that was granted meanwhile.
pub async fn acquire(
    tether: Arc<Tether>,
    request: Request,
    deadline: Moment,
) -> Result<Option<Grip>, LockError> {
    let place = match tether.local().enter(request) {
        Entered::Now(outcome) => return grip(tether, outcome),
        Entered::Wait(place) => place,
    };
    // Armed before the first await: a future that is dropped at any point leaves nothing behind.
    let mut wait = Wait { tether: tether.clone(), place: Some(place) };
    let outcome = if deadline == Moment::NEVER {
        poll_fn(|cx| tether.local().poll(place, cx.waker())).await
    } else {
        tokio::select! {
            biased;
            outcome = poll_fn(|cx| tether.local().poll(place, cx.waker())) => outcome,
            () = tether.local().clock().sleep_until(deadline) => match tether.local().give_up(place) {
                GaveUp::Settled(outcome) => outcome,
                GaveUp::Busy => Ok(None),
                GaveUp::Unheard(detail) => Err(LockError::Unavailable { detail }),
            },
        }
    };
    wait.place = None;
    grip(tether, outcome)
}

fn grip(tether: Arc<Tether>, outcome: Outcome) -> Result<Option<Grip>, LockError> {
    outcome.map(|held| held.map(|held| Grip::new(tether, held)))
}

/// Gives the place back when the waiting future is dropped.
struct Wait {
    tether: Arc<Tether>,
    place: Option<Place>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.tether.local().abandon(place);
        }
    }
}

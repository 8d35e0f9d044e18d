//! The one waiting loop, under every kind of lock.

use std::future::poll_fn;
use std::sync::Arc;

use crate::clock::Moment;
use crate::error::LockError;
use crate::guard::Grip;
use crate::local::{Entered, GaveUp, Outcome, Request, Tether, WaiterRef};

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
    let waiter = match tether.local().enter(request) {
        Entered::Now(outcome) => return grip(tether, outcome),
        Entered::Wait(waiter) => waiter,
    };
    // Armed before the first await: a future that is dropped at any point leaves nothing behind.
    let mut wait = Wait { tether: tether.clone(), waiter: Some(waiter) };
    let outcome = if deadline == Moment::NEVER {
        poll_fn(|cx| tether.local().poll(waiter, cx.waker())).await
    } else {
        tokio::select! {
            biased;
            outcome = poll_fn(|cx| tether.local().poll(waiter, cx.waker())) => outcome,
            () = tether.local().clock().sleep_until(deadline) => match tether.local().give_up(waiter) {
                GaveUp::Settled(outcome) => outcome,
                GaveUp::Busy => Ok(None),
                GaveUp::Unheard(detail) => Err(LockError::Unavailable { detail }),
            },
        }
    };
    wait.waiter = None;
    grip(tether, outcome)
}

fn grip(tether: Arc<Tether>, outcome: Outcome) -> Result<Option<Grip>, LockError> {
    outcome.map(|held| held.map(|held| Grip::new(tether, held)))
}

/// Gives the place back when the waiting future is dropped.
struct Wait {
    tether: Arc<Tether>,
    waiter: Option<WaiterRef>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.tether.local().abandon(waiter);
        }
    }
}

//! What handles, guards and waiters have of their client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Local;
use super::lane::{HoldRef, Request};
use super::outbox::Errand;
use super::state::{Begun, Released};
use crate::clock::Moment;
use crate::error::{DowngradeError, ExtendError, LossReason, UnlockError};
use crate::guard::Grip;
use crate::lease::Lease;

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

    /// A guard of a hold that is there already, without I/O.
    pub fn reenter(self: &Arc<Self>, request: &Request) -> Option<Arc<HoldRef>> {
        self.0.with(|state, now, out| state.reenter(request, now, out))
    }

    /// Releases a hold without waiting for the answer.
    pub fn release(&self, held: &HoldRef) {
        if !held.leave(|| self.now()) {
            return;
        }
        self.0.with(|state, now, out| state.release(held, None, now, out));
    }

    pub async fn unlock(&self, held: &HoldRef) -> Result<(), UnlockError> {
        if !held.leave(|| self.now()) {
            return match held.hold.remaining(self.now()).is_zero() {
                true => Err(UnlockError::Lost(held.hold.reason().unwrap_or(LossReason::Expired))),
                false => Ok(()),
            };
        }
        let (done, answer) = oneshot::channel();
        match self.0.with(|state, now, out| state.release(held, Some(done), now, out)) {
            Released::Locally => return Ok(()),
            Released::Lost(reason) => return Err(UnlockError::Lost(reason)),
            Released::Sent => {}
        }
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_else(|_| {
                Err(UnlockError::Unanswered { detail: "the client is closed, or its runtime is gone".to_owned() })
            }),
            () = self.0.clock.sleep(self.0.spans.unavailable_after) => {
                Err(UnlockError::Unanswered { detail: self.0.books.look(|state| state.trouble.clone()) })
            }
        }
    }

    /// Has a write become a read; the answer comes through the receiver.
    pub fn downgrade(self: &Arc<Self>, held: &HoldRef) -> Result<Downgraded, LossReason> {
        self.0.with(|state, now, out| {
            Ok(match state.begin_downgrade(held, now, out)? {
                Begun::Within(request) => Downgraded::Within(request),
                Begun::Alone(work) => {
                    let (done, answer) = oneshot::channel();
                    out.errands.push(Errand::Downgrade { tether: self.clone(), work, done });
                    Downgraded::Sent(answer)
                }
            })
        })
    }

    pub async fn extend(&self, held: &HoldRef, length: Duration) -> Result<(), ExtendError> {
        Lease::renewed(length).check()?;
        let local = &self.0;
        let answer = local.with(|state, now, out| {
            let due = state.may_extend(held, length, now)?;
            let (done, answer) = oneshot::channel();
            out.errands.push(Errand::Extend { due, length, done });
            Ok::<_, ExtendError>(answer)
        })?;
        match answer.await.unwrap_or(Err(ExtendError::Closed)) {
            Err(ExtendError::Lost(reason)) => Err(ExtendError::Lost(held.hold.reason().unwrap_or(reason))),
            result => result,
        }
    }
}

/// How a write becomes a read.
#[derive(Debug)]
pub enum Downgraded {
    /// By an answer of the server.
    Sent(oneshot::Receiver<Result<Grip, DowngradeError>>),
    /// By reading beside the write, which others of its owner go on with.
    Within(Request),
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

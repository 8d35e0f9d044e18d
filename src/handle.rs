//! What the handles of every kind of lock have in common: the settings of an acquisition, and the ways to make one.

mod methods;

use std::fmt;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, TryFutureExt};

use crate::acquire::acquire;
use crate::clock::Moment;
use crate::error::{InvalidLease, InvalidName, LockError, NotObtained, RunError, UnlockError};
use crate::guard::Gripped;
use crate::lease::Lease;
use crate::local::{LockRef, Request, Tether};
use crate::name::LockKeys;
use crate::owner::Owner;
use crate::scripts::{Kind, Mode};

pub(crate) use methods::{lock_methods, setting_methods, taking_methods};

/// The settings of an acquisition. What is invalid among them is reported by the first operation, so that handles
/// can be made without `Result`s.
#[derive(Clone, Debug)]
pub struct Handle {
    pub tether: Arc<Tether>,
    pub kind: Kind,
    pub keys: Result<LockKeys, InvalidName>,
    pub lease: Result<Lease, InvalidLease>,
    pub owner: Option<Owner>,
    pub max_hold: Option<Duration>,
    pub label: Option<Arc<str>>,
    /// Whether a read's hold stays when its last reader is out.
    pub keep: bool,
}

/// How long an acquisition may wait for other holders.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    Endless,
    Until(Moment),
    None,
}

impl Handle {
    pub fn describe(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name).field("key", &self.keys).field("owner", &self.owner).finish_non_exhaustive()
    }

    pub fn now(&self) -> Moment {
        self.tether.now()
    }

    /// `limit` from now; zero is one attempt, with the time that its answer takes.
    pub fn patience(&self, limit: Duration) -> Patience {
        if limit.is_zero() { Patience::None } else { Patience::Until(self.now().plus(limit)) }
    }

    /// The owner and the deadline are those of this call, not of the future's first poll.
    pub fn attempt<G: Gripped>(
        &self,
        mode: Mode,
        patience: Patience,
    ) -> impl Future<Output = Result<Option<G>, LockError>> + Send + use<G> {
        // Combined, and not an async block: that would have room for the request twice, and be moved with it.
        match self.request(mode, self.present_owner(), patience) {
            Ok(request) => acquire(self.tether.clone(), request, patience.deadline())
                .map_ok(|grip| grip.map(G::of))
                .left_future(),
            Err(error) => ready(Err(error)).right_future(),
        }
    }

    /// Whose acquisition one is that is asked for now.
    pub fn present_owner(&self) -> Option<Owner> {
        self.owner.clone().or_else(Owner::current)
    }

    pub fn request(
        &self,
        mode: Mode,
        owner: Option<Owner>,
        patience: Patience,
    ) -> Result<Request, LockError> {
        if self.max_hold.is_some_and(|limit| limit.is_zero()) {
            return Err(LockError::InvalidMaxHold);
        }
        Ok(Request {
            lock: LockRef { kind: self.kind, keys: self.keys.clone()? },
            mode,
            owner: owner.map(|owner| owner.id()),
            lease: self.lease.clone()?,
            max_hold: self.max_hold,
            label: self.label.clone(),
            waits: !matches!(patience, Patience::None),
            keep: self.keep,
        })
    }
}

impl Patience {
    pub fn deadline(self) -> Moment {
        if let Self::Until(deadline) = self { deadline } else { Moment::NEVER }
    }
}

/// The guard of an attempt without a limit. Whoever waits without end is never told that others hold the lock.
pub fn endless<G, F>(attempt: F) -> impl Future<Output = Result<G, LockError>> + use<G, F>
where
    F: Future<Output = Result<Option<G>, LockError>>,
{
    attempt.map(|outcome| outcome?.ok_or(LockError::Closed))
}

/// Runs `section` under what `attempt` obtains.
pub async fn run<G: Gripped, R>(
    attempt: impl Future<Output = Result<Option<G>, LockError>>,
    section: impl AsyncFnOnce(&G) -> R,
) -> Result<R, RunError> {
    guarded(endless(attempt).await?, section).await
}

/// The same; `None` where the attempt met others.
pub async fn run_for<G: Gripped, R>(
    attempt: impl Future<Output = Result<Option<G>, LockError>>,
    section: impl AsyncFnOnce(&G) -> R,
) -> Result<Option<R>, RunError> {
    match attempt.await? {
        Some(guard) => guarded(guard, section).await.map(Some),
        None => Ok(None),
    }
}

/// The same; `otherwise` where the attempt obtained nothing.
pub async fn run_or_else<G: Gripped, R>(
    attempt: impl Future<Output = Result<Option<G>, LockError>>,
    section: impl AsyncFnOnce(&G) -> R,
    otherwise: impl AsyncFnOnce(NotObtained) -> R,
) -> Result<R, RunError> {
    match attempt.await {
        Ok(Some(guard)) => guarded(guard, section).await,
        Ok(None) => Ok(otherwise(NotObtained::Held).await),
        Err(error) => Ok(otherwise(NotObtained::Failed(error)).await),
    }
}

/// Runs the section for as long as the hold lasts.
async fn guarded<G: Gripped, R>(guard: G, section: impl AsyncFnOnce(&G) -> R) -> Result<R, RunError> {
    let output = tokio::select! {
        biased;
        reason = guard.grip().lost() => return Err(RunError::Lost(reason)),
        output = section(&guard) => output,
    };
    match guard.into_grip().unlock().await {
        // The section ended, and somebody else may have been inside with it: its caller must know.
        Err(UnlockError::Lost(reason)) => Err(RunError::Lost(reason)),
        Ok(()) | Err(UnlockError::Unanswered { .. }) => Ok(output),
    }
}

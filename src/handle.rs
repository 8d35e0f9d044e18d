//! What the handles of every kind of lock have in common: the settings of an acquisition, and the ways to make one.

mod methods;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::acquire;
use crate::clock::Moment;
use crate::error::{InvalidLease, InvalidName, LockError, NotObtained, RunError, UnlockError};
use crate::guard::Guard;
use crate::lease::Lease;
use crate::local::{LockRef, Request, Tether};
use crate::name::LockKeys;
use crate::owner::Owner;
use crate::scripts::Kind;

pub(crate) use methods::lock_methods;

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
    pub fn attempt(
        &self,
        patience: Patience,
    ) -> impl Future<Output = Result<Option<Guard>, LockError>> + Send + use<> {
        let request = self.request(!matches!(patience, Patience::None));
        let deadline = if let Patience::Until(deadline) = patience { deadline } else { Moment::NEVER };
        let tether = self.tether.clone();
        async move { acquire(tether, request?, deadline).await }
    }

    /// An attempt that ends with the lock or an error.
    pub fn lock(&self) -> impl Future<Output = Result<Guard, LockError>> + Send + use<> {
        let attempt = self.attempt(Patience::Endless);
        // Whoever waits without end is never told that others hold the lock.
        async move { attempt.await?.ok_or(LockError::Closed) }
    }

    pub fn request(&self, waits: bool) -> Result<Request, LockError> {
        if self.max_hold.is_some_and(|limit| limit.is_zero()) {
            return Err(LockError::InvalidMaxHold);
        }
        let owner = self.owner.clone().or_else(Owner::current);
        Ok(Request {
            lock: LockRef { kind: self.kind, keys: self.keys.clone()? },
            owner: owner.map(|owner| owner.id()),
            lease: self.lease.clone()?,
            max_hold: self.max_hold,
            label: self.label.clone(),
            waits,
        })
    }

    pub async fn run<R>(&self, section: impl AsyncFnOnce(&Guard) -> R) -> Result<R, RunError> {
        guarded(self.lock().await?, section).await
    }

    pub async fn run_for<R>(
        &self,
        limit: Duration,
        section: impl AsyncFnOnce(&Guard) -> R,
    ) -> Result<Option<R>, RunError> {
        match self.attempt(self.patience(limit)).await? {
            Some(guard) => guarded(guard, section).await.map(Some),
            None => Ok(None),
        }
    }

    pub async fn run_or_else<R>(
        &self,
        section: impl AsyncFnOnce(&Guard) -> R,
        otherwise: impl AsyncFnOnce(NotObtained) -> R,
    ) -> Result<R, RunError> {
        match self.attempt(Patience::None).await {
            Ok(Some(guard)) => guarded(guard, section).await,
            Ok(None) => Ok(otherwise(NotObtained::Held).await),
            Err(error) => Ok(otherwise(NotObtained::Failed(error)).await),
        }
    }
}

/// Runs the section for as long as the hold lasts.
async fn guarded<R>(guard: Guard, section: impl AsyncFnOnce(&Guard) -> R) -> Result<R, RunError> {
    let output = tokio::select! {
        biased;
        reason = guard.lost() => return Err(RunError::Lost(reason)),
        output = section(&guard) => output,
    };
    match guard.unlock().await {
        // The section ended, and somebody else may have been inside with it: its caller must know.
        Err(UnlockError::Lost(reason)) => Err(RunError::Lost(reason)),
        Ok(()) | Err(UnlockError::Unanswered { .. }) => Ok(output),
    }
}

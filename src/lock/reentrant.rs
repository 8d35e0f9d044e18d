//! The reentrant lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::acquire;
use crate::clock::Moment;
use crate::error::{InvalidLease, InvalidName, LockError};
use crate::guard::Guard;
use crate::lease::Lease;
use crate::local::{LockRef, Request, Tether};
use crate::name::LockKeys;
use crate::owner::Owner;
use crate::scripts::Kind;

/// A lock that its owner may take again.
///
/// A handle: cheap to clone, and making one does no I/O; a name or a lease that no lock can have is reported by the
/// first operation. Handles of one name are one lock, in all processes that use the same server and namespace.
///
/// **Re-entry.** An acquisition belongs to the [`Owner`] given with [`with_owner`](Self::with_owner), else to that
/// of the enclosing [`Owner::scope`] (read when the method is called), else to itself alone. While an owner holds
/// the lock its further acquisitions are granted at once, without a round trip in the same process; the lock is
/// free again when every guard is gone. The lease and `max_hold` of the first acquisition stand.
///
/// **Order.** Processes take turns in the order in which they came. Inside one process an anonymous hold is passed
/// from task to task in order of arrival, for at most 64 tasks, and at most 10 ms once another process is known to
/// wait. Strict order across all processes is not promised.
#[derive(Clone)]
pub struct ReentrantLock {
    tether: Arc<Tether>,
    target: Result<LockKeys, InvalidName>,
    lease: Result<Lease, InvalidLease>,
    owner: Option<Owner>,
    max_hold: Option<Duration>,
    label: Option<Arc<str>>,
}

impl ReentrantLock {
    pub(crate) fn new(
        tether: Arc<Tether>,
        target: Result<LockKeys, InvalidName>,
        lease: Lease,
        label: Option<Arc<str>>,
    ) -> Self {
        Self { tether, target, lease: Ok(lease), owner: None, max_hold: None, label }
    }

    /// This lock with another lease than the client's.
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Self {
        self.lease = lease.check();
        self
    }

    /// This lock for `owner`, whatever [`Owner::scope`] the call is made in.
    #[must_use]
    pub fn with_owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Waits until the lock is free and takes it. Waiting for another holder may last; waiting for a server that
    /// does not answer ends after the client's `unavailable_after`.
    ///
    /// # Errors
    /// See [`LockError`]. Contention is none.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves nothing behind: its place in the queue, and a hold that was granted
    /// meanwhile, are given back in the background. Its place in the queue is lost.
    pub fn lock(&self) -> impl Future<Output = Result<Guard, LockError>> + Send + use<> {
        let attempt = self.attempt(true, None);
        // Without a deadline a waiter is never told that others hold the lock, save by a close.
        async move { attempt.await?.ok_or(LockError::Closed) }
    }

    /// Takes the lock if it is free now; `None` where others hold it, or wait for it in this process.
    ///
    /// # Errors
    /// See [`LockError`].
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub fn try_lock(&self) -> impl Future<Output = Result<Option<Guard>, LockError>> + Send + use<> {
        self.attempt(false, None)
    }

    /// Waits for the lock for at most `limit`, counted from this call; `None` where others still hold it then. A
    /// limit of zero is one attempt.
    ///
    /// # Errors
    /// See [`LockError`]. Where the server has not answered within `limit` it is unknown whether the lock is free:
    /// that is [`LockError::Unavailable`].
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub fn try_lock_for(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<Option<Guard>, LockError>> + Send + use<> {
        // Zero is one attempt, with the time that its answer takes.
        self.attempt(!limit.is_zero(), (!limit.is_zero()).then_some(limit))
    }

    fn attempt(
        &self,
        waits: bool,
        limit: Option<Duration>,
    ) -> impl Future<Output = Result<Option<Guard>, LockError>> + Send + use<> {
        // The owner and the deadline are those of the call, not of the first poll.
        let request = self.request(waits);
        let deadline = limit.map_or(Moment::NEVER, |limit| self.tether.now().plus(limit));
        let tether = self.tether.clone();
        async move { acquire(tether, request?, deadline).await }
    }

    fn request(&self, waits: bool) -> Result<Request, LockError> {
        let owner = self.owner.clone().or_else(Owner::current);
        Ok(Request {
            lock: LockRef { kind: Kind::Reentrant, keys: self.target.clone()? },
            owner: owner.map(|owner| owner.id()),
            lease: self.lease.clone()?,
            max_hold: self.max_hold,
            label: self.label.clone(),
            waits,
        })
    }
}

impl fmt::Debug for ReentrantLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantLock")
            .field("lock", &self.target)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

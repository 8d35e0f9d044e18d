//! The reentrant lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{LockError, NotObtained, RunError};
use crate::guard::Guard;
use crate::handle::{Handle, Patience};
use crate::lease::Lease;
use crate::owner::Owner;

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
pub struct ReentrantLock(Handle);

impl ReentrantLock {
    pub(crate) fn new(handle: Handle) -> Self {
        Self(handle)
    }

    /// This lock with another lease than the client's. A lease outside its bounds is reported by the first
    /// operation.
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Self {
        self.0.lease = lease.check();
        self
    }

    /// This lock for `owner`, whatever [`Owner::scope`] the call is made in.
    #[must_use]
    pub fn with_owner(mut self, owner: &Owner) -> Self {
        self.0.owner = Some(owner.clone());
        self
    }

    /// This lock held for at most `limit`, counted from the grant: then the guard is lost with the reason
    /// [`Expired`](crate::LossReason::Expired), however well its renewals fare, and the server frees the lock when
    /// the guard is dropped, somebody else asks for it, or the lease ends. It bounds what a forgotten or hanging
    /// holder can do.
    #[must_use]
    pub fn with_max_hold(mut self, limit: Duration) -> Self {
        self.0.max_hold = Some(limit);
        self
    }

    /// This lock with a text beside its holds and places, for people who [inspect](crate::Client::inspect) them.
    /// It is cut to 128 bytes.
    #[must_use]
    pub fn with_label(mut self, label: &str) -> Self {
        self.0.label = Some(Arc::from(crate::name::cut_label(label)));
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
        self.0.lock()
    }

    /// Takes the lock if it is free now; `None` where others hold it, or wait for it in this process.
    ///
    /// # Errors
    /// See [`LockError`].
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub fn try_lock(&self) -> impl Future<Output = Result<Option<Guard>, LockError>> + Send + use<> {
        self.0.attempt(Patience::None)
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
        self.0.attempt(self.0.patience(limit))
    }

    /// Waits for the lock until `deadline`; as [`try_lock_for`](Self::try_lock_for) with the time that is left. A
    /// deadline that is past is one attempt.
    ///
    /// # Errors
    /// As [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub fn try_lock_until(
        &self,
        deadline: Instant,
    ) -> impl Future<Output = Result<Option<Guard>, LockError>> + Send + use<> {
        self.try_lock_for(crate::clock::until(deadline))
    }

    /// Runs `section` while holding the lock, and releases it. Where the hold is lost meanwhile, the section's
    /// future is dropped at its present await.
    ///
    /// # Errors
    /// [`RunError::Lock`] where the lock was not acquired; [`RunError::Lost`] where it was lost before its release.
    ///
    /// # Cancel safety
    /// Dropping the future drops the section's, and releases the lock in the background.
    pub async fn run<R>(&self, section: impl AsyncFnOnce(&Guard) -> R) -> Result<R, RunError> {
        self.0.run(section).await
    }

    /// As [`run`](Self::run), but waits for the lock for at most `limit`: `None` where others still hold it then,
    /// and the section was not begun.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_for<R>(
        &self,
        limit: Duration,
        section: impl AsyncFnOnce(&Guard) -> R,
    ) -> Result<Option<R>, RunError> {
        self.0.run_for(limit, section).await
    }

    /// As [`run`](Self::run), but does not wait: where the lock is not obtained at once, `otherwise` runs instead,
    /// and is told why.
    ///
    /// # Errors
    /// [`RunError::Lost`] where the lock was obtained and lost.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_or_else<R>(
        &self,
        section: impl AsyncFnOnce(&Guard) -> R,
        otherwise: impl AsyncFnOnce(NotObtained) -> R,
    ) -> Result<R, RunError> {
        self.0.run_or_else(section, otherwise).await
    }
}

impl fmt::Debug for ReentrantLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantLock")
            .field("key", &self.0.keys)
            .field("owner", &self.0.owner)
            .finish_non_exhaustive()
    }
}

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
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use lockwright::Client;
///
/// let client = Client::embedded();
/// let lock = client.lock("order:42");
/// let guard = lock.lock().await?;
/// assert!(lock.try_lock().await?.is_none());
/// drop(guard);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ReentrantLock(Handle);

impl ReentrantLock {
    pub(crate) fn new(handle: Handle) -> Self {
        Self(handle)
    }

    /// This lock with another lease than the client's. A lease outside its bounds is reported by the first
    /// operation.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::{Client, Lease};
    /// use std::time::Duration;
    ///
    /// let lock = Client::embedded().lock("a").with_lease(Lease::renewed(Duration::from_secs(5)));
    /// assert!(lock.lock().await?.remaining() < Duration::from_secs(5));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Self {
        self.0.lease = lease.check();
        self
    }

    /// This lock for `owner`, whatever [`Owner::scope`] the call is made in.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::{Client, Owner};
    ///
    /// let lock = Client::embedded().lock("a").with_owner(&Owner::new());
    /// let outer = lock.lock().await?;
    /// let inner = lock.lock().await?;
    /// assert_eq!(inner.token(), outer.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_owner(mut self, owner: &Owner) -> Self {
        self.0.owner = Some(owner.clone());
        self
    }

    /// This lock held for at most `limit`, counted from the grant: then the guard is lost with the reason
    /// [`Expired`](crate::LossReason::Expired), however well its renewals fare, and the server frees the lock when
    /// the guard is dropped, somebody else asks for it, or the lease ends. It bounds what a forgotten or hanging
    /// holder can do.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::{Client, LossReason};
    /// use std::time::Duration;
    ///
    /// let lock = Client::embedded().lock("a").with_max_hold(Duration::from_secs(60));
    /// let forgotten = lock.lock().await?;
    /// assert_eq!(forgotten.lost().await, LossReason::Expired);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_max_hold(mut self, limit: Duration) -> Self {
        self.0.max_hold = Some(limit);
        self
    }

    /// This lock with a text beside its holds and places, for people who [inspect](crate::Client::inspect) them.
    /// It is cut to 128 bytes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::Client;
    ///
    /// let client = Client::embedded();
    /// let _guard = client.lock("a").with_label("web 7, job 12").lock().await?;
    /// assert_eq!(client.inspect("a").await?.holds[0].label.as_deref(), Some("web 7, job 12"));
    /// # Ok(()) }
    /// ```
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// let guard = lock.lock().await?;
    /// // The future owns what it needs, so it can be spawned.
    /// let waiting = tokio::spawn(lock.lock());
    /// guard.unlock().await?;
    /// assert!(waiting.await??.is_held());
    /// # Ok(()) }
    /// ```
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// match lock.try_lock().await? {
    ///     Some(guard) => println!("inside, with token {}", guard.token()),
    ///     None => println!("somebody else is inside"),
    /// }
    /// # Ok(()) }
    /// ```
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// use std::time::Duration;
    ///
    /// let _guard = lock.lock().await?;
    /// assert!(lock.try_lock_for(Duration::from_secs(2)).await?.is_none());
    /// # Ok(()) }
    /// ```
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// use std::time::{Duration, Instant};
    ///
    /// let deadline = Instant::now() + Duration::from_secs(2);
    /// assert!(lock.try_lock_until(deadline).await?.is_some());
    /// # Ok(()) }
    /// ```
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// let sum = lock.run(async |guard| {
    ///     println!("inside, with token {}", guard.token());
    ///     1 + 1
    /// });
    /// assert_eq!(sum.await?, 2);
    /// # Ok(()) }
    /// ```
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// use std::time::Duration;
    ///
    /// let _guard = lock.lock().await?;
    /// let limit = Duration::from_millis(50);
    /// assert_eq!(lock.run_for(limit, async |_| unreachable!("somebody is inside")).await?, None::<()>);
    /// # Ok(()) }
    /// ```
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// use lockwright::NotObtained;
    ///
    /// let _guard = lock.lock().await?;
    /// let said = lock
    ///     .run_or_else(async |_| "did it".to_owned(), async |why: NotObtained| why.to_string())
    ///     .await?;
    /// assert_eq!(said, "the lock is held by others");
    /// # Ok(()) }
    /// ```
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

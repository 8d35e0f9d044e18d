//! What a user sees of a handle: the methods and their contract, written once for all kinds.

/// The methods that every kind of lock which excludes everybody else has, on a type around a [`Handle`]; `$maker` is
/// the client's method that makes one.
macro_rules! lock_methods {
    ($lock:ident, $maker:literal) => {
        impl $lock {
            pub(crate) fn new(handle: Handle) -> Self {
                Self(handle)
            }

            /// This lock with another lease than the client's. A lease outside its bounds is reported by the first
            /// operation.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// use lockwright::Lease;
            /// use std::time::Duration;
            ///
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, "(\"order:42\").with_lease(Lease::fixed(Duration::from_secs(5)));")]
            /// let guard = lock.lock().await?;
            /// assert!(guard.remaining() <= Duration::from_secs(5));
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
            /// use lockwright::Owner;
            ///
            /// # let client = lockwright::Client::embedded();
            /// let owner = Owner::new();
            #[doc = concat!("let lock = client.", $maker, "(\"order:42\").with_owner(&owner);")]
            /// let outer = lock.lock().await?;
            /// let inner = lock.lock().await?;
            /// assert_eq!(outer.token(), inner.token());
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
            /// holder can do. A limit of zero is reported by the first operation, as
            /// [`InvalidMaxHold`](crate::LockError::InvalidMaxHold); there is no upper bound.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// use lockwright::LossReason;
            /// use std::time::Duration;
            ///
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, "(\"order:42\").with_max_hold(Duration::from_millis(20));")]
            /// let guard = lock.lock().await?;
            /// assert_eq!(guard.lost().await, LossReason::Expired);
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
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let _guard = client.", $maker, "(\"order:42\").with_label(\"invoice 7\").lock().await?;")]
            /// let info = client.inspect("order:42").await?;
            /// assert_eq!(info.holds[0].label.as_deref(), Some("invoice 7"));
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
            #[doc = concat!("let guard = client.", $maker, "(\"order:42\").lock().await?;")]
            /// assert!(guard.is_held());
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
            #[doc = concat!("let lock = client.", $maker, "(\"order:42\");")]
            /// let guard = lock.try_lock().await?;
            /// assert!(guard.is_some() && lock.try_lock().await?.is_none());
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
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// use std::time::Duration;
            ///
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, "(\"order:42\");")]
            /// let _guard = lock.lock().await?;
            /// assert!(lock.try_lock_for(Duration::from_millis(20)).await?.is_none());
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
            /// use std::time::Duration;
            ///
            /// # let client = lockwright::Client::embedded();
            /// let deadline = std::time::Instant::now() + Duration::from_millis(20);
            #[doc = concat!("assert!(client.", $maker, "(\"order:42\").try_lock_until(deadline).await?.is_some());")]
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
            /// use lockwright::Guard;
            ///
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, "(\"order:42\");")]
            /// let mut sold = 0;
            /// let token = lock.run(async |guard: &Guard| {
            ///     sold += 1;
            ///     guard.token()
            /// }).await?;
            /// assert!(sold == 1 && token > 0);
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
            /// use lockwright::Guard;
            /// use std::time::Duration;
            ///
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, "(\"order:42\");")]
            /// let limit = Duration::from_secs(2);
            /// assert_eq!(lock.run_for(limit, async |_: &Guard| "sold").await?, Some("sold"));
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
            /// use lockwright::{Guard, NotObtained};
            ///
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, "(\"order:42\");")]
            /// let _guard = lock.lock().await?;
            /// let done = lock.run_or_else(async |_: &Guard| "sold", async |why| {
            ///     assert_eq!(why, NotObtained::Held);
            ///     "somebody else is at it"
            /// }).await?;
            /// assert_eq!(done, "somebody else is at it");
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
    };
}

pub(crate) use lock_methods;

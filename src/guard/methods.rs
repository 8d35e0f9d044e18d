//! What a user sees of a guard: the methods and their contract, written once for all kinds.

/// The methods that every guard has, on a type around a [`Grip`](super::Grip); `$lock` makes a lock of a client,
/// `$take` takes it.
macro_rules! guard_methods {
    ($guard:ident, $lock:literal, $take:literal) => {
        impl $guard {
            /// Whether this hold can be trusted at this moment, by the local clock, which also runs while the host
            /// sleeps. Sends nothing.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("# let guard = client.", $lock, ".", $take, ".await?;")]
            /// if guard.is_held() {
            ///     // Now it is. Whatever must be true when it arrives elsewhere is checked there.
            /// }
            /// # Ok(()) }
            /// ```
            #[must_use]
            pub fn is_held(&self) -> bool {
                !self.remaining().is_zero()
            }

            /// For how long this hold can be trusted if no further renewal succeeds; zero once it is lost. Shorter than
            /// the lease at the server: it counts from the sending of the last renewal, less 1 % and 10 ms. Just after the
            /// lock was handed over it is no more than the claim, 3 s by default, until the first renewal.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("# let guard = client.", $lock, ".", $take, ".await?;")]
            /// use std::time::Duration;
            ///
            /// // The default lease of 30 s, less the margin.
            /// assert!(guard.remaining() < Duration::from_secs(30) && guard.remaining() > Duration::from_secs(29));
            /// # Ok(()) }
            /// ```
            #[must_use]
            pub fn remaining(&self) -> Duration {
                self.0.remaining()
            }

            /// How the renewals of this hold fare.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("# let guard = client.", $lock, ".", $take, ".await?;")]
            /// use lockwright::Renewal;
            ///
            /// if let Renewal::Failing { left } = guard.renewal() {
            ///     eprintln!("the server does not answer; the lock is lost in {left:?}");
            /// }
            /// # Ok(()) }
            /// ```
            #[must_use]
            pub fn renewal(&self) -> Renewal {
                self.0.renewal()
            }

            /// A future that resolves when this hold is lost, and never if it is released first. (Guards that share a
            /// hold, such as those of an owner that has re-entered, or the readers of one process, release it with the
            /// last of them.) It is owned and can be cloned and sent to other tasks; it does not keep the lock. A task that
            /// awaits it alone ends with the lock's loss, so one whose lock is released must be aborted.
            ///
            /// What the server has lost, a deleted key for instance, is heard of at the next renewal.
            ///
            /// # Cancel safety
            /// Cancel safe: it only watches.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("# let guard = client.", $lock, ".", $take, ".await?;")]
            /// let lost = guard.lost();
            /// let watcher = tokio::spawn(async move { println!("lost: {}", lost.await) });
            /// guard.unlock().await?;
            /// watcher.abort();
            /// # Ok(()) }
            /// ```
            pub fn lost(&self) -> Lost {
                self.0.lost()
            }

            /// Makes the hold last at least `length` from now, never shorter than it does already. Later renewals do
            /// not shorten it either. A fixed lease then ends `length` after this call, if that is later than its end.
            ///
            /// # Errors
            /// [`ExtendError::Lost`] where the hold is gone; [`ExtendError::InvalidLease`] unless `length` is from
            /// 100 ms to 24 h; [`ExtendError::MaxHold`] where `with_max_hold` ends the guard sooner; otherwise the
            /// server could not be asked, and the hold may or may not have been made longer: the guard counts on the
            /// shorter.
            ///
            /// # Cancel safety
            /// Once polled, the request is carried through.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("# let guard = client.", $lock, ".", $take, ".await?;")]
            /// use std::time::Duration;
            ///
            /// guard.extend(Duration::from_secs(120)).await?;
            /// assert!(guard.remaining() > Duration::from_secs(100));
            /// # Ok(()) }
            /// ```
            pub fn extend(
                &self,
                length: Duration,
            ) -> impl Future<Output = Result<(), ExtendError>> + Send + use<> {
                self.0.extend(length)
            }

            /// Gives the hold back and waits until the server has answered. Where others go on with it (the next task
            /// of this process that it is passed to, an outer call of the same owner, other readers of this process),
            /// nothing needs to be sent and it returns at once.
            ///
            /// # Errors
            /// [`UnlockError::Lost`] where the hold was lost before. [`UnlockError::Unanswered`] where no answer came
            /// within `unavailable_after`: the release goes on in the background, and at the latest the lease ends the
            /// hold.
            ///
            /// # Cancel safety
            /// The hold is given back in the background however early the future is dropped.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $lock, ";")]
            #[doc = concat!("let guard = lock.", $take, ".await?;")]
            /// guard.unlock().await?;
            /// // Whoever asks now, in whatever process, finds it free.
            #[doc = concat!("assert!(lock.try_", $take, ".await?.is_some());")]
            /// # Ok(()) }
            /// ```
            pub async fn unlock(self) -> Result<(), UnlockError> {
                self.0.unlock().await
            }
        }

        impl Gripped for $guard {
            fn of(grip: Grip) -> Self {
                Self(grip)
            }

            fn grip(&self) -> &Grip {
                &self.0
            }

            fn into_grip(self) -> Grip {
                self.0
            }
        }
    };
}

pub(crate) use guard_methods;

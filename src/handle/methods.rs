//! What a user sees of a handle: the methods and their contract, written once for all kinds.

/// The settings that every kind of lock has, on a type with a method `with` that changes its [`Handle`]; `$maker` is the
/// code that makes one of a client, `$take` takes it.
macro_rules! setting_methods {
    ($lock:ident, $maker:literal, $take:literal) => {
        impl $lock {
            /// This lock with another lease than the client's. A lease outside its bounds is reported by the first
            /// operation.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// use lockwright::Lease;
            /// use std::time::Duration;
            ///
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, ".with_lease(Lease::fixed(Duration::from_secs(5)));")]
            #[doc = concat!("let guard = lock.", $take, ".await?;")]
            /// assert!(guard.remaining() <= Duration::from_secs(5));
            /// # Ok(()) }
            /// ```
            #[must_use]
            pub fn with_lease(self, lease: Lease) -> Self {
                self.with(|handle| handle.lease = lease.check())
            }

            /// This lock for `owner`, whatever [`Owner::scope`] the call is made in.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// use lockwright::Owner;
            ///
            /// # let client = lockwright::Client::embedded();
            /// let owner = Owner::new();
            #[doc = concat!("let lock = client.", $maker, ".with_owner(&owner);")]
            #[doc = concat!("let outer = lock.", $take, ".await?;")]
            #[doc = concat!("let inner = lock.", $take, ".await?;")]
            /// assert_eq!(outer.token(), inner.token());
            /// # Ok(()) }
            /// ```
            #[must_use]
            pub fn with_owner(self, owner: &Owner) -> Self {
                self.with(|handle| handle.owner = Some(owner.clone()))
            }

            /// This lock held for at most `limit`, counted from the grant: then the guard is lost with the reason
            /// [`Expired`](crate::LossReason::Expired), however well its renewals fare, and the lock is free when the
            /// guard is dropped, somebody else waits for it (a try does not), or the lease ends. It bounds what a forgotten or hanging
            /// holder can do. A limit of zero is reported by the first operation, as
            /// [`InvalidMaxHold`](crate::LockError::InvalidMaxHold); there is no upper bound.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// use lockwright::LossReason;
            /// use std::time::Duration;
            ///
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, ".with_max_hold(Duration::from_millis(20));")]
            #[doc = concat!("let guard = lock.", $take, ".await?;")]
            /// assert_eq!(guard.lost().await, LossReason::Expired);
            /// # Ok(()) }
            /// ```
            #[must_use]
            pub fn with_max_hold(self, limit: Duration) -> Self {
                self.with(|handle| handle.max_hold = Some(limit))
            }

            /// This lock with a text beside its holds and places, for people who [inspect](crate::Client::inspect) them.
            /// It is cut to 128 bytes.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let _guard = client.", $maker, ".with_label(\"invoice 7\").", $take, ".await?;")]
            /// let info = client.inspect("order:42").await?;
            /// assert_eq!(info.holds[0].label.as_deref(), Some("invoice 7"));
            /// # Ok(()) }
            /// ```
            #[must_use]
            pub fn with_label(self, label: &str) -> Self {
                self.with(|handle| handle.label = Some(Arc::from(crate::name::cut_label(label))))
            }
        }
    };
}

/// The ways to take a lock, on a type with a method `patience` and the method `$attempt`. `$maker` is the code that makes
/// one of a client; `$block` is a way of somebody else to hold it, so that this one has to wait.
macro_rules! taking_methods {
    (
        $lock:ident, $guard:ident, $number:ident, $maker:literal, $block:literal, $attempt:ident, $about:literal,
        $take:ident, $try:ident, $try_for:ident, $try_until:ident, $run:ident, $run_for:ident, $run_or_else:ident
    ) => {
        impl $lock {
            #[doc = concat!(" ", $about)]
            /// Waiting for another holder may last; waiting for a server that does not answer ends after the client's
            /// `unavailable_after`.
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
            #[doc = concat!("let guard = client.", $maker, ".", stringify!($take), "().await?;")]
            /// assert!(guard.is_held());
            /// # Ok(()) }
            /// ```
            pub fn $take(&self) -> impl Future<Output = Result<$guard, LockError>> + Send + use<> {
                crate::handle::endless(self.$attempt(Patience::Endless))
            }

            /// Takes the lock if it is free now; `None` where others hold it, or wait for it in this process.
            ///
            /// # Errors
            /// See [`LockError`].
            ///
            /// # Cancel safety
            #[doc = concat!(" As [`", stringify!($take), "`](Self::", stringify!($take), ").")]
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, ";")]
            #[doc = concat!("assert!(lock.", stringify!($try), "().await?.is_some());")]
            #[doc = concat!("let _held = lock.", $block, ".await?;")]
            #[doc = concat!("assert!(lock.", stringify!($try), "().await?.is_none());")]
            /// # Ok(()) }
            /// ```
            pub fn $try(&self) -> impl Future<Output = Result<Option<$guard>, LockError>> + Send + use<> {
                self.$attempt(Patience::None)
            }

            /// Waits for the lock for at most `limit`, counted from this call; `None` where others still hold it then. A
            /// limit of zero is one attempt, which may take as long as `unavailable_after` where the server is silent.
            ///
            /// # Errors
            /// See [`LockError`]. Where the server has not answered within `limit` it is unknown whether the lock is free:
            /// that is [`LockError::Unavailable`].
            ///
            /// # Cancel safety
            #[doc = concat!(" As [`", stringify!($take), "`](Self::", stringify!($take), ").")]
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// use std::time::Duration;
            ///
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, ";")]
            #[doc = concat!("let _held = lock.", $block, ".await?;")]
            #[doc = concat!("assert!(lock.", stringify!($try_for), "(Duration::from_millis(20)).await?.is_none());")]
            /// # Ok(()) }
            /// ```
            pub fn $try_for(
                &self,
                limit: Duration,
            ) -> impl Future<Output = Result<Option<$guard>, LockError>> + Send + use<> {
                self.$attempt(self.patience(limit))
            }

            #[doc = concat!(" Waits for the lock until `deadline`; as [`", stringify!($try_for), "`](Self::", stringify!($try_for), ") with the time that is left. A")]
            /// deadline that is past is one attempt.
            ///
            /// # Errors
            #[doc = concat!(" As [`", stringify!($try_for), "`](Self::", stringify!($try_for), ").")]
            ///
            /// # Cancel safety
            #[doc = concat!(" As [`", stringify!($take), "`](Self::", stringify!($take), ").")]
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// use std::time::Duration;
            ///
            /// # let client = lockwright::Client::embedded();
            /// let deadline = std::time::Instant::now() + Duration::from_millis(20);
            #[doc = concat!("assert!(client.", $maker, ".", stringify!($try_until), "(deadline).await?.is_some());")]
            /// # Ok(()) }
            /// ```
            pub fn $try_until(
                &self,
                deadline: Instant,
            ) -> impl Future<Output = Result<Option<$guard>, LockError>> + Send + use<> {
                self.$try_for(crate::clock::until(deadline))
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
            #[doc = concat!("use lockwright::", stringify!($guard), ";")]
            ///
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, ";")]
            /// let mut sold = 0;
            #[doc = concat!("let ", stringify!($number), " = lock.", stringify!($run), "(async |guard: &", stringify!($guard), "| {")]
            ///     sold += 1;
            #[doc = concat!("    guard.", stringify!($number), "()")]
            /// }).await?;
            #[doc = concat!("assert!(sold == 1 && ", stringify!($number), " > 0);")]
            /// # Ok(()) }
            /// ```
            pub fn $run<R>(
                &self,
                section: impl AsyncFnOnce(&$guard) -> R,
            ) -> impl Future<Output = Result<R, RunError>> {
                crate::handle::run(self.$attempt(Patience::Endless), section)
            }

            #[doc = concat!(" As [`", stringify!($run), "`](Self::", stringify!($run), "), but waits for the lock for at most `limit`: `None` where others still hold it then,")]
            /// and the section was not begun.
            ///
            /// # Errors
            #[doc = concat!(" As [`", stringify!($run), "`](Self::", stringify!($run), ").")]
            ///
            /// # Cancel safety
            #[doc = concat!(" As [`", stringify!($run), "`](Self::", stringify!($run), ").")]
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            #[doc = concat!("use lockwright::", stringify!($guard), ";")]
            /// use std::time::Duration;
            ///
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, ";")]
            /// let limit = Duration::from_secs(2);
            #[doc = concat!("assert_eq!(lock.", stringify!($run_for), "(limit, async |_: &", stringify!($guard), "| \"sold\").await?, Some(\"sold\"));")]
            /// # Ok(()) }
            /// ```
            pub fn $run_for<R>(
                &self,
                limit: Duration,
                section: impl AsyncFnOnce(&$guard) -> R,
            ) -> impl Future<Output = Result<Option<R>, RunError>> {
                crate::handle::run_for(self.$attempt(self.patience(limit)), section)
            }

            #[doc = concat!(" As [`", stringify!($run), "`](Self::", stringify!($run), "), but does not wait: where the lock is not obtained at once, `otherwise` runs instead,")]
            /// and is told why.
            ///
            /// # Errors
            /// [`RunError::Lost`] where the lock was obtained and lost.
            ///
            /// # Cancel safety
            #[doc = concat!(" As [`", stringify!($run), "`](Self::", stringify!($run), ").")]
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
            #[doc = concat!("use lockwright::{NotObtained, ", stringify!($guard), "};")]
            ///
            /// # let client = lockwright::Client::embedded();
            #[doc = concat!("let lock = client.", $maker, ";")]
            #[doc = concat!("let _held = lock.", $block, ".await?;")]
            #[doc = concat!("let done = lock.", stringify!($run_or_else), "(async |_: &", stringify!($guard), "| \"sold\", async |why| {")]
            ///     assert_eq!(why, NotObtained::Held);
            ///     "somebody else is at it"
            /// }).await?;
            /// assert_eq!(done, "somebody else is at it");
            /// # Ok(()) }
            /// ```
            pub fn $run_or_else<R>(
                &self,
                section: impl AsyncFnOnce(&$guard) -> R,
                otherwise: impl AsyncFnOnce(NotObtained) -> R,
            ) -> impl Future<Output = Result<R, RunError>> {
                crate::handle::run_or_else(self.$attempt(Patience::None), section, otherwise)
            }
        }
    };
}

/// What every kind of lock has which excludes everybody else, on a type around a [`Handle`]; `$maker` is the code that
/// makes one of a client.
macro_rules! lock_methods {
    ($lock:ident, $maker:literal) => {
        impl $lock {
            pub(crate) fn new(handle: Handle) -> Self {
                Self(handle)
            }

            fn with(mut self, change: impl FnOnce(&mut Handle)) -> Self {
                change(&mut self.0);
                self
            }

            fn patience(&self, limit: Duration) -> Patience {
                self.0.patience(limit)
            }

            fn attempt(
                &self,
                patience: Patience,
            ) -> impl Future<Output = Result<Option<Guard>, LockError>> + Send + use<> {
                self.0.attempt(Mode::Exclusive, patience)
            }
        }

        setting_methods!($lock, $maker, "lock()");
        taking_methods!(
            $lock,
            Guard,
            token,
            $maker,
            "lock()",
            attempt,
            "Waits until the lock is free and takes it.",
            lock,
            try_lock,
            try_lock_for,
            try_lock_until,
            run,
            run_for,
            run_or_else
        );
    };
}

pub(crate) use {lock_methods, setting_methods, taking_methods};

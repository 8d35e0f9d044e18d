//! Distributed locks for async Rust on Redis and Valkey.
//!
//! Whoever releases a lock hands it to the next waiter and tells it by a message. A [`Guard`] tells when it is lost,
//! and carries a fencing token by which the guarded resource can refuse whoever comes late.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use lockwright::Client;
//!
//! // Needs the feature `embedded`. With a server: Client::connect("redis://127.0.0.1:6379").await?
//! let client = Client::embedded();
//! let guard = client.lock("order:42").lock().await?;
//! // ... one at a time ...
//! guard.unlock().await?;
//! # Ok(()) }
//! ```
//!
//! One [`Client`] for each process is enough. It gives out handles, such as [`ReentrantLock`]: cheap to make and to
//! clone, without I/O. A handle's methods give guards. [`FairLock`] has the same methods and strict order across all
//! processes; the reentrant lock is faster, since a process passes its hold among its own tasks for a while.
//!
//! # Owners
//!
//! Who may enter a lock again is an [`Owner`]: neither the thread nor the task, but whoever has the value. Without one
//! each acquisition excludes every other one, in the same task too, so a handle that tasks share excludes as it should,
//! and a function that takes a lock which its caller holds waits for ever. With one it enters:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use lockwright::{Client, LockError, ReentrantLock};
//! use lockwright::{InOwner, Owner};
//!
//! async fn inner(lock: &ReentrantLock) -> Result<u64, LockError> {
//!     Ok(lock.lock().await?.token())
//! }
//!
//! let client = Client::embedded();
//! let lock = client.lock("ledger");
//! let owner = Owner::new();
//! async {
//!     let guard = lock.lock().await?;
//!     assert_eq!(inner(&lock).await?, guard.token()); // the same hold, and in one process nothing is sent
//!     Ok::<_, LockError>(())
//! }
//! .in_owner(&owner)
//! .await?;
//!
//! // It can be sent along with a request: the service that receives it enters its caller's lock.
//! let header = serde_json::to_string(&owner)?;
//! let received: Owner = serde_json::from_str(&header)?;
//! assert_eq!(received, owner);
//! # Ok(()) }
//! ```
//!
//! An owner that is used in two tasks at once excludes nothing between them.
//!
//! # Readers and writers
//!
//! A [`RwLock`] lets many read or one write, in one queue, so that neither starves. The readers of one client share one
//! hold at the server: beside others a read sends nothing and is done at its first poll. A
//! [`cached`](RwLock::cached) handle keeps that hold until somebody writes. What is cached under the
//! [stamp](ReadGuard::stamp) of a read is fresh while the stamp is the same:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # async fn slow_store() -> &'static str { "shoes" }
//! use lockwright::Client;
//!
//! let catalogue = Client::embedded().rw_lock("catalogue").cached();
//! let mut cache = None;
//! for _ in 0..1_000 {
//!     let reader = catalogue.read().await?; // sends something the first time, and after a write
//!     let fresh = cache.filter(|&(stamp, _)| stamp == reader.stamp());
//!     let (_, goods) = match fresh {
//!         Some(known) => known,
//!         None => (reader.stamp(), slow_store().await),
//!     };
//!     cache = reader.stamp().map(|stamp| (Some(stamp), goods));
//! }
//!
//! let writer = catalogue.write().await?; // the readers are asked for what they share
//! let reader = writer.downgrade().await?; // nobody writes in between
//! # reader.unlock().await?;
//! # Ok(()) }
//! ```
//!
//! # Leases
//!
//! The server keeps a hold for the length of its [`Lease`], 30 s by default, and the client renews it at a third of
//! that for as long as the guard lives. A process that dies costs the others what is left of its lease. A
//! [fixed](Lease::fixed) lease is not renewed; [`with_max_hold`](ReentrantLock::with_max_hold) bounds a renewed one.
//!
//! # Losing a lock
//!
//! No lock service can promise that a hold is never lost: the process may be stopped for longer than the lease, or the
//! server may lose its data. A guard says so in three ways: [`is_held`](Guard::is_held) compares clocks at the call,
//! [`lost`](Guard::lost) resolves as soon as the runtime runs, and [`unlock`](Guard::unlock) is an error. A guard stops
//! trusting its hold before the server gives it to the next: see [`remaining`](Guard::remaining).
//!
//! Where the server itself has lost the hold (a flush, a failover, a key that somebody deleted) the guard hears that at
//! its next renewal, within a third of the lease: 10 s by default, and less with a shorter lease. Until then it trusts
//! its hold, and somebody else may have the lock: only the token tells the two apart.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use lockwright::Client;
//! use lockwright::{Lease, LossReason};
//! use std::time::Duration;
//!
//! # let client = Client::embedded();
//! let lock = client.lock("report").with_lease(Lease::fixed(Duration::from_secs(5)));
//! let guard = lock.lock().await?;
//! tokio::select! {
//!     reason = guard.lost() => assert_eq!(reason, LossReason::Expired),
//!     () = tokio::time::sleep(Duration::from_secs(60)) => unreachable!("the work takes too long"),
//! }
//! assert!(!guard.is_held());
//! # Ok(()) }
//! ```
//!
//! # Fencing
//!
//! Between the last look at a guard and the arrival of a write anything may happen, so only the resource itself can
//! refuse a write that comes late. [`Guard::token`] is larger with each grant of a lock: send it along, and have the
//! resource refuse a token smaller than the largest that it has seen. In Redis that is a [`FencedKey`]; in SQL it is a
//! column and a condition (`... WHERE token <= $2`).
//!
//! What is promised, in these words: *grants of one lock are ordered by token; while the server loses no data, its
//! clock takes no step beyond the margin and nobody forces a release, no two holders' validity overlaps; a resource
//! that refuses tokens smaller than the largest it has seen is never written by a stale holder.* The margin is 1 % of
//! the lease and 10 ms.
//!
//! # Testing
//!
//! With the feature `embedded` the same Lua scripts run in this process, on an engine in memory (`Engine`), and live on
//! tokio's clock: a test that pauses it sees leases end when it says so. Each client on one engine is what a process
//! is on a server. Development alone needs it:
//!
//! ```toml
//! [dev-dependencies]
//! lockwright = { path = "../lockwright", features = ["embedded"] }
//! tokio = { version = "1", features = ["macros", "rt", "test-util"] }
//! ```
//!
//! ```
//! # use lockwright::{Client, Engine};
//! # use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a test: #[tokio::test(start_paused = true)]
//! let engine = Engine::new();
//! let (one, other) = (Client::embedded_on(&engine), Client::embedded_on(&engine));
//! let guard = one.lock("job").lock().await?;
//! // A minute of waiting takes no time.
//! assert!(other.lock("job").try_lock_for(Duration::from_secs(60)).await?.is_none());
//! # drop(guard);
//! # Ok(()) }
//! ```
//!
//! # `run` or `lock`
//!
//! [`run`](ReentrantLock::run) takes a section, drops it at its present await when the hold is lost, and releases: what
//! most sections want. [`lock`](ReentrantLock::lock) gives the guard itself: for a hold that is kept in a value, handed
//! to a task, or watched by `select!`.
//!
//! A closure of one's own can be run in a spawned task. A *generic* function cannot spawn a section that its caller
//! gives it: whether the future of an `AsyncFnOnce` is `Send` cannot be asked for in stable Rust. Such a wrapper takes
//! a future instead, and watches the guard itself:
//!
//! ```
//! use lockwright::{LockError, LossReason, ReentrantLock};
//!
//! fn spawn_under<T: Send + 'static>(
//!     lock: &ReentrantLock,
//!     section: impl Future<Output = T> + Send + 'static,
//! ) -> tokio::task::JoinHandle<Result<Result<T, LossReason>, LockError>> {
//!     let guard = lock.lock();
//!     tokio::spawn(async move {
//!         let guard = guard.await?;
//!         tokio::select! {
//!             biased;
//!             reason = guard.lost() => Ok(Err(reason)),
//!             output = section => Ok(Ok(output)),
//!         }
//!     })
//! }
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # let lock = lockwright::Client::embedded().lock("a");
//! # assert_eq!(spawn_under(&lock, async { 7 }).await.unwrap(), Ok(Ok(7)));
//! # }
//! ```
//!
//! # Errors
//!
//! One type for each operation whose outcomes differ, and contention is none of them. What is asked of a server that
//! does not answer ends after `unavailable_after` (10 s by default); waiting for another holder may last.

// `compose!` takes a step for each file of a script, and a batch has those of two.
#![recursion_limit = "256"]
// The module `internals` makes every private item public; builds without it hold the rule.
#![cfg_attr(lockwright_internals, allow(missing_docs))]
// What only our own tests use is no news to whoever builds this crate by its path.
#![cfg_attr(not(lockwright_internals), allow(dead_code))]

#[cfg(not(any(feature = "fred", feature = "embedded")))]
compile_error!("lockwright needs a back end: enable the feature `fred` or `embedded`");

mod acquire;
mod backend;
mod chance;
mod client;
mod clock;
mod config;
mod courier;
mod error;
mod fenced;
mod guard;
mod handle;
mod lease;
mod local;
mod lock;
mod mutant;
mod name;
mod owner;
mod scripts;
mod sync;
mod ticket;
mod token;
mod wakeup;
mod watchdog;

#[cfg(feature = "embedded")]
pub use backend::embedded::Engine;
pub use client::{Client, ClientBuilder};
pub use error::{
    ConnectError, DowngradeError, ExtendError, FencedError, InvalidLease, InvalidName, InvalidNamespace,
    LockError, LossReason, NotObtained, PingError, RunError, UnlockError,
};
pub use fenced::FencedKey;
pub use guard::{Guard, Lost, Renewal};
pub use lease::Lease;
pub use lock::fair::{FairLock, Place, Position, Step};
pub use lock::read_write::{ReadGuard, RwLock, Stamp, WriteGuard};
pub use lock::reentrant::ReentrantLock;
pub use owner::{InOwner, Owner};
pub use scripts::{FencedValue, HoldInfo, Kind, LockInfo, Mode, WaitInfo};

/// For the tests and benches of this repository alone; no part of the API.
#[cfg(lockwright_internals)]
#[doc(hidden)]
pub mod internals {
    macro_rules! expose {
        ($($module:ident)*) => { $(pub mod $module { pub use crate::$module::*; })* };
    }
    expose!(backend chance clock config error mutant name owner scripts ticket token);

    #[cfg(feature = "embedded")]
    pub mod embedded {
        pub use crate::backend::embedded::*;
    }

    #[cfg(lockwright_loom)]
    pub mod books {
        pub use crate::guard::Hold;
        pub use crate::local::parts::*;
    }

    #[cfg(lockwright_loom)]
    pub mod courier {
        pub use crate::courier::{Courier, Parcels};
    }

    /// A client over any back end, its tasks on the present runtime.
    pub fn client(
        back_end: (std::sync::Arc<dyn backend::Backend>, backend::EventReceiver),
        config: config::Config,
        id: ticket::ClientId,
        clock: clock::Clock,
        chance: chance::Chance,
    ) -> crate::Client {
        crate::Client::start(back_end.0, back_end.1, config, id, clock, chance)
    }

    /// How many entries the client's books have: none while nobody holds, waits or leaves.
    pub fn entries(client: &crate::Client) -> usize {
        client.entries()
    }
}

/// The programs in README.md run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

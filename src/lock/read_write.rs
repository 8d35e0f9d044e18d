//! The read/write lock.

mod guards;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::acquire;
use crate::error::{LockError, NotObtained, RunError};
use crate::guard::{Grip, Gripped};
use crate::handle::{Handle, Patience, setting_methods, taking_methods};
use crate::lease::Lease;
use crate::local::HoldRef;
use crate::owner::Owner;
use crate::scripts::Mode;
use crate::sync::{Mutex, lock};

pub use guards::{ReadGuard, Stamp, WriteGuard};

/// A lock that many read, or one writes.
///
/// A handle: cheap to clone, and making one does no I/O; a name or a lease that no lock can have is reported by the
/// first operation. Handles of one name are one lock, in all processes that use the same server and namespace.
///
/// **Order.** Readers and writers stand in one queue: a reader that finds a waiting writer waits behind it, the readers at
/// the head enter together, and nobody starves.
///
/// **Shared reads.** The readers of one client share one hold at the server: while it is there and no writer waits,
/// [`read`](Self::read) is done at its first poll, and nothing is sent for it. When a writer begins to wait, later readers
/// of the client wait behind it, and the hold is given back when those inside are out: so a busy crowd of readers delays a
/// writer by no more than the longest running read and one round trip (and what is left of its lease where a reader died).
/// Readers that have an owner, a [fixed](Lease::fixed) lease or `max_hold` have a hold each; those with different leases
/// or labels share one of their own.
///
/// **Cached reads.** The hold of a [`cached`](Self::cached) handle stays when the last reader is out, until a writer comes:
/// reads between two writes send nothing. See there.
///
/// **Re-entry.** An acquisition belongs to the [`Owner`] given with [`with_owner`](Self::with_owner), else to that of the
/// enclosing [`Owner::scope`], else to itself alone. An owner that writes may read and write again; one that reads may
/// read again, past waiting writers. One that reads and asks to write gets [`LockError::WouldDeadlock`]: release the read
/// first, or begin with the write and [downgrade](WriteGuard::downgrade) it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use lockwright::Client;
///
/// let client = Client::embedded();
/// let catalogue = client.rw_lock("catalogue");
/// let (one, other) = (catalogue.read().await?, catalogue.read().await?);
/// assert!(catalogue.try_write().await?.is_none());
/// drop((one, other));
/// let writer = catalogue.write().await?;
/// assert!(catalogue.try_read().await?.is_none());
/// writer.unlock().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RwLock(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    handle: Handle,
    /// The shared hold by which this handle, or a clone of it, read last: while it is there nobody needs the client's
    /// books. (Its mutex is of this handle alone, and held for one copy of a pointer.)
    shared: Shared,
}

#[derive(Default)]
struct Shared(Mutex<Option<Arc<HoldRef>>>);

impl Clone for Shared {
    /// Empty: with other settings it may be another hold.
    fn clone(&self) -> Self {
        Self::default()
    }
}

setting_methods!(RwLock, "rw_lock(\"order:42\")", "write()");

taking_methods!(
    RwLock,
    ReadGuard,
    version,
    "rw_lock(\"order:42\")",
    "write()",
    attempt_read,
    "Waits until nobody writes, and no writer waits that came before, and begins to read.",
    read,
    try_read,
    try_read_for,
    try_read_until,
    run_read,
    run_read_for,
    run_read_or_else
);

taking_methods!(
    RwLock,
    WriteGuard,
    token,
    "rw_lock(\"order:42\")",
    "read()",
    attempt_write,
    "Waits until nobody reads or writes, and begins to write.",
    write,
    try_write,
    try_write_for,
    try_write_until,
    run_write,
    run_write_for,
    run_write_or_else
);

impl RwLock {
    pub(crate) fn new(handle: Handle) -> Self {
        Self(Arc::new(Inner { handle, shared: Shared::default() }))
    }

    /// This lock with reads that are cached: when the last reader of this client is out its hold stays, so that the next
    /// one needs no answer of the server. It is given back when a writer comes, when nobody has read for the client's
    /// [`cache_idle`](crate::ClientBuilder::cache_idle), and when the client is closed. A writer then waits for one round
    /// trip more than without.
    ///
    /// What is read under the lock can be cached along with it: see [`ReadGuard::stamp`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::{Client, Engine};
    ///
    /// let engine = Engine::new();
    /// let (here, there) = (Client::embedded_on(&engine), Client::embedded_on(&engine));
    /// let cached = here.rw_lock("catalogue").cached();
    /// drop(cached.read().await?);
    /// assert!(cached.try_read_cached().is_some(), "the hold is still there, and nothing was sent");
    /// // Until somebody writes.
    /// there.rw_lock("catalogue").write().await?.unlock().await?;
    /// assert!(cached.try_read_cached().is_none());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cached(&self) -> Self {
        self.clone().with(|handle| handle.keep = true)
    }

    /// Reads if that needs no answer of the server: a hold that this client's readers share is there and no writer is
    /// known to wait, or the owner reads already. `None` otherwise, also where the lock is free: then [`read`](Self::read).
    /// Does no I/O and can be called anywhere.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// let lock = client.rw_lock("catalogue");
    /// assert!(lock.try_read_cached().is_none());
    /// let _reader = lock.read().await?;
    /// assert!(lock.try_read_cached().is_some());
    /// # Ok(()) }
    /// ```
    #[must_use = "a guard that is dropped at once reads nothing"]
    pub fn try_read_cached(&self) -> Option<ReadGuard> {
        let owner = self.0.handle.present_owner();
        if let Some(guard) = self.0.join(owner.as_ref()) {
            return Some(guard);
        }
        let request = self.0.handle.request(Mode::Read, owner, Patience::None).ok()?;
        let tether = &self.0.handle.tether;
        let held = tether.reenter(&request)?;
        Some(self.0.reader(Grip::new(tether.clone(), held)))
    }

    fn with(self, change: impl FnOnce(&mut Handle)) -> Self {
        let mut inner = Inner::clone(&self.0);
        change(&mut inner.handle);
        Self(Arc::new(inner))
    }

    fn patience(&self, limit: Duration) -> Patience {
        self.0.handle.patience(limit)
    }

    fn attempt_read(
        &self,
        patience: Patience,
    ) -> impl Future<Output = Result<Option<ReadGuard>, LockError>> + Send + use<> {
        let (inner, owner) = (self.0.clone(), self.0.handle.present_owner());
        async move {
            if let Some(guard) = inner.join(owner.as_ref()) {
                return Ok(Some(guard));
            }
            let request = inner.handle.request(Mode::Read, owner, patience)?;
            let grip = acquire(inner.handle.tether.clone(), request, patience.deadline()).await?;
            Ok(grip.map(|grip| inner.reader(grip)))
        }
    }

    fn attempt_write(
        &self,
        patience: Patience,
    ) -> impl Future<Output = Result<Option<WriteGuard>, LockError>> + Send + use<> {
        self.0.handle.attempt(Mode::Write, patience)
    }
}

impl Inner {
    /// Reads along with others by the hold that is known here, if it is still there. An owner reads by its own.
    fn join(&self, owner: Option<&Owner>) -> Option<ReadGuard> {
        if owner.is_some() {
            return None;
        }
        let held = lock(&self.shared.0).clone()?;
        let Handle { tether, keep, .. } = &self.handle;
        held.admit(*keep, tether.now()).then(|| ReadGuard::of(Grip::new(tether.clone(), held)))
    }

    /// The guard of a read that the books have let in; later ones may join it.
    fn reader(&self, grip: Grip) -> ReadGuard {
        if grip.held().gate.is_some() {
            *lock(&self.shared.0) = Some(grip.held().clone());
        }
        ReadGuard::of(grip)
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.handle.describe("RwLock", f)
    }
}

//! What a reader and a writer have of a read/write lock.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::error::{DowngradeError, ExtendError, UnlockError};
use crate::guard::{Grip, Gripped, Lost, Renewal, guard_methods};
use crate::ticket::ClientId;

/// A [`RwLock`](crate::RwLock) that is read. Dropping it ends the read in the background.
///
/// Readers of one client may share one hold: it is renewed, lost and given back for all of them together. For what a guard
/// can promise, and what not, see [`Guard`](crate::Guard).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use lockwright::Client;
///
/// let reader = Client::embedded().rw_lock("catalogue").read().await?;
/// assert!(reader.is_held());
/// reader.unlock().await?;
/// # Ok(()) }
/// ```
#[must_use = "a guard that is dropped at once reads nothing"]
pub struct ReadGuard(Grip);

guard_methods!(ReadGuard, "rw_lock(\"a\")", "read()");

impl ReadGuard {
    /// The version of what is read: it is larger after each write, and larger than that write's token. Always below 2^53.
    ///
    /// A resource, or a cache, that has seen a reader's version refuses smaller tokens: then a writer that lost the lock
    /// without knowing it cannot change any more what has been read since. A read under a write of its own owner shows
    /// that write's token, so that what it sends passes too.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let lock = lockwright::Client::embedded().rw_lock("a");
    /// let before = lock.read().await?.version();
    /// let written = lock.write().await?.token();
    /// let after = lock.read().await?.version();
    /// assert!(before < written && written < after);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.token()
    }

    /// What tells a later reader whether what was cached under this read is still fresh: it is while that reader's stamp
    /// is the same, for then nobody has written in between. `None` where nothing may be cached: an owner may read under
    /// its own write, and see what is not finished; and a read that was granted while the connection was made anew may be
    /// of a server that the client has not met yet.
    ///
    /// Beside the [version](Self::version) a stamp knows which server gave it: a failover that lost writes may bring an
    /// old version back, with other data behind it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let lock = lockwright::Client::embedded().rw_lock("a");
    /// let cached = (lock.read().await?.stamp(), "what the slow store said");
    /// let reader = lock.read().await?;
    /// assert!(reader.stamp().is_some() && reader.stamp() == cached.0, "nobody has written: it can be used");
    /// # reader.unlock().await?;
    /// lock.write().await?.unlock().await?;
    /// assert!(lock.read().await?.stamp() != cached.0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn stamp(&self) -> Option<Stamp> {
        let held = self.0.held();
        let servers = held.servers.filter(|_| held.owner.is_none())?;
        Some(Stamp { client: held.ticket.client, servers, version: self.version() })
    }
}

/// Under which what a reader has cached is fresh; from [`ReadGuard::stamp`]. Stamps of different clients, or locks, do not
/// compare.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stamp {
    client: ClientId,
    /// How many servers the client has met.
    servers: u64,
    version: u64,
}

/// A [`RwLock`](crate::RwLock) that is written. Dropping it ends the write in the background.
///
/// For what a guard can promise, and what not, see [`Guard`](crate::Guard).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use lockwright::Client;
///
/// let writer = Client::embedded().rw_lock("catalogue").write().await?;
/// assert!(writer.is_held());
/// writer.unlock().await?;
/// # Ok(()) }
/// ```
#[must_use = "a guard that is dropped at once writes nothing"]
pub struct WriteGuard(Grip);

guard_methods!(WriteGuard, "rw_lock(\"a\")", "write()");

impl WriteGuard {
    /// The fencing token of this write: strictly larger with each new write, and than the version that any reader before
    /// it has seen; the same again where an owner re-enters. See [`Guard::token`](crate::Guard::token).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let lock = lockwright::Client::embedded().rw_lock("a");
    /// let first = lock.write().await?.token();
    /// assert!(lock.write().await?.token() > first);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn token(&self) -> u64 {
        self.0.token()
    }

    /// Goes on as a reader, without a moment in which somebody else could write: what was written can be read back, while
    /// other readers enter. Where the owner has further writes, those stay. What is left of a [fixed](crate::Lease::fixed)
    /// lease, or of `max_hold`, is the read's: it ends no later than the write would have.
    ///
    /// # Errors
    /// See [`DowngradeError`]. Nothing is held then, neither the write nor a read.
    ///
    /// # Cancel safety
    /// Where the future is dropped before it has completed nothing is held: what is left at the server is given back in
    /// the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let lock = lockwright::Client::embedded().rw_lock("a");
    /// let writer = lock.write().await?;
    /// let token = writer.token();
    /// let reader = writer.downgrade().await?;
    /// assert!(reader.version() > token && lock.try_read().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(self) -> Result<ReadGuard, DowngradeError> {
        self.0.downgrade().await.map(ReadGuard::of)
    }
}

impl fmt::Debug for ReadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe("ReadGuard", "version", f)
    }
}

impl fmt::Debug for WriteGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe("WriteGuard", "token", f)
    }
}

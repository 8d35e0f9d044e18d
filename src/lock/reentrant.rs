//! The reentrant lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{LockError, NotObtained, RunError};
use crate::guard::Guard;
use crate::handle::{Handle, Patience, lock_methods, setting_methods, taking_methods};
use crate::lease::Lease;
use crate::owner::Owner;
use crate::scripts::Mode;

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

lock_methods!(ReentrantLock, "lock(\"order:42\")");

impl fmt::Debug for ReentrantLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe("ReentrantLock", f)
    }
}

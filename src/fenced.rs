//! A value in Redis that a stale holder cannot overwrite.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::error::{FencedError, InvalidName};
use crate::local::Tether;
use crate::name::LockKeys;
use crate::scripts::FencedValue;

/// A text in Redis that is written together with a fencing token, and refuses a token smaller than the largest that
/// has written: a holder that lost its lock without knowing it can do no harm here.
///
/// A handle: cheap to clone, and making one does no I/O. Compare and write are one script, so nothing comes between.
/// Writing again with the same token is allowed. The key has no time to live, for it must remember its token: it
/// stays until somebody deletes it by `DEL`, and with it forgets the largest token: only where no stale holder can be
/// left. It is the hash `<namespace>:{<name>}:fenced`, beside the keys of the lock of that name.
///
/// The same thing in SQL, with a column `token`; a statement that changes no row was refused:
///
/// ```sql
/// INSERT INTO stock (name, left_over, token) VALUES ('shoe', $1, $2)
/// ON CONFLICT (name) DO UPDATE SET left_over = excluded.left_over, token = excluded.token
/// WHERE stock.token <= excluded.token
/// ```
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use lockwright::{Client, FencedError};
///
/// let client = Client::embedded();
/// let (lock, stock) = (client.lock("shoe"), client.fenced_key("shoe"));
///
/// let guard = lock.lock().await?;
/// stock.set(guard.token(), "12").await?;
/// let late = guard.token();
/// guard.unlock().await?;
///
/// // Somebody else's turn. Then the first one, which does not know that its own is over, comes late.
/// let guard = lock.lock().await?;
/// stock.set(guard.token(), "11").await?;
/// assert_eq!(stock.set(late, "11").await, Err(FencedError::Stale { largest: guard.token() }));
///
/// let found = stock.get().await?.expect("it was written");
/// assert_eq!((found.value.as_str(), found.token), ("11", guard.token()));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct FencedKey {
    tether: Arc<Tether>,
    keys: Result<LockKeys, InvalidName>,
}

impl FencedKey {
    pub(crate) fn new(tether: Arc<Tether>, keys: Result<LockKeys, InvalidName>) -> Self {
        Self { tether, keys }
    }

    /// Writes `value`, unless a token larger than `token` has written before. `token` is that of the
    /// [guard](crate::Guard::token) under which this is written, here or wherever the request came from.
    ///
    /// # Errors
    /// [`FencedError::Stale`] where a larger token has written: the hold was lost, and the next holder has been here.
    /// After [`FencedError::Unavailable`] it is unknown whether the value was written; writing again with the same
    /// token is safe, and whatever is still under way of the first attempt then changes nothing any more.
    ///
    /// # Cancel safety
    /// Once polled, the request is carried through.
    pub fn set(
        &self,
        token: u64,
        value: impl Into<String>,
    ) -> impl Future<Output = Result<(), FencedError>> + Send + 'static {
        let (tether, keys, value) = (self.tether.clone(), self.keys.clone(), value.into());
        async move { tether.local().fenced_set(keys?, token, &value).await }
    }

    /// Reads the value and the token that wrote it; `None` where nothing was written yet.
    ///
    /// # Errors
    /// See [`FencedError`].
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub fn get(&self) -> impl Future<Output = Result<Option<FencedValue>, FencedError>> + Send + use<> {
        let (tether, keys) = (self.tether.clone(), self.keys.clone());
        async move { tether.local().fenced_get(keys?).await }
    }
}

impl fmt::Debug for FencedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedKey").field("key", &self.keys).finish_non_exhaustive()
    }
}

//! One test over both kinds: here a lock whose name begins with `fair` is a fair one, any other a reentrant one.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockwright::{Client, Guard, LockError};

/// A lock of each kind.
pub const KINDS: [&str; 2] = ["a", "fair"];

pub fn is_fair(name: &str) -> bool {
    name.starts_with("fair")
}

/// A method of the handle of this name, whatever its kind.
macro_rules! of_kind {
    ($client:ident, $name:ident, $method:ident($($argument:expr)?)) => {
        if is_fair($name) {
            $client.fair_lock($name).$method($($argument)?).boxed()
        } else {
            $client.lock($name).$method($($argument)?).boxed()
        }
    };
}

pub fn lock(client: &Client, name: &str) -> BoxFuture<'static, Result<Guard, LockError>> {
    of_kind!(client, name, lock())
}

pub fn try_lock(client: &Client, name: &str) -> BoxFuture<'static, Result<Option<Guard>, LockError>> {
    of_kind!(client, name, try_lock())
}

pub fn try_lock_for(
    client: &Client,
    name: &str,
    span: Duration,
) -> BoxFuture<'static, Result<Option<Guard>, LockError>> {
    of_kind!(client, name, try_lock_for(span))
}

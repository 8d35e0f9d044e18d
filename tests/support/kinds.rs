//! One test over both kinds: here a lock whose name begins with `fair` is a fair one, any other a reentrant one. And
//! one over all roles: `read x` and `write x` are a reader and a writer of the read/write lock `x`, any other role is
//! to hold the lock of this name.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockwright::{Client, ExtendError, Guard, LockError, Lost, ReadGuard, RwLock, UnlockError, WriteGuard};

/// A lock of each kind.
pub const KINDS: [&str; 2] = ["a", "fair"];

/// A reader and a writer.
pub const READ_WRITE: [&str; 2] = ["read x", "write x"];

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

/// The lock that a role is about.
pub fn lock_of(role: &str) -> &str {
    role.strip_prefix("read ").or_else(|| role.strip_prefix("write ")).unwrap_or(role)
}

/// What any role holds.
pub enum AnyGuard {
    One(Guard),
    Read(ReadGuard),
    Write(WriteGuard),
}

macro_rules! any {
    ($self:ident, $guard:ident => $answer:expr) => {
        match $self {
            Self::One($guard) => $answer,
            Self::Read($guard) => $answer,
            Self::Write($guard) => $answer,
        }
    };
}

impl AnyGuard {
    /// Of a reader that is its version.
    pub fn token(&self) -> u64 {
        match self {
            Self::One(guard) => guard.token(),
            Self::Read(guard) => guard.version(),
            Self::Write(guard) => guard.token(),
        }
    }

    pub fn is_held(&self) -> bool {
        any!(self, guard => guard.is_held())
    }

    pub fn remaining(&self) -> Duration {
        any!(self, guard => guard.remaining())
    }

    pub fn lost(&self) -> Lost {
        any!(self, guard => guard.lost())
    }

    pub async fn extend(&self, length: Duration) -> Result<(), ExtendError> {
        any!(self, guard => guard.extend(length).await)
    }

    pub async fn unlock(self) -> Result<(), UnlockError> {
        any!(self, guard => guard.unlock().await)
    }
}

/// Holds in this role, whenever that can be.
pub fn hold(client: &Client, role: &str) -> BoxFuture<'static, Result<AnyGuard, LockError>> {
    let rw_lock: RwLock = client.rw_lock(lock_of(role));
    if role.starts_with("read ") {
        rw_lock.read().map(|read| read.map(AnyGuard::Read)).boxed()
    } else if role.starts_with("write ") {
        rw_lock.write().map(|write| write.map(AnyGuard::Write)).boxed()
    } else {
        lock(client, role).map(|guard| guard.map(AnyGuard::One)).boxed()
    }
}

//! Who may re-enter a lock: an owner, never a thread or a task.

use std::fmt;
use std::future::Future;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::chance;

/// The identity of an owner, as the server stores it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OwnerId(Uuid);

impl OwnerId {
    /// The id in the form that the server stores; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Uuid::try_parse(text).ok()?;
        (id.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text).then_some(Self(id))
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

tokio::task_local! {
    static CURRENT: Owner;
}

/// Whoever may re-enter a lock: one call path.
///
/// A lock that is held by an owner is granted again, at once, to the same owner. Without an owner each acquisition
/// stands for itself and excludes every other one, in the same task too. An owner is never the thread and never the
/// task: a handle that two tasks share excludes as it should.
///
/// An owner is a capability: whoever has it re-enters. It can be serialised and sent along with a request, so that
/// the service which receives it re-enters its caller's lock instead of waiting for it for ever; each process has a
/// hold of its own there, with its own lease. **An owner that is used in two tasks at once excludes nothing between
/// those tasks.**
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(OwnerId);

impl Owner {
    /// A new owner, different from all others.
    ///
    /// ```
    /// use lockwright::Owner;
    ///
    /// assert_ne!(Owner::new(), Owner::new());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self(OwnerId(chance::identity()))
    }

    /// Runs `future` with this owner: every acquisition that is asked for inside it, of whatever client, and names no
    /// other owner, belongs to this one. (One that is to exclude this call path, too, names an owner of its own.) It
    /// does not reach into tasks that `future` spawns.
    ///
    /// # Cancel safety
    /// As cancel safe as `future` is.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use lockwright::Owner;
    ///
    /// let owner = Owner::new();
    /// assert_eq!(owner.scope(async { Owner::current() }).await, Some(owner));
    /// assert_eq!(Owner::current(), None);
    /// # }
    /// ```
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), future)
    }

    /// The owner of the innermost [`Owner::scope`] around the caller, if there is one.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    pub(crate) fn id(&self) -> OwnerId {
        self.0
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Owner {
    /// Shows the first eight digits: the whole would let its reader re-enter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({}..)", &self.0.to_string()[..8])
    }
}

/// Gives every future [`in_owner`](InOwner::in_owner).
pub trait InOwner: Future + Sized {
    /// Runs this future with `owner`, as [`Owner::scope`] does. What a lock is asked for is its owner's where the call
    /// stands inside: `async { lock.lock().await }.in_owner(&owner)`. In `lock.lock().in_owner(&owner)` the call comes
    /// before the scope, and has no owner of it: there take [`with_owner`](crate::ReentrantLock::with_owner).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use lockwright::{InOwner, Owner};
    ///
    /// let owner = Owner::new();
    /// assert_eq!(async { Owner::current() }.in_owner(&owner).await, Some(owner));
    /// # }
    /// ```
    fn in_owner(self, owner: &Owner) -> impl Future<Output = Self::Output> + use<Self> {
        owner.scope(self)
    }
}

impl<F: Future> InOwner for F {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_travels_and_shows_little_of_itself() {
        let owner = Owner::new();
        let shown = format!("{owner:?}");
        assert!(!shown.contains(&owner.id().to_string()), "{shown}");
        assert_eq!(OwnerId::parse(&owner.id().to_string()), Some(owner.id()));
        assert_eq!(OwnerId::parse("-"), None);
    }
}

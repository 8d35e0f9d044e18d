//! The kinds of lock.

pub(crate) mod fair;
pub(crate) mod reentrant;

//! The kinds of lock.

pub(crate) mod reentrant;

//! The kinds of lock.

pub(crate) mod fair;
pub(crate) mod read_write;
pub(crate) mod reentrant;

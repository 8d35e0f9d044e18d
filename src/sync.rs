//! The primitives that the state machines use: `std`'s, or loom's under `--cfg lockwright_loom`, so that a model checks
//! the code that ships. (`--cfg loom` itself would have tokio and others use loom, too, and leave out what we need.)

// Never loom's: it cannot hold a trait object, and no model of ours is about reference counts.
pub(crate) use std::sync::Arc;

#[cfg(lockwright_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
#[cfg(not(lockwright_loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Locks, and goes on after a panic of another holder: every critical section of ours leaves its state whole at
/// each step, and one user's panicking waker must not take every lock of the process with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

//! The primitives that the state machines use: `std`'s, or loom's under `--cfg loom`, so that a model checks the
//! code that ships.

// Never loom's: it cannot hold a trait object, and no model of ours is about reference counts.
pub(crate) use std::sync::Arc;

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Locks, and goes on after a panic of another holder: every critical section of ours leaves its state whole at
/// each step, and one user's panicking waker must not take every lock of the process with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

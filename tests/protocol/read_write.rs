//! The scripts of the read/write lock.

mod downgrade;
mod held;
mod holds;
mod keys;
mod limits;
mod owners;
mod queue;

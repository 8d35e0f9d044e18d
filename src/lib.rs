//! Distributed locks for async Rust on Redis and Valkey.

#[cfg(not(feature = "fred"))]
compile_error!("lockwright needs a back end: enable the feature `fred`");

mod backend;
mod chance;
mod clock;
mod config;
mod error;
mod lease;
mod name;
mod owner;
mod scripts;
mod sync;
mod ticket;
mod token;

pub use lease::Lease;

//! Distributed locks for async Rust on Redis and Valkey.

#[cfg(not(feature = "fred"))]
compile_error!("lockwright needs a back end: enable the feature `fred`");

mod chance;
mod clock;
mod error;
mod lease;
mod name;
mod owner;
mod sync;
mod token;

macro_rules! private {
    ($($module:ident)*) => {
        $(#[allow(missing_docs, reason = "no user sees it, and its names speak for themselves")] mod $module;)*
    };
}
private!(backend config scripts ticket);

pub use lease::Lease;

/// For the tests and benches of this repository alone; no part of the API.
#[cfg(lockwright_internals)]
#[doc(hidden)]
#[allow(missing_docs)]
pub mod internals {
    macro_rules! expose {
        ($($module:ident)*) => { $(pub mod $module { pub use crate::$module::*; })* };
    }
    expose!(backend chance clock config error name owner scripts ticket token);
}

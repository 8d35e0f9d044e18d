//! Distributed locks for async Rust on Redis and Valkey.

// The module `internals` makes every private item public; builds without it hold the rule.
#![cfg_attr(lockwright_internals, allow(missing_docs))]

#[cfg(not(any(feature = "fred", feature = "embedded")))]
compile_error!("lockwright needs a back end: enable the feature `fred` or `embedded`");

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

#[cfg(feature = "embedded")]
pub use backend::embedded::Engine;
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

    #[cfg(feature = "embedded")]
    pub mod embedded {
        pub use crate::backend::embedded::*;
    }
}

//! Distributed locks for async Rust on Redis and Valkey.

// The module `internals` makes every private item public; builds without it hold the rule.
#![cfg_attr(lockwright_internals, allow(missing_docs))]

#[cfg(not(any(feature = "fred", feature = "embedded")))]
compile_error!("lockwright needs a back end: enable the feature `fred` or `embedded`");

mod acquire;
mod backend;
mod chance;
mod client;
mod clock;
mod config;
mod courier;
mod error;
mod guard;
mod handle;
mod lease;
mod local;
mod lock;
mod mutant;
mod name;
mod owner;
mod scripts;
mod sync;
mod ticket;
mod token;
mod wakeup;
mod watchdog;

#[cfg(feature = "embedded")]
pub use backend::embedded::Engine;
pub use client::{Client, ClientBuilder};
pub use error::{
    ConnectError, ExtendError, InvalidLease, InvalidName, InvalidNamespace, LockError, LossReason,
    NotObtained, PingError, RunError, UnlockError,
};
pub use guard::{Guard, Lost, Renewal};
pub use lease::Lease;
pub use lock::fair::{FairLock, Place, Position, Step};
pub use lock::reentrant::ReentrantLock;
pub use owner::{InOwner, Owner};
pub use scripts::{HoldInfo, Kind, LockInfo, Mode, WaitInfo};

/// For the tests and benches of this repository alone; no part of the API.
#[cfg(lockwright_internals)]
#[doc(hidden)]
pub mod internals {
    macro_rules! expose {
        ($($module:ident)*) => { $(pub mod $module { pub use crate::$module::*; })* };
    }
    expose!(backend chance clock config error mutant name owner scripts ticket token);

    #[cfg(feature = "embedded")]
    pub mod embedded {
        pub use crate::backend::embedded::*;
    }

    /// A client over any back end, its tasks on the present runtime.
    pub fn client(
        back_end: (std::sync::Arc<dyn backend::Backend>, backend::EventReceiver),
        config: config::Config,
        id: ticket::ClientId,
        clock: clock::Clock,
        chance: chance::Chance,
    ) -> crate::Client {
        crate::Client::start(back_end.0, back_end.1, config, id, clock, chance)
    }
}

/// The programs in README.md run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

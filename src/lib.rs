//! Distributed locks for async Rust on Redis and Valkey.

// The module `internals` makes every private item public; builds without it hold the rule.
#![cfg_attr(lockwright_internals, allow(missing_docs))]

#[cfg(not(feature = "fred"))]
compile_error!("lockwright needs a back end: enable the feature `fred`");

mod acquire;
#[allow(missing_docs, reason = "its names speak for themselves, and no user sees them")]
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

pub use client::{Client, ClientBuilder};
pub use error::{
    ConnectError, ExtendError, InvalidLease, InvalidName, InvalidNamespace, LockError, LossReason,
    NotObtained, PingError, RunError, UnlockError,
};
pub use guard::{Guard, Lost, Renewal};
pub use lease::Lease;
pub use lock::reentrant::ReentrantLock;
pub use owner::{InOwner, Owner};
pub use scripts::{HoldInfo, Kind, LockInfo, Mode, WaitInfo};

/// For the tests and benches of this repository alone; no part of the API.
#[cfg(lockwright_internals)]
#[doc(hidden)]
#[allow(missing_docs)]
pub mod internals {
    macro_rules! expose {
        ($($module:ident)*) => { $(pub mod $module { pub use crate::$module::*; })* };
    }
    expose!(backend chance clock config error mutant name owner scripts ticket token);

    /// A client over any back end, its tasks on the present runtime.
    pub fn client(
        back_end: (std::sync::Arc<dyn crate::backend::Backend>, crate::backend::EventReceiver),
        config: crate::config::Config,
        id: crate::ticket::ClientId,
        clock: crate::clock::Clock,
        chance: crate::chance::Chance,
    ) -> crate::Client {
        crate::Client::start(back_end.0, back_end.1, config, id, clock, chance)
    }
}

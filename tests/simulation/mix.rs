//! What kinds of histories there are: how bad the network is, which faults happen, what the clients do.

use std::time::Duration;

use lockwright::internals::config::Config;
use lockwright::{Kind, Lease};

use crate::faults::Fault;
use crate::faults::Fault::*;
use crate::workload::Step;
use crate::workload::Step::*;

/// Of a hundred requests, replies and messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub requests_lost: f64,
    /// Executed after the client's timeout, up to seconds late.
    pub requests_late: f64,
    pub replies_lost: f64,
    pub messages_lost: f64,
    /// On the way for up to 200 ms.
    pub slow: f64,
}

/// One of a history's locks.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    pub name: &'static str,
    pub kind: Kind,
}

impl Named {
    /// `K`.
    pub fn key(self) -> String {
        format!("lw:{{{}}}", self.name)
    }
}

/// One kind of history.
#[derive(Debug)]
pub struct Mix {
    pub name: &'static str,
    /// The locks that a history may have: the first one, or all of them.
    pub locks: &'static [Named],
    /// Of a hundred histories: those that have all of them.
    pub all_locks: f64,
    /// Out of how many it is one.
    pub weight: u64,
    pub weather: Weather,
    pub faults: &'static [(Fault, u64)],
    /// The mean time between two of these faults, in milliseconds.
    pub every: u64,
    /// After how many operations it ends.
    pub operations: u64,
    pub steps: &'static [(Step, u64)],
    pub leases: &'static [Terms],
    /// Whether the number that `PUBLISH` returns can be trusted.
    pub counted: bool,
    /// Whether the scripts' limits are small.
    pub short_queue: bool,
    /// Of a hundred attempts: cut off at a random poll or moment; with an owner that others share.
    pub cancelled: f64,
    pub owned: f64,
}

/// How an attempt's hold lives.
#[derive(Clone, Copy, Debug)]
pub enum Terms {
    /// The client's lease.
    Usual,
    Renewed(u64),
    Fixed(u64),
    MaxHold(u64),
}

impl Terms {
    pub fn is_endless(self) -> bool {
        matches!(self, Self::Usual | Self::Renewed(_))
    }

    pub fn lease(self) -> Lease {
        match self {
            Self::Usual | Self::MaxHold(_) => config().lease,
            Self::Renewed(millis) => Lease::renewed(Duration::from_millis(millis)),
            Self::Fixed(millis) => Lease::fixed(Duration::from_millis(millis)),
        }
    }
}

/// The settings of all simulated clients.
pub fn config() -> Config {
    Config {
        lease: Lease::renewed(Duration::from_secs(6)),
        command_timeout: Duration::from_millis(500),
        cache_idle: Duration::from_secs(3),
        ..Config::default()
    }
}

const CALM: Weather =
    Weather { requests_lost: 0.0, requests_late: 0.0, replies_lost: 0.0, messages_lost: 0.0, slow: 0.0 };
const ROUGH: Weather =
    Weather { requests_lost: 3.0, requests_late: 3.0, replies_lost: 3.0, messages_lost: 4.0, slow: 2.0 };

const USUAL: &[Terms] = &[Terms::Usual, Terms::Usual, Terms::Renewed(1_500)];
const MIXED: &[Terms] = &[
    Terms::Usual,
    Terms::Renewed(400),
    Terms::Renewed(1_500),
    Terms::Renewed(6_000),
    Terms::Fixed(1_500),
    Terms::Fixed(6_000),
    Terms::MaxHold(700),
    Terms::MaxHold(5_000),
];

const REENTRANT: &[Named] =
    &[Named { name: "orders", kind: Kind::Reentrant }, Named { name: "a second one", kind: Kind::Reentrant }];
const FAIR_AND_REENTRANT: &[Named] =
    &[Named { name: "jobs", kind: Kind::Fair }, Named { name: "orders", kind: Kind::Reentrant }];

const SHARED: &[Named] = &[Named { name: "catalogue", kind: Kind::ReadWrite }];

const STEPS: &[(Step, u64)] =
    &[(Lock, 50), (Try, 12), (TryFor, 14), (Run, 8), (RunFor, 6), (RunOrElse, 4), (Reenter, 6)];
const TRIES: &[(Step, u64)] = &[(Lock, 20), (Tries, 50), (TryFor, 30)];
const PLACES: &[(Step, u64)] =
    &[(Place, 45), (Lock, 25), (Try, 6), (TryFor, 12), (Run, 4), (RunFor, 4), (Reenter, 4)];
const PLACES_AND_TRIES: &[(Step, u64)] = &[(Place, 40), (Lock, 10), (Tries, 30), (TryFor, 20)];

const READS: &[(Step, u64)] = &[(Read, 40), (Write, 22), (Lower, 8), (Nest, 12), (ReadTwice, 10), (Peek, 8)];

const PROCESSES: &[(Fault, u64)] = &[(Stop, 6), (Die, 2), (Quit, 1), (Stall, 1)];
const OUTAGES: &[(Fault, u64)] = &[(Close, 5), (HalfOpen, 5), (Down, 5), (Lag, 4)];
const ALL: &[(Fault, u64)] = &[
    (Stop, 6),
    (Die, 2),
    (Quit, 1),
    (Stall, 2),
    (Close, 4),
    (HalfOpen, 4),
    (Down, 4),
    (Lag, 2),
    (FlushScripts, 3),
];
const LOSSES: &[(Fault, u64)] = &[
    (Stop, 4),
    (Die, 1),
    (Close, 2),
    (HalfOpen, 2),
    (Down, 2),
    (FlushScripts, 2),
    (DropLock, 4),
    (DropQueue, 4),
    (DropWaiting, 4),
    (DropToken, 4),
    (DropReaders, 4),
    (FlushAll, 3),
    (Failover, 5),
    (StepClock, 3),
    (Force, 4),
];

const FAILOVERS: &[(Fault, u64)] = &[(Failover, 5), (Stop, 4), (Down, 3), (HalfOpen, 2)];

const BASE: Mix = Mix {
    name: "none",
    locks: REENTRANT,
    all_locks: 20.0,
    weight: 1,
    weather: CALM,
    faults: &[],
    every: 1_500,
    operations: 110,
    steps: STEPS,
    leases: USUAL,
    counted: true,
    short_queue: false,
    cancelled: 0.0,
    owned: 15.0,
};

const FAIR: Mix = Mix { locks: FAIR_AND_REENTRANT, all_locks: 100.0, steps: PLACES, cancelled: 15.0, ..BASE };

const READ_WRITE: Mix =
    Mix { locks: SHARED, all_locks: 0.0, steps: READS, cancelled: 10.0, owned: 20.0, ..BASE };

/// All kinds, each with its share of the histories.
pub static MIXES: &[Mix] = &[
    Mix { weight: 6, cancelled: 10.0, ..BASE },
    Mix { name: "messages", weight: 10, weather: Weather { messages_lost: 20.0, ..CALM }, ..BASE },
    Mix {
        name: "late",
        weight: 16,
        weather: Weather {
            requests_lost: 3.0,
            requests_late: 12.0,
            replies_lost: 8.0,
            messages_lost: 8.0,
            slow: 3.0,
        },
        cancelled: 30.0,
        owned: 20.0,
        ..BASE
    },
    Mix {
        name: "ghosts",
        weight: 6,
        weather: Weather { requests_late: 15.0, ..CALM },
        cancelled: 40.0,
        ..BASE
    },
    Mix { name: "processes", weight: 8, faults: PROCESSES, leases: MIXED, ..BASE },
    Mix { name: "outages", weight: 8, faults: OUTAGES, ..BASE },
    Mix { name: "all", weight: 16, weather: ROUGH, faults: ALL, cancelled: 15.0, ..BASE },
    Mix { name: "loss", weight: 12, weather: ROUGH, faults: LOSSES, cancelled: 10.0, ..BASE },
    Mix { name: "failovers", weight: 4, weather: ROUGH, faults: FAILOVERS, ..BASE },
    Mix {
        name: "uncounted",
        weight: 6,
        weather: ROUGH,
        faults: ALL,
        counted: false,
        cancelled: 15.0,
        ..BASE
    },
    Mix { name: "leases", weight: 8, weather: ROUGH, faults: ALL, leases: MIXED, cancelled: 15.0, ..BASE },
    Mix {
        name: "tries",
        weight: 8,
        faults: ALL,
        steps: TRIES,
        operations: 300,
        short_queue: true,
        cancelled: 10.0,
        ..BASE
    },
    Mix { name: "fair", weight: 6, ..FAIR },
    Mix { name: "fair outages", weight: 10, faults: OUTAGES, ..FAIR },
    Mix { name: "fair all", weight: 18, weather: ROUGH, faults: ALL, leases: MIXED, ..FAIR },
    Mix { name: "fair loss", weight: 6, weather: ROUGH, faults: LOSSES, ..FAIR },
    Mix { name: "fair uncounted", weight: 4, weather: ROUGH, faults: ALL, counted: false, ..FAIR },
    Mix {
        name: "fair tries",
        weight: 8,
        faults: ALL,
        steps: PLACES_AND_TRIES,
        operations: 200,
        short_queue: true,
        ..FAIR
    },
    Mix { name: "shared", weight: 10, ..READ_WRITE },
    Mix {
        name: "shared messages",
        weight: 10,
        weather: Weather { messages_lost: 20.0, ..CALM },
        ..READ_WRITE
    },
    Mix { name: "shared outages", weight: 6, faults: OUTAGES, ..READ_WRITE },
    Mix { name: "shared processes", weight: 8, faults: PROCESSES, ..READ_WRITE },
    Mix { name: "shared all", weight: 16, weather: ROUGH, faults: ALL, leases: MIXED, ..READ_WRITE },
    Mix { name: "shared loss", weight: 10, weather: ROUGH, faults: LOSSES, ..READ_WRITE },
    Mix { name: "shared uncounted", weight: 4, weather: ROUGH, faults: ALL, counted: false, ..READ_WRITE },
    Mix { name: "shared crowd", weight: 4, faults: ALL, short_queue: true, operations: 220, ..READ_WRITE },
];

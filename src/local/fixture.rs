//! Books, and what is asked of them: for the tests and the models of the books.

use std::time::Duration;

use super::lane::{LockRef, Request};
use super::state::{Spans, State};
use crate::chance::Chance;
use crate::clock::Moment;
use crate::lease::Lease;
use crate::name::{LockKeys, Namespace};
use crate::scripts::{Kind, Mode};
use crate::ticket::{ClientId, Tickets};

pub const CLAIM: Duration = Duration::from_secs(3);

/// Empty books, from [`Moment::ORIGIN`] on.
pub fn state() -> State {
    let client = ClientId::parse("0f0e0d0c-0b0a-4908-8706-050403020100").expect("it is the id of a client");
    let spans = Spans {
        claim: CLAIM,
        client_deadline: Duration::from_secs(10),
        command_timeout: Duration::from_secs(1),
        unavailable_after: Duration::from_secs(10),
        cache_idle: Duration::from_secs(60),
    };
    State::new(spans, Tickets::new(client), Chance::from_seed(1), Moment::ORIGIN)
}

/// A wait for the lock `a`, without an owner.
pub fn request(kind: Kind, mode: Mode) -> Request {
    let keys = LockKeys::new(&Namespace::default(), "a").expect("it is a name");
    Request {
        lock: LockRef { kind, keys },
        mode,
        owner: None,
        lease: Lease::default(),
        max_hold: None,
        label: None,
        waits: true,
        keep: false,
    }
}

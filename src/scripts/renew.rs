//! `renew`: lengthens the leases of holds, of many locks in one call.

use super::reply::{Items, Malformed, Timed};
use super::{Call, Script, Words, compose, push_ticket};
use crate::backend::Value;
use crate::name::LockKeys;
use crate::ticket::Ticket;

/// One hold to be renewed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenewHold {
    pub keys: LockKeys,
    pub ticket: Ticket,
    pub lease_millis: u64,
}

/// The request. It never shortens a lease and never revives a hold.
#[derive(Clone, Debug)]
pub struct Renew<'a> {
    /// At most [`Renew::MOST`].
    pub holds: &'a [RenewHold],
    pub deadline_millis: u64,
}

impl Renew<'_> {
    /// How many holds one call may carry: it blocks the server for about a millisecond.
    pub const MOST: usize = 100;

    pub fn call(&self) -> Call {
        debug_assert!(self.holds.len() <= Self::MOST);
        let (mut keys, mut args) = (Words::default(), Words::default());
        args.push_number(self.deadline_millis);
        for hold in self.holds {
            for suffix in ["", LockKeys::WAITING, LockKeys::READERS] {
                keys.push_joined(hold.keys.lock(), suffix);
            }
            push_ticket(hold.ticket, &mut args);
            args.push_number(hold.lease_millis);
        }
        Call { script: &SCRIPT, keys, args }
    }
}

/// What became of one hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewed {
    Kept { left_millis: u64, waiting: bool },
    Lost,
}

/// The answer: one entry for each hold, in the order of the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenewReply {
    pub holds: Vec<Renewed>,
}

impl RenewReply {
    /// The first word of the reply that [`RenewReply::decode`] knows.
    pub const WORDS: &'static [&'static str] = &["renewed"];

    /// Reads the script's reply.
    pub fn decode(value: &Value) -> Result<Timed<Self>, Malformed> {
        let (word, server_millis, mut items) = Items::open(value)?;
        if word != "renewed" {
            return Err(Malformed);
        }
        let mut holds = Vec::new();
        while !items.is_empty() {
            let (left, waiting) = (items.signed()?, items.flag()?);
            holds.push(match left {
                -1 => Renewed::Lost,
                left => {
                    let left_millis = u64::try_from(left).map_err(|_| Malformed)?;
                    Renewed::Kept { left_millis, waiting }
                }
            });
        }
        items.close(Timed { server_millis: Some(server_millis), reply: Self { holds } })
    }
}

pub(super) static SCRIPT: Script = compose!(
    "common/renew",
    1,
    [
        "first/time.lua",
        "first/clock.lua",
        "lib/int.lua",
        "lib/bounded.lua",
        "lib/peek.lua",
        "lib/client_of.lua",
        "lib/read_client.lua",
        "lib/renew_hold.lua",
        "common/renew.v1.lua",
    ]
);

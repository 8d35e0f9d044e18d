//! `fenced/set` and `fenced/get`: a value that no smaller token overwrites.

use super::reply::{Items, Malformed, Timed};
use super::{Call, Script, Words, compose, keys_with, push_ticket};
use crate::backend::Value;
use crate::name::LockKeys;
use crate::ticket::Ticket;

/// The request to write.
#[derive(Clone, Debug)]
pub struct FencedSet<'a> {
    pub keys: &'a LockKeys,
    /// Of the grant under which is written; below 2^53.
    pub token: u64,
    /// Of this write: with it a repeated or late call changes nothing.
    pub ticket: Ticket,
    pub value: &'a str,
}

impl FencedSet<'_> {
    pub fn call(&self) -> Call {
        let mut args = Words::default();
        args.push_number(self.token);
        push_ticket(self.ticket, &mut args);
        args.push(self.value);
        Call { script: &SET, keys: keys_with(self.keys, &[LockKeys::FENCED]), args }
    }
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FencedSetReply {
    Written,
    /// A larger token has written before.
    Stale {
        largest: u64,
    },
    /// The key is in use by something else.
    ForeignKey {
        key: String,
    },
}

impl FencedSetReply {
    /// The first words of the replies that [`FencedSetReply::decode`] knows.
    pub const WORDS: &'static [&'static str] = &["written", "stale", "foreign_key"];

    /// Reads the script's reply.
    pub fn decode(value: &Value) -> Result<Timed<Self>, Malformed> {
        let (word, server_millis, mut items) = Items::open(value)?;
        let reply = match word {
            "written" => Self::Written,
            "stale" => Self::Stale { largest: items.number()? },
            "foreign_key" => Self::ForeignKey { key: items.lossy()? },
            _ => return Err(Malformed),
        };
        items.close(Timed { server_millis: Some(server_millis), reply })
    }
}

/// The request to read. It changes nothing.
#[derive(Clone, Debug)]
pub struct FencedGet<'a> {
    pub keys: &'a LockKeys,
}

impl FencedGet<'_> {
    pub fn call(&self) -> Call {
        Call { script: &GET, keys: keys_with(self.keys, &[LockKeys::FENCED]), args: Words::default() }
    }
}

/// What is stored in a fenced key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FencedValue {
    /// The token that wrote it: the largest that has written.
    pub token: u64,
    /// The value.
    pub value: String,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FencedGetReply {
    Value(FencedValue),
    /// Nothing was written yet.
    None,
    /// The key is in use by something else.
    ForeignKey {
        key: String,
    },
}

impl FencedGetReply {
    /// The first words of the replies that [`FencedGetReply::decode`] knows.
    pub const WORDS: &'static [&'static str] = &["value", "none", "foreign_key"];

    /// Reads the script's reply.
    pub fn decode(value: &Value) -> Result<Timed<Self>, Malformed> {
        let (word, server_millis, mut items) = Items::open(value)?;
        let reply = match word {
            "value" => Self::Value(FencedValue { token: items.number()?, value: items.lossy()? }),
            "none" => Self::None,
            "foreign_key" => Self::ForeignKey { key: items.lossy()? },
            _ => return Err(Malformed),
        };
        items.close(Timed { server_millis: Some(server_millis), reply })
    }
}

pub(super) static SET: Script = compose!(
    "fenced/set",
    1,
    [
        "first/time.lua",
        "first/clock.lua",
        "lib/int.lua",
        "lib/peek.lua",
        "lib/client_of.lua",
        "fenced/set.v1.lua",
    ]
);

pub(super) static GET: Script =
    compose!("fenced/get", 1, ["first/time.lua", "first/clock.lua", "lib/peek.lua", "fenced/get.v1.lua",]);

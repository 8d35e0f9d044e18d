//! `downgrade`: makes a write of a read/write lock a read, without a moment in between.

use super::acquire::Granted;
use super::reply::{Items, Malformed, Timed};
use super::{Attempt, Call, SHARED, Script, Terms, Words, compose, keys_with, push_ticket};
use crate::backend::Value;
use crate::name::LockKeys;
use crate::ticket::Ticket;

/// The request. Repeating it with the same tickets is harmless. A client gives up by leaving the write first, then the
/// read: from then on no late request of this kind grants anything.
#[derive(Clone, Debug)]
pub struct Downgrade<'a> {
    pub keys: &'a LockKeys,
    /// The write that ends.
    pub write: Ticket,
    /// The read that begins: a ticket of its own, of the write's owner.
    pub read: &'a Attempt,
    pub terms: Terms,
}

impl Downgrade<'_> {
    pub fn call(&self) -> Call {
        let mut args = Words::with_capacity(4, 192);
        self.terms.push(false, &mut args);
        push_ticket(self.write, &mut args);
        self.read.push(&mut args);
        Call { script: &SCRIPT, keys: keys_with(self.keys, SHARED), args }
    }
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DowngradeReply {
    /// The read is held and the write is not. `token` is the read's version; where the owner has other writes, which
    /// stay, it is their token.
    Granted(Granted),
    /// The write was not held any more. Nothing is held.
    Lost,
    /// A key of this lock is in use by something else.
    ForeignKey { key: String },
}

impl DowngradeReply {
    /// The first words of the replies that [`DowngradeReply::decode`] knows.
    pub const WORDS: &'static [&'static str] = &["granted", "lost", "foreign_key"];

    /// Reads the script's reply.
    pub fn decode(value: &Value) -> Result<Timed<Self>, Malformed> {
        let (word, server_millis, mut items) = Items::open(value)?;
        let reply = match word {
            "granted" => Self::Granted(Granted::read(&mut items)?),
            "lost" => Self::Lost,
            "foreign_key" => Self::ForeignKey { key: items.lossy()? },
            _ => return Err(Malformed),
        };
        items.close(Timed { server_millis: Some(server_millis), reply })
    }
}

pub(super) static SCRIPT: Script = compose!(
    "read_write/downgrade",
    1,
    [
        "read_write/kind.lua",
        "first/time.lua",
        "first/clock.lua",
        "lib/int.lua",
        "lib/write_lock.lua",
        @call,
        @waiting,
        @save,
        @walk,
        "lib/pass_on.lua",
        "lib/give.lua",
        @share,
        "lib/next_reads.lua",
        "lib/tell_reads.lua",
        "lib/advance_shared.lua",
        @reads,
        "lib/keep_lock.lua",
        "lib/others_wait.lua",
        "lib/read_request.lua",
        "read_write/downgrade.v1.lua",
    ]
);

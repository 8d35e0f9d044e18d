//! `acquire`: asks for a lock, keeps a place in its queue, or re-enters it.

use super::reply::{Items, Malformed, Timed};
use super::{Attempt, Call, Kind, Script, Terms, Wait, Words, compose, keys_of, operation};
use crate::backend::Value;
use crate::name::LockKeys;
use crate::ticket::Ticket;

/// The request. Repeating it with the same ticket is harmless.
#[derive(Clone, Debug)]
pub struct Acquire<'a> {
    pub keys: &'a LockKeys,
    pub kind: Kind,
    pub attempt: &'a Attempt,
    pub wait: Wait,
    /// Server time after which the request must not run any more.
    pub not_after_millis: u64,
    /// Whether the client's subscription is down.
    pub deaf: bool,
    pub terms: Terms,
}

impl Acquire<'_> {
    pub fn call(&self) -> Call {
        debug_assert!(self.attempt.is_of(self.kind));
        let mut args = Words::with_capacity(5, 128);
        self.terms.push(self.deaf, &mut args);
        self.attempt.push(&mut args);
        args.push_number(self.not_after_millis);
        args.push(match self.wait {
            Wait::No => "0",
            Wait::Join => "1",
            Wait::Poll => "2",
        });
        Call { script: script(self.kind), keys: keys_of(self.kind, self.keys), args }
    }
}

/// A hold that the reply itself gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The first fencing token of the grant's block; of a read its version: the last token minted, which is the
    /// second one of the last write. A read under its owner's write shows that write's first one.
    pub token: u64,
    /// What is left of the lease.
    pub left_millis: u64,
    /// Whether somebody waits. A read is told of waiting writers only: with `waiting` it is to admit no new local
    /// readers, as after [`News::Held`](super::News::Held).
    pub waiting: bool,
}

impl Granted {
    pub(super) fn read(items: &mut Items<'_>) -> Result<Self, Malformed> {
        Ok(Self { token: items.number()?, left_millis: items.number()?, waiting: items.flag()? })
    }
}

/// A place in the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queued {
    /// At most this many tickets from the head, its own included.
    pub place: u64,
    /// What is left of the holder's lease; 0 where nobody holds the lock.
    pub left_millis: u64,
    /// Whether the ticket was not in the queue before.
    pub new: bool,
    /// Whether to ask again at once: the call stopped at its limit, and the next one gets further.
    pub more: bool,
    /// How many tickets had joined this queue when this one had: the difference between two of them is how many came
    /// between.
    pub sequence: u64,
    /// How many tickets wait.
    pub living: u64,
    /// Every hold of this client on this lock. Where others read: to a ticket that is to write, those whom this call
    /// tells of it; to one that is to read, only where its client is deaf, for all others are told of their reads by
    /// the waiting writer.
    pub holds: Vec<Ticket>,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AcquireReply {
    Granted(Granted),
    Queued(Queued),
    /// Held, and the request was not to wait.
    Busy {
        left_millis: u64,
    },
    /// The request came too late and changed nothing.
    Stale,
    /// The owner reads, and asks to write: it would wait for itself. The ticket does not wait any more.
    WouldDeadlock,
    /// A lock of another kind has this name.
    KindMismatch {
        found: String,
    },
    /// A key of this lock is in use by something else.
    ForeignKey {
        key: String,
    },
}

impl AcquireReply {
    /// The first words of the replies that [`AcquireReply::decode`] knows.
    pub const WORDS: &'static [&'static str] =
        &["granted", "queued", "busy", "stale", "kind_mismatch", "foreign_key", "would_deadlock"];
    /// Those of them that the exclusive locks have.
    pub const EXCLUSIVE_WORDS: &'static [&'static str] = Self::WORDS.split_at(6).0;

    /// Reads the script's reply.
    pub fn decode(value: &Value) -> Result<Timed<Self>, Malformed> {
        let (word, server_millis, mut items) = Items::open(value)?;
        let reply = match word {
            "granted" => Self::Granted(Granted::read(&mut items)?),
            "queued" => {
                let (place, left_millis) = (items.number()?, items.number()?);
                let (new, more) = (items.flag()?, items.flag()?);
                let (sequence, living) = (items.number()?, items.number()?);
                let mut holds = Vec::new();
                while !items.is_empty() {
                    holds.push(items.ticket()?);
                }
                Self::Queued(Queued { place, left_millis, new, more, sequence, living, holds })
            }
            "busy" => Self::Busy { left_millis: items.number()? },
            "stale" => Self::Stale,
            "would_deadlock" => Self::WouldDeadlock,
            "kind_mismatch" => Self::KindMismatch { found: items.lossy()? },
            "foreign_key" => Self::ForeignKey { key: items.lossy()? },
            _ => return Err(Malformed),
        };
        items.close(Timed { server_millis: Some(server_millis), reply })
    }
}

fn script(kind: Kind) -> &'static Script {
    match kind {
        Kind::Reentrant => &REENTRANT,
        Kind::Fair => &FAIR,
        Kind::ReadWrite => &READ_WRITE,
    }
}

pub(super) static REENTRANT: Script = operation!("reentrant", "acquire", @acquire);
pub(super) static FAIR: Script = operation!("fair", "acquire", @acquire);
pub(super) static READ_WRITE: Script = operation!("read_write", "acquire", @acquire_shared);

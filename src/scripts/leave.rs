//! `leave`: gives up a ticket, be it a hold or a place in the queue, and may queue a new one in the same step.

use super::acquire::Granted;
use super::reply::{Items, Malformed, Timed};
use super::{Attempt, Call, Kind, Script, Terms, Words, compose, keys_of, operation, push_ticket};
use crate::backend::Value;
use crate::name::LockKeys;
use crate::ticket::Ticket;

/// The request. Only the ticket binds, and a ticket is never used twice: a late or repeated leaving touches no later
/// hold.
#[derive(Clone, Debug)]
pub struct Leave<'a> {
    pub keys: &'a LockKeys,
    pub kind: Kind,
    pub ticket: Ticket,
    /// A new ticket to queue when this call frees the lock, unless server time is past the number beside it.
    pub next: Option<(&'a Attempt, u64)>,
    /// Whether the client's subscription is down.
    pub deaf: bool,
    pub terms: Terms,
}

impl Leave<'_> {
    pub fn call(&self) -> Call {
        let mut args = Words::with_capacity(5, 192);
        self.terms.push(self.deaf, &mut args);
        push_ticket(self.ticket, &mut args);
        if let Some((attempt, not_after_millis)) = self.next {
            debug_assert!(attempt.is_of(self.kind));
            attempt.push(&mut args);
            args.push_number(not_after_millis);
        }
        Call { script: script(self.kind), keys: keys_of(self.kind, self.keys), args }
    }
}

/// What became of the new ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// There was none, or it came too late, or it could not be queued: its client asks by `acquire`.
    None,
    Queued {
        place: u64,
        left_millis: u64,
        sequence: u64,
    },
    Granted(Granted),
}

/// The answer. After all but [`LeaveReply::ForeignKey`] the ticket is neither hold nor place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaveReply {
    /// The ticket was no hold. The new one was not looked at.
    Gone {
        /// Whether somebody should ask at once: the call stopped at its limit with the lock free.
        more: bool,
    },
    /// The owner has other holds, and keeps the lock: of a read/write lock, its write. The new ticket was not looked
    /// at.
    Kept,
    /// Nothing of the owner is left; of a read/write lock, nothing but reads of whomever.
    Freed {
        /// As in [`LeaveReply::Gone`]; or it left reads that the new ticket is still to tell of itself.
        more: bool,
        next: Next,
    },
    /// The lock's own key is in use by something else.
    ForeignKey { key: String },
}

impl LeaveReply {
    /// The first words of the replies that [`LeaveReply::decode`] knows.
    pub const WORDS: &'static [&'static str] = &["gone", "kept", "freed", "foreign_key"];

    /// Reads the script's reply.
    pub fn decode(value: &Value) -> Result<Timed<Self>, Malformed> {
        if matches!(value, Value::Bulk(text) if text == b"freed") {
            // Nobody waits: the script has not read the clock.
            let reply = Self::Freed { more: false, next: Next::None };
            return Ok(Timed { server_millis: None, reply });
        }
        let (word, server_millis, mut items) = Items::open(value)?;
        let reply = match word {
            "gone" => Self::Gone { more: items.flag()? },
            "kept" => Self::Kept,
            "freed" => Self::Freed { more: items.flag()?, next: next(&mut items)? },
            "foreign_key" => Self::ForeignKey { key: items.lossy()? },
            _ => return Err(Malformed),
        };
        items.close(Timed { server_millis: Some(server_millis), reply })
    }
}

fn next(items: &mut Items<'_>) -> Result<Next, Malformed> {
    match items.text()? {
        "none" => Ok(Next::None),
        "queued" => Ok(Next::Queued {
            place: items.number()?,
            left_millis: items.number()?,
            sequence: items.number()?,
        }),
        "granted" => Granted::read(items).map(Next::Granted),
        _ => Err(Malformed),
    }
}

fn script(kind: Kind) -> &'static Script {
    match kind {
        Kind::Reentrant => &REENTRANT,
        Kind::Fair => &FAIR,
        Kind::ReadWrite => &READ_WRITE,
    }
}

pub(super) static REENTRANT: Script = operation!("reentrant", "leave", "first/free.lua", @leave);
pub(super) static FAIR: Script = operation!("fair", "leave", "first/free.lua", @leave);
pub(super) static READ_WRITE: Script = operation!("read_write", "leave", @leave_shared);

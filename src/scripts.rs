//! The scripts: the only list of them, and a typed call and a typed reply for each.

use std::fmt;

use crate::name::LockKeys;
use crate::owner::OwnerId;
use crate::ticket::Ticket;

use words::write_number;

mod acquire;
mod batch;
mod downgrade;
mod fenced;
mod force_release;
mod inspect;
mod leave;
mod message;
mod renew;
mod reply;
mod words;

pub use acquire::{Acquire, AcquireReply, Granted, Queued};
#[cfg(feature = "redis")]
pub use batch::{MICROS as BATCH_MICROS, MOST as BATCH_MOST, batch, outcomes};
pub use downgrade::{Downgrade, DowngradeReply};
pub use fenced::{FencedGet, FencedGetReply, FencedSet, FencedSetReply, FencedValue};
pub use force_release::{ForceRelease, ForceReleaseReply};
pub use inspect::{HoldInfo, Inspect, InspectReply, LockInfo, WaitInfo};
pub use leave::{Leave, LeaveReply, Next};
pub use message::{Message, News};
pub use renew::{Renew, RenewHold, RenewReply, Renewed};
pub use reply::{Malformed, Timed};
pub use words::Words;

/// How the scripts store their locks. Two versions of a script that share a layout may run side by side.
pub const LAYOUT: u32 = 1;

/// Every script that a client may call for itself, in the order of their names.
pub static ALL: &[&Script] = &[
    &force_release::SCRIPT,
    &inspect::SCRIPT,
    &renew::SCRIPT,
    &acquire::FAIR,
    &leave::FAIR,
    &fenced::GET,
    &fenced::SET,
    &acquire::READ_WRITE,
    &downgrade::SCRIPT,
    &leave::READ_WRITE,
    &acquire::REENTRANT,
    &leave::REENTRANT,
];

/// Those that carry out calls of others.
pub static BATCHES: &[&Script] = &[&batch::FAIR, &batch::READ_WRITE, &batch::REENTRANT];

/// Every script that a server is told.
pub fn every() -> impl Iterator<Item = &'static Script> {
    ALL.iter().chain(BATCHES).copied()
}

/// One script, as it is shipped.
#[derive(Debug)]
pub struct Script {
    /// Folder and operation, `reentrant/acquire` for instance.
    pub name: &'static str,
    pub version: u32,
    /// The composed text, the only one that a server ever sees.
    pub text: &'static str,
    /// The files that the text is composed of, in order: path below `lua/`, and content.
    pub parts: &'static [(&'static str, &'static str)],
}

impl Script {
    /// Where a line of the composed text, which a server's error names, stands in our files: path below `lua/`, and
    /// line. Lines count from 1.
    pub fn locate(&self, line: u32) -> Option<(&'static str, u32)> {
        let mut left = line.checked_sub(1)?;
        for (path, content) in self.parts {
            let lines = u32::try_from(content.lines().count()).ok()?;
            if left < lines {
                return Some((path, left + 1));
            }
            left -= lines;
        }
        None
    }
}

/// Composes a script of its files at compile time. Nothing is minified: `EVALSHA` sends no text, and a server's
/// errors name lines of this one. `@<word>` stands for files that go together, in an order in which each finds those
/// that it uses: what opens a `call`, the books of those who are `waiting` and how to `save` them, the `walk` over the
/// queue, what `share`s a lock, the `reads` of it, and who `join`s the queue; and all between the clock and the body of
/// `acquire` and `leave`, by themselves or in a batch. (`@leave` goes on from `first/free.lua`, which stands before the
/// clock.)
macro_rules! compose {
    ($name:expr, $version:literal, [$($parts:tt)*]) => {
        compose!(@open { $name } $version [] $($parts)*)
    };
    (@open $name:tt $version:tt $done:tt @call, $($rest:tt)*) => {
        compose!(@open $name $version $done
            "lib/bounded.lua", "lib/peek.lua", "lib/client_of.lua", "lib/open_call.lua", "lib/read_lock.lua",
            $($rest)*)
    };
    (@open $name:tt $version:tt $done:tt @waiting, $($rest:tt)*) => {
        compose!(@open $name $version $done
            "lib/new_waiting.lua", "lib/read_entry.lua", "lib/read_client.lua", "lib/read_waiting.lua",
            "lib/touch_client.lua", $($rest)*)
    };
    (@open $name:tt $version:tt $done:tt @save, $($rest:tt)*) => {
        compose!(@open $name $version $done
            "lib/entry_of.lua", "lib/drop_ticket.lua", "lib/forget_queue.lua", "lib/queue_life.lua",
            "lib/write_waiting.lua", "lib/save_waiting.lua", "lib/look_up.lua", $($rest)*)
    };
    (@open $name:tt $version:tt $done:tt @walk, $($rest:tt)*) => {
        compose!(@open $name $version $done
            "lib/tell.lua", "lib/read_counter.lua", "lib/mint.lua", "lib/offer.lua", "lib/judge.lua",
            "lib/trim_queue.lua", "lib/walk_queue.lua", $($rest)*)
    };
    (@open $name:tt $version:tt $done:tt @share, $($rest:tt)*) => {
        compose!(@open $name $version $done
            "lib/keep_reads.lua", "lib/add_owners.lua", "lib/forget_holds.lua", "lib/drop_reads.lua",
            "lib/let_in.lua", $($rest)*)
    };
    (@open $name:tt $version:tt $done:tt @reads, $($rest:tt)*) => {
        compose!(@open $name $version $done
            "lib/leave_reads.lua", "lib/restore_reads.lua", "lib/read_shared.lua", "lib/settle.lua", $($rest)*)
    };
    (@open $name:tt $version:tt $done:tt @join, $($rest:tt)*) => {
        compose!(@open $name $version $done
            "lib/add_ticket.lua", "lib/join_queue.lua", "lib/rewrite_queue.lua", $($rest)*)
    };
    (@open $name:tt $version:tt $done:tt @acquire, $($rest:tt)*) => {
        compose!(@open $name $version $done
            "first/clock.lua", "lib/int.lua", "first/take_free.lua", "lib/write_lock.lua", @call,
            @waiting, "lib/greet_client.lua", @save, @walk, "lib/pass_on.lua", "lib/give.lua", "lib/advance.lua", @join,
            "lib/find_place.lua", "lib/wait_behind.lua", "lib/enter_again.lua", "lib/take_turn.lua",
            "lib/read_request.lua", "lib/acquire.lua", $($rest)*)
    };
    (@open $name:tt $version:tt $done:tt @leave, $($rest:tt)*) => {
        compose!(@open $name $version $done
            "first/clock.lua", "lib/int.lua", "first/hand_over.lua", @call, @waiting, "lib/greet_client.lua", @save,
            "lib/write_lock.lua", @walk, "lib/give.lua", "lib/advance.lua", @join,
            "lib/drop_hold.lua", "lib/read_request.lua", "lib/read_next.lua", "lib/others_wait.lua",
            "lib/hand_over.lua", "lib/leave.lua", $($rest)*)
    };
    (@open $name:tt $version:tt $done:tt @acquire_shared, $($rest:tt)*) => {
        compose!(@open $name $version $done
            "first/clock.lua", "lib/int.lua", "lib/write_lock.lua", "lib/read_request.lua",
            "first/take_free_shared.lua", @call, @waiting, "lib/greet_client.lua", @save, @walk, "lib/pass_on.lua",
            "lib/give.lua", @share, "lib/advance_shared.lua", @reads, "lib/next_reads.lua", "lib/is_reading.lua",
            "lib/others_wait.lua", "lib/refuse_write.lua", "lib/read_again.lua", @join, "lib/find_place.lua", "lib/wait_behind.lua",
            "lib/enter_again.lua", "lib/share_turn.lua", $($rest)*)
    };
    (@open $name:tt $version:tt $done:tt @leave_shared, $($rest:tt)*) => {
        compose!(@open $name $version $done
            "first/clock.lua", "lib/int.lua", "lib/write_lock.lua", @call, @waiting,
            "lib/greet_client.lua", @save, @walk, "lib/pass_on.lua", "lib/give.lua", @share, "lib/next_reads.lua",
            "lib/tell_reads.lua", "lib/advance_shared.lua", @reads, "lib/keep_lock.lua", "lib/others_wait.lua", @join,
            "lib/read_request.lua", "lib/read_next.lua", "lib/hand_over.lua", $($rest)*)
    };
    (@open $name:tt $version:tt [$($done:expr,)*] $part:expr, $($rest:tt)*) => {
        compose!(@open $name $version [$($done,)* $part,] $($rest)*)
    };
    (@open { $name:expr } $version:tt [$($part:expr,)*]) => {
        $crate::scripts::Script {
            name: $name,
            version: $version,
            text: concat!($(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $part))),*),
            parts: &[$(($part, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $part)))),*],
        }
    };
}
use compose;

/// The script `<kind>/<operation>`, whose body and what it uses are `@<word>`; what comes even before the clock, if
/// anything, stands before that.
macro_rules! operation {
    ($kind:literal, $operation:literal, $($first:literal,)? @ $parts:ident) => {
        compose!(
            concat!($kind, "/", $operation),
            1,
            [
                concat!($kind, "/kind.lua"),
                $($first,)?
                "first/time.lua",
                @ $parts,
                concat!($kind, "/", $operation, ".v1.lua"),
            ]
        )
    };
}
use operation;

/// A script call, ready to be sent.
#[derive(Clone, Debug)]
pub struct Call {
    pub script: &'static Script,
    pub keys: Words,
    pub args: Words,
}

/// A kind of lock. Locks of different kinds cannot share a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// The reentrant lock.
    Reentrant,
    /// The fair lock.
    Fair,
    /// The read/write lock.
    ReadWrite,
}

impl Kind {
    /// Reads what [`Kind`] displays as; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Reentrant, Self::Fair, Self::ReadWrite].into_iter().find(|kind| kind.as_str() == text)
    }

    /// The name that the server stores.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant",
            Self::Fair => "fair",
            Self::ReadWrite => "read_write",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a hold or a waiting ticket is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// A reentrant or a fair lock: nobody else.
    Exclusive,
    /// Reading: no writer.
    Read,
    /// Writing: nobody else.
    Write,
}

impl Mode {
    /// Reads what [`Mode`] displays as; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Exclusive, Self::Read, Self::Write].into_iter().find(|mode| mode.as_str() == text)
    }

    /// The name that the server stores.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What becomes of a ticket that is not granted at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Nothing is left behind.
    No,
    /// It joins the queue, or stays in it.
    Join,
    /// The same, and the holder is told that somebody waits, wherever in the queue the ticket stands.
    Poll,
}

/// What a script that may hand the lock over is told beside the request itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The first, short lease of a hold that is handed over.
    pub claim_millis: u64,
    /// How long the server keeps the places of a client that is silent.
    pub deadline_millis: u64,
    /// Whether messages go out on sharded channels.
    pub sharded: bool,
    /// Whether the number that `PUBLISH` returns can be trusted.
    pub counted: bool,
}

impl Terms {
    /// All of them in one argument: the usual cases of the scripts need few of them, and each argument costs both sides
    /// some 1,000 instructions.
    fn push(&self, deaf: bool, args: &mut Words) {
        args.write(|text| {
            write_number(text, self.claim_millis);
            text.push(' ');
            write_number(text, self.deadline_millis);
            for is_set in [self.sharded, self.counted, deaf] {
                text.push_str(if is_set { " 1" } else { " 0" });
            }
        });
    }
}

/// What belongs to one ticket and is the same in all its requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    pub ticket: Ticket,
    /// What it is for: [`Mode::Read`] or [`Mode::Write`] of a read/write lock, [`Mode::Exclusive`] of all others.
    pub mode: Mode,
    /// Who may re-enter; `None` is nobody, not even the same client.
    pub owner: Option<OwnerId>,
    pub lease_millis: u64,
    /// How many fencing tokens its grant carries: two for a write, of which the readers after it show the second;
    /// none for a read, which shows the last one minted.
    pub block: u64,
    /// What people see beside the hold.
    pub label: Option<String>,
}

impl Attempt {
    /// Whether its mode is one of this kind: the scripts trust it.
    fn is_of(&self, kind: Kind) -> bool {
        (kind == Kind::ReadWrite) == (self.mode != Mode::Exclusive)
    }

    /// The ticket, and all else in one argument (see [`Terms::push`]), which its entry in `K:waiting` ends with: the
    /// scripts store it as it comes.
    fn push(&self, args: &mut Words) {
        push_ticket(self.ticket, args);
        args.write(|text| {
            text.push_str(self.mode.as_str());
            for number in [self.lease_millis, self.block] {
                text.push(' ');
                write_number(text, number);
            }
            text.push(' ');
            // A stored owner is never empty, so that the text after it can be told to be the label.
            match self.owner {
                Some(owner) => text.push_str(&owner.to_string()),
                None => text.push('-'),
            }
            if let Some(label) = self.label.as_deref().filter(|label| !label.is_empty()) {
                text.push(' ');
                text.push_str(label);
            }
        });
    }
}

fn push_ticket(ticket: Ticket, args: &mut Words) {
    args.write(|text| ticket.write(text));
}

/// The four keys that the exclusive protocol uses.
const EXCLUSIVE: &[&str] = &["", LockKeys::QUEUE, LockKeys::WAITING, LockKeys::TOKEN];
/// The same, and the read holds of a read/write lock.
const SHARED: &[&str] = &["", LockKeys::QUEUE, LockKeys::WAITING, LockKeys::TOKEN, LockKeys::READERS];

/// The keys of these suffixes.
fn keys_with(keys: &LockKeys, suffixes: &[&str]) -> Words {
    let lock = keys.lock();
    let mut all =
        Words::with_capacity(suffixes.len(), suffixes.len() * (lock.len() + LockKeys::WAITING.len()));
    suffixes.iter().for_each(|suffix| all.push_joined(lock, suffix));
    all
}

/// The keys that the scripts of this kind of lock use.
fn keys_of(kind: Kind, keys: &LockKeys) -> Words {
    keys_with(keys, if kind == Kind::ReadWrite { SHARED } else { EXCLUSIVE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_script_is_found_in_its_file() {
        for script in every() {
            let mut at = 0;
            for line in script.text.lines() {
                at += 1;
                let (path, own) = script.locate(at).unwrap();
                let content = script.parts.iter().find(|part| part.0 == path).unwrap().1;
                assert_eq!(content.lines().nth(own as usize - 1), Some(line), "{} line {at}", script.name);
            }
            assert_eq!((script.locate(0), script.locate(at + 1)), (None, None));
        }
    }

    #[test]
    fn kinds_and_modes_read_back() {
        for kind in [Kind::Reentrant, Kind::Fair, Kind::ReadWrite] {
            assert_eq!(Kind::parse(&kind.to_string()), Some(kind));
        }
        for mode in [Mode::Exclusive, Mode::Read, Mode::Write] {
            assert_eq!(Mode::parse(&mode.to_string()), Some(mode));
        }
        assert_eq!((Kind::parse("Fair"), Mode::parse("")), (None, None));
    }
}

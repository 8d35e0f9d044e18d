//! `inspect`: everything that the server knows of a lock, for people.

use serde::{Deserialize, Serialize};

use super::reply::{Items, Malformed, Timed};
use super::{Call, Kind, Mode, SHARED, Script, Words, compose, keys_with};
use crate::backend::Value;
use crate::name::LockKeys;

/// The request. It changes nothing.
#[derive(Clone, Debug)]
pub struct Inspect<'a> {
    pub keys: &'a LockKeys,
}

impl Inspect<'_> {
    pub fn call(&self) -> Call {
        Call { script: &SCRIPT, keys: keys_with(self.keys, SHARED), args: Words::default() }
    }
}

/// What a server knows of a lock, at one moment.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use lockwright::{Client, Kind};
///
/// let client = Client::embedded();
/// assert_eq!(client.inspect("a").await?.kind, None);
/// let _guard = client.lock("a").lock().await?;
/// assert_eq!(client.inspect("a").await?.kind, Some(Kind::Reentrant));
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LockInfo {
    /// The server's clock, in milliseconds since 1970.
    pub server_millis: u64,
    /// The kind of lock; `None` where it is free and nobody waits.
    pub kind: Option<Kind>,
    /// What it is held for; `None` where it is free.
    pub mode: Option<Mode>,
    /// The first eight digits of the owner that may re-enter, where there is one. The whole would let its reader
    /// re-enter.
    pub owner: Option<String>,
    /// The fencing token of the grant that holds the lock; `None` where it is free.
    pub token: Option<u64>,
    /// The last fencing token that was minted; `None` where none is remembered.
    pub last_token: Option<u64>,
    /// The holds; of many reads the 256 whose leases end soonest. Readers of one client that share a hold have one.
    pub holds: Vec<HoldInfo>,
    /// How many holds there are. Reads whose leases have ended are among them until the next call that asks for the lock,
    /// or leaves it.
    pub hold_count: u64,
    /// The waiting tickets, the next first: those among the first 256 entries of the queue.
    pub waiting: Vec<WaitInfo>,
    /// How many tickets wait.
    pub waiting_count: u64,
    /// How many entries the queue has, those included whose tickets have left.
    pub queue_length: u64,
}

/// One hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HoldInfo {
    /// The ticket: the client's id, and a number.
    pub ticket: String,
    /// What is left of its lease; 0 where it has ended.
    pub left_millis: u64,
    /// The first eight digits of its owner, where it has one.
    pub owner: Option<String>,
    /// Its label.
    pub label: Option<String>,
}

/// One waiting ticket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitInfo {
    /// The ticket: the client's id, and a number.
    pub ticket: String,
    /// What it waits for.
    pub mode: Mode,
    /// When it came, on the server's clock, in milliseconds since 1970.
    pub arrival_millis: u64,
    /// For how long its client may still be silent before its places are given up; 0 where that time is over.
    pub client_left_millis: u64,
    /// Whether its client hears no messages at present.
    pub deaf: bool,
    /// The first eight digits of its owner, where it has one.
    pub owner: Option<String>,
    /// Its label.
    pub label: Option<String>,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InspectReply {
    Info(LockInfo),
    /// A key of this lock is in use by something else.
    ForeignKey {
        key: String,
    },
}

impl InspectReply {
    /// The first words of the replies that [`InspectReply::decode`] knows.
    pub const WORDS: &'static [&'static str] = &["info", "foreign_key"];

    /// Reads the script's reply.
    pub fn decode(value: &Value) -> Result<Timed<Self>, Malformed> {
        let (word, server_millis, mut items) = Items::open(value)?;
        let reply = match word {
            "info" => Self::Info(LockInfo::read(server_millis, &mut items)?),
            "foreign_key" => Self::ForeignKey { key: items.lossy()? },
            _ => return Err(Malformed),
        };
        items.close(Timed { server_millis: Some(server_millis), reply })
    }
}

impl LockInfo {
    fn read(server_millis: u64, items: &mut Items<'_>) -> Result<Self, Malformed> {
        let kind = named(items.text()?, Kind::parse)?;
        let mode = named(items.text()?, Mode::parse)?;
        let (owner, token, last_token) = (owner(items)?, token(items)?, token(items)?);
        let (queue_length, waiting_count, hold_count) = (items.number()?, items.number()?, items.number()?);
        let (mut held, mut queued) = (items.array()?, items.array()?);
        let (mut holds, mut waiting) = (Vec::new(), Vec::new());
        while !held.is_empty() {
            holds.push(HoldInfo::read(held.array()?)?);
        }
        while !queued.is_empty() {
            let (ticket, entry, client) = (queued.lossy()?, queued.lossy()?, queued.lossy()?);
            waiting.extend(WaitInfo::read(ticket, &entry, &client, server_millis));
        }
        Ok(Self {
            server_millis,
            kind,
            mode,
            owner,
            token,
            last_token,
            holds,
            hold_count,
            waiting,
            waiting_count,
            queue_length,
        })
    }
}

impl HoldInfo {
    fn read(mut items: Items<'_>) -> Result<Self, Malformed> {
        let (ticket, left_millis) = (items.lossy()?, items.number()?);
        let (owner, label) = (owner(&mut items)?, label(&mut items)?);
        items.close(Self { ticket, left_millis, owner, label })
    }
}

impl WaitInfo {
    /// Reads what the server stores of a ticket and of its client; `None` where that is not ours.
    fn read(ticket: String, entry: &str, client: &str, now_millis: u64) -> Option<Self> {
        let (mut entry, mut client) = (entry.splitn(7, ' '), client.split(' '));
        // Its number, when it came, its mode, lease and block, its owner, its label.
        let (_, arrival, mode) = (entry.next()?, entry.next()?, entry.next()?);
        let (owner, label) = (entry.nth(2)?, entry.next().unwrap_or_default());
        let deadline: u64 = client.next()?.parse().ok()?;
        Some(Self {
            ticket,
            mode: Mode::parse(mode)?,
            arrival_millis: arrival.parse().ok()?,
            client_left_millis: deadline.saturating_sub(now_millis),
            deaf: client.nth(1) == Some("deaf"),
            owner: shown_owner(owner),
            label: shown_label(label),
        })
    }
}

/// An empty text is nothing; any other must be known.
fn named<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Malformed> {
    if text.is_empty() { Ok(None) } else { parse(text).map(Some).ok_or(Malformed) }
}

fn owner(items: &mut Items<'_>) -> Result<Option<String>, Malformed> {
    Ok(shown_owner(&items.lossy()?))
}

fn shown_owner(text: &str) -> Option<String> {
    (!text.is_empty() && text != "-").then(|| text.chars().take(8).collect())
}

fn label(items: &mut Items<'_>) -> Result<Option<String>, Malformed> {
    Ok(shown_label(&items.lossy()?))
}

fn shown_label(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn token(items: &mut Items<'_>) -> Result<Option<u64>, Malformed> {
    Ok(Some(items.number()?).filter(|&token| token != 0))
}

pub(super) static SCRIPT: Script = compose!(
    "common/inspect",
    1,
    [
        "first/time.lua",
        "first/clock.lua",
        "lib/peek.lua",
        "lib/client_of.lua",
        "lib/read_lock.lua",
        "lib/read_holders.lua",
        "lib/new_waiting.lua",
        "lib/read_entry.lua",
        "lib/read_client.lua",
        "lib/read_waiting.lua",
        "lib/read_counter.lua",
        "lib/list_holds.lua",
        "lib/list_waiting.lua",
        "common/inspect.v1.lua",
    ]
);

//! The order of grants, judged at each call by what the server's keys said before it: who waited, who could be
//! reached, and how far a call looks.

use std::collections::{BTreeMap, BTreeSet};

use lockwright::internals::backend::Value;
use lockwright::internals::scripts::Call;
use lockwright::internals::ticket::{ClientId, Ticket};

use crate::audit::{Finding, Held, Run};
use crate::dice::Nanos;
use crate::mix::config;

/// How many entries of the queue one call looks at.
pub const LIMIT: usize = 256;

/// One lock before a script ran.
#[derive(Clone, Debug, Default)]
pub struct Before {
    pub held: Held,
    pub queue: Queue,
}

/// Its queue. Times are the server's, in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    pub now: u64,
    pub list: Vec<Ticket>,
    pub entries: BTreeMap<Ticket, Entry>,
    pub clients: BTreeMap<ClientId, Standing>,
}

/// A ticket that waits.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub sequence: u64,
    pub arrival: u64,
}

/// A client that waits.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// From then on its tickets count as dead.
    pub deadline: u64,
    pub deaf: bool,
    /// Whether anybody receives what is sent to it.
    pub subscribed: bool,
}

impl Queue {
    /// Reads a field of `K:waiting`.
    pub fn read(&mut self, field: &str, value: &str, subscribed: impl Fn(ClientId) -> bool) {
        let mut words = value.split(' ');
        let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        if let Some(ticket) = Ticket::parse(field) {
            self.entries.insert(ticket, Entry { sequence: number(), arrival: number() });
        } else if let Some(client) = ClientId::parse(field) {
            let (deadline, deaf) = (number(), value.ends_with(" deaf"));
            self.clients.insert(client, Standing { deadline, deaf, subscribed: subscribed(client) });
        }
    }
}

/// What a call had to choose from.
#[derive(Clone, Debug)]
pub struct Choice {
    pub queue: Queue,
    /// The ticket that its reply can reach, and whether it counts as queued, at the tail, though it had not been:
    /// the next ticket of a release does.
    pub own: Option<Ticket>,
    pub joins: bool,
    /// Whether the number that `PUBLISH` returns is trusted.
    pub counted: bool,
    pub limit: usize,
}

impl Choice {
    /// What this call found; `None` where it did not look at the queue.
    pub fn of(run: &Run<'_>, before: &Before, limit: usize) -> Option<Self> {
        // A lock that reads share goes to runs of them: another rule, judged by what the clients see.
        let is_shared = ["read", "write"].contains(&before.held.mode.as_str());
        if is_shared || run.call.script.name.starts_with("read_write/") {
            return None;
        }
        let (args, said) = (&run.call.args, first_word(run.reply));
        let mut queue = before.queue.clone();
        let ticket = args.get(1).and_then(Ticket::parse);
        let terms: Vec<&str> = args.get(0)?.split(' ').collect();
        let [_, _, _, counted, deaf] = terms[..] else { return None };
        let operation = run.call.script.name.rsplit('/').next()?;
        let (own, deaf) = match operation {
            "acquire" if said != "stale" => (ticket, Some(deaf)),
            "leave" => {
                queue.entries.remove(&ticket?);
                // Only the answer to a release says what became of the next ticket.
                let next = args.get(2).filter(|_| said == "freed");
                (next.and_then(Ticket::parse), Some(deaf))
            }
            "force_release" if said == "released" => (None, None),
            _ => return None,
        };
        // Who calls is alive.
        if let (Some(deaf), Some(client)) =
            (deaf, ticket.and_then(|ticket| queue.clients.get_mut(&ticket.client)))
        {
            (client.deadline, client.deaf) = (u64::MAX, deaf == "1");
        }
        Some(Self { queue, own, joins: operation == "leave", counted: counted == "1", limit })
    }

    /// What is wrong with the lock's having gone to this ticket, or to nobody.
    pub fn judge(&self, granted: Option<Ticket>) -> Option<Finding> {
        let looked_at: BTreeSet<Ticket> = self.queue.list.iter().take(self.limit).copied().collect();
        let own = |ticket: Ticket| self.own == Some(ticket);
        let number = |ticket| self.queue.entries.get(&ticket).map_or(u64::MAX, |entry| entry.sequence);
        let last = granted.map_or(u64::MAX, number);
        // Where a call stops at its limit its own ticket has the lock, if it was queued, or nobody has it, whoever
        // waits further on.
        let is_queued = |ticket| self.joins || self.queue.entries.contains_key(&ticket);
        let stops = granted.is_none_or(|ticket| own(ticket) && is_queued(ticket));
        let passed = |&(ticket, entry): &(Ticket, Entry)| {
            let in_reach = looked_at.contains(&ticket) || own(ticket) || !stops;
            entry.sequence < last && in_reach && self.can_have_it(ticket, entry)
        };
        let entries = self.queue.entries.iter().map(|(&ticket, &entry)| (ticket, entry));
        let (passed, entry) = entries.filter(passed).min_by_key(|(_, entry)| entry.sequence)?;
        let instead = granted.map_or("nobody".into(), |ticket| format!("{ticket}, number {last},"));
        Some(("order", format!("{instead} has the lock and {passed}, number {}, waits", entry.sequence)))
    }

    /// Whether a waiting ticket lives and can be told.
    fn can_have_it(&self, ticket: Ticket, entry: Entry) -> bool {
        let Some(client) = self.queue.clients.get(&ticket.client) else { return false };
        let claim = u64::try_from(config().claim.as_millis()).unwrap_or(u64::MAX);
        let heard = client.subscribed
            || !self.counted
            || client.deaf && self.queue.now.saturating_sub(entry.arrival) > claim;
        // Where one of the two keys was lost alone everybody registers anew.
        let is_there = self.queue.list.contains(&ticket);
        is_there && client.deadline > self.queue.now && (heard || self.own == Some(ticket))
    }
}

/// Whether a call may give the lock to somebody: it is free, or the call frees it.
pub fn may_choose(call: &Call, held: &Held, now: Nanos) -> bool {
    let leaves = |ticket: Ticket| held.holds.iter().any(|&(holder, _)| holder == ticket);
    match call.script.name.rsplit('/').next() {
        Some("force_release") => true,
        Some("leave") if call.args.get(1).and_then(Ticket::parse).is_some_and(leaves) => true,
        _ => held.holds.iter().all(|&(_, ends)| ends <= now),
    }
}

/// The ticket that the lock went to; `None` where nobody has it. `Err` where it stayed with its holder.
pub fn outcome(before: &Held, after: &Held) -> Result<Option<Ticket>, ()> {
    match after.holds.first() {
        None => Ok(None),
        Some(_) if after.token == before.token => Err(()),
        Some(&(ticket, _)) => Ok(Some(ticket)),
    }
}

fn first_word(reply: &Value) -> &str {
    let first = match reply {
        Value::Array(items) => items.first(),
        text => Some(text),
    };
    let Some(Value::Bulk(bytes)) = first else { return "" };
    std::str::from_utf8(bytes).unwrap_or_default().split(' ').next().unwrap_or_default()
}

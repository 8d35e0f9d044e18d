//! What the server granted and promised, read from its keys and replies: the other side of every hold.

use std::collections::{BTreeMap, BTreeSet};

use lockwright::internals::backend::Value;
use lockwright::internals::scripts::{AcquireReply, Call, LeaveReply, Next, RenewReply, Timed};
use lockwright::internals::ticket::{ClientId, Ticket};

use crate::dice::{Nanos, nanos};
use crate::mix::config;
use crate::order::{self, Before, Choice};

/// A grant, as the server made it.
#[derive(Clone, Debug)]
pub struct Grant {
    pub lock: String,
    pub client: ClientId,
    /// Whether its owner was inside already by another hold.
    pub joins: bool,
    /// When the script ran.
    pub at: Nanos,
    pub token: u64,
    pub block: u64,
    /// The latest end of lease that was ever promised.
    pub ends: Nanos,
}

/// One execution, with what the audit must know of it.
pub struct Run<'a> {
    pub client: ClientId,
    pub at: Nanos,
    /// When its client had stopped waiting for it.
    pub stale_after: Nanos,
    pub call: &'a Call,
    pub reply: &'a Value,
    /// The first of its locks as it was before.
    pub before: &'a Before,
}

/// `K`, as a script left it.
#[derive(Clone, Debug, Default)]
pub struct Held {
    pub mode: String,
    pub owner: String,
    pub token: u64,
    pub block: u64,
    /// Each hold, and its lease's end on the history's clock.
    pub holds: Vec<(Ticket, Nanos)>,
    /// Whose each of them is.
    pub owners: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Audit {
    pub grants: Vec<Grant>,
    /// By lock, ticket and token: the index of the grant. A ticket that misses its claim may be granted again.
    by_ticket: BTreeMap<(String, Ticket, u64), usize>,
    /// By lock and ticket: when the server last said that it queues the ticket.
    queued: BTreeMap<(String, Ticket), Nanos>,
    /// Tickets that their clients have given back: what the server still makes of them is a ghost.
    departed: BTreeSet<(String, Ticket)>,
    /// By client and call: leavings that are under way, each of one ticket.
    leaving: BTreeMap<(usize, u64), (String, Ticket)>,
    /// By lock and client: when the last grant that it was to hear of by a message was made, and when it ended.
    claims: BTreeMap<(String, ClientId), (Nanos, Nanos)>,
    /// By lock and client: when its last call ran.
    called: BTreeMap<(String, ClientId), Nanos>,
    /// When the server refused writes of owners that read.
    refusals: Vec<(String, ClientId, Nanos)>,
    /// When places were last lost for a reason that is not the scripts'.
    pub forgotten: Nanos,
    /// Where the server's clock was set, lateness cannot be told.
    pub clock_moved: bool,
    /// How many entries of a queue one call looks at.
    limit: usize,
}

/// A rule that was broken, and how.
pub type Finding = (&'static str, String);

impl Audit {
    pub fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Checks a reply.
    pub fn ran(&mut self, run: &Run<'_>) -> Option<Finding> {
        let lock = run.call.keys.get(0).unwrap_or_default().to_owned();
        for key in run.call.keys.iter().filter(|key| key.ends_with('}')) {
            self.called.insert((key.to_owned(), run.client), run.at);
        }
        let finding = match run.call.script.name {
            "reentrant/acquire" | "fair/acquire" | "read_write/acquire" => self.acquired(run, lock),
            "reentrant/leave" | "fair/leave" | "read_write/leave" => self.left(run, lock),
            "common/renew" => RenewReply::decode(run.reply).ok().map(|_| None),
            _ => Some(None),
        };
        finding.unwrap_or_else(|| Some(("replies", format!("{:?}", run.reply))))
    }

    fn acquired(&mut self, run: &Run<'_>, lock: String) -> Option<Option<Finding>> {
        let Timed { reply, .. } = AcquireReply::decode(run.reply).ok()?;
        let ticket = Ticket::parse(&run.call.args[1])?;
        let late = run.at > run.stale_after && !self.clock_moved;
        if reply == AcquireReply::Stale {
            return Some(None);
        }
        if late {
            return Some(Some(("stale requests", format!("{ticket} asked too late: {reply:?}"))));
        }
        if reply == AcquireReply::WouldDeadlock {
            self.refusals.push((lock.clone(), run.client, run.at));
        }
        let key = (lock.clone(), ticket);
        let AcquireReply::Queued(queued) = reply else {
            self.queued.remove(&key);
            return Some(None);
        };
        if self.departed.contains(&key) {
            return Some(None);
        }
        let before = self.queued.insert(key, run.at);
        Some(before.filter(|_| queued.new).and_then(|since| self.place_lost(&lock, &ticket, since, run.at)))
    }

    /// A ticket that was queued is new to the server: that needs a reason.
    fn place_lost(&self, lock: &str, ticket: &Ticket, since: Nanos, now: Nanos) -> Option<Finding> {
        let claimed = self.claims.get(&(lock.to_owned(), ticket.client)).is_some_and(|&(at, _)| at >= since);
        let silent = now - since > nanos(config().client_deadline);
        let found = !claimed && !silent && self.forgotten < since;
        found.then(|| ("places", format!("{ticket} was queued and lost its place without a reason")))
    }

    /// A client has sent this.
    pub fn sent(&mut self, client: usize, id: u64, call: &Call) {
        if call.script.name.ends_with("/leave")
            && let Some(ticket) = Ticket::parse(&call.args[1])
        {
            let key = (call.keys[0].to_owned(), ticket);
            self.queued.remove(&key);
            self.leaving.insert((client, id), key.clone());
            self.departed.insert(key);
        }
    }

    /// A client has the answer to its call.
    pub fn answered(&mut self, client: usize, id: u64) {
        if let Some(left) = self.leaving.remove(&(client, id)) {
            // With the first answer its client is done with the ticket.
            self.leaving.retain(|_, other| *other != left);
        }
    }

    fn left(&mut self, run: &Run<'_>, lock: String) -> Option<Option<Finding>> {
        let Timed { reply, .. } = LeaveReply::decode(run.reply).ok()?;
        let args = &run.call.args;
        if let Some(next) = args.get(2)
            && let LeaveReply::Freed { next: Next::Queued { .. }, .. } = reply
        {
            self.queued.insert((lock, Ticket::parse(next)?), run.at);
        }
        Some(None)
    }

    /// Notes what a script has left in `K`.
    pub fn looked(&mut self, run: &Run<'_>, lock: &str, held: Held) -> Option<Finding> {
        let shared = held.holds.len() > 1 && held.owner == "-" && held.mode != "read";
        let several = || ("one holder", format!("{lock} has several anonymous holds"));
        let mut finding = shared.then(several);
        if let Ok(granted) = order::outcome(&run.before.held, &held) {
            // A ghost may find its old place, for one message.
            let is_ghost = granted.is_some_and(|ticket| self.departed.contains(&(lock.to_owned(), ticket)));
            let choice = Choice::of(run, run.before, self.limit).filter(|_| !is_ghost);
            finding = finding.or_else(|| choice?.judge(granted));
        }
        for (place, &(ticket, ends)) in held.holds.iter().enumerate() {
            self.queued.remove(&(lock.to_owned(), ticket));
            let key = (lock.to_owned(), ticket, held.token);
            if let Some(&index) = self.by_ticket.get(&key) {
                let grant = &mut self.grants[index];
                let is_own = names(run.call, ticket);
                // One that has ended, or was left, may be granted again: a version does not tell two grants apart.
                let was_left = self.departed.contains(&(key.0, ticket));
                let lives =
                    grant.ends > run.at && self.forgotten < grant.at && !self.clock_moved && !was_left;
                if ends > grant.ends && lives && !is_own {
                    let what = || format!("the lease of {ticket} on {lock} was lengthened by another's call");
                    finding = finding.or_else(|| Some(("leases", what())));
                }
                grant.ends = grant.ends.max(ends);
                continue;
            }
            // A read that its owner's write leaves behind goes on under that write's second token; where K was lost
            // beside it, under the one with which K is written again.
            let goes_on = |(other, &grant): (&(String, Ticket, u64), &usize)| {
                other.2 == held.token.wrapping_sub(1) || self.grants[grant].at <= self.forgotten
            };
            let of_ticket = |token| (lock.to_owned(), ticket, token);
            let goes_on =
                held.mode == "read" && self.by_ticket.range(of_ticket(0)..=of_ticket(u64::MAX)).any(goes_on);
            if !goes_on && !names(run.call, ticket) {
                finding = finding.or(self.claimed((lock.to_owned(), ticket.client), run.at, ends));
            }
            let (at, token, block, lock) = (run.at, held.token, held.block, lock.to_owned());
            let owner = &held.owners[place];
            let is_beside = |(other, &(_, until)): (usize, &(Ticket, Nanos))| {
                other != place && held.owners[other] == *owner && until > run.at
            };
            let joins = owner != "-" && held.holds.iter().enumerate().any(is_beside);
            let client = ticket.client;
            self.by_ticket.insert(key, self.grants.len());
            self.grants.push(Grant { lock, client, joins, at, token, block, ends });
        }
        finding
    }

    /// The lock was handed over to this client. One that has let a claim pass gets nothing until it calls.
    fn claimed(&mut self, who: (String, ClientId), at: Nanos, ends: Nanos) -> Option<Finding> {
        let called = self.called.get(&who).copied();
        let (lock, client) = (who.0.clone(), who.1);
        let (before, ended) = self.claims.insert(who, (at, ends))?;
        let called = called.is_some_and(|called| called >= before);
        let missed = ended <= at && !called && self.forgotten < before;
        missed.then(|| {
            ("claims", format!("client {client} was granted {lock} again after a claim that it missed"))
        })
    }
}

impl Audit {
    /// The grants of this client that this token belongs to; of a read, whose version is that of all, those alone.
    pub fn grants_of<'a>(
        &'a self,
        lock: &'a str,
        client: ClientId,
        token: u64,
    ) -> impl Iterator<Item = &'a Grant> + 'a {
        let blocks = self.grants.iter().filter(move |grant| grant.lock == lock && grant.client == client);
        blocks
            .filter(move |grant| (grant.token..=grant.token + grant.block.saturating_sub(1)).contains(&token))
    }

    /// When the server refused a write that its client heard of at `heard`: from then on others go in before it.
    pub fn refused(&self, lock: &str, client: ClientId, asked: Nanos, heard: Nanos) -> Option<Nanos> {
        let is_it = |refusal: &&(String, ClientId, Nanos)| {
            refusal.0 == lock && refusal.1 == client && (asked..=heard).contains(&refusal.2)
        };
        self.refusals.iter().filter(is_it).map(|refusal| refusal.2).max()
    }

    /// Whether this grant was made before `time`.
    pub fn granted_before(&self, lock: &str, ticket: Ticket, token: u64, time: Nanos) -> bool {
        let grant = self.by_ticket.get(&(lock.to_owned(), ticket, token));
        grant.is_some_and(|&grant| self.grants[grant].at <= time)
    }

    /// Whether its client has given this ticket back, and knows that.
    pub fn is_departed(&self, lock: &str, ticket: Ticket) -> bool {
        let key = (lock.to_owned(), ticket);
        self.departed.contains(&key) && !self.leaving.values().any(|leaving| *leaving == key)
    }

    /// A ticket of this client that the server queues.
    pub fn waits(&self, client: &ClientId) -> Option<(String, Ticket)> {
        self.queued.keys().find(|(_, ticket)| ticket.client == *client).cloned()
    }

    /// Whether it is queued still, and was not asked for since.
    pub fn still_waits(&self, lock: &str, ticket: Ticket, since: Nanos) -> bool {
        self.queued.get(&(lock.to_owned(), ticket)).is_some_and(|&at| at < since)
    }
}

/// Whether a call is about this ticket.
fn names(call: &Call, ticket: Ticket) -> bool {
    let ticket = ticket.to_string();
    call.args.iter().any(|arg| arg == ticket)
}

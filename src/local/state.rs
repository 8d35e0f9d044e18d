//! The books of one client: its lanes, and what each event does to them. No I/O, no clock of its own: every method
//! is told the time and notes in an [`Outbox`](super::outbox::Outbox) what must be sent and who must be woken.
//!
//! | file | the events |
//! |---|---|
//! | `waits.rs` | somebody comes, waits, gives up |
//! | `asking.rs` | a ticket is asked for; answers that are no grant |
//! | `places.rs` | what is known of the place of each ticket in the queue |
//! | `polls.rs` | when to ask again though nothing is heard |
//! | `grants.rs` | a ticket becomes a hold, and waiters are let in |
//! | `downgrades.rs` | a write becomes a read |
//! | `releases.rs` | a hold is passed on, given back or lost; the end of everything |
//! | `reads.rs` | a hold that readers share is asked back, stays without readers, has stayed for long enough |
//! | `renewals.rs` | a hold is renewed or extended, or runs out |
//! | `messages.rs` | what the server says unasked |
//! | `connection.rs` | a connection comes or goes; the server's clock |

mod asking;
mod connection;
mod downgrades;
mod grants;
mod messages;
mod places;
mod polls;
mod reads;
mod releases;
mod renewals;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::agenda::Agenda;
use super::lane::{Lane, LaneId, LockRef, Phase, QueuePlace, Share, WaiterId};
use super::outbox::Departure;
use crate::backend::Epoch;
use crate::chance::Chance;
use crate::clock::Moment;
use crate::error::Fault;
use crate::ticket::{Ticket, Tickets};

pub use connection::Sample;
pub use downgrades::{Begun, Downgrading};
pub use places::{Standing, Stepped};
pub use releases::Released;
pub use waits::{Entered, GaveUp, Outcome, WaiterRef};

/// The spans that the rules need.
#[derive(Clone, Debug)]
pub struct Spans {
    pub claim: Duration,
    pub client_deadline: Duration,
    pub command_timeout: Duration,
    pub unavailable_after: Duration,
    /// For how long a cached read is kept without readers.
    pub cache_idle: Duration,
}

#[derive(Debug, Default)]
struct Lock {
    /// The lanes that others may join, oldest first.
    shared: BTreeSet<(Share, LaneId)>,
    lanes: BTreeSet<LaneId>,
    /// The waiting lanes by their leases. (To ask thousands of lanes whenever a poll is set costs more than the poll.)
    leases: BTreeSet<(Duration, LaneId)>,
    /// Lanes whose waiters are told when they move forward.
    watched: BTreeSet<LaneId>,
    /// Where the eldest ticket stands, or stood: what stands before any later one follows from it.
    front: Option<QueuePlace>,
    /// When the hold that is waited for ends, as far as is known.
    ends: Moment,
    last_sequence: u64,
    /// How often the server had lost this client's places.
    losses: u64,
    /// Waiting lanes that do not poll by themselves, oldest ticket first: the first one polls for all.
    waiting: BTreeSet<(u64, LaneId)>,
}

impl Lock {
    fn sharing<'a>(&'a self, share: &'a Share) -> impl Iterator<Item = LaneId> + 'a {
        let lanes = self.shared.range((share.clone(), 0)..);
        lanes.take_while(move |(other, _)| other == share).map(|&(_, id)| id)
    }
}

pub struct State {
    pub spans: Spans,
    tickets: Tickets,
    chance: Chance,
    pub lanes: BTreeMap<LaneId, Lane>,
    locks: BTreeMap<LockRef, Lock>,
    /// The living tickets: there before they are sent, gone before their leaving is sent.
    by_ticket: BTreeMap<u64, LaneId>,
    /// Tickets whose leaving is under way.
    leaving: BTreeSet<u64>,
    /// Tickets of reads that are to come of a write, and whether they were asked back meanwhile.
    downgrading: BTreeMap<u64, bool>,
    /// Holds that have run out, which nobody has given back yet.
    expired: BTreeMap<u64, Departure>,
    outcomes: BTreeMap<WaiterId, Outcome>,
    last_id: u64,
    /// What the watchdog, and the poller, are to see to.
    pub due: Agenda,
    polls: Agenda,
    epoch: Epoch,
    /// Which run of which server answered last, and how many there were.
    run_id: Option<String>,
    servers: u64,
    sample: Option<Sample>,
    pub counted: bool,
    pub deaf: bool,
    pub refused: Option<Fault>,
    /// What was last heard of a server that does not answer.
    pub trouble: String,
    /// When a script call was last answered.
    heard: Moment,
    pub closed: bool,
}

impl State {
    pub fn new(spans: Spans, tickets: Tickets, chance: Chance, now: Moment) -> Self {
        Self {
            spans,
            tickets,
            chance,
            lanes: BTreeMap::new(),
            locks: BTreeMap::new(),
            by_ticket: BTreeMap::new(),
            leaving: BTreeSet::new(),
            downgrading: BTreeMap::new(),
            expired: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            last_id: 0,
            due: Agenda::new(),
            polls: Agenda::new(),
            epoch: 0,
            run_id: None,
            servers: 0,
            sample: None,
            counted: false,
            deaf: false,
            refused: None,
            trouble: "no answer yet".to_owned(),
            heard: now,
            closed: false,
        }
    }

    /// A ticket that is no lane's.
    pub fn new_ticket(&self) -> Ticket {
        self.tickets.next()
    }

    /// How much there is of everything that must go when nobody holds, waits or leaves.
    #[cfg(lockwright_internals)]
    pub fn entries(&self) -> usize {
        let lanes = self.lanes.len() + self.locks.len() + self.by_ticket.len() + self.leaving.len();
        let lanes = lanes + self.downgrading.len() + self.expired.len();
        lanes + self.outcomes.len() + self.due.len() + self.polls.len()
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub fn lane_of(&self, ticket: Ticket) -> Option<LaneId> {
        self.by_ticket.get(&ticket.number).copied()
    }

    /// The waiting lane, if it still wants this ticket.
    pub fn wanted(&mut self, id: LaneId, ticket: Ticket) -> Option<&mut Lane> {
        let lane = self.lanes.get_mut(&id)?;
        (lane.ticket() == ticket && matches!(lane.phase, Phase::Waiting(_))).then_some(lane)
    }

    /// The lane that holds by this ticket.
    pub fn held_lane(&mut self, id: LaneId, ticket: Ticket) -> Option<&mut Lane> {
        let lane = self.lanes.get_mut(&id)?;
        (lane.ticket() == ticket && matches!(lane.phase, Phase::Held(_))).then_some(lane)
    }
}

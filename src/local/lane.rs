//! A lane: one ticket at the server after the other, and the local waiters that share it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::gate::Gate;
use crate::clock::Moment;
use crate::guard::Hold;
use crate::lease::Lease;
use crate::mutant::{self, Mutant};
use crate::name::LockKeys;
use crate::owner::OwnerId;
use crate::scripts::{Attempt, Kind, Mode, Wait};
use crate::ticket::Ticket;
use crate::token::{PASSING_BLOCK, READ_BLOCK, SINGLE, TokenBlock, WRITE_BLOCK};

pub type LaneId = u64;
pub type WaiterId = u64;

/// A lock, as one client knows it. The kind belongs to it: one name used as two kinds is settled by the server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockRef {
    pub kind: Kind,
    pub keys: LockKeys,
}

/// What a handle asks for.
#[derive(Clone, Debug)]
pub struct Request {
    pub lock: LockRef,
    pub mode: Mode,
    pub owner: Option<OwnerId>,
    pub lease: Lease,
    pub max_hold: Option<Duration>,
    pub label: Option<Arc<str>>,
    /// Whether to wait while others hold the lock.
    pub waits: bool,
    /// Of a read: whether its hold stays when nobody reads.
    pub keep: bool,
}

/// A hold, and where it stands in the books.
#[derive(Debug)]
pub struct HoldRef {
    pub lane: LaneId,
    pub lock: LockRef,
    pub ticket: Ticket,
    pub owner: Option<OwnerId>,
    pub hold: Hold,
    /// How many servers the client had met when it was granted; `None` where the answer came by another connection than
    /// the one that the books know of, and so perhaps from another server.
    pub servers: Option<u64>,
    /// Through which its guards come and go without the books; a hold without one has its guards counted there.
    pub gate: Option<Gate>,
}

impl HoldRef {
    /// Lets a reader in beside others, without the books. With `kept` only where the hold stays when nobody is inside.
    pub fn admit(&self, kept: bool, now: Moment) -> bool {
        !self.hold.remaining(now).is_zero() && self.gate.as_ref().is_some_and(|gate| gate.enter(kept))
    }

    /// A guard is gone, at the time that `now` tells. Returns whether the books must be told.
    pub fn leave(&self, now: impl FnOnce() -> Moment) -> bool {
        self.gate.as_ref().is_none_or(|gate| gate.leave(now))
    }
}

/// Who may share a ticket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Share {
    /// All acquisitions of one owner, to read or to write: it re-enters. Who waits shares only with whoever asks for the
    /// same lease and label ([`Lane::suits`]).
    Owner(OwnerId, Mode),
    /// Anonymous acquisitions of the reentrant lock with the same lease and label: the hold is passed among them.
    Anonymous(Lease, Option<Arc<str>>),
    /// Anonymous reads with the same lease and label: they are inside together.
    Readers(Lease, Option<Arc<str>>),
    /// Nobody else.
    Alone,
}

impl Request {
    /// A hold is passed, or shared, among anonymous waiters with a renewed lease and without `max_hold`: it must not
    /// carry one task's limits, nor its owner's right to re-enter, into another's section.
    pub fn share(&self) -> Share {
        let is_plain = self.lease.is_renewed() && self.max_hold.is_none();
        match (self.owner, self.mode, self.lock.kind) {
            (Some(_), Mode::Read, _) if is_plain && mutant::is(Mutant::OwnersReadShared) => {
                Share::Readers(self.lease, self.label.clone())
            }
            (Some(owner), mode, _) => Share::Owner(owner, mode),
            (None, Mode::Read, _) if is_plain => Share::Readers(self.lease, self.label.clone()),
            (None, _, Kind::Reentrant) if is_plain => Share::Anonymous(self.lease, self.label.clone()),
            _ => Share::Alone,
        }
    }
}

/// One ticket at the server, and who waits for it or holds by it.
///
/// | phase | ticket at the server | waiters | holds |
/// |---|---|---|---|
/// | `Waiting` | unknown, or queued | at least one | none |
/// | `Held` | a hold | those to pass the hold to (anonymous); none (an owner's, and readers, all enter) | one |
///
/// A lane without waiters and without a hold does not exist.
#[derive(Debug)]
pub struct Lane {
    pub request: Request,
    pub share: Share,
    pub attempt: Attempt,
    pub phase: Phase,
    pub waiters: BTreeMap<WaiterId, Waiter>,
    /// Every waiter up to this one has waited behind a hold of this lane.
    pub contended_up_to: WaiterId,
    /// When its present ticket was made.
    pub since: Moment,
}

#[derive(Debug)]
pub enum Phase {
    Waiting(Waiting),
    Held(Held),
}

#[derive(Debug, Default)]
pub struct Waiting {
    /// An ask, or a leaving that queues this ticket, is with the courier.
    pub asking: bool,
    /// Since when the courier asks: from then on the server owes an answer.
    pub asking_since: Option<Moment>,
    /// Ask once more, as a poll or not, when that one is answered: something was heard meanwhile.
    pub again: Option<bool>,
    /// Something was sent, so there may be something to take back.
    pub sent: bool,
    /// The server has answered: others hold the lock.
    pub answered: bool,
    /// The server has had this ticket in its queue.
    pub queued: bool,
    /// The server has said that this is a hold for which somebody waits: a message may come before the reply that it
    /// overtook, and the grant in that reply knows of nobody yet.
    pub contended: bool,
    /// When to poll; only lanes that poll have it.
    pub poll_at: Option<Moment>,
    /// The server's number of this ticket in the order of joining, and how many stood before it at most.
    pub place: Option<QueuePlace>,
    /// How many grants came too late to be of use.
    pub late_grants: u32,
}

/// Where a ticket stands in the queue at the server.
#[derive(Clone, Copy, Debug)]
pub struct QueuePlace {
    pub sequence: u64,
    pub ahead: u64,
    /// How many tickets waited in all, and the last of this client's that was among them: of a later one it says
    /// nothing.
    pub living: u64,
    pub up_to: u64,
}

#[derive(Debug)]
pub struct Held {
    pub hold: Arc<HoldRef>,
    /// How many guards there are: re-entry counts. Those of a hold with a gate are counted there.
    pub guards: u32,
    pub block: TokenBlock,
    /// Until when the hold is trusted: what the guard shows.
    pub trusted: Moment,
    /// Until when the server may keep it: what was asked of it last, whether or not it has answered.
    pub kept: Moment,
    /// `trusted` never passes these: the end of a fixed lease, and of `max_hold`.
    pub fixed_end: Moment,
    pub max_end: Moment,
    /// When to renew next; `None` while a renewal is under way, and for a fixed lease that is confirmed.
    pub renew_at: Option<Moment>,
    /// When to see whether a hold that stays without readers has been idle for long enough.
    pub idle_at: Moment,
    /// The entry in the watchdog's books.
    pub due: Moment,
    /// Since when somebody else is known to wait.
    pub contended: Option<Moment>,
    /// The task that acquired it, where that is known: not of a hold that has, or had, several guards. (Which of them are
    /// gone nobody notes, and the last task let in may have none any more.)
    pub task: Option<tokio::task::Id>,
}

#[derive(Debug)]
pub struct Waiter {
    pub request: Request,
    pub waker: Option<Waker>,
    pub task: Option<tokio::task::Id>,
    pub since: Moment,
    pub warned: bool,
}

/// For how long a hold is passed on inside the process once somebody else is known to wait.
const CONTENDED_TURN: Duration = Duration::from_millis(10);
/// A hold that is trusted for less is not passed on: the next holder would lose it at once.
const WORTH_PASSING: Duration = Duration::from_millis(50);

impl Held {
    /// One more guard of this hold, acquired by `task`.
    pub fn admit(&mut self, task: Option<tokio::task::Id>) {
        match &self.hold.gate {
            // Closing one is an event of the books, after which nobody is let in there.
            Some(gate) => assert!(gate.enter(false), "the gate of a shared hold is open"),
            None => {
                self.guards += 1;
                self.task = task.filter(|_| self.guards == 1);
            }
        }
    }

    /// Nobody joins the readers of this hold any more. Returns whether it has readers, and nobody is inside.
    pub fn close(&self) -> bool {
        self.hold.gate.as_ref().is_some_and(Gate::close)
    }
}

impl Lane {
    pub fn new(request: Request, ticket: Ticket, now: Moment) -> Self {
        let share = request.share();
        let attempt = attempt(&request, &share, ticket);
        let phase = Phase::Waiting(Waiting::default());
        Self { request, share, attempt, phase, waiters: BTreeMap::new(), contended_up_to: 0, since: now }
    }

    pub fn ticket(&self) -> Ticket {
        self.attempt.ticket
    }

    /// Begins anew with another ticket: a ticket is never used twice.
    pub fn renumber(&mut self, ticket: Ticket, now: Moment) {
        self.request.waits = self.waiters.values().any(|waiter| waiter.request.waits);
        self.attempt = attempt(&self.request, &self.share, ticket);
        self.phase = Phase::Waiting(Waiting::default());
        self.since = now;
    }

    /// Whether its ticket polls though it is not the client's oldest: its owner may be granted elsewhere, and
    /// nobody else would ask for it.
    pub fn polls_itself(&self) -> bool {
        self.attempt.owner.is_some()
    }

    pub fn wait(&self, poll: bool) -> Wait {
        match self.waiters.values().any(|waiter| waiter.request.waits) {
            false => Wait::No,
            true if poll => Wait::Poll,
            true => Wait::Join,
        }
    }

    pub fn waiting(&mut self) -> Option<&mut Waiting> {
        match &mut self.phase {
            Phase::Waiting(waiting) => Some(waiting),
            Phase::Held(_) => None,
        }
    }

    pub fn held(&mut self) -> Option<&mut Held> {
        match &mut self.phase {
            Phase::Waiting(_) => None,
            Phase::Held(held) => Some(held),
        }
    }

    pub fn new_hold(&self, id: LaneId, token: u64, trusted: Moment, servers: Option<u64>) -> Arc<HoldRef> {
        Arc::new(HoldRef {
            lane: id,
            lock: self.request.lock.clone(),
            ticket: self.ticket(),
            owner: self.request.owner,
            hold: Hold::new(token, trusted),
            servers,
            gate: matches!(self.share, Share::Readers(..)).then(Gate::new),
        })
    }

    /// Whether this request can have the lane's ticket, too: of one that waits the server knows lease and label, and
    /// what it knows of a ticket never changes.
    pub fn suits(&self, request: &Request) -> bool {
        let asks_for_the_same = (self.request.lease, &self.request.label) == (request.lease, &request.label);
        matches!(self.phase, Phase::Held(_)) || asks_for_the_same
    }

    pub fn is_held(&self, now: Moment) -> bool {
        matches!(&self.phase, Phase::Held(held) if held.trusted > now)
    }

    pub fn held_is_over(&self, now: Moment) -> bool {
        matches!(&self.phase, Phase::Held(held) if held.trusted <= now)
    }

    /// Whether the hold goes to the next local waiter instead of back to the server.
    pub fn passes(&self, now: Moment) -> bool {
        let Phase::Held(held) = &self.phase else { return false };
        let turn_is_over = held.contended.is_some_and(|since| now >= since.plus(CONTENDED_TURN));
        matches!(self.share, Share::Anonymous(..))
            && !self.waiters.is_empty()
            && !held.block.is_used_up()
            && !turn_is_over
            && held.trusted > now.plus(WORTH_PASSING)
    }
}

pub fn attempt(request: &Request, share: &Share, ticket: Ticket) -> Attempt {
    let passes = matches!(share, Share::Anonymous(..)) && request.waits;
    Attempt {
        ticket,
        mode: request.mode,
        owner: request.owner,
        lease_millis: request.lease.millis(),
        block: match request.mode {
            Mode::Read => READ_BLOCK,
            Mode::Write => WRITE_BLOCK,
            Mode::Exclusive if passes => PASSING_BLOCK,
            Mode::Exclusive => SINGLE,
        },
        label: request.label.as_deref().map(str::to_owned),
    }
}

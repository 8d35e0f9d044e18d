//! The books of one client: its lanes, and what each event does to them. No I/O, no clock of its own: every method
//! is told the time and notes in an [`Outbox`] what must be sent and who must be woken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::oneshot;

use super::lane::{
    Held, Lane, LaneId, LockRef, Phase, QueuePlace, Request, Share, Waiter, WaiterId, Waiting,
};
use crate::backend::{Epoch, Up};
use crate::chance::Chance;
use crate::clock::Moment;
use crate::error::{ExtendError, Fault, LockError, LossReason, UnlockError};
use crate::guard::Hold;
use crate::lease::{certain, trusted_until};
use crate::mutant::{self, Mutant};
use crate::owner::OwnerId;
use crate::scripts::{Granted, Queued};
use crate::ticket::{Ticket, Tickets};
use crate::token::TokenBlock;

/// The spans that the rules need.
#[derive(Clone, Debug)]
pub struct Spans {
    pub claim: Duration,
    pub client_deadline: Duration,
    pub command_timeout: Duration,
    pub unavailable_after: Duration,
}

/// What a transition leaves to be done once the books are closed.
#[derive(Debug, Default)]
pub struct Outbox {
    pub errands: Vec<Errand>,
    pub wakers: Vec<Waker>,
    /// A renewal, or a poll, is due before its task would look.
    pub renew_sooner: bool,
    pub poll_sooner: bool,
}

/// What the courier is to do.
#[derive(Debug)]
pub enum Errand {
    Ask { lane: LaneId, ticket: Ticket, poll: bool },
    Leave(Departure),
    Renew(Vec<Due>),
}

/// A ticket that is given back.
#[derive(Debug)]
pub struct Departure {
    pub lock: LockRef,
    pub ticket: Ticket,
    pub owner: Option<OwnerId>,
    /// The lane whose next ticket is queued by the same call.
    pub next: Option<(LaneId, Ticket)>,
    /// After this the server has let go of it by itself.
    pub give_up: Moment,
    /// Until when the hold is ours: that it is gone after a leaving that was sent before this is our own doing.
    pub trusted: Moment,
    pub done: Option<oneshot::Sender<Result<(), UnlockError>>>,
}

/// A hold that is to be renewed.
#[derive(Clone, Debug)]
pub struct Due {
    pub lane: LaneId,
    pub lock: LockRef,
    pub ticket: Ticket,
    pub lease_millis: u64,
}

/// What a guard knows of where it stands in the books.
#[derive(Clone, Debug)]
pub struct HoldRef {
    pub lane: LaneId,
    pub lock: LockRef,
    pub ticket: Ticket,
    pub owner: Option<OwnerId>,
    pub hold: Arc<Hold>,
    pub lease: Duration,
}

/// Where a waiting future stands.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub lane: LaneId,
    pub waiter: WaiterId,
}

/// How a wait ended: `None` is contention.
pub type Outcome = Result<Option<HoldRef>, LockError>;

/// What entering brings.
#[derive(Debug)]
pub enum Entered {
    Now(Outcome),
    Wait(Place),
}

/// What became of a watched wait.
#[derive(Debug)]
pub enum Stepped {
    Settled(Outcome),
    /// At most so many stand before it.
    At(u64),
}

/// What a release brings.
#[derive(Debug)]
pub enum Released {
    /// Nothing had to be sent.
    Locally,
    /// A leaving is on its way, and answers through the sender it was given.
    Sent,
    Lost(LossReason),
}

/// The server's clock, as of the newest reply of the present connection.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub server_millis: u64,
    pub sent: Moment,
    pub received: Moment,
}

#[derive(Debug, Default)]
struct Lock {
    shared: BTreeMap<Share, LaneId>,
    lanes: BTreeSet<LaneId>,
    /// Lanes whose waiters are told when they move forward.
    watched: BTreeSet<LaneId>,
    /// Where the eldest ticket stands, or stood: what stands before any later one follows from it.
    front: Option<QueuePlace>,
    /// When the hold that is waited for ends, as far as is known.
    ends: Moment,
    last_sequence: u64,
    /// Waiting lanes that do not poll by themselves, oldest ticket first: the first one polls for all.
    waiting: BTreeSet<(u64, LaneId)>,
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
    outcomes: BTreeMap<WaiterId, Outcome>,
    last_id: u64,
    due: BTreeSet<(Moment, LaneId)>,
    polls: BTreeSet<(Moment, LaneId)>,
    /// When the watchdog, and the poller, look next.
    pub renew_armed: Moment,
    pub poll_armed: Moment,
    epoch: Epoch,
    sample: Option<Sample>,
    pub counted: bool,
    pub deaf: bool,
    pub refused: Option<Fault>,
    /// What was last heard of a server that does not answer.
    pub trouble: String,
    /// When a script call was last answered.
    heard: Moment,
    pub closed: bool,
    pub closed_at: Option<Moment>,
}

/// A poll that is due because a lease ends waits this long at most beyond it, so that the waiters of many clients
/// do not all call in the same instant.
const POLL_JITTER: Duration = Duration::from_millis(40);
/// A message is missed when it comes later than the reply that names its ticket by this part of a poll's interval.
const MESSAGE_GRACE: u32 = 16;
/// How often a client polls that hears no messages.
const DEAF_POLL: Duration = Duration::from_millis(150);

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
            outcomes: BTreeMap::new(),
            last_id: 0,
            due: BTreeSet::new(),
            polls: BTreeSet::new(),
            renew_armed: Moment::ORIGIN,
            poll_armed: Moment::ORIGIN,
            epoch: 0,
            sample: None,
            counted: false,
            deaf: false,
            refused: None,
            trouble: "no answer yet".to_owned(),
            heard: now,
            closed: false,
            closed_at: None,
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
        lanes + self.outcomes.len() + self.due.len() + self.polls.len()
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    // ---- entering and giving up -------------------------------------------------------------------------------

    pub fn enter(
        &mut self,
        request: Request,
        task: Option<tokio::task::Id>,
        now: Moment,
        out: &mut Outbox,
    ) -> Entered {
        if self.closed {
            return Entered::Now(Err(LockError::Closed));
        }
        let share = request.share();
        let lock = self.locks.get(&request.lock);
        let lane = match lock.and_then(|lock| lock.shared.get(&share)).copied() {
            Some(id) => match self.join(id, &request, now, out) {
                Joined::Enters(held) => return Entered::Now(Ok(Some(held))),
                Joined::Busy => return Entered::Now(Ok(None)),
                Joined::Waits(id) => id,
            },
            None => self.open(request.clone(), share, now),
        };
        let waiter = self.new_id();
        let entry = Waiter { waits: request.waits, waker: None, task, since: now, warned: false };
        let books = self.lanes.get_mut(&lane).expect("the lane was found or made above");
        books.waiters.insert(waiter, entry);
        if books.waiting().is_some_and(|waiting| !waiting.asking && !waiting.answered) {
            self.ask(lane, false, out);
        }
        Entered::Wait(Place { lane, waiter })
    }

    fn join(&mut self, id: LaneId, request: &Request, now: Moment, out: &mut Outbox) -> Joined {
        let over = self.lanes[&id].held_is_over(now);
        if over {
            // Its watchdog has not run yet. What is lost is lost: this is a new acquisition.
            self.lose(id, LossReason::Expired, now, out);
            return match self.lanes.contains_key(&id) {
                true if !request.waits => Joined::Busy,
                true => Joined::Waits(id),
                false => Joined::Waits(self.open(request.clone(), request.share(), now)),
            };
        }
        let lane = self.lanes.get_mut(&id).expect("lanes of the index exist");
        let owned = matches!(lane.share, Share::Owner(_));
        match &mut lane.phase {
            Phase::Held(held) if owned => {
                held.guards += 1;
                let held = held.hold.clone();
                Joined::Enters(lane.hold_ref(id, held))
            }
            Phase::Held(_) if !request.waits => Joined::Busy,
            Phase::Waiting(waiting) if waiting.answered && !request.waits => Joined::Busy,
            _ => Joined::Waits(id),
        }
    }

    fn open(&mut self, request: Request, share: Share, now: Moment) -> LaneId {
        let id = self.new_id();
        let lane = Lane::new(request, self.tickets.next(), now);
        let lock = self.locks.entry(lane.request.lock.clone()).or_default();
        lock.lanes.insert(id);
        if share != Share::Alone {
            lock.shared.insert(share, id);
        }
        self.lanes.insert(id, lane);
        self.begin_waiting(id);
        id
    }

    /// Registers the lane's ticket, before it is sent.
    fn begin_waiting(&mut self, id: LaneId) {
        let lane = &self.lanes[&id];
        self.by_ticket.insert(lane.ticket().number, id);
        if !lane.polls_itself() {
            let lock = self.locks.get_mut(&lane.request.lock).expect("a lane's lock is indexed");
            lock.waiting.insert((lane.ticket().number, id));
        }
    }

    /// Takes the lane's ticket off the books of those who wait.
    fn end_waiting(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        self.set_poll(id, None, out);
        let lane = &self.lanes[&id];
        let place = (lane.ticket().number, id);
        let Some(lock) = self.locks.get_mut(&lane.request.lock) else { return };
        let was_eldest = lock.waiting.first() == Some(&place);
        lock.waiting.remove(&place);
        if let Some(&(_, eldest)) = lock.waiting.first().filter(|_| was_eldest) {
            self.poll_in_time(eldest, now, out);
        }
    }

    /// The outcome of a wait, once it is there; else whom to wake.
    pub fn poll(&mut self, place: Place, waker: &Waker) -> Option<Outcome> {
        if let Some(outcome) = self.outcomes.remove(&place.waiter) {
            return Some(outcome);
        }
        let lane = self.lanes.get_mut(&place.lane)?;
        let waiter = lane.waiters.get_mut(&place.waiter)?;
        match &mut waiter.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        None
    }

    /// The outcome of a wait, or a position in front of `seen`; else whom to wake.
    pub fn step(&mut self, place: Place, seen: Option<u64>, waker: &Waker) -> Option<Stepped> {
        if let Some(outcome) = self.poll(place, waker) {
            return Some(Stepped::Settled(outcome));
        }
        let lane = self.lanes.get(&place.lane)?;
        let lock = self.locks.get_mut(&lane.request.lock)?;
        lock.watched.insert(place.lane);
        let ahead = ahead(lane, lock.front)?;
        seen.is_none_or(|seen| ahead < seen).then_some(Stepped::At(ahead))
    }

    /// The server has said where a ticket stands: all places of its lock may have moved forward.
    pub fn placed(&mut self, id: LaneId, place: QueuePlace, out: &mut Outbox) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let name = lane.request.lock.clone();
        if let Some(waiting) = lane.waiting() {
            waiting.place = Some(place);
        }
        let Some(lock) = self.locks.get_mut(&name) else { return };
        // What is known of a later ticket says nothing of an earlier one: those between may have left.
        lock.last_sequence = lock.last_sequence.max(place.sequence);
        if lock.waiting.first().is_some_and(|&(_, eldest)| eldest == id) {
            lock.front = Some(QueuePlace { up_to: lock.last_sequence, ..place });
        }
        for id in &lock.watched {
            let waiters = self.lanes.get_mut(id).into_iter().flat_map(|lane| lane.waiters.values_mut());
            out.wakers.extend(waiters.filter_map(|waiter| waiter.waker.take()));
        }
    }

    /// Ends a wait. Returns what it had brought meanwhile: a hold among it must be released.
    pub fn cancel(&mut self, place: Place, now: Moment, out: &mut Outbox) -> Option<Outcome> {
        if let Some(outcome) = self.outcomes.remove(&place.waiter) {
            return Some(outcome);
        }
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.waiters.remove(&place.waiter);
            self.close_if_deserted(place.lane, now, out);
        }
        None
    }

    /// Whether this wait has met another holder: in this process, or by the server's word.
    pub fn is_contended(&self, place: Place) -> bool {
        self.lanes.get(&place.lane).is_some_and(|lane| match &lane.phase {
            Phase::Waiting(waiting) => waiting.answered || place.waiter <= lane.contended_up_to,
            Phase::Held(_) => true,
        })
    }

    /// Ends a lane for which nobody waits any more, and takes its ticket back.
    fn close_if_deserted(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let lane = &self.lanes[&id];
        let Phase::Waiting(waiting) = &lane.phase else { return };
        if !lane.waiters.is_empty() {
            return;
        }
        if waiting.sent {
            let (lock, ticket, owner) = (lane.request.lock.clone(), lane.ticket(), lane.request.owner);
            let life = self.life_without_word(lane.request.lease.length());
            self.leave(lock, ticket, owner, None, now.plus(life), now, None, out);
        }
        self.remove_lane(id, now, out);
    }

    fn remove_lane(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        self.end_waiting(id, now, out);
        self.set_due(id, None, out);
        let Some(lane) = self.lanes.remove(&id) else { return };
        self.by_ticket.remove(&lane.ticket().number);
        if let Some(lock) = self.locks.get_mut(&lane.request.lock) {
            lock.lanes.remove(&id);
            lock.watched.remove(&id);
            if lock.shared.get(&lane.share) == Some(&id) {
                lock.shared.remove(&lane.share);
            }
            if lock.lanes.is_empty() {
                self.locks.remove(&lane.request.lock);
            }
        }
    }

    /// For how long the server may keep a ticket of which it hears nothing more.
    fn life_without_word(&self, lease: Duration) -> Duration {
        lease.max(self.spans.client_deadline) + self.spans.command_timeout
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one departure")]
    fn leave(
        &mut self,
        lock: LockRef,
        ticket: Ticket,
        owner: Option<OwnerId>,
        next: Option<(LaneId, Ticket)>,
        give_up: Moment,
        trusted: Moment,
        done: Option<oneshot::Sender<Result<(), UnlockError>>>,
        out: &mut Outbox,
    ) {
        self.by_ticket.remove(&ticket.number);
        self.leaving.insert(ticket.number);
        out.errands.push(Errand::Leave(Departure { lock, ticket, owner, next, give_up, trusted, done }));
    }

    // ---- asking -----------------------------------------------------------------------------------------------

    /// Has the courier ask for the lane's ticket; once, however often this is called while it is under way.
    pub fn ask(&mut self, id: LaneId, poll: bool, out: &mut Outbox) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let ticket = lane.ticket();
        let Some(waiting) = lane.waiting() else { return };
        if waiting.asking {
            waiting.again = Some(poll || waiting.again == Some(true));
        } else {
            waiting.asking = true;
            out.errands.push(Errand::Ask { lane: id, ticket, poll });
        }
    }

    /// The waiting lane, if it still wants this ticket.
    pub fn wanted(&mut self, id: LaneId, ticket: Ticket) -> Option<&mut Lane> {
        let lane = self.lanes.get_mut(&id)?;
        (lane.ticket() == ticket && matches!(lane.phase, Phase::Waiting(_))).then_some(lane)
    }

    /// The courier has an answer to, or is done with, its asking.
    pub fn asked(&mut self, id: LaneId, ticket: Ticket, out: &mut Outbox) {
        let Some(lane) = self.wanted(id, ticket) else { return };
        let waiting = lane.waiting().expect("a wanted lane waits");
        waiting.asking = false;
        waiting.asking_since = None;
        if let Some(poll) = waiting.again.take() {
            self.ask(id, poll, out);
        }
    }

    /// The lane's ticket is in the server's queue. Returns whether it was known to be there before.
    pub fn mark_queued(&mut self, id: LaneId) -> bool {
        let waiting = self.lanes.get_mut(&id).and_then(Lane::waiting);
        waiting.is_some_and(|waiting| std::mem::replace(&mut waiting.queued, true))
    }

    /// Until when a wait of this lane for a silent server lasts. A server that was not asked is not silent: between
    /// two polls nothing may be heard for longer than that.
    pub fn patience(&self, lane: &Lane) -> Moment {
        let asked = match &lane.phase {
            Phase::Waiting(waiting) => waiting.asking_since.unwrap_or(lane.since),
            Phase::Held(_) => lane.since,
        };
        asked.max(self.heard).plus(self.spans.unavailable_after)
    }

    /// Ends all waits of the lane's lock that have waited too long for a server.
    pub fn give_up_waiting(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let lanes: Vec<LaneId> = self.locks[&lane.request.lock].lanes.iter().copied().collect();
        let fault = Fault::Unavailable { detail: self.trouble.clone() };
        for id in lanes {
            let lane = &self.lanes[&id];
            if matches!(lane.phase, Phase::Waiting(_)) && now >= self.patience(lane) {
                self.fail(id, &fault.clone().into(), now, out);
            }
        }
    }

    /// Ends all waits of a lane with an error, and the lane.
    pub fn fail(&mut self, id: LaneId, error: &LockError, now: Moment, out: &mut Outbox) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let waiters = std::mem::take(&mut lane.waiters);
        for (waiter, entry) in waiters {
            self.settle(waiter, entry, Err(error.clone()), out);
        }
        self.close_if_deserted(id, now, out);
    }

    fn settle(&mut self, waiter: WaiterId, entry: Waiter, outcome: Outcome, out: &mut Outbox) {
        self.outcomes.insert(waiter, outcome);
        out.wakers.extend(entry.waker);
    }

    /// Others hold the lock and the ticket is not queued.
    pub fn busy(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        self.refuse_tries(id, now, out);
        // Somebody who waits has come meanwhile.
        self.ask(id, false, out);
    }

    fn refuse_tries(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if let Some(waiting) = lane.waiting() {
            waiting.answered = true;
        }
        let tries: Vec<WaiterId> =
            lane.waiters.iter().filter(|(_, waiter)| !waiter.waits).map(|(&waiter, _)| waiter).collect();
        for waiter in tries {
            let entry = self.lanes.get_mut(&id).and_then(|lane| lane.waiters.remove(&waiter));
            self.settle(waiter, entry.expect("it was listed above"), Ok(None), out);
        }
        self.close_if_deserted(id, now, out);
    }

    /// The ticket waits in the queue at the server.
    pub fn queued(&mut self, id: LaneId, queued: &Queued, now: Moment, out: &mut Outbox) {
        let lock = self.lanes[&id].request.lock.clone();
        self.refuse_tries(id, now, out);
        let place = QueuePlace {
            sequence: queued.sequence,
            ahead: queued.place.saturating_sub(1),
            living: queued.living,
            up_to: queued.sequence,
        };
        self.placed(id, place, out);
        for &ticket in &queued.holds {
            self.named(ticket, &lock, now, out);
        }
        if queued.more {
            self.ask(id, true, out);
        }
        self.queued_with(id, queued.left_millis, now, out);
    }

    /// The ticket waits behind a hold that the server keeps for `left_millis` more.
    pub fn queued_with(&mut self, id: LaneId, left_millis: u64, now: Moment, out: &mut Outbox) {
        let jitter = self.chance.span_below(POLL_JITTER);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(waiting) = lane.waiting() else { return };
        waiting.answered = true;
        let left = Duration::from_millis(left_millis.saturating_add(1)) + jitter;
        if let Some(lock) = self.locks.get_mut(&lane.request.lock) {
            lock.ends = now.plus(left);
        }
        let within = self.poll_interval(id).min(left);
        self.set_poll(id, self.polls(id).then(|| now.plus(within)), out);
    }

    /// The client's tickets of a lock had been dropped at the server: sends them again, oldest first.
    pub fn send_again(&mut self, lock: &LockRef, except: LaneId, out: &mut Outbox) {
        let Some(lock) = self.locks.get(lock) else { return };
        let mut lanes: Vec<(u64, LaneId)> = lock
            .lanes
            .iter()
            .filter(|&&id| id != except && matches!(self.lanes[&id].phase, Phase::Waiting(_)))
            .map(|&id| (self.lanes[&id].ticket().number, id))
            .collect();
        lanes.sort_unstable();
        for (_, id) in lanes {
            self.ask(id, false, out);
        }
    }

    // ---- polls ------------------------------------------------------------------------------------------------

    fn polls(&self, id: LaneId) -> bool {
        let lane = &self.lanes[&id];
        let eldest = self.locks[&lane.request.lock].waiting.first();
        lane.polls_itself() || eldest.is_some_and(|&(_, eldest)| eldest == id)
    }

    /// Half of the smallest claim among the lock's waiting tickets: one grant whose message is lost must be asked
    /// for, with room for one lost poll, before its claim ends and its place with it.
    fn poll_interval(&self, id: LaneId) -> Duration {
        let lock = &self.locks[&self.lanes[&id].request.lock];
        let leases = lock.lanes.iter().map(|id| self.lanes[id].request.lease.length());
        let claim = leases.fold(self.spans.claim, Duration::min);
        if self.deaf { DEAF_POLL.min(claim / 2) } else { claim / 2 }
    }

    /// How long a poll may take: with the interval before it, and a second one, still less than a claim.
    pub fn poll_timeout(&self, lane: &Lane) -> Duration {
        self.spans.command_timeout.min(self.spans.claim.min(lane.request.lease.length()) / 4)
    }

    /// Has a lane poll that did not need to before: within an interval, and when the lease ends that is waited for.
    fn poll_in_time(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let ends = self.locks[&self.lanes[&id].request.lock].ends;
        let ends = if ends > now { ends } else { Moment::NEVER };
        let latest = now.plus(self.poll_interval(id)).min(ends);
        self.poll_by(id, latest, out);
    }

    fn poll_by(&mut self, id: LaneId, latest: Moment, out: &mut Outbox) {
        let known = self.lanes.get_mut(&id).and_then(Lane::waiting).and_then(|waiting| waiting.poll_at);
        if known.is_none_or(|at| at > latest) {
            self.set_poll(id, Some(latest), out);
        }
    }

    fn set_poll(&mut self, id: LaneId, at: Option<Moment>, out: &mut Outbox) {
        let Some(waiting) = self.lanes.get_mut(&id).and_then(Lane::waiting) else { return };
        if let Some(old) = std::mem::replace(&mut waiting.poll_at, at) {
            self.polls.remove(&(old, id));
        }
        if let Some(at) = at {
            self.polls.insert((at, id));
            out.poll_sooner |= at < self.poll_armed;
        }
    }

    /// Polls for every lane that is due. Returns when the next one is.
    pub fn poll_due(&mut self, now: Moment, out: &mut Outbox) -> Moment {
        while let Some(&(at, id)) = self.polls.first()
            && at <= now
        {
            if self.lanes.get_mut(&id).and_then(Lane::waiting).is_some_and(|waiting| !waiting.asking) {
                self.ask(id, true, out);
            }
            // Should this poll go unanswered the courier repeats it; after the answer the next is set.
            let next = now.plus(self.poll_interval(id));
            self.set_poll(id, Some(next), out);
        }
        out.poll_sooner = false;
        self.poll_armed = self.polls.first().map_or(Moment::NEVER, |&(at, _)| at);
        self.poll_armed
    }

    /// Every waiter asks: the connection is new, or messages were lost.
    pub fn poll_all(&mut self, out: &mut Outbox) {
        if mutant::is(Mutant::NoPollAfterGap) {
            return;
        }
        let pollers: Vec<LaneId> = self
            .lanes
            .iter()
            .filter(|(id, lane)| matches!(lane.phase, Phase::Waiting(_)) && self.polls(**id))
            .map(|(&id, _)| id)
            .collect();
        for id in pollers {
            self.ask(id, true, out);
        }
    }

    // ---- grants -----------------------------------------------------------------------------------------------

    /// The server answered an asking, sent at `sent`: the ticket is a hold.
    pub fn granted(&mut self, id: LaneId, granted: &Granted, sent: Moment, now: Moment, out: &mut Outbox) {
        let left = Duration::from_millis(granted.left_millis);
        let trusted = trusted_until(sent, left);
        let lane = &self.lanes[&id];
        let length = lane.request.lease.length();
        let renew = sent.plus(left.min(length) / 3);
        self.grant(
            id,
            Grant { token: granted.token, waiting: granted.waiting, trusted, base: sent, renew },
            now,
            out,
        );
    }

    /// A message says that the ticket is a hold until `end_millis` of the server's clock. Returns whether it could
    /// be used; else the client must ask.
    pub fn granted_by_message(
        &mut self,
        id: LaneId,
        message: &MessageGrant,
        now: Moment,
        out: &mut Outbox,
    ) -> bool {
        let same_connection = message.epoch == self.epoch || mutant::is(Mutant::SampleKept);
        let Some(sample) = self.sample.filter(|_| same_connection) else { return false };
        let span = |from: u64, to: u64| Duration::from_millis(to.saturating_sub(from));
        let claim = span(message.now_millis, message.end_millis);
        let trusted = match mutant::is(Mutant::GrantWithoutDeadline) {
            true => trusted_until(now, claim),
            false => trusted_until(sample.sent, span(sample.server_millis, message.end_millis)),
        };
        let base = sample.sent.plus(certain(span(sample.server_millis, message.now_millis)));
        if trusted <= now {
            return false;
        }
        let renew = now.plus(claim / 3);
        self.grant(
            id,
            Grant { token: message.token, waiting: message.waiting, trusted, base, renew },
            now,
            out,
        );
        true
    }

    fn grant(&mut self, id: LaneId, grant: Grant, now: Moment, out: &mut Outbox) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let lease = lane.request.lease;
        let fixed_end = (!lease.is_renewed()).then(|| trusted_until(grant.base, lease.length()));
        let fixed_end = fixed_end.unwrap_or(Moment::NEVER);
        let max_end = lane.request.max_hold.map_or(Moment::NEVER, |span| now.plus(span));
        let trusted = grant.trusted.min(fixed_end).min(max_end);
        if trusted <= now {
            return self.granted_too_late(id, now, out);
        }
        let confirmed = !lease.is_renewed() && grant.trusted >= fixed_end;
        let mut block = TokenBlock::new(grant.token, lane.attempt.block);
        let token = block.take().expect("a block is never empty");
        let held = Held {
            hold: Arc::new(Hold::new(token, trusted)),
            guards: 0,
            block,
            trusted,
            fixed_end,
            max_end,
            renew_at: (!confirmed).then_some(grant.renew),
            due: Moment::NEVER,
            contended: grant.waiting.then_some(now),
            task: None,
        };
        self.end_waiting(id, now, out);
        let lane = self.lanes.get_mut(&id).expect("it was there above");
        lane.phase = Phase::Held(held);
        self.let_in(id, out);
        if !mutant::is(Mutant::ArmedLate) {
            self.schedule(id, out);
        }
    }

    /// A grant was over before it was heard of. The next answer may be quicker; where none is, the lease is shorter
    /// than a round trip, and a guard of it could never be trusted.
    fn granted_too_late(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let Some(waiting) = self.lanes.get_mut(&id).and_then(Lane::waiting) else { return };
        waiting.late_grants += 1;
        if waiting.late_grants < LATE_GRANTS {
            return self.ask(id, true, out);
        }
        let detail = "each grant was over before its reply arrived: the lease is too short".to_owned();
        self.fail(id, &Fault::Unavailable { detail }.into(), now, out);
    }

    /// Gives the hold to the first waiter; to all of them where they are one owner. Tries that came meanwhile see
    /// it held.
    fn let_in(&mut self, id: LaneId, out: &mut Outbox) {
        let lane = self.lanes.get_mut(&id).expect("the caller has it");
        let all = matches!(lane.share, Share::Owner(_));
        while let Some((waiter, entry)) = lane.waiters.pop_first() {
            let held = lane.held().expect("the caller made it held");
            held.guards += 1;
            held.task = entry.task;
            let hold = held.hold.clone();
            let outcome = Ok(Some(lane.hold_ref(id, hold)));
            self.outcomes.insert(waiter, outcome);
            out.wakers.extend(entry.waker);
            if !all {
                break;
            }
        }
        if lane.waiters.values().any(|waiter| !waiter.waits) {
            let (tries, rest) =
                std::mem::take(&mut lane.waiters).into_iter().partition(|(_, entry)| !entry.waits);
            lane.waiters = rest;
            let tries: BTreeMap<WaiterId, Waiter> = tries;
            for (waiter, entry) in tries {
                self.settle(waiter, entry, Ok(None), out);
            }
        }
    }

    /// A ticket of this client is a hold, or stands before somebody's: the server says so unasked.
    pub fn told_of(&mut self, ticket: Ticket, lock: &LockRef, now: Moment, out: &mut Outbox) {
        match self.by_ticket.get(&ticket.number).copied() {
            Some(id) => match &mut self.lanes.get_mut(&id).expect("living tickets have lanes").phase {
                Phase::Held(held) => {
                    held.contended.get_or_insert(now);
                }
                Phase::Waiting(_) => self.ask(id, true, out),
            },
            None => self.disown(ticket, lock, now, out),
        }
    }

    /// The same in the reply to another ticket's asking. The message of the grant is then on its way, on the other
    /// connection, and is asked for only where it does not come soon: at once would be one call in four sections.
    fn named(&mut self, ticket: Ticket, lock: &LockRef, now: Moment, out: &mut Outbox) {
        let lane = self.lane_of(ticket);
        match lane.filter(|id| !self.deaf && matches!(self.lanes[id].phase, Phase::Waiting(_))) {
            Some(id) => self.poll_by(id, now.plus(self.poll_interval(id) / MESSAGE_GRACE), out),
            None => self.told_of(ticket, lock, now, out),
        }
    }

    /// Gives back a ticket that this client does not know (any more), unless its leaving is under way: so the ghost
    /// of a late request lasts one message, not a lease.
    pub fn disown(&mut self, ticket: Ticket, lock: &LockRef, now: Moment, out: &mut Outbox) {
        if !self.leaving.contains(&ticket.number) && !mutant::is(Mutant::UnknownTicketKept) {
            let life = self.life_without_word(Duration::ZERO);
            self.leave(lock.clone(), ticket, None, None, now.plus(life), now, None, out);
        }
    }

    pub fn lane_of(&self, ticket: Ticket) -> Option<LaneId> {
        self.by_ticket.get(&ticket.number).copied()
    }

    // ---- releasing and losing ---------------------------------------------------------------------------------

    pub fn release(
        &mut self,
        held: &HoldRef,
        done: Option<oneshot::Sender<Result<(), UnlockError>>>,
        now: Moment,
        out: &mut Outbox,
    ) -> Released {
        let id = held.lane;
        if self.lanes.get(&id).is_some_and(|lane| lane.ticket() == held.ticket && lane.held_is_over(now)) {
            self.lose(id, LossReason::Expired, now, out);
        }
        if let Some(reason) = held.hold.reason() {
            // A closed client has sent its last.
            if reason == LossReason::Expired && !self.closed && held.hold.gives_back() {
                let give_up = now.plus(self.life_without_word(held.lease));
                self.leave(held.lock.clone(), held.ticket, held.owner, None, give_up, now, None, out);
            }
            return Released::Lost(reason);
        }
        let lane = self.lanes.get_mut(&id).expect("a hold that is not lost has a lane");
        let passes = lane.passes(now);
        let books = lane.held().expect("a hold that is not lost is held");
        books.guards -= 1;
        if books.guards > 0 {
            return Released::Locally;
        }
        if passes {
            let token = books.block.take().expect("a hold with a used-up block is not passed");
            books.hold = Arc::new(Hold::new(token, books.trusted));
            self.let_in(id, out);
            return Released::Locally;
        }
        self.give_back(id, done, now, out);
        Released::Sent
    }

    /// Sends the hold's leaving, with the next ticket where somebody waits.
    fn give_back(
        &mut self,
        id: LaneId,
        done: Option<oneshot::Sender<Result<(), UnlockError>>>,
        now: Moment,
        out: &mut Outbox,
    ) {
        let lane = &self.lanes[&id];
        let (lock, ticket, owner) = (lane.request.lock.clone(), lane.ticket(), lane.request.owner);
        let trusted = if let Phase::Held(held) = &lane.phase { held.trusted } else { now };
        let give_up = now.plus(self.life_without_word(lane.request.lease.length()));
        let next = self.detach(id, now, out);
        if let Some((id, _)) = next
            && let Some(waiting) = self.lanes.get_mut(&id).and_then(Lane::waiting)
        {
            waiting.asking = true;
        }
        self.leave(lock, ticket, owner, next, give_up, trusted, done, out);
    }

    /// Takes the hold out of the books: the lane goes on with a new ticket where somebody waits, or ends.
    fn detach(&mut self, id: LaneId, now: Moment, out: &mut Outbox) -> Option<(LaneId, Ticket)> {
        self.set_due(id, None, out);
        let lane = self.lanes.get_mut(&id).expect("the caller has it");
        if lane.waiters.is_empty() {
            self.remove_lane(id, now, out);
            return None;
        }
        self.by_ticket.remove(&lane.ticket().number);
        lane.contended_up_to = self.last_id;
        let ticket = if mutant::is(Mutant::TicketUsedTwice) { lane.ticket() } else { self.tickets.next() };
        lane.renumber(ticket, now);
        self.begin_waiting(id);
        Some((id, ticket))
    }

    /// The hold is lost. Those who wait behind it ask anew.
    pub fn lose(&mut self, id: LaneId, reason: LossReason, now: Moment, out: &mut Outbox) {
        let Some(held) = self.lanes.get_mut(&id).and_then(Lane::held) else { return };
        tracing::warn!(token = held.hold.token(), %reason, "a lock was lost");
        out.wakers.extend(held.hold.lose(reason));
        if let Some((id, _)) = self.detach(id, now, out) {
            self.ask(id, false, out);
        }
    }

    // ---- renewing ---------------------------------------------------------------------------------------------

    fn set_due(&mut self, id: LaneId, at: Option<Moment>, out: &mut Outbox) {
        let Some(held) = self.lanes.get_mut(&id).and_then(Lane::held) else { return };
        let old = std::mem::replace(&mut held.due, at.unwrap_or(Moment::NEVER));
        self.due.remove(&(old, id));
        if let Some(at) = at {
            self.due.insert((at, id));
            out.renew_sooner |= at < self.renew_armed;
        }
    }

    /// Enters in the watchdog's books when the lane needs it next.
    fn schedule(&mut self, id: LaneId, out: &mut Outbox) {
        let Some(held) = self.lanes.get_mut(&id).and_then(Lane::held) else { return };
        let at = held.renew_at.unwrap_or(Moment::NEVER).min(held.trusted);
        self.set_due(id, Some(at), out);
    }

    /// Ends what has run out and renews what is due, most urgent first. Returns when to look next.
    pub fn renew_due(&mut self, now: Moment, out: &mut Outbox) -> Moment {
        let horizon = now.plus(Duration::from_secs(1));
        let near: Vec<LaneId> = self.due.range(..=(horizon, LaneId::MAX)).map(|&(_, id)| id).collect();
        let mut due = Vec::new();
        for id in near {
            if self.lanes[&id].held_is_over(now) {
                self.lose(id, LossReason::Expired, now, out);
            } else if let Some(renewal) = self.begin_renewal(id, now) {
                due.push(renewal);
                self.schedule(id, out);
                self.warn_of_self_wait(id, now);
            }
        }
        due.sort_by_key(|&(trusted, _)| trusted);
        let holds: Vec<Due> = due.into_iter().map(|(_, due)| due).collect();
        out.errands.extend(holds.chunks(RENEWALS_PER_CALL).map(|batch| Errand::Renew(batch.to_vec())));
        out.renew_sooner = false;
        self.renew_armed = self.due.first().map_or(Moment::NEVER, |&(at, _)| at);
        self.renew_armed
    }

    /// What to renew of this lane, if it is due: a little early where it can share the call of others.
    fn begin_renewal(&mut self, id: LaneId, now: Moment) -> Option<(Moment, Due)> {
        let lane = self.lanes.get_mut(&id)?;
        let (lock, ticket, lease) = (lane.request.lock.clone(), lane.ticket(), lane.request.lease);
        let held = lane.held()?;
        // A part of what is left, not of the lease: a claim is shorter, and a section that ends in its first third
        // would be renewed for nothing.
        let early = held.trusted.since(now) / 30;
        if held.renew_at? > now.plus(early.min(Duration::from_secs(1))) {
            return None;
        }
        held.renew_at = None;
        // A fixed lease is confirmed for what is left of it, counted from the earliest time of its grant: the
        // server must not keep it beyond its end.
        let length =
            if lease.is_renewed() { lease.length() } else { held.fixed_end.since(now).min(lease.length()) };
        let lease_millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
        Some((held.trusted, Due { lane: id, lock, ticket, lease_millis }))
    }

    /// A renewal that was sent at `sent` was answered: `left` of the lease is left at the server.
    pub fn renewed(
        &mut self,
        due: &Due,
        left: Duration,
        waiting: bool,
        sent: Moment,
        now: Moment,
        out: &mut Outbox,
    ) {
        let Some(lane) = self.held_lane(due.lane, due.ticket) else { return };
        let lease = lane.request.lease;
        let held = lane.held().expect("it is held");
        held.trusted = held.trusted.max(trusted_until(sent, left)).min(held.fixed_end).min(held.max_end);
        // By what is left, not by the lease: an extension may have been shorter, and be all that there is.
        let confirmed = !lease.is_renewed() && left >= held.fixed_end.since(sent);
        held.renew_at = (!confirmed).then(|| sent.plus(left.min(lease.length()) / 3));
        held.hold.trust(held.trusted, false);
        if waiting {
            held.contended.get_or_insert(now);
        }
        self.schedule(due.lane, out);
    }

    /// A renewal brought no answer: tried again soon, until the validity ends.
    pub fn renewal_unanswered(&mut self, due: &Due, now: Moment, out: &mut Outbox) {
        let pause = self.chance.jitter(Duration::from_millis(100), 25);
        let Some(lane) = self.held_lane(due.lane, due.ticket) else { return };
        let held = lane.held().expect("it is held");
        held.renew_at = Some(now.plus(pause));
        held.hold.doubt();
        self.schedule(due.lane, out);
    }

    /// The lane that holds by this ticket.
    pub fn held_lane(&mut self, id: LaneId, ticket: Ticket) -> Option<&mut Lane> {
        let lane = self.lanes.get_mut(&id)?;
        (lane.ticket() == ticket && matches!(lane.phase, Phase::Held(_))).then_some(lane)
    }

    /// Whether this hold may be made `length` longer from now, and what to send for it.
    pub fn may_extend(&mut self, held: &HoldRef, length: Duration, now: Moment) -> Result<Due, ExtendError> {
        if let Some(reason) = held.hold.reason() {
            return Err(ExtendError::Lost(reason));
        }
        let lane = self.held_lane(held.lane, held.ticket).ok_or(ExtendError::Lost(LossReason::Expired))?;
        let max_end = lane.held().expect("it is held").max_end;
        if now.plus(length) > max_end {
            return Err(ExtendError::MaxHold { left: max_end.since(now) });
        }
        let lease_millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        Ok(Due { lane: held.lane, lock: held.lock.clone(), ticket: held.ticket, lease_millis })
    }

    /// The server made a hold last `length` from `sent`: a fixed lease ends then, if not later.
    pub fn extended(&mut self, due: &Due, length: Duration, sent: Moment) {
        let Some(lane) = self.held_lane(due.lane, due.ticket) else { return };
        let fixed = !lane.request.lease.is_renewed();
        let held = lane.held().expect("it is held");
        if fixed {
            held.fixed_end = held.fixed_end.max(trusted_until(sent, length));
        }
    }

    pub fn still_held(&mut self, due: &Due) -> Result<(), ExtendError> {
        match self.held_lane(due.lane, due.ticket) {
            Some(_) => Ok(()),
            None => Err(ExtendError::Lost(LossReason::GoneAtServer)),
        }
    }

    /// Every hold is renewed at once: the connection is new, and the server may be another one.
    pub fn renew_all(&mut self, now: Moment, out: &mut Outbox) {
        let ids: Vec<LaneId> = self.lanes.keys().copied().collect();
        for id in ids {
            if let Some(held) = self.lanes.get_mut(&id).and_then(Lane::held)
                && held.renew_at.is_some()
            {
                held.renew_at = Some(now);
                self.schedule(id, out);
            }
        }
    }

    /// Says once that a task waits for what it holds itself.
    fn warn_of_self_wait(&mut self, id: LaneId, now: Moment) {
        let lane = &self.lanes[&id];
        let Phase::Held(Held { task: Some(task), .. }) = lane.phase else { return };
        let patience = lane.request.lease.length();
        let lanes: Vec<LaneId> = self.locks[&lane.request.lock].lanes.iter().copied().collect();
        for id in lanes {
            let waiters = self.lanes.get_mut(&id).into_iter().flat_map(|lane| lane.waiters.values_mut());
            for waiter in waiters.filter(|waiter| waiter.task == Some(task) && !waiter.warned) {
                if now.since(waiter.since) >= patience {
                    waiter.warned = true;
                    tracing::warn!(
                        "a task has waited for one lease for a lock that it holds itself; to re-enter, run both \
                         acquisitions in one `Owner::scope`"
                    );
                }
            }
        }
    }

    // ---- the connection ---------------------------------------------------------------------------------------

    pub fn up(&mut self, up: &Up, now: Moment, out: &mut Outbox) {
        self.epoch = up.epoch;
        if self.sample.is_none() || !mutant::is(Mutant::SampleKept) {
            self.sample =
                Some(Sample { server_millis: up.server_millis, sent: up.sent, received: up.received });
        }
        self.counted = up.counted;
        self.deaf = false;
        self.refused = None;
        self.poll_all(out);
        self.renew_all(now, out);
    }

    pub fn down(&mut self, detail: String) {
        if !mutant::is(Mutant::SampleKept) {
            self.sample = None;
        }
        self.trouble = detail;
    }

    /// The server refuses this client: everybody who waits is told.
    pub fn refuse(&mut self, fault: Fault, now: Moment, out: &mut Outbox) {
        let ids: Vec<LaneId> = self.lanes.keys().copied().collect();
        for id in ids {
            if matches!(self.lanes.get(&id).map(|lane| &lane.phase), Some(Phase::Waiting(_))) {
                self.fail(id, &fault.clone().into(), now, out);
            }
        }
        self.sample = None;
        self.refused = Some(fault);
    }

    /// The server's time in a reply: the newest of this connection is the sample.
    pub fn heard(&mut self, epoch: Epoch, sample: Sample) {
        self.heard = self.heard.max(sample.received);
        if epoch == self.epoch && self.sample.is_some_and(|known| known.received <= sample.received) {
            self.sample = Some(sample);
        }
    }

    /// The latest server time at which a request that is sent now, and waited for no longer than `timeout`, may
    /// still do anything. A request that was stuck in a socket must not become a ghost. Estimated from the
    /// **receipt** of the sample, the low side; `None` without a connection.
    pub fn not_after(&self, timeout: Duration, now: Moment) -> Option<u64> {
        let sample = self.sample?;
        if mutant::is(Mutant::NoDeadline) {
            return Some(u64::from(u32::MAX) << 20);
        }
        let span = certain(now.since(sample.received)) + timeout;
        Some(sample.server_millis.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }

    pub fn left(&mut self, ticket: Ticket) {
        self.leaving.remove(&ticket.number);
    }

    /// Ends everything: waiters and guards hear [`Closed`](LossReason::Closed), holds are given back.
    pub fn close(&mut self, now: Moment, out: &mut Outbox) {
        self.closed = true;
        self.closed_at.get_or_insert(now);
        let ids: Vec<LaneId> = self.lanes.keys().copied().collect();
        for id in ids {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            let waiters = std::mem::take(&mut lane.waiters);
            for (waiter, entry) in waiters {
                self.settle(waiter, entry, Err(LockError::Closed), out);
            }
            if let Some(held) = self.lanes.get_mut(&id).and_then(Lane::held) {
                out.wakers.extend(held.hold.lose(LossReason::Closed));
                self.give_back(id, None, now, out);
            } else {
                self.close_if_deserted(id, now, out);
            }
        }
    }
}

/// At most how many stand before this lane's ticket.
fn ahead(lane: &Lane, front: Option<QueuePlace>) -> Option<u64> {
    let Phase::Waiting(Waiting { place: Some(own), .. }) = &lane.phase else { return None };
    let known = front.filter(|front| front.sequence <= own.sequence);
    let bound = known.map_or(own.ahead, |front| {
        let between = front.ahead + (own.sequence - front.sequence);
        if own.sequence <= front.up_to { between.min(front.living.saturating_sub(1)) } else { between }
    });
    Some(bound.min(own.ahead))
}

enum Joined {
    Enters(HoldRef),
    Busy,
    Waits(LaneId),
}

struct Grant {
    token: u64,
    waiting: bool,
    trusted: Moment,
    base: Moment,
    renew: Moment,
}

/// What a message says of a grant.
#[derive(Clone, Copy, Debug)]
pub struct MessageGrant {
    pub token: u64,
    pub end_millis: u64,
    pub now_millis: u64,
    pub waiting: bool,
    pub epoch: Epoch,
}

/// After so many grants in a row that came too late a wait ends with an error.
const LATE_GRANTS: u32 = 3;

/// How many holds one renewal call carries.
const RENEWALS_PER_CALL: usize = 100;

impl Lane {
    fn hold_ref(&self, id: LaneId, hold: Arc<Hold>) -> HoldRef {
        HoldRef {
            lane: id,
            lock: self.request.lock.clone(),
            ticket: self.ticket(),
            owner: self.request.owner,
            hold,
            lease: self.request.lease.length(),
        }
    }

    fn held_is_over(&self, now: Moment) -> bool {
        matches!(&self.phase, Phase::Held(held) if held.trusted <= now)
    }
}

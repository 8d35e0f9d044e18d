//! Passing a hold on, giving it back, losing it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::State;
use crate::clock::Moment;
use crate::error::{LockError, LossReason, UnlockError};
use crate::guard::Hold;
use crate::local::lane::{HoldRef, Lane, LaneId, LockRef, Phase};
use crate::local::outbox::{Departure, Errand, Outbox, Report};
use crate::mutant::{self, Mutant};
use crate::owner::OwnerId;
use crate::ticket::Ticket;

/// What a release brings.
#[derive(Debug)]
pub enum Released {
    /// Nothing had to be sent.
    Locally,
    /// A leaving is on its way, and answers through the sender it was given.
    Sent,
    Lost(LossReason),
}

impl State {
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
        out.reports.push(Report::Lost { token: held.hold.token(), reason });
        out.wakers.extend(held.hold.lose(reason));
        if let Some((id, _)) = self.detach(id, now, out) {
            self.ask(id, false, out);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one departure")]
    pub(super) fn leave(
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

    pub fn left(&mut self, ticket: Ticket) {
        self.leaving.remove(&ticket.number);
    }

    /// For how long the server may keep a ticket of which it hears nothing more.
    pub(super) fn life_without_word(&self, lease: Duration) -> Duration {
        lease.max(self.spans.client_deadline) + self.spans.command_timeout
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

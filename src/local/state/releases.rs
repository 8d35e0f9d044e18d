//! Passing a hold on, giving it back, losing it.

use std::time::Duration;

use tokio::sync::oneshot;

use super::State;
use crate::clock::Moment;
use crate::error::{LockError, LossReason, UnlockError};
use crate::local::lane::{HoldRef, Lane, LaneId, Phase};
use crate::local::outbox::{Departure, Errand, Outbox, Report};
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
    /// A guard is gone; of a hold with a gate the last one, as it seemed.
    pub fn release(
        &mut self,
        held: &HoldRef,
        done: Option<oneshot::Sender<Result<(), UnlockError>>>,
        now: Moment,
        out: &mut Outbox,
    ) -> Released {
        let id = held.lane;
        if let Some(reason) = self.loss(held, now, out) {
            return Released::Lost(reason);
        }
        if let Some(gate) = &held.gate {
            // Others may have come since the last one was out, or have told of it before.
            if self.held_lane(id, held.ticket).is_none() || !gate.close_if_empty() {
                return Released::Locally;
            }
            self.give_back(id, done, now, out);
            return Released::Sent;
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
            let (trusted, servers) = (books.trusted, books.hold.servers);
            let hold = lane.new_hold(id, token, trusted, servers);
            lane.held().expect("it was held above").hold = hold;
            self.let_in(id, out);
            return Released::Locally;
        }
        self.give_back(id, done, now, out);
        Released::Sent
    }

    /// Why a hold is lost whose guard goes, if it is; what the server may still have of it is given back.
    pub(super) fn loss(&mut self, held: &HoldRef, now: Moment, out: &mut Outbox) -> Option<LossReason> {
        let id = held.lane;
        if self.lanes.get(&id).is_some_and(|lane| lane.ticket() == held.ticket && lane.held_is_over(now)) {
            self.lose(id, LossReason::Expired, now, out);
        }
        let reason = held.hold.reason()?;
        // Its guards are gone, or one of them is: nobody counts on what is left of its lease.
        if let Some(departure) = self.expired.remove(&held.ticket.number) {
            self.leave(departure, out);
        }
        Some(reason)
    }

    /// Sends the hold's leaving, with the next ticket where somebody waits.
    pub(super) fn give_back(
        &mut self,
        id: LaneId,
        done: Option<oneshot::Sender<Result<(), UnlockError>>>,
        now: Moment,
        out: &mut Outbox,
    ) {
        let mut departure = Departure { done, ..self.departure(id, now) };
        departure.next = self.detach(id, now, out);
        self.leave(departure, out);
    }

    /// What gives the lane's ticket back.
    pub(super) fn departure(&self, id: LaneId, now: Moment) -> Departure {
        let lane = &self.lanes[&id];
        let (trusted, kept) = match &lane.phase {
            Phase::Held(held) => (held.trusted, held.kept),
            Phase::Waiting(_) => (now, now),
        };
        let give_up = now.plus(self.life_without_word(lane.request.lease.length()));
        Departure {
            lock: lane.request.lock.clone(),
            ticket: lane.ticket(),
            next: None,
            give_up: give_up.max(kept.plus(self.spans.command_timeout)),
            trusted,
            done: None,
        }
    }

    /// Takes the hold out of the books: the lane goes on with a new ticket where somebody waits, or ends.
    fn detach(&mut self, id: LaneId, now: Moment, out: &mut Outbox) -> Option<(LaneId, Ticket)> {
        self.set_due(id, None, out);
        let lane = self.lanes.get_mut(&id).expect("the caller has it");
        if lane.waiters.is_empty() {
            self.remove_lane(id, now, out);
            return None;
        }
        lane.contended_up_to = self.last_id;
        Some((id, self.renumber(id, now)))
    }

    /// The hold is lost. Those who wait behind it ask anew.
    pub fn lose(&mut self, id: LaneId, reason: LossReason, now: Moment, out: &mut Outbox) {
        let Some(held) = self.lanes.get_mut(&id).and_then(Lane::held) else { return };
        out.reports.push(Report::Lost { token: held.hold.hold.token(), reason });
        let is_guarded = !held.close();
        out.wakers.extend(held.hold.hold.lose(reason));
        if reason == LossReason::Expired {
            self.expired.retain(|_, departure| departure.give_up > now);
            let departure = self.departure(id, now);
            // The server may keep it for longer, and whoever guards it may still be at work.
            if is_guarded {
                self.expired.insert(departure.ticket.number, departure);
            } else {
                self.leave(departure, out);
            }
        }
        if let Some((id, _)) = self.detach(id, now, out) {
            self.ask(id, false, out);
        }
    }

    /// Sends a ticket's leaving: from here on it is no place and no hold of this client. The next ticket that goes
    /// with it is asked for by it.
    pub(super) fn leave(&mut self, departure: Departure, out: &mut Outbox) {
        let number = departure.ticket.number;
        self.by_ticket.remove(&number);
        self.expired.remove(&number);
        self.leaving.insert(number);
        if let Some((id, _)) = departure.next
            && let Some(waiting) = self.lanes.get_mut(&id).and_then(Lane::waiting)
        {
            waiting.asking = true;
        }
        out.errands.push(Errand::Leave(departure));
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
        for (_, departure) in std::mem::take(&mut self.expired) {
            self.leave(departure, out);
        }
        let ids: Vec<LaneId> = self.lanes.keys().copied().collect();
        for id in ids {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            let waiters = std::mem::take(&mut lane.waiters);
            for (waiter, entry) in waiters {
                self.settle(waiter, entry, Err(LockError::Closed), out);
            }
            if let Some(held) = self.lanes.get_mut(&id).and_then(Lane::held) {
                held.close();
                out.wakers.extend(held.hold.hold.lose(LossReason::Closed));
                self.give_back(id, None, now, out);
            } else {
                self.close_if_deserted(id, now, out);
            }
        }
    }
}

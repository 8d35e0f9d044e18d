//! What the server says unasked.

use std::time::Duration;

use super::State;
use super::grants::MessageGrant;
use crate::backend::Epoch;
use crate::clock::Moment;
use crate::error::LossReason;
use crate::local::lane::{LockRef, Phase};
use crate::local::outbox::{Departure, Outbox};
use crate::mutant::{self, Mutant};
use crate::scripts::{Message, News};
use crate::ticket::Ticket;

/// A message is missed when it comes later than the reply that names its ticket by this part of a poll's interval.
const MESSAGE_GRACE: u32 = 16;

impl State {
    /// Takes a message to the lane that it is about.
    pub fn tell(&mut self, message: Message, epoch: Epoch, now: Moment, out: &mut Outbox) {
        let Message { ticket, kind, keys, news } = message;
        if ticket.client != self.tickets.client() {
            return;
        }
        match (news, self.lane_of(ticket)) {
            (News::Lost { .. }, lane) => {
                if let Some(lane) = lane {
                    self.lose(lane, LossReason::TakenByForce, now, out);
                }
            }
            (News::Grant { token, end_millis, now_millis, waiting }, Some(lane)) => {
                let grant = MessageGrant { token, end_millis, now_millis, waiting, epoch };
                let waits = self.wanted(lane, ticket).is_some();
                if waits && !self.granted_by_message(lane, &grant, now, out) {
                    self.ask(lane, true, out);
                }
            }
            (News::Grant { .. } | News::Held, _) => self.told_of(ticket, &LockRef { kind, keys }, now, out),
        }
    }

    /// A ticket of this client is a hold, or stands before somebody's: the server says so unasked.
    pub fn told_of(&mut self, ticket: Ticket, lock: &LockRef, now: Moment, out: &mut Outbox) {
        match self.by_ticket.get(&ticket.number).copied() {
            Some(id) => match &mut self.lanes.get_mut(&id).expect("living tickets have lanes").phase {
                Phase::Held(held) => {
                    held.contended.get_or_insert(now);
                    self.ask_back(id, now, out);
                }
                Phase::Waiting(waiting) => {
                    waiting.contended = true;
                    self.ask(id, true, out);
                }
            },
            None => self.disown(ticket, lock, now, out),
        }
    }

    /// The same in the reply to another ticket's asking. The message of the grant is then on its way, on the other
    /// connection, and the ticket is asked for only where it does not come soon.
    pub fn named(&mut self, ticket: Ticket, lock: &LockRef, now: Moment, out: &mut Outbox) {
        let lane = self.lane_of(ticket);
        match lane.filter(|id| !self.deaf && matches!(self.lanes[id].phase, Phase::Waiting(_))) {
            Some(id) => self.poll_by(id, now.plus(self.poll_interval(id) / MESSAGE_GRACE), out),
            None => self.told_of(ticket, lock, now, out),
        }
    }

    /// Gives back a ticket that this client does not know (any more), unless its leaving is under way: so the ghost
    /// of a late request lasts one message, not a lease.
    pub fn disown(&mut self, ticket: Ticket, lock: &LockRef, now: Moment, out: &mut Outbox) {
        if let Some(is_asked_back) = self.downgrading.get_mut(&ticket.number) {
            *is_asked_back = true;
            return;
        }
        if !self.leaving.contains(&ticket.number) && !mutant::is(Mutant::UnknownTicketKept) {
            let give_up = now.plus(self.life_without_word(Duration::ZERO));
            let departure = self.expired.remove(&ticket.number).unwrap_or_else(|| Departure {
                lock: lock.clone(),
                ticket,
                next: None,
                give_up,
                trusted: now,
                done: None,
            });
            self.leave(departure, out);
        }
    }
}

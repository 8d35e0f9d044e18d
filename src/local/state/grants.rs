//! Grants: a ticket becomes a hold, and who waits for it is let in.

use std::collections::BTreeMap;
use std::time::Duration;

use super::State;
use crate::backend::Epoch;
use crate::clock::Moment;
use crate::error::Fault;
use crate::lease::{certain, trusted_until};
use crate::local::lane::{Held, Lane, LaneId, Phase, Request, Share, Waiter, WaiterId};
use crate::local::outbox::Outbox;
use crate::mutant::{self, Mutant};
use crate::scripts::Granted;
use crate::token::TokenBlock;

struct Grant {
    token: u64,
    waiting: bool,
    trusted: Moment,
    base: Moment,
    renew: Moment,
    epoch: Epoch,
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

impl State {
    /// The server answered an asking, sent at `sent`, by the connection of `epoch`: the ticket is a hold.
    pub fn granted(
        &mut self,
        id: LaneId,
        granted: &Granted,
        (sent, epoch): (Moment, Epoch),
        now: Moment,
        out: &mut Outbox,
    ) {
        let left = Duration::from_millis(granted.left_millis);
        let trusted = trusted_until(sent, left);
        let lane = &self.lanes[&id];
        let length = lane.request.lease.length();
        let renew = sent.plus(left.min(length) / 3);
        self.grant(
            id,
            Grant { token: granted.token, waiting: granted.waiting, trusted, base: sent, renew, epoch },
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
            Grant {
                token: message.token,
                waiting: message.waiting,
                trusted,
                base,
                renew,
                epoch: message.epoch,
            },
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
        let servers = (grant.epoch == self.epoch).then_some(self.servers);
        let waiting = grant.waiting || lane.waiting().is_some_and(|waiting| waiting.contended);
        let confirmed = !lease.is_renewed() && grant.trusted >= fixed_end;
        let mut block = TokenBlock::new(grant.token, lane.attempt.block);
        // A read mints none: it shows the last one.
        let token = block.take().unwrap_or(grant.token);
        let held = Held {
            hold: lane.new_hold(id, token, trusted, servers),
            guards: 0,
            block,
            trusted,
            kept: now.plus(lease.length()),
            fixed_end,
            max_end,
            renew_at: (!confirmed).then_some(grant.renew),
            idle_at: Moment::NEVER,
            due: Moment::NEVER,
            contended: waiting.then_some(now),
            task: None,
        };
        self.end_waiting(id, now, out);
        let lane = self.lanes.get_mut(&id).expect("it was there above");
        let keep = lane.request.keep;
        lane.phase = Phase::Held(held);
        self.let_in(id, out);
        if !mutant::is(Mutant::ArmedLate) {
            self.schedule(id, out);
        }
        if keep {
            self.keep(id, now, out);
        }
        self.ask_for_its_owner(id, out);
        // Deaf, it would not hear that somebody begins to wait.
        if waiting || self.deaf {
            self.ask_back(id, now, out);
        }
    }

    /// Whoever waits by another ticket of the same owner, to read or to write, may go in now, or is told that it would
    /// wait for itself. (Its own poll would say so half a claim later.)
    fn ask_for_its_owner(&mut self, id: LaneId, out: &mut Outbox) {
        let Request { lock, owner, .. } = &self.lanes[&id].request;
        let Some(owner) = *owner else { return };
        let is_beside = |other: &LaneId| {
            let lane = &self.lanes[other];
            lane.request.owner == Some(owner) && matches!(lane.phase, Phase::Waiting(_))
        };
        let beside: Vec<LaneId> = self.locks[lock].lanes.iter().copied().filter(is_beside).collect();
        beside.into_iter().for_each(|other| self.ask(other, true, out));
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

    /// Gives the hold to the first waiter; to all of them where they are one owner, or readers. Tries that came
    /// meanwhile see it held.
    pub(super) fn let_in(&mut self, id: LaneId, out: &mut Outbox) {
        let lane = self.lanes.get_mut(&id).expect("the caller has it");
        let all = matches!(lane.share, Share::Owner(..) | Share::Readers(..));
        while let Some((waiter, entry)) = lane.waiters.pop_first() {
            let held = lane.held().expect("the caller made it held");
            held.admit(entry.task);
            self.outcomes.insert(waiter, Ok(Some(held.hold.clone())));
            out.wakers.extend(entry.waker);
            if !all {
                break;
            }
        }
        if lane.waiters.values().any(|waiter| !waiter.request.waits) {
            let (tries, rest) =
                std::mem::take(&mut lane.waiters).into_iter().partition(|(_, entry)| !entry.request.waits);
            lane.waiters = rest;
            let tries: BTreeMap<WaiterId, Waiter> = tries;
            for (waiter, entry) in tries {
                self.settle(waiter, entry, Ok(None), out);
            }
        }
    }
}

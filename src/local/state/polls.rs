//! Polls: every wait also ends without a message.

use std::time::Duration;

use super::State;
use crate::clock::Moment;
use crate::local::lane::{Lane, LaneId, Phase};
use crate::local::outbox::Outbox;
use crate::mutant::{self, Mutant};

/// A poll that is due because a lease ends waits this long at most beyond it, so that the waiters of many clients
/// do not all call in the same instant.
const POLL_JITTER: Duration = Duration::from_millis(40);
/// How often a client polls that hears no messages.
const DEAF_POLL: Duration = Duration::from_millis(150);

impl State {
    pub(super) fn polls(&self, id: LaneId) -> bool {
        let lane = &self.lanes[&id];
        let eldest = self.locks[&lane.request.lock].waiting.first();
        lane.polls_itself() || eldest.is_some_and(|&(_, eldest)| eldest == id)
    }

    /// Half of the smallest claim among the lock's waiting tickets: one grant whose message is lost must be asked
    /// for, with room for one lost poll, before its claim ends and its place with it.
    pub(super) fn poll_interval(&self, id: LaneId) -> Duration {
        let lock = &self.locks[&self.lanes[&id].request.lock];
        let claim = lock.leases.keys().next().map_or(self.spans.claim, |&lease| lease.min(self.spans.claim));
        if self.deaf { DEAF_POLL.min(claim / 2) } else { claim / 2 }
    }

    /// How long a poll may take: with the interval before it, and a second one, still less than a claim.
    pub fn poll_timeout(&self, lane: &Lane) -> Duration {
        self.spans.command_timeout.min(self.spans.claim.min(lane.request.lease.length()) / 4)
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
        if self.polls(id) {
            let within = self.poll_interval(id).min(left);
            self.set_poll(id, Some(now.plus(within)), out);
        }
    }

    /// Has a lane poll that did not need to before: within an interval, and when the lease ends that is waited for.
    pub(super) fn poll_in_time(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let ends = self.locks[&self.lanes[&id].request.lock].ends;
        let ends = if ends > now { ends } else { Moment::NEVER };
        let latest = now.plus(self.poll_interval(id)).min(ends);
        let known = self.lanes.get_mut(&id).and_then(Lane::waiting).and_then(|waiting| waiting.poll_at);
        if known.is_none_or(|at| at > latest) {
            self.set_poll(id, Some(latest), out);
        }
    }

    pub(super) fn set_poll(&mut self, id: LaneId, at: Option<Moment>, out: &mut Outbox) {
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
}

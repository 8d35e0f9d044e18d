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
    pub fn poll_interval(&self, id: LaneId) -> Duration {
        let claim = self.smallest_claim(id);
        if self.deaf { DEAF_POLL.min(claim / 2) } else { claim / 2 }
    }

    /// How long a poll may take: with the interval before it, and a second one, still less than a claim.
    pub fn poll_timeout(&self, id: LaneId) -> Duration {
        self.spans.command_timeout.min(self.smallest_claim(id) / 4)
    }

    /// The smallest claim that a ticket of this lane's lock would get: the lane may poll for all of them.
    fn smallest_claim(&self, id: LaneId) -> Duration {
        let shortest = self.locks[&self.lanes[&id].request.lock].leases.first();
        shortest.map_or(self.spans.claim, |&(lease, _)| lease.min(self.spans.claim))
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

    /// Has a lane poll that did not need to before: within an interval, and when the lease ends that is waited for.
    pub(super) fn poll_in_time(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let ends = self.locks[&self.lanes[&id].request.lock].ends;
        let ends = if ends > now { ends } else { Moment::NEVER };
        self.poll_by(id, now.plus(self.poll_interval(id)).min(ends), out);
    }

    pub(super) fn poll_by(&mut self, id: LaneId, latest: Moment, out: &mut Outbox) {
        let known = self.lanes.get_mut(&id).and_then(Lane::waiting).and_then(|waiting| waiting.poll_at);
        if known.is_none_or(|at| at > latest) {
            self.set_poll(id, Some(latest), out);
        }
    }

    pub(super) fn set_poll(&mut self, id: LaneId, at: Option<Moment>, out: &mut Outbox) {
        let Some(waiting) = self.lanes.get_mut(&id).and_then(Lane::waiting) else { return };
        if let Some(old) = std::mem::replace(&mut waiting.poll_at, at) {
            self.polls.remove(old, id);
        }
        if let Some(at) = at {
            out.poll_sooner |= self.polls.insert(at, id);
        }
    }

    /// Polls for every lane that is due. Returns when the next one is.
    pub fn poll_due(&mut self, now: Moment, out: &mut Outbox) -> Moment {
        while let Some(id) = self.polls.first(now) {
            if self.lanes.get_mut(&id).and_then(Lane::waiting).is_some_and(|waiting| !waiting.asking) {
                self.ask(id, true, out);
            }
            // Should this poll go unanswered the courier repeats it; after the answer the next is set.
            let next = now.plus(self.poll_interval(id));
            self.set_poll(id, Some(next), out);
        }
        out.poll_sooner = false;
        self.polls.set_alarm(now)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Lease;
    use crate::local::fixture::{self, CLAIM, state};
    use crate::local::lane::Request;
    use crate::local::state::Entered;
    use crate::owner::Owner;
    use crate::scripts::{Granted, Kind, Mode};

    /// A new owner's wait with this lease.
    fn enter(state: &mut State, lease: Duration, out: &mut Outbox) -> LaneId {
        let (owner, lease) = (Some(Owner::new().id()), Lease::renewed(lease));
        let request = Request { owner, lease, ..fixture::request(Kind::Reentrant, Mode::Exclusive) };
        match state.enter(request, None, Moment::ORIGIN, out) {
            Entered::Wait(wait) => wait.lane,
            Entered::Now(outcome) => panic!("{outcome:?}"),
        }
    }

    /// The oldest ticket polls for all of them: soon enough for the smallest claim that any of them would get, and of
    /// those alone that may get one.
    #[test]
    fn polls_are_for_all_that_wait_and_for_nobody_else() {
        let (mut state, mut out) = (state(), Outbox::default());
        let short = Duration::from_millis(400);
        let (holder, one) = (enter(&mut state, short, &mut out), enter(&mut state, CLAIM * 9, &mut out));
        let speed = |state: &State, id| (state.poll_interval(id), state.poll_timeout(id));
        assert_eq!(speed(&state, one), (short / 2, short / 4));
        let granted = Granted { token: 1, left_millis: 400, waiting: false };
        state.granted(holder, &granted, (Moment::ORIGIN, 0), Moment::ORIGIN, &mut out);
        assert_eq!(speed(&state, one), (CLAIM / 2, CLAIM / 4));
        enter(&mut state, short, &mut out);
        assert_eq!(speed(&state, one), (short / 2, short / 4));
    }
}

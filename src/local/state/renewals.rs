//! Renewals, and what a guard asks of its hold.

use std::time::Duration;

use super::State;
use crate::clock::Moment;
use crate::error::{ExtendError, LossReason};
use crate::lease::trusted_until;
use crate::local::lane::{Held, HoldRef, Lane, LaneId, Phase};
use crate::local::outbox::{Due, Errand, Outbox, Report};

/// How many holds one renewal call carries.
const RENEWALS_PER_CALL: usize = 100;

impl State {
    /// Ends what has run out and renews what is due, most urgent first. Returns when to look next.
    pub fn renew_due(&mut self, now: Moment, out: &mut Outbox) -> Moment {
        let horizon = now.plus(Duration::from_secs(1));
        let near: Vec<LaneId> = self.due.until(horizon).collect();
        let mut due = Vec::new();
        for id in near {
            if self.lanes[&id].held_is_over(now) {
                self.lose(id, LossReason::Expired, now, out);
            } else if self.is_idle(id, now, out) {
                self.give_back(id, None, now, out);
            } else if let Some(renewal) = self.begin_renewal(id, now) {
                due.push(renewal);
                self.schedule(id, out);
                self.report_self_wait(id, now, out);
            }
        }
        due.sort_by_key(|&(trusted, _)| trusted);
        let holds: Vec<Due> = due.into_iter().map(|(_, due)| due).collect();
        out.errands.extend(holds.chunks(RENEWALS_PER_CALL).map(|batch| Errand::Renew(batch.to_vec())));
        out.renew_sooner = false;
        self.due.set_alarm(now)
    }

    /// What to renew of this lane, if it is due: a little early where it can share the call of others.
    fn begin_renewal(&mut self, id: LaneId, now: Moment) -> Option<(Moment, Due)> {
        let lane = self.lanes.get_mut(&id)?;
        let (lock, ticket, lease) = (lane.request.lock.clone(), lane.ticket(), lane.request.lease);
        let held = lane.held()?;
        // A part of what is left, not of the lease: a claim is shorter, and a section that ends in its first third
        // would be renewed for nothing.
        let early = (held.trusted.since(now) / 30).min(Duration::from_secs(1));
        // One that was unanswered waits for its time: where there is no connection its answer comes at once, and it would be
        // tried again without end.
        let early = if held.hold.hold.is_in_doubt() { Duration::ZERO } else { early };
        if held.renew_at? > now.plus(early) {
            return None;
        }
        held.renew_at = None;
        // A fixed lease is confirmed for what is left of it, counted from the earliest time of its grant: the
        // server must not keep it beyond its end.
        let length =
            if lease.is_renewed() { lease.length() } else { held.fixed_end.since(now).min(lease.length()) };
        held.kept = held.kept.max(now.plus(length));
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
        held.kept = held.kept.max(now.plus(left));
        held.trusted = held.trusted.max(trusted_until(sent, left)).min(held.fixed_end).min(held.max_end);
        // By what is left, not by the lease: an extension may have been shorter, and be all that there is.
        let confirmed = !lease.is_renewed() && left >= held.fixed_end.since(sent);
        held.renew_at = (!confirmed).then(|| sent.plus(left.min(lease.length()) / 3));
        held.hold.hold.trust(held.trusted, false);
        if waiting {
            held.contended.get_or_insert(now);
        }
        self.schedule(due.lane, out);
        if waiting {
            self.ask_back(due.lane, now, out);
        }
    }

    /// A renewal brought no answer: tried again soon, until the validity ends.
    pub fn renewal_unanswered(&mut self, due: &Due, now: Moment, out: &mut Outbox) {
        let pause = self.chance.jitter(Duration::from_millis(100), 25);
        let Some(lane) = self.held_lane(due.lane, due.ticket) else { return };
        let held = lane.held().expect("it is held");
        held.renew_at = Some(now.plus(pause));
        held.hold.hold.doubt();
        self.schedule(due.lane, out);
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

    pub(super) fn set_due(&mut self, id: LaneId, at: Option<Moment>, out: &mut Outbox) {
        let Some(held) = self.lanes.get_mut(&id).and_then(Lane::held) else { return };
        let old = std::mem::replace(&mut held.due, at.unwrap_or(Moment::NEVER));
        self.due.remove(old, id);
        if let Some(at) = at {
            out.renew_sooner |= self.due.insert(at, id);
        }
    }

    /// Enters in the watchdog's books when the lane needs it next.
    pub(super) fn schedule(&mut self, id: LaneId, out: &mut Outbox) {
        let Some(held) = self.lanes.get_mut(&id).and_then(Lane::held) else { return };
        let at = held.renew_at.unwrap_or(Moment::NEVER).min(held.trusted).min(held.idle_at);
        self.set_due(id, Some(at), out);
    }

    /// Whether this hold may be made `length` longer from now, and what to send for it.
    pub fn may_extend(&mut self, held: &HoldRef, length: Duration, now: Moment) -> Result<Due, ExtendError> {
        if let Some(reason) = held.hold.reason() {
            return Err(ExtendError::Lost(reason));
        }
        let lane = self.held_lane(held.lane, held.ticket).ok_or(ExtendError::Lost(LossReason::Expired))?;
        let books = lane.held().expect("it is held");
        if now.plus(length) > books.max_end {
            return Err(ExtendError::MaxHold { left: books.max_end.since(now) });
        }
        books.kept = books.kept.max(now.plus(length));
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

    /// Says once that a task waits for what it has acquired itself; see [`Report::WaitsForItself`].
    fn report_self_wait(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let lane = &self.lanes[&id];
        let Phase::Held(Held { task: Some(task), .. }) = lane.phase else { return };
        let patience = lane.request.lease.length();
        let lanes: Vec<LaneId> = self.locks[&lane.request.lock].lanes.iter().copied().collect();
        for id in lanes {
            let waiters = self.lanes.get_mut(&id).into_iter().flat_map(|lane| lane.waiters.values_mut());
            for waiter in waiters.filter(|waiter| waiter.task == Some(task) && !waiter.warned) {
                if now.since(waiter.since) >= patience {
                    waiter.warned = true;
                    out.reports.push(Report::WaitsForItself);
                }
            }
        }
    }
}

#[cfg(all(test, not(lockwright_loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::local::fixture::{request, state};
    use crate::local::lane::Request;
    use crate::local::state::{Entered, WaiterRef};
    use crate::owner::Owner;
    use crate::scripts::{Granted, Kind, Mode};

    fn enter(
        state: &mut State,
        request: Request,
        task: tokio::task::Id,
        out: &mut Outbox,
    ) -> Result<Arc<HoldRef>, WaiterRef> {
        match state.enter(request, Some(task), Moment::ORIGIN, out) {
            Entered::Now(outcome) => Ok(outcome.expect("no fault").expect("it is let in")),
            Entered::Wait(wait) => Err(wait),
        }
    }

    fn granted(state: &mut State, wait: WaiterRef, out: &mut Outbox) -> Arc<HoldRef> {
        let granted = Granted { token: 1, left_millis: 30_000, waiting: false };
        state.granted(wait.lane, &granted, (Moment::ORIGIN, 0), Moment::ORIGIN, out);
        state.take_outcome(wait).expect("it is settled").expect("no fault").expect("it is let in")
    }

    /// How often it was said within a lease and a half that a task waits for itself.
    fn warnings(state: &mut State) -> usize {
        let mut out = Outbox::default();
        for second in 0..45 {
            let now = Moment::ORIGIN.plus(Duration::from_secs(second));
            state.renew_due(now, &mut out);
            for errand in std::mem::take(&mut out.errands) {
                let Errand::Renew(due) = errand else { continue };
                state.renewed(&due[0], Duration::from_secs(30), false, now, now, &mut out);
            }
        }
        out.reports.iter().filter(|report| matches!(report, Report::WaitsForItself)).count()
    }

    /// Fails where each short hold wakes the watchdog, or each short wait the poller: a task that looks when the hold, or
    /// the wait, is gone again has nothing to see to, and must not forget when it was to look.
    #[tokio::test]
    async fn short_holds_and_waits_wake_no_task() {
        let mut books = state();
        let task = tokio::spawn(async {}).id();
        let mut now = Moment::ORIGIN;
        let (mut renewing, mut polling) = (0, 0);
        books.renew_due(now, &mut Outbox::default());
        books.poll_due(now, &mut Outbox::default());
        for _ in 0..3 {
            now = now.plus(Duration::from_millis(1));
            let mut out = Outbox::default();
            let wait = enter(&mut books, request(Kind::Reentrant, Mode::Exclusive), task, &mut out);
            let wait = wait.expect_err("it is asked for");
            books.queued_with(wait.lane, 30_000, now, &mut out);
            let granted = Granted { token: 1, left_millis: 30_000, waiting: false };
            books.granted(wait.lane, &granted, (now, 0), now, &mut out);
            let held =
                books.take_outcome(wait).expect("it is settled").expect("no fault").expect("it is let in");
            let _ = books.release(&held, None, now, &mut out);
            renewing += usize::from(out.renew_sooner);
            polling += usize::from(out.poll_sooner);
            assert!(books.renew_due(now, &mut Outbox::default()) < Moment::NEVER);
            assert!(books.poll_due(now, &mut Outbox::default()) < Moment::NEVER);
        }
        assert_eq!((renewing, polling), (1, 1));
    }

    /// Fails where a renewal that is not sent is due at once again: without a connection the watchdog would not rest.
    #[tokio::test]
    async fn an_unanswered_renewal_rests_before_the_next() {
        let (mut books, mut out) = (state(), Outbox::default());
        let task = tokio::spawn(async {}).id();
        let wait = enter(&mut books, request(Kind::Reentrant, Mode::Exclusive), task, &mut out);
        granted(&mut books, wait.expect_err("it is asked for"), &mut out);
        let mut renewals = |now: Moment| {
            let mut out = Outbox::default();
            books.renew_due(now, &mut out);
            for errand in &out.errands {
                let Errand::Renew(due) = errand else { continue };
                due.iter().for_each(|due| books.renewal_unanswered(due, now, &mut Outbox::default()));
            }
            out.errands.len()
        };
        let due = Moment::ORIGIN.plus(Duration::from_secs(10));
        assert_eq!([renewals(due), renewals(due)], [1, 0]);
        assert_eq!(renewals(due.plus(Duration::from_millis(200))), 1);
    }

    /// Said of the last one let in, though its guard was gone, it accused the innocent.
    #[tokio::test]
    async fn a_task_is_warned_of_a_hold_that_is_its_own_alone() {
        let [one, other] = [(); 2].map(|()| tokio::spawn(async {}).id());
        let exclusive = || request(Kind::Reentrant, Mode::Exclusive);
        let (mut books, mut out) = (state(), Outbox::default());
        let wait = enter(&mut books, exclusive(), one, &mut out).expect_err("it is asked for");
        let held = granted(&mut books, wait, &mut out);
        enter(&mut books, exclusive(), one, &mut out).expect_err("it is held");
        assert_eq!(warnings(&mut books), 1);
        assert!(held.hold.reason().is_none());

        // Readers share it, and the one let in last is out: the write of its task waits for the others.
        let read = || request(Kind::ReadWrite, Mode::Read);
        let (mut books, mut out) = (state(), Outbox::default());
        let wait = enter(&mut books, read(), one, &mut out).expect_err("it is asked for");
        let last = enter(&mut books, read(), other, &mut out).expect_err("it is asked for");
        let _stays = granted(&mut books, wait, &mut out);
        let held = books.take_outcome(last).expect("it is settled").expect("no fault").expect("it is let in");
        assert!(!held.leave(|| Moment::ORIGIN));
        let write = request(Kind::ReadWrite, Mode::Write);
        enter(&mut books, write, other, &mut out).expect_err("it is asked for");
        assert_eq!(warnings(&mut books), 0);

        // The same of an owner that is in two tasks.
        let owner = Some(Owner::new().id());
        let (mut books, mut out) = (state(), Outbox::default());
        let owned = || Request { owner, ..exclusive() };
        let wait = enter(&mut books, owned(), one, &mut out).expect_err("it is asked for");
        let held = granted(&mut books, wait, &mut out);
        let _stays = enter(&mut books, owned(), other, &mut out).expect("it re-enters");
        let _ = books.release(&held, None, Moment::ORIGIN, &mut out);
        enter(&mut books, exclusive(), one, &mut out).expect_err("it is held");
        assert_eq!(warnings(&mut books), 0);
    }
}

//! Holds that readers share: asked back, kept without readers, and given back when they have been idle for long.

use super::State;
use crate::clock::Moment;
use crate::local::lane::{Lane, LaneId, Phase};
use crate::local::outbox::Outbox;

impl State {
    /// Somebody waits for a hold. Where readers share it, nobody joins them any more: the next one asks the server for
    /// a ticket of its own, behind whoever waits. The last one out gives it back.
    pub(super) fn ask_back(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Phase::Held(held) = &lane.phase else { return };
        let Some(gate) = &held.hold.gate else { return };
        let is_empty = gate.close();
        if let Some(lock) = self.locks.get_mut(&lane.request.lock) {
            lock.shared.remove(&(lane.share.clone(), id));
        }
        if is_empty {
            self.give_back(id, None, now, out);
        }
    }

    /// Every hold that readers share is asked back.
    pub(super) fn ask_all_back(&mut self, now: Moment, out: &mut Outbox) {
        let ids: Vec<LaneId> = self.lanes.keys().copied().collect();
        for id in ids {
            self.ask_back(id, now, out);
        }
    }

    /// One of the readers wants that the hold stays when nobody reads.
    pub(super) fn keep(&mut self, id: LaneId, now: Moment, out: &mut Outbox) {
        let idle_at = now.plus(self.spans.cache_idle);
        let Some(held) = self.lanes.get_mut(&id).and_then(Lane::held) else { return };
        let Some(gate) = &held.hold.gate else { return };
        gate.keep(now);
        if held.idle_at == Moment::NEVER {
            held.idle_at = idle_at;
            self.schedule(id, out);
        }
    }

    /// Whether a hold that stays without readers has done so for long enough; else when to look again is noted.
    pub(super) fn is_idle(&mut self, id: LaneId, now: Moment, out: &mut Outbox) -> bool {
        let idle = self.spans.cache_idle;
        let Some(held) = self.lanes.get_mut(&id).and_then(Lane::held) else { return false };
        let Some(gate) = held.hold.gate.as_ref().filter(|_| held.idle_at <= now) else { return false };
        let idle_at = gate.idle_since(now).plus(idle);
        if idle_at <= now && gate.close_if_empty() {
            return true;
        }
        // Somebody who entered in this moment counts from now on.
        held.idle_at = if idle_at <= now { now.plus(idle) } else { idle_at };
        self.schedule(id, out);
        false
    }
}

#[cfg(all(test, not(lockwright_loom)))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::local::fixture::{self, state};
    use crate::local::lane::{HoldRef, Request};
    use crate::local::outbox::Errand;
    use crate::local::state::Entered;
    use crate::scripts::{Granted, Kind, Mode};

    const NOW: Moment = Moment::ORIGIN;

    fn request(keep: bool) -> Request {
        Request { keep, ..fixture::request(Kind::ReadWrite, Mode::Read) }
    }

    /// A reader that waits for the server's answer.
    fn wait(state: &mut State, out: &mut Outbox) -> LaneId {
        match state.enter(request(false), None, NOW, out) {
            Entered::Wait(wait) => wait.lane,
            Entered::Now(outcome) => panic!("{outcome:?}"),
        }
    }

    fn grant(state: &mut State, id: LaneId, waiting: bool, out: &mut Outbox) -> Arc<HoldRef> {
        let granted = Granted { token: 1, left_millis: 30_000, waiting };
        state.granted(id, &granted, (NOW, 0), NOW, out);
        match &state.lanes[&id].phase {
            Phase::Held(held) => held.hold.clone(),
            Phase::Waiting(_) => panic!("it was granted"),
        }
    }

    fn leavings(out: &Outbox) -> usize {
        out.errands.iter().filter(|errand| matches!(errand, Errand::Leave(_))).count()
    }

    /// The message that somebody waits overtakes the reply with the grant, which knows of nobody yet. (Where it was
    /// forgotten the hold was kept until the writer's next poll.)
    #[test]
    fn a_read_that_is_asked_back_before_its_grant_is_heard_of_admits_nobody() {
        let (mut state, mut out) = (state(), Outbox::default());
        let id = wait(&mut state, &mut out);
        let (ticket, lock) = (state.lanes[&id].ticket(), state.lanes[&id].request.lock.clone());
        state.told_of(ticket, &lock, NOW, &mut out);
        let held = grant(&mut state, id, false, &mut out);
        assert!(!held.admit(false, NOW));
        // The next reader has a ticket of its own, and the one inside gives its back.
        assert_ne!(wait(&mut state, &mut out), id);
        assert_eq!(leavings(&out), 0);
        assert!(held.leave(|| NOW));
        let _ = state.release(&held, None, NOW, &mut out);
        assert_eq!(leavings(&out), 1);
    }

    #[test]
    fn a_read_behind_which_a_writer_waits_is_given_back_by_the_last_one_out() {
        let (mut state, mut out) = (state(), Outbox::default());
        let id = wait(&mut state, &mut out);
        assert_eq!(wait(&mut state, &mut out), id);
        let held = grant(&mut state, id, true, &mut out);
        assert!(!held.admit(false, NOW) && state.reenter(&request(false), NOW, &mut out).is_none());
        assert!(!held.leave(|| NOW) && held.leave(|| NOW));
        let _ = state.release(&held, None, NOW, &mut out);
        assert_eq!((leavings(&out), state.lanes.len()), (1, 0));
    }

    /// A server that has lost a write may show an old version again: its stamp would be that of the one before it.
    #[test]
    fn a_grant_of_a_connection_that_is_not_known_is_of_no_known_server() {
        for (epoch, servers) in [(0, Some(0)), (1, None)] {
            let (mut state, mut out) = (state(), Outbox::default());
            let id = wait(&mut state, &mut out);
            let granted = Granted { token: 1, left_millis: 30_000, waiting: false };
            state.granted(id, &granted, (NOW, epoch), NOW, &mut out);
            let held = state.lanes.get_mut(&id).and_then(Lane::held).expect("it was granted");
            assert_eq!(held.hold.servers, servers);
        }
    }

    #[test]
    fn a_kept_read_is_given_back_when_it_was_idle_for_long_enough() {
        let (mut state, mut out) = (state(), Outbox::default());
        let id = wait(&mut state, &mut out);
        let held = grant(&mut state, id, false, &mut out);
        assert!(state.reenter(&request(true), NOW, &mut out).is_some());
        assert!(!held.leave(|| NOW) && !held.leave(|| NOW), "it is kept");
        let after = |seconds| NOW.plus(Duration::from_secs(seconds));
        out.errands.clear();
        // Somebody reads in between, for long: it is not idle before that one is out.
        assert!(held.admit(true, after(2)) && !held.leave(|| after(25)));
        for second in (0..=84).step_by(6) {
            state.renew_due(after(second), &mut out);
            for due in out.errands.drain(..) {
                let Errand::Renew(due) = due else { panic!("{due:?} after {second} s") };
                let left = Duration::from_secs(30);
                state.renewed(&due[0], left, false, after(second), after(second), &mut Outbox::default());
            }
        }
        assert!(state.renew_due(after(84), &mut out) <= after(85));
        out.errands.clear();
        state.renew_due(after(85), &mut out);
        assert_eq!((leavings(&out), state.lanes.len()), (1, 0));
        assert!(!held.admit(false, after(85)));
    }
}

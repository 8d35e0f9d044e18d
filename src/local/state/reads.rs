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
        if let Some(lock) = self.locks.get_mut(&lane.request.lock)
            && lock.shared.get(&lane.share) == Some(&id)
        {
            lock.shared.remove(&lane.share);
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

    /// The hold stays when nobody reads, where one of its readers wants that.
    pub(super) fn keep(&mut self, id: LaneId, wanted: bool, now: Moment, out: &mut Outbox) {
        let idle_at = now.plus(self.spans.cache_idle);
        let Some(held) = self.lanes.get_mut(&id).and_then(Lane::held).filter(|_| wanted) else { return };
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

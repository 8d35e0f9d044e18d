//! The connection: what a new one, and the loss of one, mean for the waiters and the holds; the server's clock.

use std::time::Duration;

use super::State;
use crate::backend::{Answer, Up};
use crate::clock::Moment;
use crate::error::Fault;
use crate::lease::certain;
use crate::local::lane::{LaneId, Phase};
use crate::local::outbox::Outbox;
use crate::mutant::{self, Mutant};

/// The server's clock, as of the newest reply of the present connection.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub server_millis: u64,
    pub sent: Moment,
    pub received: Moment,
}

impl State {
    pub fn up(&mut self, up: &Up, now: Moment, out: &mut Outbox) {
        self.epoch = up.epoch;
        if self.sample.is_none() || !mutant::is(Mutant::SampleKept) {
            self.sample =
                Some(Sample { server_millis: up.server_millis, sent: up.sent, received: up.received });
        }
        self.counted = up.counted;
        self.deaf = false;
        self.refused = None;
        if self.run_id.as_ref() != Some(&up.run_id) {
            self.run_id = Some(up.run_id.clone());
            self.servers += 1;
            // It may have lost writes, and whoever reads now must hear of the version that it has.
            self.ask_all_back(now, out);
        }
        self.poll_all(out);
        self.renew_all(now, out);
    }

    /// No messages come until the next [`up`](Self::up).
    pub fn deafened(&mut self, now: Moment, out: &mut Outbox) {
        self.deaf = true;
        self.poll_all(out);
        // Nobody could ask for them.
        self.ask_all_back(now, out);
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

    /// A reply came. The newest of this connection that tells the server's time is the sample.
    pub fn heard(&mut self, answer: &Answer, server_millis: Option<u64>) {
        let &Answer { sent, received, epoch, .. } = answer;
        self.heard = self.heard.max(received);
        let Some(server_millis) = server_millis else { return };
        if epoch == self.epoch && self.sample.is_some_and(|known| known.received <= received) {
            self.sample = Some(Sample { server_millis, sent, received });
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
}

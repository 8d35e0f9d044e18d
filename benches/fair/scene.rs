//! A lock that is held, and ten thousand tickets in front of a few that wait and can be reached.

use std::collections::VecDeque;

use lockwright::internals::scripts::*;

use crate::Samples;
use crate::measure::{crowd, micros, send, timed};
use crate::rig::{self, Peer, Rig};

pub const MANY: usize = 10_000;
/// How many wait behind them.
const BEHIND: usize = 60;
/// How often each call is made, where that changes little.
const TIMES: usize = 50;

type Make = fn() -> Scene;

pub const SCENES: [(&str, Make); 5] = [
    ("waiting", || waiting(MANY)),
    ("left", left),
    ("dead", dead),
    ("unreachable", unreachable),
    ("left and unreachable", mixed),
];

pub struct Scene {
    pub rig: Rig,
    peers: Vec<Peer>,
    holder: Attempt,
    /// The tickets that can be reached, in their order.
    waiters: VecDeque<Attempt>,
}

/// All wait and can be reached.
pub fn waiting(count: usize) -> Scene {
    let (rig, peers, holder, waiters) = crowd(Kind::Fair, count);
    Scene { rig, peers, holder, waiters: waiters.into() }
}

/// They have left, one by one: dead entries of the list.
pub fn left() -> Scene {
    let mut scene = waiting(MANY);
    let gone = std::mem::take(&mut scene.waiters);
    scene.queue_behind();
    gone.iter().for_each(|attempt| drop(scene.rig.leave(attempt)));
    scene
}

/// Each is of another client, whose deadline has passed.
fn dead() -> Scene {
    let mut scene = waiting(0);
    scene.queue_silent(MANY);
    scene.let_die();
    scene.queue_behind();
    scene
}

/// Each is of another client, to which no message comes through.
fn unreachable() -> Scene {
    let mut scene = waiting(0);
    scene.queue_silent(MANY);
    scene.queue_behind();
    scene
}

/// Three of four have left; a walk pushes back the others.
fn mixed() -> Scene {
    let mut scene = waiting(0);
    let silent = scene.queue_silent(MANY);
    scene.queue_behind();
    for (at, attempt) in silent.iter().enumerate() {
        if at % 4 != 0 {
            scene.rig.leave(attempt);
        }
    }
    scene
}

impl Scene {
    fn queue_silent(&mut self, count: usize) -> Vec<Attempt> {
        let attempts: Vec<Attempt> = (0..count).map(|_| self.rig.silent_client().attempt()).collect();
        attempts.iter().for_each(|attempt| drop(self.rig.queued(attempt)));
        attempts
    }

    /// Puts the deadline of all who wait into the past.
    fn let_die(&mut self) {
        let waiting = self.rig.keys.waiting();
        let fields = self.rig.wire.ok(&["HKEYS", &waiting]).texts();
        for client in fields.iter().filter(|field| field.len() == 36) {
            self.rig.set(&waiting, client, "1 1");
        }
    }

    fn queue_behind(&mut self) {
        for at in 0..BEHIND {
            let attempt = self.peers[1 + at % 7].attempt();
            self.rig.queued(&attempt);
            self.waiters.push_back(attempt);
        }
    }

    fn time(
        &mut self,
        call: &Call,
        name: &'static str,
        samples: &mut Samples,
    ) -> lockwright::internals::backend::Value {
        let (reply, micros) = timed(&mut self.rig, call);
        samples.entry(name).or_default().push(micros);
        reply
    }

    /// How long the list is, dead entries included.
    pub fn length(&mut self) -> i64 {
        let queue = self.rig.keys.queue();
        self.rig.wire.ok(&["LLEN", &queue]).int()
    }

    /// The calls that change nothing of note.
    pub fn ask(&mut self, samples: &mut Samples) {
        let last = self.waiters.back().expect("somebody waits").clone();
        let holder = self.holder.ticket;
        for _ in 0..TIMES {
            let attempt = self.peers[1].attempt();
            let call = self.rig.acquire_call(&attempt, Wait::No);
            self.time(&call, "acquire, busy", samples);
            let hold = RenewHold { keys: self.rig.keys.clone(), ticket: holder, lease_millis: rig::LEASE };
            self.time(&Renew { holds: &[hold], deadline_millis: rig::DEADLINE }.call(), "renew", samples);
            let call = Inspect { keys: &self.rig.keys }.call();
            self.time(&call, "inspect", samples);
        }
        // Each removes dead entries at the head.
        for _ in 0..TIMES / 2 {
            let call = self.rig.acquire_call(&last, Wait::Poll);
            self.time(&call, "acquire, poll", samples);
        }
    }

    /// Releases, by turns with and without force, until few wait.
    pub fn hand_over(&mut self, samples: &mut Samples) {
        for at in 0..BEHIND - 10 {
            let token = self.rig.held_token();
            let first = match at % 5 {
                4 => {
                    ForceRelease { keys: &self.rig.keys, token, goes_on: false, terms: self.rig.terms }.call()
                }
                _ => self.rig.leave_call(self.holder.ticket, None),
            };
            let name = if at % 5 == 4 { "force_release" } else { "leave" };
            let mut reply = self.time(&first, name, samples);
            while at % 5 != 4 && has_more(&reply) {
                let call = self.rig.leave_call(self.holder.ticket, None);
                reply = self.time(&call, name, samples);
            }
            let next = self.waiters.pop_front().expect("somebody waits");
            while self.rig.get(&self.rig.lock(), &next.ticket.to_string()).is_empty() {
                // The release has stopped at its limit: the next poll goes on.
                let call = self.rig.acquire_call(&next, Wait::Poll);
                self.time(&call, "acquire, lock is free", samples);
            }
            self.holder = next;
        }
    }

    /// New tickets join and leave.
    pub fn join(mut self, samples: &mut Samples) {
        for _ in 0..TIMES {
            let attempt = self.peers[2].attempt();
            let before = self.length();
            let call = self.rig.acquire_call(&attempt, Wait::Join);
            let (reply, micros) = timed(&mut self.rig, &call);
            assert!(matches!(AcquireReply::decode(&reply).unwrap().reply, AcquireReply::Queued(_)));
            let rewrote = self.length() < before;
            samples
                .entry(if rewrote { "acquire, rewrites" } else { "acquire, joins" })
                .or_default()
                .push(micros);
            let call = self.rig.leave_call(attempt.ticket, None);
            self.time(&call, "leave, waiting", samples);
        }
    }

    /// Joins. Returns whether that rewrote the list, and the server's time.
    pub fn join_once(&mut self) -> (bool, f64) {
        let attempt = self.peers[2].attempt();
        let before = self.length();
        let call = self.rig.acquire_call(&attempt, Wait::Join);
        let (_, micros) = timed(&mut self.rig, &call);
        (self.length() < before, micros)
    }

    /// Whether joining rewrote the list.
    pub fn join_and_leave(&mut self) -> bool {
        let attempt = self.peers[2].attempt();
        let before = self.length();
        self.rig.queued(&attempt);
        let rewrote = self.length() < before;
        self.rig.leave(&attempt);
        rewrote
    }

    /// Releases that hand over, each with a newcomer behind it: as many wait as before. Returns the server's mean time
    /// for a release.
    pub fn turns(&mut self, times: usize) -> f64 {
        self.rig.wire.ok(&["CONFIG", "RESETSTAT"]);
        for _ in 0..times {
            let call = self.rig.leave_call(self.holder.ticket, None);
            send(&mut self.rig, &call);
            self.holder = self.waiters.pop_front().expect("somebody waits");
            let newcomer = self.peers[1].attempt();
            self.rig.queued(&newcomer);
            self.waiters.push_back(newcomer);
        }
        let micros = micros(&mut self.rig);
        assert_ne!(
            self.rig.get(&self.rig.lock(), &self.holder.ticket.to_string()),
            "",
            "each first one had it"
        );
        micros / times as f64
    }
}

fn has_more(reply: &lockwright::internals::backend::Value) -> bool {
    let reply = LeaveReply::decode(reply).expect("a leaving's reply").reply;
    matches!(reply, LeaveReply::Gone { more: true } | LeaveReply::Freed { more: true, .. })
}

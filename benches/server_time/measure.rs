//! One call's time by the server's own count, and a lock that many wait for.

use lockwright::internals::backend::Value;
use lockwright::internals::scripts::{Attempt, Call, Kind};

use crate::rig::{self, Peer, Rig};

/// Sends a call as clients send it.
pub fn send(rig: &mut Rig, call: &Call) -> Value {
    let sha = rig.wire.ok(&["SCRIPT", "LOAD", call.script.text]).text();
    let count = call.keys.len().to_string();
    let mut words = vec!["EVALSHA", &sha, &count];
    words.extend(call.keys.iter().chain(call.args.iter()));
    rig::value(rig.wire.ok(&words))
}

/// For how many microseconds the server says that it has worked for all that was sent so.
pub fn micros(rig: &mut Rig) -> f64 {
    let stats = rig.wire.ok(&["INFO", "commandstats"]).text();
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
    let micros = line.and_then(|line| line.split("usec=").nth(1)?.split(',').next());
    micros.map_or(0.0, |micros| micros.parse().expect("a number"))
}

/// A call's reply, and the server's microseconds for it.
pub fn timed(rig: &mut Rig, call: &Call) -> (Value, f64) {
    // Without a reset: behind one, Redis 7 makes a new histogram for each command that a script runs, in its time.
    let before = micros(rig);
    let reply = send(rig, call);
    (reply, micros(rig) - before)
}

/// The server's microseconds for so many calls. Neither `make` nor `after` is measured.
pub fn samples<S>(
    rig: &mut Rig,
    times: usize,
    state: &mut S,
    make: impl Fn(&mut Rig, &mut S) -> Call,
    after: impl Fn(&mut Rig, &mut S),
) -> Vec<f64> {
    let sample = |_| {
        let call = make(rig, state);
        let (_, micros) = timed(rig, &call);
        after(rig, state);
        micros
    };
    (0..times).map(sample).collect()
}

/// A lock that is held, with so many waiting tickets of a few clients.
pub fn crowd(kind: Kind, waiting: usize) -> (Rig, Vec<Peer>, Attempt, Vec<Attempt>) {
    let mut rig = Rig::new();
    rig.kind = kind;
    let peers: Vec<Peer> = (0..8).map(|_| rig.client()).collect();
    let holder = peers[0].attempt();
    rig.granted(&holder);
    let waiters: Vec<Attempt> = (0..waiting).map(|at| peers[1 + at % 7].attempt()).collect();
    waiters.iter().for_each(|attempt| drop(rig.queued(attempt)));
    (rig, peers, holder, waiters)
}

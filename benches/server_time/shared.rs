//! The read/write lock, with so many clients that read, or wait to.

use lockwright::internals::scripts::*;

use crate::measure::samples;
use crate::rig::{Peer, Rig};

type Measure = fn(usize) -> f64;

pub const OPERATIONS: [(&str, Measure); 12] = [
    ("read: enter beside them", enter),
    ("read: leave them", leave),
    ("read: renew beside them", renew),
    ("write: queue behind them, and tell them", queue),
    ("write: poll, and tell them", poll),
    ("write: try (busy)", busy),
    ("read: queue behind a write", queue_read),
    ("write: leave, and let up to 64 of them in", let_in),
    ("write: downgrade, and let up to 64 of them in", downgrade),
    ("read: enter after the leases of theirs ended", forget),
    ("read: enter after K was lost", restore),
    ("force_release all of them", force),
];

/// How often each call is made; how often one that takes long to prepare.
const TIMES: usize = 50;
const FEW: usize = 10;

/// The least of the server's times for so many calls: what others do on the machine counts as the server's work, and a
/// call that takes a millisecond seldom goes without.
fn measured<S>(
    rig: &mut Rig,
    times: usize,
    state: &mut S,
    make: impl Fn(&mut Rig, &mut S) -> Call,
    after: impl Fn(&mut Rig, &mut S),
) -> f64 {
    samples(rig, times, state, make, after).into_iter().fold(f64::MAX, f64::min)
}

/// A lock with so many reads inside, each of a client of its own that hears its messages.
fn inside(readers: usize) -> (Rig, Vec<Peer>, Vec<Attempt>) {
    let mut rig = Rig::shared();
    let peers: Vec<Peer> = (0..readers).map(|_| rig.client()).collect();
    let reads: Vec<Attempt> = peers.iter().map(Peer::read).collect();
    for read in &reads {
        rig.granted(read);
    }
    (rig, peers, reads)
}

fn enter(readers: usize) -> f64 {
    let (mut rig, peers, _) = inside(readers);
    let make = |rig: &mut Rig, read: &mut Attempt| {
        *read = peers[0].read();
        rig.acquire_call(read, Wait::Join)
    };
    measured(&mut rig, TIMES, &mut peers[0].read(), make, |rig, read| drop(rig.leave(read)))
}

fn leave(readers: usize) -> f64 {
    let (mut rig, peers, _) = inside(readers);
    let make = |rig: &mut Rig, (): &mut ()| {
        let read = peers[0].read();
        rig.granted(&read);
        rig.leave_call(read.ticket, None)
    };
    measured(&mut rig, TIMES, &mut (), make, |_, ()| {})
}

fn renew(readers: usize) -> f64 {
    let (mut rig, _peers, reads) = inside(readers);
    let (keys, ticket) = (rig.keys.clone(), reads[0].ticket);
    let hold = RenewHold { keys, ticket, lease_millis: crate::rig::LEASE };
    let make = |_: &mut Rig, (): &mut ()| {
        Renew { holds: std::slice::from_ref(&hold), deadline_millis: crate::rig::DEADLINE }.call()
    };
    measured(&mut rig, TIMES, &mut (), make, |_, ()| {})
}

/// The call of a write that comes, and leaves afterwards.
fn write(readers: usize, wait: Wait, is_queued: bool) -> f64 {
    let (mut rig, peers, _) = inside(readers);
    let make = |rig: &mut Rig, write: &mut Attempt| {
        *write = peers[0].write();
        if is_queued {
            rig.queued(write);
        }
        rig.acquire_call(write, wait)
    };
    measured(&mut rig, TIMES, &mut peers[0].write(), make, |rig, write| drop(rig.leave(write)))
}

fn queue(readers: usize) -> f64 {
    write(readers, Wait::Join, false)
}

fn poll(readers: usize) -> f64 {
    write(readers, Wait::Poll, true)
}

fn busy(readers: usize) -> f64 {
    write(readers, Wait::No, false)
}

fn queue_read(readers: usize) -> f64 {
    let (mut rig, peers, _) = inside(readers);
    rig.queued(&peers[0].write());
    let make = |rig: &mut Rig, read: &mut Attempt| {
        *read = peers[0].read();
        rig.acquire_call(read, Wait::Join)
    };
    measured(&mut rig, TIMES, &mut peers[0].read(), make, |rig, read| drop(rig.leave(read)))
}

/// The call of a write behind which so many reads wait.
fn release(readers: usize, call: fn(&mut Rig, &Peer, &Attempt) -> Call) -> f64 {
    let mut rig = Rig::shared();
    let peers: Vec<Peer> = (0..readers).map(|_| rig.client()).collect();
    let writer = rig.client();
    let make = |rig: &mut Rig, (): &mut ()| {
        let write = writer.write();
        rig.granted(&write);
        for peer in &peers {
            rig.queued(&peer.read());
        }
        call(rig, &writer, &write)
    };
    measured(&mut rig, FEW, &mut (), make, |rig, ()| {
        rig.wire.ok(&["FLUSHALL"]);
    })
}

fn let_in(readers: usize) -> f64 {
    release(readers, |rig, _, write| rig.leave_call(write.ticket, None))
}

fn downgrade(readers: usize) -> f64 {
    release(readers, |rig, writer, write| rig.downgrade_call(write, &writer.read()))
}

/// The first call after something happened to so many reads.
fn after(readers: usize, lease_millis: u64, happens: fn(&mut Rig)) -> f64 {
    let mut rig = Rig::shared();
    let peer = rig.client();
    let make = |rig: &mut Rig, (): &mut ()| {
        rig.wire.ok(&["FLUSHALL"]);
        rig.granted(&peer.read());
        for _ in 0..readers {
            rig.granted(&Attempt { lease_millis, ..peer.read() });
        }
        happens(rig);
        rig.acquire_call(&peer.read(), Wait::Join)
    };
    measured(&mut rig, FEW, &mut (), make, |_, ()| {})
}

fn forget(readers: usize) -> f64 {
    after(readers, 400, |rig| rig.pass(410))
}

fn restore(readers: usize) -> f64 {
    after(readers, crate::rig::LEASE, |rig| drop(rig.wire.ok(&["DEL", &rig.lock()])))
}

fn force(readers: usize) -> f64 {
    let mut rig = Rig::shared();
    let peers: Vec<Peer> = (0..readers).map(|_| rig.client()).collect();
    let make = |rig: &mut Rig, (): &mut ()| {
        let mut token = 0;
        for peer in &peers {
            token = rig.granted(&peer.read()).token;
        }
        ForceRelease { keys: &rig.keys, token, goes_on: false, terms: rig.terms }.call()
    };
    measured(&mut rig, FEW, &mut (), make, |_, ()| {})
}

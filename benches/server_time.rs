//! How long a server works for each script, and how that grows with the queue and with the number of holds.
//!
//! `cargo bench --bench server_time`
//!
//! Each figure is the server's own (`INFO commandstats`, the time of `EVALSHA`), the median of rounds of the mean; of the
//! read/write lock the least.
#![allow(clippy::disallowed_methods, missing_docs, dead_code, reason = "a bench measures real time")]

#[path = "server_time/measure.rs"]
mod measure;
#[path = "../tests/protocol/rig.rs"]
mod rig;
#[path = "server_time/shared.rs"]
mod shared;
mod support;

use lockwright::internals::scripts::*;
use measure::{crowd, samples};
use rig::Rig;
use support::median;

const ROUNDS: usize = 5;
const TIMES: usize = 200;

fn main() {
    print_shared();
    print_exclusive();
}

fn print_shared() {
    println!("{:48}{:>10}{:>12}", "operation", "readers", "server us");
    for readers in [1, 100, 1_000] {
        for (name, measure) in shared::OPERATIONS {
            println!("{name:48}{readers:>10}{:>12.0}", measure(readers));
        }
    }
}

fn print_exclusive() {
    println!("{:44}{:>10}{:>12}", "operation", "waiting", "server us");
    for waiting in [0, 10, 100, 1_000, 10_000] {
        for (name, measure) in OPERATIONS {
            if let Some(micros) = measure(waiting) {
                println!("{name:44}{waiting:>10}{micros:>12.1}");
            }
        }
    }
    for holds in [1, 10, 100] {
        println!("{:44}{:>10}{:>12.1}", format!("renew {holds} locks in one call"), "-", renew(holds));
    }
    println!("{:44}{:>10}{:>12.1}", "fenced/set", "-", fenced());
    println!("{:44}{:>10}{:>12.1}", "a script that does nothing", "-", floor());
}

type Measure = fn(usize) -> Option<f64>;

const OPERATIONS: [(&str, Measure); 5] = [
    ("acquire a free lock", |waiting| (waiting == 0).then(acquire_free)),
    ("leave, nobody waits", |waiting| (waiting == 0).then(leave_free)),
    ("acquire a held lock, without waiting (busy)", |waiting| Some(busy(waiting))),
    ("poll", |waiting| (waiting > 0).then(|| poll(waiting))),
    ("leave and hand over to another client", |waiting| (waiting > 0).then(|| hand_over(waiting))),
];

/// The median over rounds of the server's mean time.
fn measured<S>(
    rig: &mut Rig,
    times: usize,
    state: &mut S,
    make: impl Fn(&mut Rig, &mut S) -> Call,
    after: impl Fn(&mut Rig, &mut S),
) -> f64 {
    let mut mean = || samples(rig, times, state, &make, &after).iter().sum::<f64>() / times as f64;
    median((0..ROUNDS).map(|_| mean()).collect())
}

fn acquire_free() -> f64 {
    let mut rig = Rig::new();
    let peer = rig.client();
    let make = |rig: &mut Rig, held: &mut Attempt| {
        *held = Attempt { block: 64, ..peer.attempt() };
        rig.acquire_call(held, Wait::Join)
    };
    let mut held = peer.attempt();
    // Once before, so that the counter is there.
    rig.granted(&held);
    rig.leave(&held);
    measured(&mut rig, TIMES, &mut held, make, |rig, held| drop(rig.leave(held)))
}

fn leave_free() -> f64 {
    let mut rig = Rig::new();
    let peer = rig.client();
    let make = |rig: &mut Rig, (): &mut ()| {
        let held = peer.attempt();
        rig.granted(&held);
        rig.leave_call(held.ticket, None)
    };
    measured(&mut rig, TIMES, &mut (), make, |_, ()| {})
}

fn busy(waiting: usize) -> f64 {
    let (mut rig, peers, _holder, _waiters) = crowd(Kind::Reentrant, waiting);
    let make = |rig: &mut Rig, (): &mut ()| rig.acquire_call(&peers[1].attempt(), Wait::No);
    measured(&mut rig, TIMES, &mut (), make, |_, ()| {})
}

fn poll(waiting: usize) -> f64 {
    let (mut rig, _peers, _holder, waiters) = crowd(Kind::Reentrant, waiting);
    let last = &waiters[waiting - 1];
    let make = |rig: &mut Rig, (): &mut ()| rig.acquire_call(last, Wait::Poll);
    measured(&mut rig, TIMES, &mut (), make, |_, ()| {})
}

/// Each leaving hands the lock to the head of the queue, and a new ticket joins at its tail: the length stays.
fn hand_over(waiting: usize) -> f64 {
    let (mut rig, peers, holder, waiters) = crowd(Kind::Reentrant, waiting);
    let mut state = (std::collections::VecDeque::from(waiters), holder.ticket);
    let make = |rig: &mut Rig, state: &mut (std::collections::VecDeque<Attempt>, _)| {
        let call = rig.leave_call(state.1, None);
        state.1 = state.0.pop_front().expect("somebody waits").ticket;
        call
    };
    let mut next = 0;
    let peers = &peers;
    let joins = std::cell::RefCell::new(&mut next);
    measured(&mut rig, TIMES, &mut state, make, |rig, state| {
        let mut next = joins.borrow_mut();
        **next += 1;
        let attempt = peers[1 + **next % 7].attempt();
        rig.queued(&attempt);
        state.0.push_back(attempt);
    })
}

fn renew(holds: usize) -> f64 {
    let mut rig = Rig::new();
    let peer = rig.client();
    let mut all = Vec::new();
    for at in 0..holds {
        let name = format!("lock {at}");
        rig.keys = lockwright::internals::name::LockKeys::new(&Default::default(), &name).expect("a name");
        let attempt = peer.attempt();
        rig.granted(&attempt);
        all.push(RenewHold { keys: rig.keys.clone(), ticket: attempt.ticket, lease_millis: rig::LEASE });
    }
    let make = |_: &mut Rig, (): &mut ()| Renew { holds: &all, deadline_millis: rig::DEADLINE }.call();
    measured(&mut rig, TIMES, &mut (), make, |_, ()| {})
}

fn fenced() -> f64 {
    let mut rig = Rig::new();
    let peer = rig.client();
    let make = |rig: &mut Rig, token: &mut u64| {
        *token += 1;
        FencedSet { keys: &rig.keys, token: *token, ticket: peer.tickets.next(), value: "12" }.call()
    };
    measured(&mut rig, TIMES, &mut 1, make, |_, _| {})
}

fn floor() -> f64 {
    let mut rig = Rig::new();
    let make = |_: &mut Rig, (): &mut ()| support::floor_call("floor");
    measured(&mut rig, TIMES, &mut (), make, |_, ()| {})
}

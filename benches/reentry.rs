//! What it costs to enter a lock again that one's owner holds: `lock` and `unlock` inside a section, against the same
//! of a free `tokio::sync::Mutex` beside it, and one bare round trip to a server.
//!
//! `cargo bench --bench reentry [-- --json]`
#![allow(clippy::disallowed_methods, missing_docs, reason = "a bench measures real time")]

mod support;

use std::time::{Duration, Instant};

use lockwright::{Client, Owner};
use support::{bare, floor_call, has_flag, median};

const ROUNDS: usize = 15;
const TIMES: u32 = 100_000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = support::server::Server::start();
    let client = Client::connect(&server.url()).await.expect("the server is there");
    let (wire, _events) = bare(&server.url()).await;
    let lock = client.lock("reentry").with_owner(&Owner::new());
    let _outer = lock.lock().await.expect("it is free");
    let mutex = tokio::sync::Mutex::new(());
    let (mut ours, mut mutexes, mut trips) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for _ in 0..TIMES {
            lock.lock().await.expect("the owner enters").unlock().await.expect("it is held");
        }
        ours.push(each(started, TIMES));
        let started = Instant::now();
        for _ in 0..TIMES {
            drop(std::hint::black_box(mutex.lock().await));
        }
        mutexes.push(each(started, TIMES));
        let started = Instant::now();
        for _ in 0..1_000 {
            wire.call(floor_call("floor"), Duration::from_secs(1)).await.outcome.expect("the server answers");
        }
        trips.push(each(started, 1_000));
    }
    // Ratios are taken round by round, against what was measured beside it: the machine's speed drifts.
    let against =
        |others: &[f64]| median(ours.iter().zip(others).map(|(ours, other)| ours / other).collect());
    let (x_mutex, x_trip) = (against(&mutexes), against(&trips));
    let (ns, mutex, trip) = (median(ours.clone()), median(mutexes.clone()), median(trips.clone()));
    if has_flag("--json") {
        println!(
            "{{\"bench\":\"reentry\",\"ns\":{ns:.0},\"mutex_ns\":{mutex:.0},\"x_mutex\":{x_mutex:.2},\
             \"round_trip_ns\":{trip:.0},\"x_round_trip\":{x_trip:.5}}}"
        );
    } else {
        println!("lock and unlock again       {ns:>8.0} ns");
        println!("tokio's mutex               {mutex:>8.0} ns   x {x_mutex:.2}");
        println!("a bare round trip           {trip:>8.0} ns   x {x_trip:.5}");
    }
    client.close().await;
    wire.close().await;
}

/// Nanoseconds for each.
fn each(started: Instant, times: u32) -> f64 {
    started.elapsed().as_nanos() as f64 / f64::from(times)
}

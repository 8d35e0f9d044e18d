//! G: many waiters on one lock, and many hand-overs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;

use super::*;
use crate::suite::{take, until_waiting};
use crate::support::worker::{Scene, Worker};

/// How often the server has run scripts, and how many channels there are.
fn counts(server: &Server) -> (u64, usize) {
    let stats = server.connection().ok(&["INFO", "commandstats"]).text();
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let calls = line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0);
    (calls, server.connection().ok(&["PUBSUB", "CHANNELS", "lw:*"]).items().len())
}

// `local/state/releases.rs`, `release`: passing inside the process; and one ticket for all anonymous waiters of a
// client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_ten_thousand_waiters_of_one_process_cost_no_herd() {
    const WAITERS: u64 = 10_000;
    let mut scene = Scene::new();
    scene.pace.lease = 30_000;
    let (holder, client) = (scene.client().await, scene.client().await);
    let guard = take(&holder, "a").await;
    let last = Arc::new(AtomicU64::new(guard.token()));
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (lock, last) = (client.lock("a"), last.clone());
            tokio::spawn(async move {
                let guard = lock.lock().await.expect("it is granted");
                let before = last.swap(guard.token(), Ordering::SeqCst);
                assert!(guard.token() > before, "{} after {before}", guard.token());
            })
        })
        .collect();
    until_waiting(&holder, "a", 1).await;
    // One lock operation more of this client, after all of theirs: they have been sent, or share a ticket.
    drop(take(&client, "b").await);
    let (before, channels) = counts(&scene.server);
    assert_eq!(channels, 2, "one subscription for each client");
    guard.unlock().await.expect("it is held");
    crate::support::time::soon("all waiters", join_all(waiting)).await.into_iter().for_each(|waiter| {
        waiter.expect("no panic");
    });
    let (after, _) = counts(&scene.server);
    // One call for each 64 turns, a renewal or a poll now and then.
    assert!(after - before <= WAITERS / 64 + 100, "{} calls for {WAITERS} releases", after - before);
    drop((holder, client));
    check_left(&scene.server).await;
}

/// Tells what `worker` answers to `order`, for as long as the resource is written to meanwhile.
async fn answer(scene: &Scene, worker: &mut Worker, order: &str) -> String {
    let mut answer = None;
    while answer.is_none() {
        let written = scene.fence.cell("hot").accepted;
        eventually("a write", || {
            answer = worker.heard(order);
            answer.is_some() || scene.fence.cell("hot").accepted > written
        })
        .await;
    }
    answer.expect("the loop ends with one")
}

// `lua/lib`, the token, and `local/state/grants.rs`, `let_in`: one holder at a time. Ten thousand here;
// `scripts/nightly hand_overs` has the full number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g5_many_hand_overs_keep_tokens_rising_and_leave_nothing() {
    let count = std::env::var("LOCKWRIGHT_HAND_OVERS").map(|count| count.parse().expect("a number"));
    let count: u64 = count.unwrap_or(10_000);
    let scene = Scene::new();
    let mut workers = [scene.worker().await, scene.worker().await];
    let order = format!("turns hot {}", count / 2);
    workers.iter_mut().for_each(|worker| worker.order(&order));
    for worker in &mut workers {
        assert_eq!(answer(&scene, worker, &order).await, "0", "a holder was refused");
    }
    let cell = scene.fence.cell("hot");
    assert_eq!((cell.accepted, cell.refused, cell.repeated), (count / 2 * 2, 0, 0));
    assert!(workers.iter_mut().all(Worker::finish));
    check_left(&scene.server).await;
    assert_eq!(scene.server.connection().ok(&["DBSIZE"]).int(), 2, "the counter and the layout");
}

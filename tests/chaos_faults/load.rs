//! G: many waiters on one lock, and many hand-overs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;

use super::*;
use crate::faults::calls_of;
use crate::suite::{BY_MESSAGE, info, slow_to_poll, take, timed, until_waiting};
use crate::support::kinds::{self, KINDS, READ_WRITE};
use crate::support::time::soon;
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
    soon("all waiters", join_all(waiting)).await.into_iter().for_each(|waiter| {
        waiter.expect("no panic");
    });
    let (after, _) = counts(&scene.server);
    // One call for each 64 turns, a renewal or a poll now and then.
    assert!(after - before <= WAITERS / 64 + 100, "{} calls for {WAITERS} releases", after - before);
    drop((holder, client));
    check_left(&scene.server).await;
}

/// Ten thousand places at a fair lock, of so many clients: what one turn costs the server, in script calls and in
/// messages.
async fn cost_of_a_turn(clients: u64) -> (f64, f64) {
    const PLACES: u64 = 10_000;
    // So many turns are looked at; then the rest gives up.
    const TURNS: u64 = 500;
    let mut scene = Scene::new();
    (scene.pace.lease, scene.pace.claim, scene.pace.deadline) = (30_000, 20_000, 60_000);
    (scene.pace.timeout, scene.pace.unavailable) = (10_000, 20_000);
    let holder = scene.client().await;
    let guard = take(&holder, "fair").await;
    let (told, mut turns) = unbounded_channel();
    let all = join_all((0..clients).map(|_| scene.client())).await;
    let mut tasks = JoinSet::new();
    for number in 0..PLACES {
        let (told, mut wait) = (told.clone(), kinds::lock(&all[(number % clients) as usize], "fair"));
        // Enters the queue here: of one client, numbers are in the order of joining.
        assert!(futures_util::poll!(&mut wait).is_pending());
        tasks.spawn(async move {
            let guard = wait.await.expect("it is granted");
            // Whoever counts may have seen enough.
            let _ = told.send((number, guard.token()));
        });
    }
    eventually("all places", || waiting(&scene.server, "fair") == PLACES).await;
    let messages = || calls_of(&mut scene.server.connection(), "publish");
    let (before, channels) = counts(&scene.server);
    assert_eq!(channels as u64, 1 + clients, "one subscription for each client");
    let published = messages();
    guard.unlock().await.expect("it is held");
    let mut last = (None, 0);
    for _ in 0..TURNS {
        let (number, token) = soon("a turn", turns.recv()).await.expect("they live");
        assert!(token > last.1, "{token} after {}", last.1);
        assert!(clients > 1 || Some(number) > last.0, "{number} after {last:?}");
        last = (Some(number), token);
    }
    let cost =
        [counts(&scene.server).0 - before, messages() - published].map(|count| count as f64 / TURNS as f64);
    tasks.shutdown().await;
    eventually("an empty queue", || waiting(&scene.server, "fair") == 0).await;
    drop((holder, all));
    check_left(&scene.server).await;
    (cost[0], cost[1])
}

// `lua/lib/advance.lua`: a release tells one client. `local/state/polls.rs`: one ticket polls for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_of_ten_thousand_places_in_one_process_one_is_told_of_a_release() {
    let (calls, messages) = cost_of_a_turn(1).await;
    assert!(calls <= 2.0 && messages <= 1.1, "{calls} calls and {messages} messages for a turn");
}

// The same, and a client is to the server what a process is. To wake everybody would be a hundred messages and tries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_of_ten_thousand_places_in_a_hundred_clients_one_is_told_of_a_release() {
    let (calls, messages) = cost_of_a_turn(100).await;
    assert!(calls <= 2.0 && messages <= 1.1, "{calls} calls and {messages} messages for a turn");
}

/// Tells what `worker` answers to `order`, for as long as the resource is written to meanwhile.
async fn answer(scene: &Scene, worker: &mut Worker, name: &str, order: &str) -> String {
    let mut answer = None;
    while answer.is_none() {
        let written = scene.fence.cell(name).accepted;
        eventually("a write", || {
            answer = worker.heard(order);
            answer.is_some() || scene.fence.cell(name).accepted > written
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
    for name in KINDS {
        // The fair lock hands each of them over at the server.
        let count = if kinds::is_fair(name) { count / 5 } else { count };
        let scene = Scene::new();
        let mut workers = [scene.worker().await, scene.worker().await];
        let order = format!("turns {name} {}", count / 2);
        workers.iter_mut().for_each(|worker| worker.order(&order));
        for worker in &mut workers {
            assert_eq!(answer(&scene, worker, name, &order).await, "0", "a holder was refused");
        }
        let cell = scene.fence.cell(name);
        assert_eq!((cell.accepted, cell.refused, cell.repeated), (count / 2 * 2, 0, 0));
        assert!(workers.iter_mut().all(Worker::finish));
        check_left(&scene.server).await;
        assert_eq!(scene.server.connection().ok(&["DBSIZE"]).int(), 2, "the counter and the layout");
    }
}

// `lua/lib/wait_behind.lua`: a read that finds a waiting write queues behind it; and the queue, in which each writer
// stands once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_nobody_starves_among_readers_and_writers_that_keep_coming() {
    const WRITERS: u64 = 4;
    let mut scene = Scene::new();
    // So long that no busy machine makes a client silent.
    (scene.pace.lease, scene.pace.claim, scene.pace.deadline) = (30_000, 20_000, 60_000);
    let (writes, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut busy = JoinSet::new();
    for _ in 0..WRITERS {
        let (lock, writes, over) = (scene.client().await.rw_lock("x"), writes.clone(), over.clone());
        busy.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let writer = lock.write().await.expect("it is granted");
                writes.fetch_add(1, Ordering::SeqCst);
                drop(writer);
            }
        });
    }
    for _ in 0..3 {
        let client = scene.client().await;
        for _ in 0..8 {
            let (lock, over) = (client.rw_lock("x"), over.clone());
            busy.spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let reader = lock.read().await.expect("it is granted");
                    tokio::task::yield_now().await;
                    drop(reader);
                }
            });
        }
    }
    let builder = slow_to_poll(scene.pace.apply(Client::builder().url(scene.server.url())));
    let client = builder.label("judged").connect().await.expect("the server is there");
    for role in READ_WRITE {
        let mut judged = 0;
        while judged < 20 {
            let waiting = tokio::spawn(kinds::hold(&client, role));
            let queued = soon("a place or a turn", async {
                loop {
                    let places = info(&client, "x").await.waiting;
                    if places.iter().any(|place| place.label.as_deref() == Some("judged")) {
                        break true;
                    }
                    if waiting.is_finished() {
                        break false;
                    }
                }
            });
            judged += u64::from(queued.await);
            let before = writes.load(Ordering::SeqCst);
            let (took, guard) = timed("its turn", waiting).await;
            let guard = guard.expect("no panic").expect("it is granted");
            let passed = writes.load(Ordering::SeqCst) - before;
            assert!(passed <= WRITERS && took < BY_MESSAGE, "{role}: {passed} writes in {took:?}");
            guard.unlock().await.expect("it is held");
        }
    }
    over.store(true, Ordering::SeqCst);
    while let Some(ended) = soon("their end", busy.join_next()).await {
        ended.expect("no panic");
    }
    drop(client);
    check_left(&scene.server).await;
}

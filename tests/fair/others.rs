//! Reports on other locks with a queue.
//!
//! | name | repository |
//! |---|---|
//! | `copr` | fedora-copr/copr: a lock in Redis |
//! | `curator` | apache/curator: ZooKeeper, from Java |
//! | `etcd` | etcd-io/etcd: its own locks |
//! | `go_zookeeper` | samuel/go-zookeeper |
//! | `hiero_json_rpc_relay` | hiero-ledger/hiero-json-rpc-relay: a lock in Redis |
//! | `kazoo` | python-zk/kazoo: ZooKeeper, from Python |
//! | `python_etcd` | jplana/python-etcd |
//! | `python_redis_lock` | ionelmc/python-redis-lock |
//! | `twitter_commons` | twitter-archive/commons: ZooKeeper, from Java |
//! | `zk_ruby` | zk-ruby/zk: ZooKeeper, from Ruby |

use std::pin::pin;

use lockwright::Lease;

use super::*;
use crate::chaos_faults::{hash, until_answered};
use crate::suite::{BY_MESSAGE, info, pass, slow_to_poll};
use crate::support::proxy::{Fate, Proxy};
use crate::support::server::Server;

/// What waits, by the server's own list.
fn places(queue: &Queue) -> i64 {
    queue.scene.server.connection().ok(&["LLEN", &queue.key(":queue")]).int()
}

/// Kills all connections of a kind, but not ours.
fn kill_all(server: &Server, kind: &str) {
    server.connection().ok(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
}

// A waiter whose wait failed took the head of the queue out instead of its own place.
#[tokio::test]
async fn copr_4389_a_wait_that_fails_takes_nobody_elses_place_along() {
    let mut queue = Queue::slow_to_poll().await;
    let first = queue.join_alone().await;
    let client = queue.scene.client().await;
    let failing = queue.join(&client).await;
    let last = queue.join_alone().await;
    client.close().await;
    let outcome = soon("an outcome", failing).await.expect("no panic");
    assert_eq!(outcome.unwrap_err(), LockError::Closed);
    until_waiting(&queue.holder, NAME, 2).await;
    let since = queue.release().await;
    served_in_turn(vec![first, last], since, Duration::ZERO).await;
    queue.end().await;
}

// A thread that was interrupted while its node was made left it there, and again where its clean-up was interrupted:
// the oldest node then was nobody's, and everybody waited for it.
#[tokio::test]
async fn curator_600_a_wait_that_is_dropped_while_it_is_sent_leaves_no_place_nor_does_its_leaving() {
    let mut queue = Queue::new().await;
    let proxy = Proxy::to(queue.scene.server.port());
    let client = queue.scene.client_at(proxy.url()).await;
    let behind = queue.join_alone().await;
    for (word, bytes) in [("fair/acquire", 0), ("fair/acquire", 7), ("fair/leave", 0), ("fair/leave", 7)] {
        proxy.doom(&hash(word), Fate::ReplyCut(bytes), 1);
        let mut wait = kinds::lock(&client, NAME);
        assert!(futures_util::poll!(&mut wait).is_pending());
        until_waiting(&queue.holder, NAME, 2).await;
        drop(wait);
        until_waiting(&queue.holder, NAME, 1).await;
        assert_eq!(proxy.pardon(), 0, "{word} was not sent");
    }
    let since = queue.release().await;
    drop(served(behind, since, Duration::ZERO).await);
    drop(client);
    queue.end().await;
}

// The node that was waited for went away between the look at it and the wait for its end, and nobody told of it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curator_1046_a_release_while_a_waiter_joins_is_not_missed() {
    let mut queue = Queue::slow_to_poll().await;
    let client = queue.scene.client().await;
    for round in 0..200_u64 {
        let waiter = tokio::spawn(kinds::lock(&client, NAME));
        // From before its request is sent until after it is answered.
        pass(Duration::from_micros(round * 10)).await;
        let since = queue.release().await;
        drop(served(waiter, since, Duration::ZERO).await);
        queue.guard = Some(soon("the lock", kinds::lock(&queue.holder, NAME)).await.expect("it is granted"));
    }
    queue.release().await;
    drop(client);
    queue.end().await;
}

// The watch of a waiter ended by an error, and its key was left in the queue, for those behind it to wait for.
#[tokio::test]
async fn etcd_9715_a_waiter_that_is_refused_costs_a_claim_at_most() {
    let mut queue = Queue::new().await;
    let url = crate::faults::user(&queue.scene.server, &[]);
    let client = queue.scene.client_at(url).await;
    let refused = queue.join(&client).await;
    let behind = queue.join_alone().await;
    queue.scene.server.connection().ok(&["ACL", "SETUSER", "ann", "-evalsha", "-eval"]);
    let outcome = soon("an outcome", refused).await.expect("no panic");
    assert!(matches!(outcome, Err(LockError::Unauthorized { .. })), "{outcome:?}");
    // It may not even leave.
    assert_eq!(info(&queue.holder, NAME).await.waiting_count, 2);
    let since = queue.release().await;
    drop(served(behind, since, queue.claim()).await);
    queue.scene.server.connection().ok(&["ACL", "SETUSER", "ann", "+@all"]);
    drop(client);
    queue.end().await;
}

// A waiter whose session had expired went on waiting for its predecessor, and heard of the loss when that one was done.
#[tokio::test]
async fn etcd_19597_a_waiter_without_a_server_is_told_while_the_holder_holds() {
    let mut queue = Queue::with(|pace| (pace.timeout, pace.unavailable) = (400, 1_000)).await;
    let proxy = Proxy::to(queue.scene.server.port());
    let client = queue.scene.client_at(proxy.url()).await;
    let waiter = queue.join(&client).await;
    let since = now();
    proxy.refuse(true);
    proxy.cut();
    let outcome = soon("an outcome", waiter).await.expect("no panic");
    assert!(matches!(outcome, Err(LockError::Unavailable { .. })), "{outcome:?}");
    // Its patience begins with the first poll that is not answered.
    let limit = millis(queue.scene.pace.unavailable) + queue.poll() + millis(queue.scene.pace.timeout);
    assert!(now().since(since) <= limit + MARGIN, "{:?}", now().since(since));
    assert!(queue.guard.as_ref().expect("it is held").is_held());
    drop(client);
    queue.release().await;
    // What cannot be taken back ends with its client's deadline.
    drop(take(&queue.holder, NAME).await);
    drop(proxy);
    queue.end_of_dead().await;
}

// The place was made, the answer lost and the session restored: the place was nobody's, and the next attempt of the
// same client waited for it.
#[tokio::test]
async fn go_zookeeper_229_a_lost_answer_makes_one_place_and_not_two() {
    let mut queue = Queue::new().await;
    let proxy = Proxy::to(queue.scene.server.port());
    let client = queue.scene.client_at(proxy.url()).await;
    proxy.doom(&hash("fair/acquire"), Fate::ReplyCut(0), 1);
    let waiter = queue.join(&client).await;
    let connections = proxy.connections();
    eventually("a new connection", || proxy.connections() > connections).await;
    until_answered(&client).await;
    let another = queue.join(&client).await;
    assert_eq!((proxy.pardon(), places(&queue)), (0, 2));
    let since = queue.release().await;
    served_in_turn(vec![waiter, another], since, queue.poll()).await;
    drop(client);
    queue.end().await;
}

// The list of those who wait was lost with a restart, or a waiter was cleaned away by others; it believed to be in the
// queue, and polled for its turn for ever.
#[tokio::test]
async fn hiero_json_rpc_relay_5260_waiters_whose_queue_is_lost_join_again_and_are_served() {
    for lost in [&[":queue"][..], &[":waiting"], &[":queue", ":waiting"]] {
        let mut queue = Queue::new().await;
        let proxy = Proxy::to(queue.scene.server.port());
        let client = queue.scene.client_at(proxy.url()).await;
        let mut waiters =
            vec![queue.join(&client).await, queue.join(&client).await, queue.join(&client).await];
        let keys: Vec<String> = lost.iter().map(|suffix| queue.key(suffix)).collect();
        let words: Vec<&str> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        assert_eq!(queue.scene.server.connection().ok(&words).int(), i64::try_from(lost.len()).expect("few"));
        let since = now();
        // One of them finds out, and brings the others along: whoever comes later is behind them all.
        let there = || (places(&queue), waiting(&queue.scene.server, NAME));
        eventually("all three again", || there() == (3, 3)).await;
        assert!(now().since(since) <= queue.poll() + MARGIN, "{:?}", now().since(since));
        waiters.push(queue.join_alone().await);
        let since = queue.release().await;
        served_in_turn(waiters, since, Duration::ZERO).await;
        drop(client);
        queue.end().await;
    }
}

// A try that must not wait met a connection that was suspended. Its place stayed behind, and was granted when the
// holder left.
#[tokio::test]
async fn kazoo_732_a_try_that_meets_a_dead_line_leaves_no_place() {
    let mut queue = Queue::with(|pace| pace.timeout = 400).await;
    let proxy = Proxy::to(queue.scene.server.port());
    let client = queue.scene.client_at(proxy.url()).await;
    for fate in [Fate::ReplyCut(0), Fate::Stuck] {
        proxy.doom(&hash("fair/acquire"), fate, 1);
        let outcome = kinds::try_lock(&client, NAME).await;
        assert!(matches!(outcome, Ok(None)), "{outcome:?}");
        assert_eq!((proxy.pardon(), places(&queue)), (0, 0), "{fate:?}");
    }
    // What was stuck arrives when the lock is free and its time is over.
    pass(millis(2 * queue.scene.pace.timeout)).await;
    queue.release().await;
    assert_eq!(proxy.deliver().len(), 1);
    drop(take(&queue.holder, NAME).await);
    drop(client);
    queue.end().await;
}

// The key of a waiter had a life of its own, shorter than the wait. When its turn came it did not find itself in the
// queue, and asked without end.
#[tokio::test]
async fn python_etcd_181_a_lease_that_is_shorter_than_the_wait_is_whole_at_the_grant() {
    let mut queue = Queue::with(|pace| pace.claim = 500).await;
    let client = queue.scene.client().await;
    let lease = millis(500);
    let lock = client.fair_lock(NAME).with_lease(Lease::renewed(lease));
    let waiter = queue.join_by(Box::pin(lock.lock())).await;
    // How long it waits is the subject here.
    pass(lease * 5).await;
    let since = queue.release().await;
    let guard = served(waiter, since, Duration::ZERO).await;
    assert!(guard.is_held(), "a guard of what is over");
    drop((guard, lock, client));
    queue.end().await;
}

// Between the release and the answer of who was woken a third one took the lock, and the oldest waiter waited on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_redis_lock_58_nobody_slips_in_between_a_release_and_its_waiter() {
    let mut queue = Queue::with(|pace| pace.claim = 3_000).await;
    let proxy = Proxy::to(queue.scene.server.port());
    let slow = queue.scene.client_at(proxy.url()).await;
    let eager = queue.scene.client().await;
    for _ in 0..5 {
        let waiter = queue.join(&slow).await;
        proxy.delay(millis(150));
        let waiter = {
            queue.release().await;
            let mut waiter = pin!(waiter);
            let mut tries = 0;
            loop {
                tokio::select! {
                    biased;
                    guard = &mut waiter => {
                        assert!(tries > 0, "nobody tried");
                        break guard.expect("no panic").expect("it is granted");
                    }
                    outcome = kinds::try_lock(&eager, NAME) => {
                        assert!(outcome.expect("the server answers").is_none(), "it slipped in");
                        tries += 1;
                    }
                }
            }
        };
        proxy.delay(Duration::ZERO);
        waiter.unlock().await.expect("it is held");
        queue.length = 0;
        queue.guard = Some(take(&queue.holder, NAME).await);
    }
    queue.release().await;
    drop((slow, eager));
    queue.end().await;
}

// The session of a waiter expired while its network was gone. It came back, its place did not, and nothing told it.
#[tokio::test]
async fn twitter_commons_20_waiters_that_were_cut_off_for_long_join_again() {
    // Once the answer is lost, too, by which the client would know that they are new.
    for lost in [0, 1] {
        let mut queue = Queue::new().await;
        let proxy = Proxy::to(queue.scene.server.port());
        let client = queue.scene.client_at(proxy.url()).await;
        let cut_off = [queue.join(&client).await, queue.join(&client).await, queue.join(&client).await];
        proxy.refuse(true);
        proxy.cut();
        let [first, second] = [queue.join_alone().await, queue.join_alone().await];
        // Beyond its client's deadline.
        pass(millis(queue.scene.pace.deadline + 200)).await;
        let since = queue.release().await;
        queue.guard = Some(served(first, since, Duration::ZERO).await);
        assert_eq!(info(&queue.holder, NAME).await.waiting_count, 1, "their places are gone");
        if lost > 0 {
            proxy.doom(&hash("fair/acquire"), Fate::ReplyCut(0), lost);
        }
        proxy.refuse(false);
        until_waiting(&queue.holder, NAME, 4).await;
        assert_eq!(proxy.pardon(), 0);
        until_answered(&client).await;
        let since = queue.release().await;
        served_in_turn([second].into_iter().chain(cut_off).collect(), since, Duration::ZERO).await;
        drop(client);
        queue.end().await;
    }
}

// After a short loss of its connection a waiter made itself a second place behind its first one, and waited for itself.
#[tokio::test]
async fn zk_ruby_54_a_waiter_that_connects_anew_does_not_wait_for_itself() {
    let mut queue = Queue::with(|pace| pace.lease = 30_000).await;
    let slow = slow_to_poll(queue.scene.pace.apply(Client::builder().url(queue.scene.server.url())));
    let client = slow.connect().await.expect("the server is there");
    let waiter = queue.join(&client).await;
    for kind in ["normal", "pubsub", "normal"] {
        kill_all(&queue.scene.server, kind);
        until_answered(&client).await;
        until_answered(&queue.holder).await;
        assert_eq!((places(&queue), info(&queue.holder, NAME).await.waiting_count), (1, 1), "{kind}");
    }
    let since = queue.release().await;
    drop(served(waiter, since, BY_MESSAGE).await);
    drop(client);
    queue.end().await;
}

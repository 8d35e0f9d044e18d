//! C, messages and connections: killed, lost, flooded, mixed up.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lockwright::Client;
use tokio::task::JoinHandle;

use super::*;
use crate::suite::{BY_MESSAGE, slow_to_poll, take, timed, until_waiting, wait_for};
use crate::support::kinds::{self, AnyGuard, KINDS, lock_of};
use crate::support::proxy::{Proxy, Way};
use crate::support::time::{soon, soon_granted};
use crate::support::worker::Scene;

fn kill_all(server: &Server, kind: &str) {
    server.connection().ok(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
}

/// One client holds a lock and another one, at another address, waits for it.
struct Wait {
    scene: Scene,
    proxy: Proxy,
    holder: Client,
    guard: AnyGuard,
    waiter: Client,
    waiting: JoinHandle<Result<AnyGuard, lockwright::LockError>>,
}

impl Wait {
    async fn new(name: &'static str, slow: bool) -> Self {
        Self::of([name, name], slow).await
    }

    async fn of([holds, waits]: [&str; 2], slow: bool) -> Self {
        let mut scene = Scene::new();
        scene.pace.lease = 30_000;
        // Kills in a row make the pauses before new connections longer.
        scene.pace.unavailable = 15_000;
        let proxy = Proxy::to(scene.server.port());
        let holder = scene.client().await;
        let waiter = scene.pace.apply(Client::builder().url(proxy.url()));
        let waiter = if slow { slow_to_poll(waiter) } else { waiter };
        let waiter = waiter.connect().await.expect("the server is there");
        let guard = kinds::hold(&holder, holds).await.expect("it is free");
        let waiting = tokio::spawn(kinds::hold(&waiter, waits));
        until_waiting(&holder, lock_of(waits), 1).await;
        Self { scene, proxy, holder, guard, waiter, waiting }
    }

    /// Releases the lock; the waiter must get it within `limit`.
    async fn served_within(self, limit: Duration) {
        let Self { scene, guard, waiting, holder, waiter, .. } = self;
        guard.unlock().await.expect("it is held");
        let (took, next) = timed("the lock", waiting).await;
        assert!(took <= limit, "served after {took:?}");
        next.expect("no panic").expect("it is granted").unlock().await.expect("it is held");
        drop((holder, waiter));
        check_left(&scene.server).await;
    }
}

// `local/state/connection.rs`, `up`: all holds are renewed and all waiters poll on a new connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_killed_command_connections_cost_no_hold_and_no_place() {
    let wait = Wait::new("a", true).await;
    for _ in 0..5 {
        kill_all(&wait.scene.server, "normal");
        eventually("new connections", || wait.scene.server.clients().len() == 4).await;
        assert!(wait.guard.is_held() && !wait.waiting.is_finished());
        until_answered(&wait.holder).await;
    }
    wait.served_within(BY_MESSAGE).await;
}

// `link/supervisor.rs`, `hear_again`: what is lost is subscribed to again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_a_killed_subscription_is_made_again_and_messages_are_heard() {
    for roles in [["a", "a"], ["read x", "write x"], ["write x", "read x"]] {
        let wait = Wait::of(roles, true).await;
        kill_all(&wait.scene.server, "pubsub");
        let subscribed =
            || wait.scene.server.connection().ok(&["PUBSUB", "CHANNELS", "lw:wake:*"]).texts().len();
        eventually("the end of the old subscriptions", || subscribed() == 2).await;
        wait.served_within(BY_MESSAGE).await;
    }
}

// `client.rs`, `connect`: the subscription is there before any lock is asked for, so there is no gap to fall into.
// Without it (or without polls, `local/state/polls.rs`, `poll_due`) a message that is lost costs the whole lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c14_a_lost_message_costs_a_claim_and_a_poll() {
    for name in KINDS {
        let wait = Wait::new(name, false).await;
        let channels = wait.scene.server.connection().ok(&["PUBSUB", "CHANNELS", "lw:wake:*"]);
        assert_eq!(channels.items().len(), 2, "not subscribed before the first lock");
        // The second connection through the proxy is the subscription.
        wait.proxy.swallow_one(1, Way::ToClient);
        let claim = wait.scene.pace.claim();
        wait.served_within(claim + claim / 2 + MARGIN).await;
    }
}

// `local/state/polls.rs`, `poll_all` after `Deaf` and `Up` (mutant `NoPollAfterGap`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c15_a_release_in_the_gap_of_a_subscription_is_noticed() {
    for name in KINDS {
        for _ in 0..10 {
            let wait = Wait::new(name, true).await;
            kill_all(&wait.scene.server, "pubsub");
            wait.served_within(BY_MESSAGE).await;
        }
        // And where the gap does not end, by the polls of the deaf.
        let wait = Wait::new(name, false).await;
        wait.proxy.refuse(true);
        kill_all(&wait.scene.server, "pubsub");
        let claim = wait.scene.pace.claim();
        wait.served_within(claim + claim / 2 + MARGIN).await;
    }
}

// `local.rs`, `told`: a lag has all waiters poll.
#[tokio::test(flavor = "current_thread")]
async fn c17_whoever_lags_behind_the_messages_is_served_all_the_same() {
    let mut scene = Scene::new();
    scene.pace.lease = 30_000;
    let mut holder = scene.worker().await;
    holder.take("a").await;
    let client =
        slow_to_poll(Client::builder().url(scene.server.url())).connect().await.expect("it is there");
    let mut outside = scene.server.connection();
    let channels = outside.ok(&["PUBSUB", "CHANNELS", "lw:wake:*"]).texts();
    let waiting = tokio::spawn(client.lock("a").lock());
    until_waiting(&client, "a", 1).await;
    // More than fits, around the message that matters; nobody reads on this thread meanwhile.
    let flood = "for i = 1, 30000 do for _, k in ipairs(ARGV) do redis.call('publish', k, 'x') end end";
    let mut words = vec!["EVAL", flood, "0"];
    words.extend(channels.iter().map(String::as_str));
    outside.ok(&words);
    let since = now();
    holder.order("free a");
    soon("the holder", async {
        while holder.heard("free a").is_none() {
            tokio::task::yield_now().await
        }
    })
    .await;
    outside.ok(&words);
    let guard = soon_granted("the lock", waiting).await;
    assert!(now().since(since) < BY_MESSAGE, "served after {:?}", now().since(since));
    drop((guard, client));
    check_left(&scene.server).await;
}

/// Publishes to others without an end, as fast as the server takes it.
fn storm(port: u16, stop: &AtomicBool) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    let batch = "PUBLISH somewhere-else hello\r\n".repeat(500);
    let (mut replies, mut published) = (vec![0; 4 * 500], 0);
    while !stop.load(Ordering::SeqCst) {
        stream.write_all(batch.as_bytes()).expect("the server reads");
        stream.read_exact(&mut replies).expect("the server answers");
        published += 500;
    }
    published
}

// `wire/fred.rs`: a channel for each client; one for all locks and clients would bring the storm to everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c18_a_storm_of_other_messages_delays_no_hand_over() {
    let scene = Scene::new();
    let clients = [scene.client().await, scene.client().await];
    let (stop, port) = (std::sync::Arc::new(AtomicBool::new(false)), scene.server.port());
    let stopping = stop.clone();
    let storm = thread::spawn(move || storm(port, &stopping));
    let mut spans = Vec::new();
    for turn in 0..100 {
        let guard = wait_for(&clients[turn % 2], "a").await;
        let waiting = tokio::spawn(clients[(turn + 1) % 2].lock("a").lock());
        until_waiting(&clients[turn % 2], "a", 1).await;
        let since = now();
        guard.unlock().await.expect("it is held");
        drop(soon_granted("the lock", waiting).await);
        spans.push(now().since(since));
    }
    stop.store(true, Ordering::SeqCst);
    let published = storm.join().expect("the storm ends well");
    spans.sort();
    assert!(spans[98] < millis(500), "{:?} of {published} messages", spans[98]);
    assert!(published > 10_000, "{published}");
    drop(clients);
    check_left(&scene.server).await;
}

// `link/pulse.rs`: a `PING` on both connections; without it a middlebox that cuts what is idle goes unnoticed.
#[tokio::test]
async fn c26_no_connection_is_ever_idle() {
    let scene = Scene::new();
    let _client = scene.client().await;
    let mut looks = 0;
    let end = now().plus(Duration::from_secs(4));
    while now() < end {
        for connection in scene.server.clients() {
            let idle: u64 = connection["idle"].parse().expect("seconds");
            assert!(idle <= 1, "{connection:?}");
            looks += 1;
        }
        // The passing of time is the subject here.
        Clock::boot().sleep(millis(100)).await;
    }
    assert!(looks > 20);
}

// `link/supervisor.rs`, `build_subscription`: the run ids of both connections are compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c27_connections_to_two_servers_are_not_used() {
    let (scene, other) = (Scene::new(), Server::start());
    let proxy = Proxy::to(other.port());
    proxy.turn_to_after(1, scene.server.port());
    let builder = scene.pace.apply(Client::builder().url(proxy.url()));
    let client = builder.connect().await.expect("it connects");
    let guard = take(&client, "a").await;
    // Both connections of the mixed pair were given up.
    assert!(proxy.connections() >= 4, "{}", proxy.connections());
    let there = |server: &Server| {
        let channels = server.connection().ok(&["PUBSUB", "CHANNELS", "lw:wake:*"]).items().len();
        (channels, server.connection().ok(&["EXISTS", "lw:{a}"]).int())
    };
    assert_eq!((there(&scene.server), there(&other)), ((1, 1), (0, 0)));
    assert!(guard.is_held());
}

// `lua/lib`, `advance`: the claim, and `local/state/polls.rs`, `queued_with`: the poll at its end.
#[tokio::test]
async fn c29_where_receivers_cannot_be_counted_a_dead_waiter_costs_a_claim() {
    for name in KINDS {
        let scene = Scene::new();
        let mut spy = scene.server.connection();
        spy.ok(&["PSUBSCRIBE", "*"]);
        let watcher = scene.client().await;
        let mut workers = Vec::new();
        for count in 0..3 {
            let mut worker = scene.worker().await;
            worker.order(&format!("take {name}"));
            if count > 0 {
                until_waiting(&watcher, name, count).await;
            } else {
                worker.granted(name).await;
            }
            workers.push(worker);
        }
        let [holder, dead, living] = &mut workers[..] else { panic!("three workers") };
        dead.kill();
        eventually("the end of its connections", || scene.server.clients().len() == 7).await;
        let since = now();
        assert_eq!(holder.ask(&format!("free {name}")).await, "ok");
        let (_, at) = living.granted(name).await;
        let (took, claim) = (at.since(since), scene.pace.claim());
        assert!(took <= claim + MARGIN, "{took:?}");
        assert!(took >= claim - millis(50), "{took:?}: the count was not trusted by mistake, or not at all");
        assert_eq!(living.ask(&format!("free {name}")).await, "ok");
        drop(workers);
        check_left(&scene.server).await;
    }
}

//! C, a server that cannot be reached, or does not take us: half-open lines, black holes, full, down, wrong name,
//! no access, too old.

use futures_util::future::join_all;
use lockwright::{Client, ConnectError, LockError, LossReason};

use super::*;
use crate::suite::{take, timed, until, until_waiting, wait_for};
use crate::support::kinds::{self, lock_of};
use crate::support::proxy::{Proxy, Way};
use crate::support::server::free_port;
use crate::support::time::{soon, soon_granted};
use crate::support::worker::{Pace, Scene};
use crate::wire::connecting::{OLD, fake};

// `link/pulse.rs`: our own `PING`s find the dead line, long before the hold's validity ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_a_hold_survives_a_line_that_is_half_open() {
    let mut scene = Scene::new();
    scene.pace.lease = 3_000;
    let proxy = Proxy::to(scene.server.port());
    let client = scene.client_at(proxy.url()).await;
    let mut guards = Vec::new();
    for role in ["a", "read x", "write y"] {
        guards.push(kinds::hold(&client, role).await.expect("it is free"));
    }
    proxy.swallow(Way::ToServer);
    proxy.swallow(Way::ToClient);
    let before = proxy.connections();
    eventually("new connections", || proxy.connections() >= before + 2).await;
    // Two leases are the subject: the renewals go on.
    let end = now().plus(scene.pace.lease() * 2);
    while now() < end {
        assert!(guards.iter().all(kinds::AnyGuard::is_held));
        Clock::boot().sleep(millis(50)).await;
    }
    for guard in guards {
        guard.unlock().await.expect("it was held throughout");
    }
}

/// A holder whose replies, or all of whose bytes, vanish for good hears it before anybody else is let in.
async fn vanish(ways: &[Way]) {
    for roles in [["a", "a"], ["read x", "write x"], ["write x", "read x"]] {
        vanish_between(roles, ways).await;
    }
}

async fn vanish_between([holds, waits]: [&str; 2], ways: &[Way]) {
    let scene = Scene::new();
    let proxy = Proxy::to(scene.server.port());
    let (client, other) = (scene.client_at(proxy.url()).await, scene.client().await);
    let guard = kinds::hold(&client, holds).await.expect("it is free");
    let (token, lost) = (guard.token(), guard.lost());
    let waiting = tokio::spawn(kinds::hold(&other, waits));
    until_waiting(&other, lock_of(waits), 1).await;
    ways.iter().for_each(|&way| proxy.black_hole(way));
    let trusted = now().plus(guard.remaining());
    let reason = soon("the loss", lost).await;
    let heard = now();
    assert_eq!(reason, LossReason::Expired);
    assert!(heard <= trusted.plus(millis(100)), "{:?} late", heard.since(trusted));
    assert!(!guard.is_held() && !waiting.is_finished(), "the next one is inside before the loss was heard");
    let next = soon_granted("the lock", waiting).await;
    assert!(next.token() > token);
    assert!(guard.unlock().await.is_err());
    proxy.heal();
    // The late leaving of the first one touches nothing.
    until_answered(&client).await;
    assert!(next.is_held());
    next.unlock().await.expect("it is held");
    drop((client, other));
    check_left(&scene.server).await;
}

// `local/state/renewals.rs`, `renewal_unanswered`: what is not answered does not lengthen the validity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_a_line_that_stays_dead_ends_the_hold_before_the_next_one() {
    vanish(&[Way::ToServer, Way::ToClient]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c5_where_only_replies_vanish_the_hold_ends_on_the_safe_side() {
    vanish(&[Way::ToClient]).await;
}

// `backend/fault.rs`: a full server is one that may have room later. `link/backoff.rs`: attempts have pauses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c19_a_server_with_too_many_clients_is_told_and_not_stormed() {
    let scene = Scene::new();
    let inside = scene.client().await;
    let mut outside = scene.server.connection();
    outside.ok(&["CONFIG", "SET", "maxclients", "3"]);
    let refused = |outside: &mut crate::support::resp::Connection| {
        let stats = outside.ok(&["INFO", "stats"]).text();
        let line = stats.lines().find_map(|line| line.strip_prefix("rejected_connections:"));
        line.expect("it is counted").trim().parse::<u64>().expect("a number")
    };
    let builder = scene.pace.apply(Client::builder().url(scene.server.url()));
    let (took, answer) = timed("an answer", builder.connect()).await;
    assert!(matches!(answer, Err(ConnectError::Unavailable { .. })), "{answer:?}");
    assert!(took <= millis(scene.pace.unavailable) + MARGIN, "{took:?}");
    let attempts = refused(&mut outside);
    assert!((1..20).contains(&attempts), "{attempts} attempts in {took:?}");
    assert!(take(&inside, "a").await.is_held());
    outside.ok(&["CONFIG", "SET", "maxclients", "100"]);
    assert!(wait_for(&scene.client().await, "b").await.is_held());
}

// `link/supervisor.rs`, `first`: the deadline.
#[tokio::test]
async fn c20_c22_a_server_that_is_not_there_is_told_in_time() {
    let pace = Pace { unavailable: 700, ..Pace::QUICK };
    for host in [format!("127.0.0.1:{}", free_port()), "no-such-host.invalid:6379".to_owned()] {
        let builder = pace.apply(Client::builder().url(format!("redis://{host}")));
        let (took, answer) = timed("an answer", builder.connect()).await;
        assert!(matches!(answer, Err(ConnectError::Unavailable { .. })), "{host}: {answer:?}");
        assert!(took <= millis(pace.unavailable) + MARGIN, "{host}: {took:?}");
    }
}

// `link/supervisor.rs`: a name is looked up anew by each attempt.
#[tokio::test]
async fn c22_a_name_that_is_known_again_is_found() {
    let mut scene = Scene::new();
    scene.pace.unavailable = 10_000;
    let client = scene.client_at(format!("redis://localhost:{}", scene.server.port())).await;
    let guard = take(&client, "a").await;
    scene.server.connection().ok(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    until_answered(&client).await;
    assert!(guard.is_held());
    guard.unlock().await.expect("it is held");
}

// `link/backoff.rs`: pauses grow and are random. `local/state/connection.rs`, `up`: the oldest ticket of each lock
// polls, and where it is told that it is new its client sends the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c21_a_thousand_waiters_outlive_an_outage() {
    const WAITERS: usize = 1_000;
    let mut scene = Scene::new();
    scene.pace.unavailable = 30_000;
    scene.pace.lease = 2_000;
    let proxy = Proxy::to(scene.server.port());
    let clients = join_all((0..4).map(|_| scene.client_at(proxy.url()))).await;
    let holder = scene.client().await;
    let mut guards = Vec::new();
    for name in 0..20 {
        guards.push(take(&holder, &name.to_string()).await);
    }
    let waiting: Vec<_> = (0..WAITERS)
        .map(|waiter| {
            let lock = clients[waiter % 4].lock(&(waiter % 20).to_string());
            tokio::spawn(async move { lock.lock().await.map(drop) })
        })
        .collect();
    for name in 0..20 {
        // Twenty is a multiple of four, so each lock has one client, and that has one ticket there.
        until_waiting(&holder, &name.to_string(), 1).await;
    }
    let before = proxy.connections();
    proxy.refuse(true);
    scene.server.kill();
    // How long it is away is the subject here: a tenth of the minute of the catalogue, longer than deadline and lease.
    Clock::boot().sleep(Duration::from_secs(6)).await;
    let attempts = proxy.connections() - before;
    assert!((4..4 * 20).contains(&attempts), "{attempts} attempts of four clients in six seconds");
    scene.server.restart();
    let since = now();
    proxy.refuse(false);
    for waiter in soon("all waiters", join_all(waiting)).await {
        waiter.expect("no panic").expect("it is granted");
    }
    let took = now().since(since);
    // Reconnecting takes a second at most between attempts; all else is a matter of round trips.
    assert!(took < Duration::from_secs(4), "{took:?}");
    drop((guards, holder, clients));
    check_left(&scene.server).await;
}

// `backend/fault.rs`: WRONGPASS is final; `link/supervisor.rs`, `stay_down`: long pauses after a refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c23_no_access_is_told_and_not_tried_in_a_storm() {
    let scene = Scene::new();
    let mut outside = scene.server.connection();
    outside.ok(&["ACL", "SETUSER", "app", "on", ">right", "~*", "&*", "+@all"]);
    let url = |word: &str| format!("redis://app:{word}@127.0.0.1:{}", scene.server.port());
    let (took, answer) = timed("an answer", Client::connect(&url("wrong"))).await;
    assert!(matches!(answer, Err(ConnectError::Unauthorized { .. })), "{answer:?}");
    assert!(took < millis(1_000), "{took:?}");

    let client = scene.client_at(url("right")).await;
    let _guard = take(&client, "a").await;
    outside.ok(&["ACL", "SETUSER", "app", "off"]);
    outside.ok(&["CLIENT", "KILL", "USER", "app"]);
    let (took, answer) = timed("an answer", client.lock("b").lock()).await;
    assert!(matches!(answer, Err(LockError::Unauthorized { .. })), "{answer:?}");
    assert!(took < millis(scene.pace.unavailable) + MARGIN, "{took:?}");
    let received = |outside: &mut crate::support::resp::Connection| {
        let stats = outside.ok(&["INFO", "stats"]).text();
        let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.expect("it is counted").trim().parse::<u64>().expect("a number")
    };
    let before = received(&mut outside);
    // How much is tried in this time is the subject.
    Clock::boot().sleep(Duration::from_secs(4)).await;
    let attempts = received(&mut outside) - before;
    assert!(attempts <= 4, "{attempts} attempts in 4 s");
    outside.ok(&["ACL", "SETUSER", "app", "on"]);
    until("access", async || client.lock("b").lock().await.is_ok()).await;
}

// `wire/fred.rs` and `backend/fault.rs`: a refusal of `HELLO` is `Unsupported`.
#[tokio::test]
async fn c25_a_server_that_is_too_old_is_told_from_one_that_is_not_there() {
    let url = fake(vec![("HELLO".to_owned(), OLD.to_owned())]);
    let (took, answer) = timed("an answer", Client::connect(&url)).await;
    assert!(matches!(answer, Err(ConnectError::Unsupported { .. })), "{answer:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

// `local/state/asking.rs`, `patience`: every wait for a silent server ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c28_ten_thousand_calls_to_a_hung_server_end_in_time_and_leave_nothing() {
    let scene = Scene::new();
    let client = scene.client().await;
    scene.server.signal("STOP");
    let since = now();
    let calls = (0..10_000).map(|call| tokio::spawn(client.lock(&format!("lock {call}")).lock()));
    for answer in soon("all answers", join_all(calls)).await {
        let answer = answer.expect("no panic");
        assert!(matches!(answer, Err(LockError::Unavailable { .. })), "{answer:?}");
    }
    let took = now().since(since);
    // Making ten thousand calls takes a moment by itself.
    assert!(took < millis(scene.pace.unavailable) + Duration::from_secs(4), "{took:?}");
    scene.server.signal("CONT");
    until_answered(&client).await;
    assert!(wait_for(&client, "lock 1").await.is_held());
    drop(client);
    check_left(&scene.server).await;
}

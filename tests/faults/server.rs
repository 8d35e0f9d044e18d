//! Servers that forget, stall, refuse writes or lose their data under the whole client: D1 to D26.

use std::time::Duration;

use lockwright::internals::clock::Clock;
use lockwright::{Client, ExtendError, Guard, Lease, LockError, LossReason, Owner, Renewal};

use super::{CLAIM, MARGIN, PATIENCE, connect, impatient, leftovers, quick, set, works};
use crate::suite::{is_busy, pass, take, timed, until, until_free, until_waiting};
use crate::support::kinds;
use crate::support::proxy::{Proxy, Way};
use crate::support::resp::Reply;
use crate::support::server::Server;
use crate::support::time::{eventually, soon, soon_granted};

const LEASE: Duration = Duration::from_millis(900);

async fn holder(server: &Server) -> Client {
    quick(&server.url()).lease(Lease::renewed(LEASE)).connect().await.expect("the server is there")
}

/// Fails where `NOSCRIPT` reaches a user, or a call is sent twice for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d1_flushed_scripts_are_not_noticed() {
    let server = Server::start();
    let clients = [connect(&server).await, connect(&server).await];
    let mut outside = server.connection();
    let flushing = async {
        for _ in 0..150 {
            outside.ok(&["SCRIPT", "FLUSH"]);
            pass(Duration::from_millis(10)).await;
        }
    };
    let clock = Clock::boot();
    let until = clock.now().plus(Duration::from_millis(1_500));
    let turns = clients.iter().map(async |client| {
        let (mut last, mut count) = (0, 0);
        while clock.now() < until {
            let token = works(client, "x").await;
            assert!(token > last);
            (last, count) = (token, count + 1);
        }
        count
    });
    let (counts, ()) = tokio::join!(futures_util::future::join_all(turns), flushing);
    assert!(counts.iter().all(|&count| count > 10), "{counts:?}");
    assert!(leftovers(&mut server.connection()).is_empty());
}

/// Fails where one of several calls that are sent together is lost for an unknown hash.
#[tokio::test]
async fn d2_many_calls_at_once_survive_a_flush() {
    let server = Server::start();
    let client = connect(&server).await;
    for _ in 0..20 {
        server.connection().ok(&["SCRIPT", "FLUSH"]);
        let locks = (0..50).map(|number| client.lock(&format!("l{number}")).lock());
        let guards =
            soon("the locks", futures_util::future::try_join_all(locks)).await.expect("they are free");
        server.connection().ok(&["SCRIPT", "FLUSH"]);
        let unlocks = futures_util::future::join_all(guards.into_iter().map(Guard::unlock));
        assert!(soon("the releases", unlocks).await.iter().all(Result::is_ok));
    }
    assert!(leftovers(&mut server.connection()).is_empty());
}

/// Fails where `BUSY` counts as final, or is waited out without a limit.
#[tokio::test]
async fn d4_a_busy_server_is_waited_for_within_the_limit() {
    let server = Server::start_with(&["--busy-reply-threshold", "20"]);
    let client = impatient(&server.url()).connect().await.expect("the server is there");
    let mut outside = server.connection();
    outside.send(&["EVAL", "while true do end", "0"]);
    let mut killer = server.connection();
    eventually(
        "a busy server",
        || matches!(killer.call(&["GET", "k"]), Reply::Error(text) if text.starts_with("BUSY")),
    )
    .await;
    let (took, outcome) = timed("an error", client.lock("x").lock()).await;
    assert!(matches!(&outcome, Err(LockError::Unavailable { .. })), "{outcome:?}");
    assert!(took >= PATIENCE && took < PATIENCE + MARGIN, "{took:?}");
    let waiting = tokio::spawn(client.lock("x").lock());
    pass(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    killer.ok(&["SCRIPT", "KILL"]);
    let guard = soon_granted("the lock", waiting).await;
    guard.unlock().await.expect("it is held");
    eventually("no trace of the first", || leftovers(&mut killer).is_empty()).await;
}

/// The same where nothing can be done about it.
#[tokio::test]
async fn d5_a_script_that_cannot_be_killed_ends_waits_in_time() {
    let server = Server::start_with(&["--busy-reply-threshold", "20"]);
    let client = impatient(&server.url()).connect().await.expect("the server is there");
    server.connection().send(&["EVAL", "redis.call('SET', 'k', 'v') while true do end", "0"]);
    let mut killer = server.connection();
    let unkillable = |reply| matches!(reply, Reply::Error(text) if text.starts_with("UNKILLABLE"));
    eventually("the script", || unkillable(killer.call(&["SCRIPT", "KILL"]))).await;
    let (took, outcome) = timed("an error", client.lock("x").try_lock()).await;
    assert!(matches!(&outcome, Err(LockError::Unavailable { .. })), "{outcome:?}");
    assert!(took < PATIENCE + MARGIN, "{took:?}");
    soon("the end", client.close()).await;
}

/// Fails where a timeout means "not acquired", or a request that runs late holds the lock.
#[tokio::test]
async fn d6_a_paused_server_grants_once_or_not_at_all() {
    let server = Server::start();
    let client = impatient(&server.url()).connect().await.expect("the server is there");
    let other = connect(&server).await;
    works(&client, "x").await;
    for mode in ["WRITE", "ALL"] {
        // Shorter than the patience, longer than a call may take: it is asked several times, and granted once.
        server.connection().ok(&["CLIENT", "PAUSE", "700", mode]);
        let (took, guard) = timed("the lock", client.lock("x").lock()).await;
        let guard = guard.expect("it is granted");
        assert!(took > Duration::from_millis(500), "{mode}: {took:?}");
        assert!(is_busy(&other, "x").await && guard.is_held());
        guard.unlock().await.expect("it is held");
        eventually("no second hold", || leftovers(&mut server.connection()).is_empty()).await;
        // Longer than the patience: whatever runs late is taken back.
        server.connection().ok(&["CLIENT", "PAUSE", "4000", mode]);
        let (took, outcome) = timed("an error", client.lock("x").lock()).await;
        assert!(matches!(&outcome, Err(LockError::Unavailable { .. })), "{mode}: {outcome:?} after {took:?}");
        let mut outside = server.connection();
        outside.ok(&["CLIENT", "UNPAUSE"]);
        works(&other, "x").await;
        eventually("no late hold", || leftovers(&mut outside).is_empty()).await;
    }
}

/// What must hold where a server takes no writes for a while: typed errors, the loss in time, and all well afterwards.
async fn takes_no_writes(server: &Server, mut begin: impl AsyncFnMut(), mut end: impl FnMut()) {
    let (client, other) = (holder(server).await, connect(server).await);
    let (guard, brief) = (take(&client, "x").await, take(&client, "y").await);
    let token = guard.token();
    begin().await;
    let free = other.lock("z").lock().await.map(drop);
    assert_eq!(free, Err(LockError::ReadOnly));
    // Others hold it, which a server that only reads can tell.
    assert!(other.lock("x").try_lock().await.is_ok_and(|guard| guard.is_none()));
    until("a failing renewal", async || matches!(guard.renewal(), Renewal::Failing { .. })).await;
    let left = guard.remaining();
    let (took, reason) = timed("the loss", guard.lost()).await;
    assert_eq!(reason, LossReason::Expired);
    assert!(took < left + MARGIN && !guard.is_held(), "{took:?} of {left:?}");
    assert!(brief.unlock().await.is_err(), "nothing was released");
    end();
    assert!(soon("the next", works(&other, "x")).await > token);
    works(&other, "y").await;
    drop(guard);
    eventually("no trace", || leftovers(&mut server.connection()).is_empty()).await;
}

/// Fails where `MISCONF` is repeated in a loop or counts as a loss of the connection.
#[tokio::test]
async fn d17_a_server_that_cannot_save_takes_no_locks_and_ends_none_early() {
    let server = Server::start_with(&["--enable-protected-configs", "yes"]);
    let begin = async || {
        let mut outside = server.connection();
        set(&mut outside, "save", "3600 1");
        set(&mut outside, "dir", "/proc");
        outside.ok(&["SET", "k", "v"]);
        outside.call(&["BGSAVE"]);
        eventually("the failure", || {
            outside.ok(&["INFO", "persistence"]).text().contains("bgsave_status:err")
        })
        .await;
    };
    takes_no_writes(&server, begin, || set(&mut server.connection(), "stop-writes-on-bgsave-error", "no"))
        .await;
}

/// Fails where `READONLY` is taken for anything else.
#[tokio::test]
async fn d18_a_server_that_becomes_a_replica_takes_no_locks() {
    let server = Server::start();
    let begin = async || {
        server.connection().ok(&["REPLICAOF", "127.0.0.1", "1"]);
    };
    // A replica deletes nothing by itself: what has ended there is gone as soon as it is a master again.
    takes_no_writes(&server, begin, || drop(server.connection().ok(&["REPLICAOF", "NO", "ONE"]))).await;
}

/// The same for `NOREPLICAS`.
#[tokio::test]
async fn d19_a_server_without_its_replicas_takes_no_locks() {
    let server = Server::start();
    let begin = async || set(&mut server.connection(), "min-replicas-to-write", "3");
    takes_no_writes(&server, begin, || set(&mut server.connection(), "min-replicas-to-write", "0")).await;
}

/// Fails where a token does not follow the clock: what the file has lost would be minted again.
#[tokio::test]
async fn d23_a_restart_that_loses_the_last_second_repeats_no_token() {
    let mut server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let (client, other) = (holder(&server).await, connect(&server).await);
    let mut last = 0;
    for _ in 0..3 {
        let guard = soon("the lock", client.lock("x").lock()).await.expect("it is granted");
        assert!(guard.token() > last);
        server.kill();
        server.restart();
        // Kept or lost: the holder knows, and never both it and somebody else.
        let clock = Clock::boot();
        let next = loop {
            match soon("an answer", other.lock("x").try_lock()).await {
                Ok(Some(next)) => break next,
                Ok(None) if guard.is_held() => break guard,
                Ok(None) | Err(LockError::Unavailable { .. }) => clock.sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error:?}"),
            }
        };
        assert!(next.token() >= last);
        last = next.token();
        drop(next);
    }
}

/// Fails where the renewal does not tell of a hold that is gone, or waiters trust in a message alone.
#[tokio::test]
async fn d24_a_flush_is_found_out_and_waiters_go_on() {
    for (flush, name, waits) in [
        ("FLUSHALL", "x", "x"),
        ("FLUSHDB", "x", "x"),
        ("FLUSHALL", "fair x", "fair x"),
        ("FLUSHALL", "read x", "write x"),
        ("FLUSHALL", "write x", "read x"),
    ] {
        let lock = kinds::lock_of(name);
        let server = Server::start();
        let (client, other) = (holder(&server).await, connect(&server).await);
        let guard = kinds::hold(&client, name).await.expect("it is free");
        let waiting = tokio::spawn(kinds::hold(&other, waits));
        until_waiting(&client, lock, 1).await;
        // Of the same client, to hold it alone; where each has a ticket their order is kept.
        let behind = tokio::spawn(kinds::hold(&other, if name == waits { name } else { "write x" }));
        if name != "x" {
            until_waiting(&client, lock, 2).await;
        }
        server.connection().ok(&[flush]);
        let (took, next) = timed(&format!("the next after {name}"), waiting).await;
        let next = next.expect("no panic").expect("it is granted");
        // One poll is half a claim.
        assert!(took < CLAIM / 2 + MARGIN, "{flush}, {name}: {took:?}");
        assert!(next.token() > guard.token());
        let (took, reason) = timed("the loss", guard.lost()).await;
        assert_eq!(reason, LossReason::GoneAtServer);
        assert!(took < LEASE / 3 + MARGIN, "{flush}: {took:?}");
        drop(guard);
        let token = next.token();
        next.unlock().await.expect("the old release does not touch it");
        let last = soon_granted("the last", behind).await;
        assert!(last.token() > token);
    }
}

/// Fails where a script changes before it has looked at the types of all keys.
#[tokio::test]
async fn d26_a_key_of_somebody_else_is_reported_and_left_alone() {
    let server = Server::start();
    let client = connect(&server).await;
    let mut outside = server.connection();
    for (key, make) in [
        ("lw:{x}", &["SET", "lw:{x}", "theirs"][..]),
        ("lw:{x}", &["LPUSH", "lw:{x}", "theirs"]),
        ("lw:{x}", &["HSET", "lw:{x}", "their", "field"]),
        ("lw:{x}:waiting", &["SET", "lw:{x}:waiting", "theirs"]),
        ("lw:{x}:token", &["HSET", "lw:{x}:token", "their", "field"]),
        ("lw:{x}:token", &["SET", "lw:{x}:token", "theirs"]),
    ] {
        outside.ok(&["DEL", "lw:{x}:token"]);
        outside.ok(make);
        let before = outside.ok(&["DUMP", key]);
        for outcome in [client.lock("x").lock().await.map(drop), client.lock("x").try_lock().await.map(drop)]
        {
            assert_eq!(outcome, Err(LockError::ForeignKey { key: key.into() }), "{make:?}");
        }
        assert_eq!(outside.ok(&["DUMP", key]), before);
        outside.ok(&["DEL", key]);
        assert!(leftovers(&mut outside).is_empty());
    }
    works(&client, "x").await;
}

/// Fails where a hold is found by its owner and not by its keys: the same name in another database is another lock.
#[tokio::test]
async fn d39_databases_do_not_see_each_others_locks() {
    let server = Server::start();
    let one = quick(&format!("{}/1", server.url())).connect().await.expect("the server is there");
    let zero = connect(&server).await;
    let owner = Owner::new();
    let guard = one.lock("x").with_owner(&owner).lock().await.expect("it is free");
    let other = take(&zero, "x").await;
    server.connection().ok(&["CLIENT", "KILL", "TYPE", "normal"]);
    pass(CLAIM).await;
    let mut outside = server.connection();
    outside.ok(&["SELECT", "1"]);
    assert_eq!(leftovers(&mut outside), ["lw:{x}"]);
    assert!(is_busy(&one, "x").await);
    other.unlock().await.expect("it is held");
    guard.unlock().await.expect("it is held");
    assert!(leftovers(&mut outside).is_empty() && leftovers(&mut server.connection()).is_empty());
}

/// Nothing depends on what a keyspace tells: no notification is asked for, and none is needed.
#[tokio::test]
async fn d40_no_keyspace_notifications_are_needed() {
    let server = Server::start();
    assert_eq!(server.connection().ok(&["CONFIG", "GET", "notify-keyspace-events"]).texts()[1], "");
    let (client, other) = (holder(&server).await, connect(&server).await);
    let guard = client.lock("x").with_lease(Lease::fixed(Duration::from_millis(300))).lock().await;
    let guard = guard.expect("it is free");
    let (took, next) = timed("the next", other.lock("x").lock()).await;
    assert!(next.expect("it is granted").is_held() && took < Duration::from_millis(300 + 250), "{took:?}");
    drop(guard);
}

/// Fails without the look at `patience` in `local/errands/leaving.rs`, `take_leave`: the waiter's ticket travels with
/// the release, which is repeated for as long as a lease.
#[tokio::test]
async fn d6_whoever_waits_behind_a_release_to_a_silent_server_is_told() {
    let server = Server::start();
    let builder = || Client::builder().url(server.url()).command_timeout(Duration::from_millis(200));
    let client = builder().unavailable_after(Duration::from_secs(1)).connect().await.expect("it is there");
    let other = builder().connect().await.expect("it is there");
    let guard = take(&client, "a").await;
    let elsewhere = tokio::spawn(other.lock("a").lock());
    until_waiting(&client, "a", 1).await;
    let mut waiting = Box::pin(client.lock("a").lock());
    assert!(futures_util::poll!(&mut waiting).is_pending());
    // Longer than the turn of a client that knows that others wait: the hold is not passed on any more.
    pass(Duration::from_millis(100)).await;
    server.signal("STOP");
    drop(guard);
    let (took, answer) = timed("an answer", waiting).await;
    assert!(matches!(answer, Err(LockError::Unavailable { .. })), "{answer:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    server.signal("CONT");
    drop(soon("the lock", elsewhere).await.expect("no panic"));
}

/// Fails where a release is given up when the lease would have ended that was asked for at first.
#[tokio::test]
async fn d6_an_extended_hold_is_given_back_after_an_outage_that_outlasts_its_lease() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let timeout = Duration::from_millis(200);
    let client = quick(&proxy.url()).command_timeout(timeout).lease(Lease::renewed(timeout)).connect().await;
    let client = client.expect("the server is there");
    let other = connect(&server).await;
    let (guard, lost) = (take(&client, "x").await, take(&client, "y").await);
    guard.extend(PATIENCE * 30).await.expect("it is held");
    // Whoever is told nothing counts on the shorter, and the server keeps the longer.
    proxy.black_hole(Way::ToClient);
    assert!(matches!(lost.extend(PATIENCE * 30).await, Err(ExtendError::Unavailable { .. })));
    proxy.refuse(true);
    proxy.cut();
    drop(guard);
    assert_eq!(soon("the end", lost.lost()).await, LossReason::Expired);
    drop(lost);
    // Longer than the client's deadline, the lease and a timeout.
    pass(Duration::from_millis(1_800)).await;
    assert!(is_busy(&other, "x").await && is_busy(&other, "y").await);
    proxy.heal();
    proxy.refuse(false);
    until_free(&other, "x").await;
    until_free(&other, "y").await;
}

/// Fails where the last attempt of a release may take all of its timeout.
#[tokio::test]
async fn d6_a_close_waits_for_a_silent_server_no_longer_than_others() {
    let server = Server::start();
    let builder = Client::builder().url(server.url()).command_timeout(Duration::from_secs(3));
    let patience = Duration::from_millis(3_200);
    let client = builder.unavailable_after(patience).connect().await.expect("the server is there");
    let guard = take(&client, "x").await;
    server.signal("STOP");
    let (took, ()) = timed("the end", client.close()).await;
    assert!(took >= patience && took < patience + Duration::from_secs(1), "{took:?}");
    server.signal("CONT");
    drop(guard);
}

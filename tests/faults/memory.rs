//! Servers whose memory is full: D7 to D16.

use std::time::Duration;

use lockwright::{Lease, LockError, LossReason};

use super::preflight::POLICIES;
use super::{assert_all_mortal, connect, leftovers, quick, set, works};
use crate::suite::{pass, take, until, until_waiting};
use crate::support::resp::{Connection, Reply};
use crate::support::server::Server;
use crate::support::time::{eventually, soon, soon_granted};

const LEASE: Duration = Duration::from_millis(600);

/// Fails where an acquisition begins with a write that is allowed when memory is full.
#[tokio::test]
async fn d7_a_full_server_takes_no_new_lock() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let guard = take(&client, "held").await;
    let mut outside = server.connection();
    set(&mut outside, "maxmemory", "1");
    let free = client.lock("free").lock().await.map(drop);
    let busy = other.lock("held").lock().await.map(drop);
    assert_eq!((free, busy), (Err(LockError::OutOfMemory), Err(LockError::OutOfMemory)));
    assert_eq!(leftovers(&mut outside), ["lw:{held}"]);
    assert_all_mortal(&mut outside);
    assert!(is_busy_or_full(&other).await);
    set(&mut outside, "maxmemory", "0");
    works(&other, "free").await;
    guard.unlock().await.expect("it is held");
}

/// A try changes nothing, so that it may be answered.
async fn is_busy_or_full(client: &lockwright::Client) -> bool {
    matches!(client.lock("held").try_lock().await, Ok(None) | Err(LockError::OutOfMemory))
}

/// Fails where `renew` or `leave` begins with a write that is refused when memory is full.
#[tokio::test]
async fn d8_a_full_server_renews_extends_releases_and_hands_over() {
    let server = Server::start();
    let quick = || quick(&server.url()).lease(Lease::renewed(LEASE));
    let client = quick().connect().await.expect("the server is there");
    let other = quick().connect().await.expect("the server is there");
    let (one, two, three) = (take(&client, "1").await, take(&client, "2").await, take(&client, "3").await);
    // No renewal of it may come between its forced release and the word of that: it would be the first to tell.
    let forced = client.lock("4").with_lease(Lease::renewed(Duration::from_secs(60)));
    let forced = forced.lock().await.expect("it is free");
    let waiting = tokio::spawn(other.lock("1").lock());
    until_waiting(&client, "1", 1).await;
    let mut outside = server.connection();
    set(&mut outside, "maxmemory", "1");
    pass(LEASE * 3).await;
    assert!(one.is_held() && two.is_held() && three.is_held(), "they are renewed");
    two.extend(Duration::from_secs(2)).await.expect("it is made longer");
    assert!(two.remaining() > LEASE);
    one.unlock().await.expect("it is released");
    let next = soon_granted("the next", waiting).await;
    pass(LEASE * 2).await;
    assert!(next.is_held(), "its claim was renewed");
    next.unlock().await.expect("it is released");
    assert!(client.force_release("4", forced.token()).await.expect("the server answers"));
    assert_eq!(soon("the loss", forced.lost()).await, LossReason::TakenByForce);
    two.unlock().await.expect("it is released");
    drop(three);
    eventually("the release", || leftovers(&mut outside).is_empty()).await;
}

/// Writes until the server has thrown away a part of what it had, or refuses.
fn fill(outside: &mut Connection) {
    let value = "x".repeat(1_000);
    for number in 0..2_500 {
        if let Reply::Error(text) = outside.call(&["SET", &format!("filler:{number}"), &value]) {
            assert!(text.starts_with("OOM"), "{text}");
            return;
        }
    }
}

/// Fails where a renewal revives what is gone, or a token comes from a counter alone.
#[tokio::test]
async fn d9_to_d16_what_is_evicted_is_lost_in_time_and_tokens_rise() {
    const COUNT: usize = 60;
    let mut evicted = 0;
    for policy in POLICIES {
        let server = Server::start();
        let client = quick(&server.url()).lease(Lease::renewed(LEASE)).connect().await.expect("it warns");
        let mut outside = server.connection();
        let mut guards = Vec::new();
        for number in 0..COUNT {
            guards.push(take(&client, &format!("l{number}")).await);
        }
        let used = outside.ok(&["INFO", "memory"]).text();
        let used = used.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("it is told");
        let limit = used.parse::<u64>().expect("a number") + 600_000;
        set(&mut outside, "maxmemory-policy", policy);
        set(&mut outside, "maxmemory", &limit.to_string());
        fill(&mut outside);
        set(&mut outside, "maxmemory", "0");
        // By the next renewal each guard tells what is true.
        for (number, guard) in guards.iter().enumerate() {
            let key = format!("lw:{{l{number}}}");
            let is_there = outside.ok(&["EXISTS", &key]).int() == 1;
            evicted += usize::from(!is_there);
            until("the truth", async || guard.is_held() == is_there).await;
            assert!(is_there || policy != "noeviction");
        }
        pass(LEASE).await;
        for (number, guard) in guards.into_iter().enumerate() {
            let (held, token) = (guard.is_held(), guard.token());
            assert_eq!(guard.unlock().await.is_ok(), held, "{policy}");
            assert!(works(&client, &format!("l{number}")).await > token, "{policy}");
        }
        assert_all_mortal(&mut outside);
        eventually("the releases", || leftovers(&mut outside).is_empty()).await;
    }
    assert!(evicted > COUNT, "{evicted} were evicted under eight policies");
}

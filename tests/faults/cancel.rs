//! Futures that are dropped: B1, B2, B3, B4, B6.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use lockwright::{Client, Owner, UnlockError};

use super::{connect, leftovers, quick, works};
use crate::suite::{is_busy, pass, take, until_waiting, wait_for};
use crate::support::kinds::{self, KINDS, READ_WRITE, lock_of};
use crate::support::proxy::{Proxy, Way};
use crate::support::server::Server;
use crate::support::time::{eventually, soon, soon_granted};

/// Polls `inner` so many times; then is ready, with its output if it has one.
struct AtMost<F> {
    inner: Pin<Box<F>>,
    left: usize,
}

impl<F: Future> Future for AtMost<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.inner.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

fn at_most<F: Future>(polls: usize, inner: F) -> AtMost<F> {
    AtMost { inner: Box::pin(inner), left: polls }
}

/// Waits until the server has no trace of the lock, and panics where that takes more than two round trips.
async fn gone_after(server: &Server, round_trip: Duration, what: &str) {
    let clock = lockwright::internals::clock::Clock::boot();
    let began = clock.now();
    let mut outside = server.connection();
    eventually(what, || leftovers(&mut outside).is_empty()).await;
    let took = clock.now().since(began);
    let limit = round_trip * 2 + Duration::from_millis(250);
    assert!(took < limit, "{what}: {took:?}");
}

/// A reentrant lock, and a reader and a writer.
fn roles() -> impl Iterator<Item = &'static str> {
    std::iter::once("x").chain(READ_WRITE)
}

/// Fails without `Wait` in `acquire`, or where a lane that is deserted is not left.
#[tokio::test]
async fn b1_a_lock_that_is_dropped_after_any_poll_leaves_nothing() {
    let server = Server::start();
    for (role, delay) in roles().flat_map(|role| [0, 5].map(|delay| (role, Duration::from_millis(delay)))) {
        let proxy = Proxy::to(server.port());
        let client = quick(&proxy.url()).connect().await.expect("the server is there");
        works(&client, "other").await;
        proxy.delay(delay);
        // Each way takes the delay.
        let round_trip = delay * 2;
        let mut finished = 0;
        for polls in 0..6 {
            for after in [Duration::ZERO, delay, round_trip, round_trip * 2] {
                let what = format!("the end of {role} that was polled {polls} times, {delay:?}, {after:?}");
                let mut lock = kinds::hold(&client, role);
                let output = soon("the polls", at_most(polls, &mut lock)).await;
                if output.is_none() {
                    // Answers may come before it is dropped, and after.
                    pass(after).await;
                }
                drop(lock);
                if let Some(guard) = output {
                    finished += usize::from(guard.expect("it is free").is_held());
                }
                gone_after(&server, round_trip, &what).await;
            }
        }
        assert!(finished > 0, "{role} was never acquired");
    }
}

/// Fails where a ticket is left in the queue: with its client alive, it would be granted and hold the lock for a claim.
#[tokio::test]
async fn b2_a_queued_lock_that_is_dropped_leaves_the_queue_to_the_others() {
    for name in KINDS {
        let server = Server::start();
        let (holder, cancelling, other) =
            (connect(&server).await, connect(&server).await, connect(&server).await);
        let guard = take(&holder, name).await;
        let dropped = tokio::spawn(kinds::lock(&cancelling, name));
        until_waiting(&holder, name, 1).await;
        let waiting = tokio::spawn(kinds::lock(&other, name));
        until_waiting(&holder, name, 2).await;
        dropped.abort();
        until_waiting(&holder, name, 1).await;
        guard.unlock().await.expect("it is held");
        let guard = soon_granted("the next in the queue", waiting).await;
        assert!(guard.is_held());
        drop(guard);
        gone_after(&server, Duration::ZERO, "the queue").await;

        // An owner that waits to enter what another owner holds: its own ticket.
        let [mine, theirs] = [Owner::new(), Owner::new()];
        let lock = |client: &Client, owner: &Owner| {
            let client = client.clone();
            owner.scope(async move { kinds::lock(&client, name).await })
        };
        let outer = lock(&cancelling, &mine).await.expect("it is free");
        let dropped = tokio::spawn(lock(&other, &theirs));
        until_waiting(&holder, name, 1).await;
        // Re-entry is not held up by the queue, and its drop ends neither the outer hold nor the other's place.
        for polls in 0..3 {
            drop(at_most(polls, lock(&cancelling, &mine)).await);
        }
        assert!(outer.is_held() && is_busy(&other, name).await);
        dropped.abort();
        until_waiting(&holder, name, 0).await;
        assert!(is_busy(&holder, name).await);
        outer.unlock().await.expect("it is held");
        gone_after(&server, Duration::ZERO, "the owners' holds").await;
    }
}

/// As B2. A writer that waits no longer lets the readers in whom it held up.
#[tokio::test]
async fn b2_a_reader_or_writer_that_is_dropped_leaves_the_queue_to_the_others() {
    let server = Server::start();
    let (holder, cancelling, other) =
        (connect(&server).await, connect(&server).await, connect(&server).await);
    for (holds, dropped, next) in
        [("write x", "read x", "write x"), ("write x", "write x", "read x"), ("read x", "write x", "write x")]
    {
        let guard = kinds::hold(&holder, holds).await.expect("it is free");
        let dropped = tokio::spawn(kinds::hold(&cancelling, dropped));
        until_waiting(&holder, "x", 1).await;
        let waiting = tokio::spawn(kinds::hold(&other, next));
        until_waiting(&holder, "x", 2).await;
        dropped.abort();
        until_waiting(&holder, "x", 1).await;
        guard.unlock().await.expect("it is held");
        let guard = soon_granted("the next in the queue", waiting).await;
        assert!(guard.is_held());
        drop(guard);
        gone_after(&server, Duration::ZERO, "the queue").await;
    }
    let reader = kinds::hold(&holder, "read x").await.expect("it is free");
    for polls in 1..4 {
        let mut writing = kinds::hold(&cancelling, "write x");
        assert!(soon("the polls", at_most(polls, &mut writing)).await.is_none(), "written while it is read");
        until_waiting(&holder, "x", 1).await;
        let reading = tokio::spawn(kinds::hold(&other, "read x"));
        until_waiting(&holder, "x", 2).await;
        drop(writing);
        let beside = soon_granted("the read behind the writer", reading).await;
        assert!(reader.is_held() && beside.is_held());
        beside.unlock().await.expect("it is held");
    }
    reader.unlock().await.expect("it is held");
    gone_after(&server, Duration::ZERO, "the reads").await;
}

/// Fails where `unlock` owns its command.
#[tokio::test]
async fn b3_an_unlock_that_is_dropped_after_any_poll_releases() {
    let server = Server::start();
    let client = connect(&server).await;
    for (role, polls) in roles().flat_map(|role| (0..4).map(move |polls| (role, polls))) {
        let guard = kinds::hold(&client, role).await.expect("it is free");
        drop(at_most(polls, guard.unlock()).await);
        gone_after(&server, Duration::ZERO, role).await;
    }
}

/// Fails where a release that is repeated counts as a loss because the first try has worked.
#[tokio::test]
async fn c2_a_release_whose_answer_is_lost_is_a_release() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = quick(&proxy.url()).command_timeout(Duration::from_millis(300)).connect().await;
    let client = client.expect("the server is there");
    for _ in 0..3 {
        let guard = take(&client, "x").await;
        proxy.swallow(Way::ToClient);
        assert_eq!(guard.unlock().await, Ok(()));
    }
    // What was lost before is still told, however often it is asked.
    let guard = take(&client, "x").await;
    server.connection().ok(&["DEL", "lw:{x}"]);
    proxy.swallow(Way::ToServer);
    let unlocked = guard.unlock().await;
    assert!(matches!(unlocked, Ok(()) | Err(UnlockError::Lost(_))), "{unlocked:?}");
    let guard = take(&client, "x").await;
    server.connection().ok(&["DEL", "lw:{x}"]);
    assert!(matches!(guard.unlock().await, Err(UnlockError::Lost(_))));
}

/// Fails where the local validity is lengthened before the answer, or the renewal is not carried through.
#[tokio::test]
async fn b4_an_extension_that_is_dropped_counts_as_the_shorter() {
    let server = Server::start();
    let lease = lockwright::Lease::renewed(Duration::from_secs(10));
    let client = quick(&server.url()).lease(lease).connect().await.expect("the server is there");
    for (role, polls) in roles().flat_map(|role| (0..4).map(move |polls| (role, polls))) {
        let guard = kinds::hold(&client, role).await.expect("it is free");
        let extended = at_most(polls, guard.extend(Duration::from_secs(60))).await;
        let left = guard.remaining();
        let at_server = server.connection().ok(&["PTTL", &format!("lw:{{{}}}", lock_of(role))]).int();
        // The guard never trusts more than the server gives.
        assert!(left <= Duration::from_millis(at_server.unsigned_abs()), "{left:?} of {at_server} ms");
        if extended.is_none() && polls == 0 {
            assert!(left < Duration::from_secs(10), "{left:?}");
        }
        guard.unlock().await.expect("it is held");
        gone_after(&server, Duration::ZERO, role).await;
    }
}

/// Fails where each drop costs a ticket that lives on: in the queue, in the books or in the server's memory.
#[tokio::test]
async fn b6_a_loop_that_waits_anew_each_time_floods_nothing() {
    let server = Server::start();
    let (holder, client) = (connect(&server).await, connect(&server).await);
    let guard = take(&holder, "x").await;
    let turns = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    let mut longest = 0;
    for turn in 0..turns {
        let mut lock = pin!(client.lock("x").lock());
        tokio::select! {
            biased;
            _ = lock.as_mut() => panic!("it is held"),
            () = tokio::task::yield_now() => {}
        }
        if turn % 1_000 == 0 {
            longest = longest.max(server.connection().ok(&["LLEN", "lw:{x}:queue"]).int());
        }
    }
    assert!(longest < 1_500, "{longest} entries");
    until_waiting(&holder, "x", 0).await;
    guard.unlock().await.expect("it is held");
    wait_for(&client, "x").await.unlock().await.expect("it is held");
    gone_after(&server, Duration::ZERO, "the queue").await;
    let kept: Client = client;
    assert!(format!("{kept:?}").contains("closed: false"));
}

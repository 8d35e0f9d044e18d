//! What is left of clients that close and of waits that are dropped: nothing.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join;
use futures_util::task::ArcWake;
use lockwright::{Lease, LockError, LossReason, Owner, PingError, UnlockError};

use super::*;

pub async fn closing_ends_waits_and_guards_and_frees<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let held = take(&one, "a").await;
    let lost = tokio::spawn(held.lost());
    let not_mine = take(&other, "b").await;
    let anonymous = tokio::spawn(one.lock("b").lock());
    let owned = tokio::spawn(one.lock("b").with_owner(&Owner::new()).try_lock_for(PATIENCE));
    until_waiting(&other, "b", 2).await;
    // Behind one of them inside the client.
    let behind = tokio::spawn(one.lock("b").lock());
    soon("the close", join(one.close(), one.close())).await;
    assert_eq!(soon("the news", lost).await.expect("no panic"), LossReason::Closed);
    assert!(!held.is_held());
    for wait in [anonymous, behind] {
        assert_eq!(soon("the end of the wait", wait).await.expect("no panic").err(), Some(LockError::Closed));
    }
    let outcome = soon("the end of the wait", owned).await.expect("no panic");
    assert_eq!(outcome.err(), Some(LockError::Closed));
    assert_eq!(held.unlock().await, Err(UnlockError::Lost(LossReason::Closed)));
    // All that was to be sent was sent before the close returned.
    assert!(is_free(&info(&other, "a").await));
    assert_eq!(info(&other, "b").await.waiting_count, 0);
    assert!(not_mine.is_held());
}

pub async fn closing_gives_back_what_has_run_out<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let lock = one.lock("a").with_lease(Lease::renewed(PATIENCE * 3));
    let held = lock.with_max_hold(Duration::from_millis(20)).lock().await.expect("it is free");
    assert_eq!(soon("the end", held.lost()).await, LossReason::Expired);
    // Whoever guards it may still be at work.
    assert!(!is_free(&info(&other, "a").await));
    soon("the close", one.close()).await;
    assert!(is_free(&info(&other, "a").await));
    assert_eq!(held.unlock().await, Err(UnlockError::Lost(LossReason::Expired)));
}

pub async fn a_closed_client_does_nothing_more<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let lock = one.lock("a");
    one.clone().close().await;
    assert_eq!(lock.lock().await.err(), Some(LockError::Closed));
    assert_eq!(lock.try_lock().await.err(), Some(LockError::Closed));
    assert_eq!(lock.try_lock_for(PATIENCE).await.err(), Some(LockError::Closed));
    assert_eq!(one.lock("b").lock().await.err(), Some(LockError::Closed));
    assert_eq!(one.ping().await, Err(PingError::Closed));
    assert_eq!(one.inspect("a").await.err(), Some(LockError::Closed));
    assert_eq!(one.force_release("a", 1).await, Err(LockError::Closed));
    soon("the second close", one.close()).await;
    assert!(is_free(&info(&other, "a").await));
}

pub async fn the_last_handle_closes<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = take(&one, "a").await;
    let lost = guard.lost();
    let lock = one.lock("b");
    drop((one, guard));
    // The handle is enough to go on.
    soon("the lock", lock.lock()).await.expect("it is granted").unlock().await.expect("it is held");
    drop(lock);
    // Whoever watches a hold that was released is never told that it was lost.
    assert_eq!(lost.now_or_never(), None);
    until_free(&other, "a").await;
}

pub async fn a_guard_keeps_its_client_alive<D: Deployment>(on: &D) {
    let other = on.client().await;
    let guard = {
        let client = on.client().await;
        let lease = lockwright::Lease::renewed(Duration::from_millis(900));
        client.lock("a").with_lease(lease).lock().await.expect("it is granted")
    };
    // The passing of time is the subject: three leases.
    pass(Duration::from_millis(2_700)).await;
    assert!(guard.is_held() && is_busy(&other, "a").await);
    let waiting = tokio::spawn({
        let client = on.client().await;
        let wait = client.lock("a").lock();
        async move { wait.await.expect("a wait keeps its client alive too") }
    });
    until_waiting(&other, "a", 1).await;
    guard.unlock().await.expect("it is held");
    assert!(soon("the lock", waiting).await.expect("no panic").is_held());
}

pub async fn a_wait_that_is_dropped_leaves_nothing<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = take(&one, "a").await;
    let lock = other.lock("a");
    // Never polled, polled once, and waiting at the server; with and without an owner, with and without a limit.
    for lock in [lock.clone(), lock.with_owner(&Owner::new())] {
        drop(lock.lock());
        drop(lock.try_lock());
        assert!(lock.lock().now_or_never().is_none());
        // Its answer may be there at once.
        assert!(lock.try_lock().now_or_never().is_none_or(|answer| matches!(answer, Ok(None))));
        assert!(lock.try_lock_for(PATIENCE).now_or_never().is_none());
        let waiting = tokio::spawn(lock.lock());
        let limited = tokio::spawn(lock.try_lock_for(PATIENCE));
        until_waiting(&one, "a", 1).await;
        waiting.abort();
        limited.abort();
        until_waiting(&one, "a", 0).await;
    }
    let info = info(&one, "a").await;
    assert_eq!((info.holds.len(), info.token), (1, Some(guard.token())));
    guard.unlock().await.expect("it is held");
    assert!(is_free(&super::info(&one, "a").await));
}

pub async fn a_wait_that_is_dropped_while_it_is_granted_leaves_nothing<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    for round in 0..60 {
        let guard = wait_for(&one, "a").await;
        let woken = Arc::new(Woken::default());
        {
            let mut waiting = pin!(other.lock("a").lock());
            let waker = futures_util::task::waker(woken.clone());
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            if round % 3 > 0 {
                until_waiting(&one, "a", 1).await;
            }
            drop(guard);
            if round % 3 == 2 {
                // Granted to it, and never seen.
                until("the grant", async || woken.0.load(Ordering::SeqCst)).await;
            } else {
                // The hand-over is under way, here or there.
                for _ in 0..round {
                    tokio::task::yield_now().await;
                }
            }
        }
        // What was granted unseen comes back at once, not at the end of a claim or at a poll.
        let (took, next) = timed("the lock", wait_for(&one, "a")).await;
        assert!(took < BY_MESSAGE, "{took:?} in round {round}");
        next.unlock().await.expect("it is held");
    }
    until_free(&one, "a").await;
}

#[derive(Default)]
struct Woken(AtomicBool);

impl ArcWake for Woken {
    fn wake_by_ref(woken: &Arc<Self>) {
        woken.0.store(true, Ordering::SeqCst);
    }
}

pub async fn a_ping_is_answered<D: Deployment>(on: &D) {
    let client = on.client().await;
    let (took, round_trip) = timed("the answer", client.ping()).await;
    let round_trip = round_trip.expect("the server is there");
    assert!(round_trip <= took, "{round_trip:?} within {took:?}");
}

//! How long a hold lasts. The passing of time is the subject here, so leases are as long as a busy machine may stand
//! still for, and bounds from above leave it as much again.

use std::time::Duration;

use lockwright::{ExtendError, InvalidLease, Lease, LockError, LossReason, UnlockError};

use super::*;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn take_with(client: &Client, lease: Lease) -> Guard {
    let lock = client.lock("a").with_lease(lease);
    lock.try_lock().await.expect("the server answers").expect("the lock is free")
}

pub async fn invalid_leases_are_told<D: Deployment>(on: &D) {
    let client = on.client().await;
    let short = Duration::from_nanos(99_999_999);
    let long = Lease::LONGEST + Duration::from_nanos(1);
    for (lease, wanted) in [
        (Lease::renewed(short), InvalidLease::TooShort { length: short }),
        (Lease::fixed(Duration::ZERO), InvalidLease::TooShort { length: Duration::ZERO }),
        (Lease::renewed(long), InvalidLease::TooLong { length: long }),
        (Lease::fixed(Duration::MAX), InvalidLease::TooLong { length: Duration::MAX }),
    ] {
        let lock = client.lock("a").with_lease(lease);
        assert_eq!(lock.try_lock().await.err(), Some(LockError::InvalidLease(wanted.clone())));
        assert_eq!(lock.lock().await.err(), Some(LockError::InvalidLease(wanted)));
    }
    for lease in [Lease::renewed(Lease::SHORTEST), Lease::fixed(Lease::LONGEST)] {
        drop(take_with(&client, lease).await);
        until_free(&client, "a").await;
    }
}

pub async fn a_lease_shorter_than_the_work_is_renewed<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = take_with(&one, Lease::renewed(millis(900))).await;
    let token = guard.token();
    let work = pass(Duration::from_secs(4));
    tokio::pin!(work);
    let mut looks = 0;
    loop {
        tokio::select! {
            biased;
            () = &mut work => break,
            busy = is_busy(&other, "a") => assert!(busy, "the lock was free after {looks} looks"),
        }
        assert!(guard.is_held() && guard.remaining() <= millis(900));
        looks += 1;
        pass(millis(10)).await;
    }
    assert!(looks > 20, "only {looks} looks");
    assert_eq!((guard.token(), guard.unlock().await), (token, Ok(())));
}

/// Watches a hold until it is lost. Never, at any look, may it be trusted for longer than `length` from its grant on.
async fn watch(guard: &Guard, length: Duration) -> LossReason {
    let clock = Clock::boot();
    let granted = clock.now();
    // On its own task, so that nothing but its own waker has it polled.
    let lost = tokio::spawn(guard.lost());
    until("the end of the hold", async || {
        // In this order a pause in between is no fault.
        let now = clock.now();
        let end = now.since(granted) + guard.remaining();
        assert!(!guard.is_held() || end <= length, "it is to last until {end:?}");
        lost.is_finished()
    })
    .await;
    lost.await.expect("no panic")
}

pub async fn a_fixed_lease_ends_and_tells<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let length = millis(1_000);
    let (took, (guard, reason)) = timed("the end of the lease", async {
        let guard = take_with(&one, Lease::fixed(length)).await;
        let reason = watch(&guard, length).await;
        (guard, reason)
    })
    .await;
    assert_eq!(reason, LossReason::Expired);
    assert!(took > length / 2 && took < length + millis(2_000), "{took:?}");
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert_eq!(guard.lost().await, LossReason::Expired);
    // The guard is still there, and nothing renews for it.
    let next = wait_for(&other, "a").await;
    assert!(next.token() > guard.token());
    assert_eq!(guard.unlock().await, Err(UnlockError::Lost(LossReason::Expired)));
    assert!(next.is_held() && is_busy(&one, "a").await);
}

pub async fn a_fixed_lease_after_a_hand_over_ends_in_time<D: Deployment>(on: &D) {
    // The claim is much shorter than the lease: one renewal confirms it, and no other follows.
    let short_claim = |builder: ClientBuilder| builder.claim(millis(900));
    let (one, other) = (on.client_with(short_claim).await, on.client_with(short_claim).await);
    let before = take(&one, "a").await;
    let length = millis(3_000);
    let waiting = tokio::spawn(other.lock("a").with_lease(Lease::fixed(length)).lock());
    until_waiting(&one, "a", 1).await;
    let (took, reason) = timed("the end of the lease", async {
        before.unlock().await.expect("it is held");
        let guard = waiting.await.expect("no panic").expect("it is granted");
        watch(&guard, length).await
    })
    .await;
    assert_eq!(reason, LossReason::Expired);
    // Longer than the claim, so it was confirmed.
    assert!(took > length / 2 && took < length + millis(2_000), "{took:?}");
}

/// Fails where the next renewal is set by the lease and not by what is left of it: the claim would end first.
pub async fn a_short_extension_costs_no_hold<D: Deployment>(on: &D) {
    let short_claim = |builder: ClientBuilder| builder.claim(millis(900));
    let (one, other) = (on.client_with(short_claim).await, on.client_with(short_claim).await);
    let before = take(&one, "a").await;
    let waiting = tokio::spawn(other.lock("a").lock());
    until_waiting(&one, "a", 1).await;
    before.unlock().await.expect("it is held");
    let guard = soon_granted("the lock", waiting).await;
    assert_eq!(guard.extend(millis(200)).await, Ok(()));
    // Two claims.
    pass(millis(1_800)).await;
    assert!(guard.is_held());
    assert_eq!(guard.unlock().await, Ok(()));
}

pub async fn extending_moves_the_end<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = take_with(&one, Lease::fixed(millis(1_000))).await;
    assert_eq!(guard.extend(Duration::from_secs(60)).await, Ok(()));
    let left = guard.remaining();
    assert!(left > Duration::from_secs(40) && left <= Duration::from_secs(60), "{left:?}");
    // Twice the lease that it had.
    pass(millis(2_000)).await;
    assert!(guard.is_held() && is_busy(&other, "a").await);
    let short = Duration::from_millis(99);
    let error = ExtendError::InvalidLease(InvalidLease::TooShort { length: short });
    assert_eq!(guard.extend(short).await, Err(error));
    assert_eq!(guard.unlock().await, Ok(()));

    let guard = take_with(&one, Lease::fixed(millis(150))).await;
    soon("the end of the lease", guard.lost()).await;
    assert_eq!(guard.extend(Duration::from_secs(60)).await, Err(ExtendError::Lost(LossReason::Expired)));
    assert!(!guard.is_held());
}

pub async fn extending_never_shortens<D: Deployment>(on: &D) {
    let client = on.client().await;
    for lease in [Lease::fixed(Duration::from_secs(60)), Lease::renewed(Duration::from_secs(60))] {
        let guard = take_with(&client, lease).await;
        assert_eq!(guard.extend(millis(200)).await, Ok(()));
        assert!(guard.remaining() > Duration::from_secs(30), "{lease:?}: {:?}", guard.remaining());
        // Longer than the length that was asked for.
        pass(millis(400)).await;
        assert!(guard.is_held());
        guard.unlock().await.expect("it is held");
    }
}

pub async fn what_is_left_becomes_less<D: Deployment>(on: &D) {
    let client = on.client().await;
    let guard = take_with(&client, Lease::fixed(Duration::from_secs(60))).await;
    let first = guard.remaining();
    // The lease less 1 % and 10 ms, at most.
    assert!(first <= millis(59_390) && first > Duration::from_secs(40), "{first:?}");
    pass(millis(50)).await;
    let then = guard.remaining();
    assert!(then <= first - millis(50), "{then:?} after {first:?}");
}

pub async fn a_longest_hold_is_of_some_length<D: Deployment>(on: &D) {
    let client = on.client().await;
    let lock = client.lock("a").with_max_hold(Duration::ZERO);
    assert_eq!(lock.lock().await.err(), Some(LockError::InvalidMaxHold));
    assert_eq!(lock.try_lock().await.err(), Some(LockError::InvalidMaxHold));
    let guard = soon("the lock", client.lock("a").with_max_hold(Duration::from_nanos(1)).lock()).await;
    assert_eq!(soon("the end", guard.expect("it is granted").lost()).await, LossReason::Expired);
    let guard = soon("the lock", client.lock("a").with_max_hold(Duration::MAX).lock()).await;
    guard.expect("it is granted").unlock().await.expect("it is held");
}

pub async fn a_longest_hold_ends_the_guard<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let limit = millis(2_500);
    let lock = one.lock("a").with_lease(Lease::renewed(millis(900))).with_max_hold(limit);
    let (took, (guard, reason)) = timed("the end of the hold", async {
        let guard = soon("the lock", lock.lock()).await.expect("it is granted");
        let reason = watch(&guard, limit).await;
        (guard, reason)
    })
    .await;
    assert_eq!(reason, LossReason::Expired);
    // It outlived its lease, so it was renewed.
    assert!(took > millis(2_400) && took < millis(4_500), "{took:?}");
    assert!(!guard.is_held());
    // Though the guard is still there, the lock comes free.
    let next = wait_for(&other, "a").await;
    assert!(next.token() > guard.token());
    let guard =
        soon("the lock", one.lock("b").with_max_hold(millis(2_000)).lock()).await.expect("it is granted");
    match guard.extend(Duration::from_secs(60)).await {
        Err(ExtendError::MaxHold { left }) => assert!(left <= millis(2_000), "{left:?}"),
        other => panic!("{other:?}"),
    }
}

//! Who may enter again.

use std::time::Duration;

use futures_util::poll;
use lockwright::{InOwner, Lease, Owner, ReentrantLock};

use super::*;

/// How long a wait goes on that is to find the lock held.
const A_WHILE: Duration = Duration::from_millis(500);

async fn enter(lock: &ReentrantLock) -> Guard {
    soon("the lock", lock.lock()).await.expect("it is granted")
}

async fn is_kept_from(lock: &ReentrantLock) -> bool {
    let at_once = lock.try_lock().await.expect("the server answers");
    at_once.is_none() && lock.try_lock_for(A_WHILE).await.expect("the server answers").is_none()
}

pub async fn an_owner_enters_again<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let lock = one.lock("a").with_owner(&Owner::new());
    let outer = enter(&lock).await;
    let inner = lock.try_lock().await.expect("the server answers").expect("the owner enters");
    let innermost = enter(&lock).await;
    assert_eq!((inner.token(), innermost.token()), (outer.token(), outer.token()));
    // In any order; the lock is free when the last one is gone.
    outer.unlock().await.expect("it is held");
    assert!(inner.is_held() && is_busy(&other, "a").await);
    drop(innermost);
    assert!(inner.is_held() && is_busy(&other, "a").await);
    inner.unlock().await.expect("it is held");
    assert!(take(&other, "a").await.is_held());
}

pub async fn an_owner_enters_again_from_another_client<D: Deployment>(on: &D) {
    let (one, other, third) = (on.client().await, on.client().await, on.client().await);
    let owner = Owner::new();
    let outer = enter(&one.lock("a").with_owner(&owner)).await;
    // As it travels in a request.
    let sent = serde_json::to_string(&owner).expect("an owner is data");
    let received: Owner = serde_json::from_str(&sent).expect("it reads back");
    let lock = other.lock("a").with_owner(&received);
    let inner = lock.try_lock().await.expect("the server answers").expect("the owner enters");
    assert_eq!(inner.token(), outer.token());
    assert!(is_busy(&third, "a").await);
    // Each client has a hold of its own: either may leave first.
    outer.unlock().await.expect("it is held");
    assert!(inner.is_held() && is_busy(&third, "a").await && is_busy(&one, "a").await);
    let outer = enter(&one.lock("a").with_owner(&owner)).await;
    assert_eq!(inner.token(), outer.token());
    inner.unlock().await.expect("it is held");
    assert!(outer.is_held() && is_busy(&third, "a").await);
    outer.unlock().await.expect("it is held");
    assert!(take(&third, "a").await.is_held());
}

pub async fn an_owner_is_let_in_past_waiters<D: Deployment>(on: &D) {
    let (one, other, third) = (on.client().await, on.client().await, on.client().await);
    let owner = Owner::new();
    let outer = enter(&one.lock("a").with_owner(&owner)).await;
    let waiting = tokio::spawn(third.lock("a").lock());
    until_waiting(&one, "a", 1).await;
    // Behind the waiter it would wait for itself.
    let inner = enter(&other.lock("a").with_owner(&owner)).await;
    assert_eq!(inner.token(), outer.token());
    assert!(!waiting.is_finished());
    drop((inner, outer));
    assert!(soon_granted("the lock", waiting).await.is_held());
}

pub async fn a_scope_gives_its_owner<D: Deployment>(on: &D) {
    let client = on.client().await;
    let lock = client.lock("a");
    let owner = Owner::new();
    let outer = enter(&lock.clone().with_owner(&owner)).await;
    let (inner, future, ran) = async {
        // A task is not part of the scope that spawned it.
        let spawned = tokio::spawn({
            let lock = lock.clone();
            async move { is_kept_from(&lock).await }
        });
        assert!(soon("the task", spawned).await.expect("no panic"));
        let ran = lock.run(async |guard: &lockwright::Guard| guard.token());
        (enter(&lock).await, lock.lock(), ran)
    }
    .in_owner(&owner)
    .await;
    assert_eq!(inner.token(), outer.token());
    // The owner is that of the call, wherever the future is awaited.
    let later = soon("the lock", future).await.expect("it is granted");
    assert_eq!(later.token(), outer.token());
    assert_eq!(soon("its end", ran).await, Ok(outer.token()));
    assert!(is_kept_from(&lock).await);
    assert!(owner.scope(async { lock.try_lock().await.is_ok_and(|guard| guard.is_some()) }).await);
}

pub async fn a_handles_own_owner_comes_first<D: Deployment>(on: &D) {
    let client = on.client().await;
    let (owner, scope) = (Owner::new(), Owner::new());
    let lock = client.lock("a").with_owner(&owner);
    let _outer = enter(&lock).await;
    scope
        .scope(async {
            assert!(enter(&lock).await.is_held());
            assert!(is_kept_from(&client.lock("a")).await);
        })
        .await;
}

pub async fn other_owners_wait<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = enter(&one.lock("a").with_owner(&Owner::new())).await;
    for client in [&one, &other] {
        let lock = client.lock("a").with_owner(&Owner::new());
        assert!(is_kept_from(&lock).await);
        assert!(is_kept_from(&client.lock("a")).await);
    }
    let lock = other.lock("a").with_owner(&Owner::new());
    let waiting = tokio::spawn(lock.lock());
    until_waiting(&one, "a", 1).await;
    let token = guard.token();
    drop(guard);
    let guard = soon_granted("the lock", waiting).await;
    assert!(guard.token() > token);
}

pub async fn without_an_owner_nobody_enters_again<D: Deployment>(on: &D) {
    let client = on.client().await;
    let lock = client.lock("a");
    let guard = enter(&lock).await;
    // In the same task, by the same handle.
    assert!(is_kept_from(&lock).await);
    drop(guard);
    assert!(enter(&lock).await.is_held());
}

/// Waits of an owner with one lease and one label share a ticket. One that wants another keeps its own place, whoever
/// gives up, and has what it wants.
pub async fn a_waiter_that_leaves_takes_its_wishes_with_it<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let held = take(&other, "a").await;
    let lock = one.lock("a").with_owner(&Owner::new());
    let seconds = Duration::from_secs;
    let waits_as = async |label: &str| {
        until(label, async || {
            let waiting = info(&other, "a").await.waiting;
            waiting.last().is_some_and(|last| last.label.as_deref() == Some(label))
        })
        .await;
    };
    let mut first =
        Box::pin(lock.clone().with_lease(Lease::renewed(seconds(600))).with_label("first").lock());
    assert!(poll!(&mut first).is_pending());
    waits_as("first").await;
    let lock = lock.with_lease(Lease::renewed(seconds(60))).with_label("second");
    let mut second = Box::pin(lock.clone().with_max_hold(seconds(30)).lock());
    assert!(poll!(&mut second).is_pending());
    let mut third = Box::pin(lock.with_max_hold(seconds(20)).lock());
    assert!(poll!(&mut third).is_pending());
    waits_as("second").await;
    let late = on.client().await.lock("a").lock();
    let late = tokio::spawn(late);
    until_waiting(&other, "a", 3).await;
    drop((first, second));
    until_waiting(&other, "a", 2).await;
    held.unlock().await.expect("it is held");
    let guard = soon("the lock", third).await.expect("it is granted");
    assert!(guard.remaining() <= seconds(20), "{:?}", guard.remaining());
    let holds = info(&other, "a").await.holds;
    assert_eq!(holds.len(), 1);
    assert_eq!(holds[0].label.as_deref(), Some("second"));
    assert!(holds[0].left_millis <= 60_000, "{holds:?}");
    assert!(!late.is_finished(), "the place was lost");
    guard.unlock().await.expect("it is held");
    drop(soon_granted("the lock", late).await);
}

/// Its waits may have tickets of their own, and any of them may come first.
pub async fn an_owner_that_is_inside_enters_again_whichever_ticket_it_has<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let held = take(&other, "a").await;
    let lock = one.lock("a").with_owner(&Owner::new());
    let seconds = Duration::from_secs;
    let [a, b] = [60, 50].map(|lease| lock.clone().with_lease(Lease::renewed(seconds(lease))));
    // The first of them is not queued; another wait joins its ticket, which then comes behind the second one.
    let (mut tried, mut first) = (Box::pin(a.try_lock()), Box::pin(b.lock()));
    let _ = poll!(&mut tried);
    assert!(poll!(&mut first).is_pending());
    until_waiting(&other, "a", 1).await;
    let second = tokio::spawn(a.lock());
    until_waiting(&other, "a", 2).await;
    held.unlock().await.expect("it is held");
    let guard = soon("the lock", first).await.expect("it is granted");
    for lock in [&a, &b] {
        drop(
            soon("an answer", lock.try_lock())
                .await
                .expect("there is a server")
                .expect("its owner is inside"),
        );
    }
    drop((guard, soon_granted("the lock", second).await, tried));
    until_free(&other, "a").await;
}

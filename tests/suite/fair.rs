//! The fair lock: order, and places that can be seen.

use futures_util::future::join_all;
use lockwright::{Client, Guard, LockError, Owner, Place, Step};
use tokio::sync::mpsc;

use super::*;

async fn take_fair(client: &Client) -> Guard {
    client.fair_lock("a").try_lock().await.expect("the server answers").expect("the lock is free")
}

async fn granted(place: &mut Place) -> Guard {
    loop {
        if let Step::Granted(guard) = soon("the lock", place.next()).await.expect("it is granted") {
            return guard;
        }
    }
}

/// Fails where a client passes a hold on among its own waiters: the other client's turns would come last.
pub async fn turns_follow_the_order_of_asking_across_clients<D: Deployment>(on: &D) {
    let clients = [on.client().await, on.client().await, on.client().await];
    let guard = take_fair(&clients[0]).await;
    let (entered, mut order) = mpsc::unbounded_channel();
    for number in 0..30 {
        let (lock, entered) = (clients[number % 3].fair_lock("a"), entered.clone());
        tokio::spawn(async move {
            let guard = lock.lock().await.expect("it is granted");
            entered.send((number, guard.token())).expect("the case listens");
            guard.unlock().await.expect("it is held");
        });
        until_waiting(&clients[0], "a", number as u64 + 1).await;
    }
    guard.unlock().await.expect("it is held");
    drop(entered);
    let mut served = Vec::new();
    while let Some(turn) = soon("all of them", order.recv()).await {
        served.push(turn);
    }
    let numbers: Vec<usize> = served.iter().map(|&(number, _)| number).collect();
    assert_eq!(numbers, (0..30).collect::<Vec<_>>());
    assert!(served.windows(2).all(|turns| turns[0].1 < turns[1].1), "{served:?}");
}

pub async fn waiters_that_leave_do_not_hold_up_the_others<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    let guard = take_fair(&one).await;
    let mut waiting: Vec<_> = (0..20).map(|_| Box::pin(other.fair_lock("a").lock())).collect();
    for (count, future) in waiting.iter_mut().enumerate() {
        assert!(futures_util::poll!(future).is_pending());
        until_waiting(&one, "a", count as u64 + 1).await;
    }
    let last = waiting.pop().expect("twenty of them");
    drop(waiting);
    let (took, guard) = timed("the lock", async {
        guard.unlock().await.expect("it is held");
        last.await.expect("it is granted")
    })
    .await;
    assert!(took < BY_MESSAGE, "{took:?}");
    drop(guard);
    until_free(&one, "a").await;
}

pub async fn an_owner_enters_its_fair_lock_again<D: Deployment>(on: &D) {
    let (here, there) = (on.client().await, on.client().await);
    let owner = Owner::new();
    let outer = here.fair_lock("a").with_owner(&owner).lock().await.expect("it is free");
    let waiting = tokio::spawn(there.fair_lock("a").lock());
    until_waiting(&here, "a", 1).await;
    let inner = soon("the lock", here.fair_lock("a").with_owner(&owner).lock()).await.expect("it is ours");
    let remote = soon("the lock", there.fair_lock("a").with_owner(&owner).lock()).await.expect("it is ours");
    assert_eq!([inner.token(), remote.token()], [outer.token(); 2]);
    drop((outer, inner, remote));
    let next = soon_granted("the lock", waiting).await;
    next.unlock().await.expect("it is held");
}

/// The kinds do not mix: neither touches what the other one has.
pub async fn one_name_is_one_kind<D: Deployment>(on: &D) {
    let client = on.client().await;
    let fair = take_fair(&client).await;
    let waiting = tokio::spawn(client.fair_lock("a").lock());
    until_waiting(&client, "a", 1).await;
    let before = info(&client, "a").await;
    let mismatch = |found: &str| LockError::KindMismatch { found: found.to_owned() };
    assert_eq!(client.lock("a").try_lock().await.unwrap_err(), mismatch("fair"));
    assert_eq!(soon("an answer", client.lock("a").lock()).await.unwrap_err(), mismatch("fair"));
    let after = info(&client, "a").await;
    assert_eq!((after.holds.len(), &after.waiting[0].ticket), (1, &before.waiting[0].ticket));
    fair.unlock().await.expect("it is held");
    soon_granted("the lock", waiting).await.unlock().await.expect("it is held");
    let reentrant = take(&client, "a").await;
    assert_eq!(client.fair_lock("a").try_lock().await.unwrap_err(), mismatch("reentrant"));
    reentrant.unlock().await.expect("it is held");
}

pub async fn a_place_at_a_free_lock_is_granted_at_once<D: Deployment>(on: &D) {
    let client = on.client().await;
    let mut place = soon("a place", client.fair_lock("a").queue()).await.expect("the server answers");
    assert_eq!(place.position().ahead(), 0);
    let guard = granted(&mut place).await;
    assert!(guard.is_held());
    drop(place);
    guard.unlock().await.expect("a spent place takes nothing along");
}

pub async fn places_move_forward_and_are_granted<D: Deployment>(on: &D) {
    let quick = |builder: ClientBuilder| builder.claim(Duration::from_millis(400));
    let (one, other) = (on.client_with(quick).await, on.client_with(quick).await);
    let guard = take_fair(&one).await;
    let mut places = Vec::new();
    for count in 0..5 {
        let place = soon("a place", other.fair_lock("a").queue()).await.expect("the server answers");
        assert_eq!(place.position().ahead(), count);
        places.push(place);
    }
    // Those in front of the last leave: it hears of it by the polls of its client.
    let mut last = places.pop().expect("five of them");
    let mut second = places.remove(1);
    drop(places);
    let mut seen = last.position();
    while seen.ahead() > 1 {
        match soon("a step", last.next()).await.expect("the server answers") {
            Step::Moved(position) => {
                assert!(position < seen, "{position} after {seen}");
                seen = position;
            }
            Step::Granted(guard) => panic!("{guard:?} while the lock is held"),
        }
    }
    guard.unlock().await.expect("it is held");
    let guard = granted(&mut second).await;
    assert!(futures_util::poll!(std::pin::pin!(last.next())).is_pending() || last.position().ahead() == 0);
    guard.unlock().await.expect("it is held");
    granted(&mut last).await.unlock().await.expect("it is held");
}

pub async fn a_place_that_is_dropped_is_given_up<D: Deployment>(on: &D) {
    let client = on.client().await;
    let guard = take_fair(&client).await;
    let place = soon("a place", client.fair_lock("a").queue()).await.expect("the server answers");
    until_waiting(&client, "a", 1).await;
    drop(place);
    until_waiting(&client, "a", 0).await;
    guard.unlock().await.expect("it is held");
}

/// `next` is cancel safe: a step that is dropped loses neither the place nor the grant.
pub async fn a_step_that_is_dropped_loses_nothing<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = take_fair(&one).await;
    let mut place = soon("a place", other.fair_lock("a").queue()).await.expect("the server answers");
    for _ in 0..3 {
        assert!(futures_util::poll!(std::pin::pin!(place.next())).is_pending());
    }
    guard.unlock().await.expect("it is held");
    until("the grant", async || info(&one, "a").await.waiting_count == 0).await;
    let guard = granted(&mut place).await;
    assert!(guard.is_held());
}

pub async fn places_end_with_their_client<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = take_fair(&one).await;
    let mut place = soon("a place", other.fair_lock("a").queue()).await.expect("the server answers");
    other.close().await;
    assert_eq!(soon("an answer", place.next()).await.unwrap_err(), LockError::Closed);
    until_waiting(&one, "a", 0).await;
    drop(guard);
}

pub async fn a_hundred_tasks_take_turns<D: Deployment>(on: &D) {
    let clients = [on.client().await, on.client().await, on.client().await, on.client().await];
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let tasks = (0..100).map(|number| {
        let (lock, inside) = (clients[number % 4].fair_lock("a"), inside.clone());
        tokio::spawn(async move {
            for _ in 0..5 {
                let guard = lock.lock().await.expect("it is granted");
                let before = inside.swap(guard.token(), std::sync::atomic::Ordering::SeqCst);
                assert!(before < guard.token(), "{before} before {}", guard.token());
                tokio::task::yield_now().await;
                let still = inside.load(std::sync::atomic::Ordering::SeqCst);
                assert_eq!(still, guard.token(), "two are inside");
                guard.unlock().await.expect("it is held");
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("no panic");
    }
}

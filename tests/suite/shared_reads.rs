//! Readers of one client share one hold, which a cached one keeps until somebody writes.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockwright::{Lease, LossReason, Owner, RwLock, UnlockError};

use super::read_write::{keeps_readers_out, keeps_writers_out, read, wait_to_read, wait_to_write, write};
use super::*;

async fn holds(client: &Client) -> usize {
    info(client, "a").await.holds.len()
}

pub async fn readers_of_one_client_share_one_hold<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let lock = one.rw_lock("a");
    let readers = join_all((0..10).map(|_| lock.read())).await;
    assert_eq!(holds(&other).await, 1);
    let there = read(&other.rw_lock("a")).await;
    assert_eq!(holds(&other).await, 2);
    // The last one out gives it back, whoever that is.
    for reader in readers {
        let reader = reader.expect("it is granted");
        assert!(reader.is_held());
        reader.unlock().await.expect("it is held");
    }
    assert_eq!(holds(&other).await, 1);
    there.unlock().await.expect("it is held");
    assert!(is_free(&info(&other, "a").await));
    // What could end one of them alone is not shared.
    let mut apart = vec![read(&lock).await];
    for lock in [
        lock.clone().with_lease(Lease::renewed(Duration::from_secs(20))),
        lock.clone().with_lease(Lease::fixed(Duration::from_secs(30))),
        lock.clone().with_max_hold(Duration::from_secs(30)),
        lock.clone().with_label("apart"),
        lock.with_owner(&Owner::new()),
    ] {
        apart.push(read(&lock).await);
        assert_eq!(holds(&other).await, apart.len());
    }
}

pub async fn a_read_beside_others_is_done_at_its_first_poll<D: Deployment>(on: &D) {
    let client = on.client().await;
    let lock = client.rw_lock("a");
    assert!(lock.try_read_cached().is_none());
    let reader = wait_to_read(&lock).await;
    // By the same handle, by a clone, by one that has never read; awaited, tried, and without a runtime.
    for lock in [lock.clone(), lock, client.rw_lock("a"), client.rw_lock("a").cached()] {
        let beside = lock.read().now_or_never().expect("it does not wait").expect("it is granted");
        let tried = lock.try_read().now_or_never().expect("it does not wait").expect("the client is open");
        let limited = lock.try_read_for(PATIENCE).now_or_never().expect("it does not wait");
        let cached = lock.try_read_cached().expect("it is there");
        let elsewhere = std::thread::spawn({
            let lock = lock.clone();
            move || lock.try_read_cached()
        });
        assert!(elsewhere.join().expect("no panic outside a runtime").is_some());
        assert_eq!([beside.version(), cached.version()], [reader.version(); 2]);
        assert!(tried.is_some() && limited.expect("the client is open").is_some());
    }
    drop(reader);
}

/// Readers that come and go so that there is always one inside.
struct Crowd {
    tasks: Vec<tokio::task::JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

impl Crowd {
    fn gather(lock: &RwLock) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let tasks = (0..16)
            .map(|_| {
                let (lock, over) = (lock.clone(), over.clone());
                tokio::spawn(async move {
                    while !over.load(Ordering::SeqCst) {
                        let reader = lock.read().await.expect("it is granted");
                        tokio::task::yield_now().await;
                        drop(reader);
                    }
                })
            })
            .collect();
        Self { tasks, over }
    }

    async fn disperse(self) {
        self.over.store(true, Ordering::SeqCst);
        for task in soon("their end", join_all(self.tasks)).await {
            task.expect("no panic");
        }
    }
}

/// By message: a poll of the writer would come too late.
pub async fn a_crowd_of_readers_does_not_hold_up_a_writer<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    let third = on.client_with(slow_to_poll).await;
    for lock in [one.rw_lock("a"), one.rw_lock("a").cached()] {
        let crowds = [Crowd::gather(&lock), Crowd::gather(&third.rw_lock("a"))];
        let mut last = 0;
        for _ in 0..20 {
            let (took, writer) = timed("the write", wait_to_write(&other.rw_lock("a"))).await;
            assert!(took < BY_MESSAGE, "{took:?}");
            assert!(writer.token() > last);
            last = writer.token();
            writer.unlock().await.expect("it is held");
        }
        for crowd in crowds {
            crowd.disperse().await;
        }
        drop(wait_to_write(&other.rw_lock("a")).await);
    }
}

pub async fn readers_that_come_behind_a_writer_wait_for_it<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    let lock = one.rw_lock("a");
    let first = read(&lock).await;
    let writer = tokio::spawn(other.rw_lock("a").write());
    // Asked back: nobody is let in any more, though the hold is there.
    until("the message", async || lock.try_read_cached().is_none()).await;
    assert!(first.is_held() && keeps_readers_out(&lock).await);
    let behind: Vec<_> = (0..3).map(|_| tokio::spawn(lock.read())).collect();
    until_waiting(&one, "a", 2).await;
    let version = first.version();
    let (took, writer) = timed("the write", async {
        drop(first);
        writer.await.expect("no panic").expect("it is granted")
    })
    .await;
    assert!(took < BY_MESSAGE, "{took:?}");
    assert!(behind.iter().all(|reader| !reader.is_finished()));
    let token = writer.token();
    writer.unlock().await.expect("it is held");
    for reader in behind {
        let reader = soon_granted("the read", reader).await;
        assert!(version < token && token < reader.version());
    }
}

/// A message that is lost costs one poll of the writer, whatever the readers do.
pub async fn a_read_that_was_not_asked_back_is_asked_for_again<D: Deployment>(on: &D) {
    let (one, other) =
        (on.client().await, on.client_with(|builder| builder.claim(Duration::from_secs(1))).await);
    let reader = read(&one.rw_lock("a")).await;
    let waiting = tokio::spawn(other.rw_lock("a").write());
    until_waiting(&one, "a", 1).await;
    until("the message", async || one.rw_lock("a").try_read_cached().is_none()).await;
    drop(reader);
    soon_granted("the write", waiting).await.unlock().await.expect("it is held");
}

pub async fn a_cached_read_stays_until_somebody_writes<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    let (plain, cached) = (one.rw_lock("a"), one.rw_lock("a").cached());
    let reader = read(&cached).await;
    let stamp = reader.stamp();
    reader.unlock().await.expect("it is held");
    // Everybody in the client shares it.
    for lock in [&cached, &plain, &one.rw_lock("a"), &one.rw_lock("a").cached()] {
        let reader = lock.read().now_or_never().expect("it does not wait").expect("it is granted");
        assert_eq!(reader.stamp(), stamp);
        reader.unlock().await.expect("it is held");
    }
    assert_eq!(holds(&other).await, 1);
    let (took, writer) = timed("the write", wait_to_write(&other.rw_lock("a"))).await;
    assert!(took < BY_MESSAGE, "{took:?}");
    assert!(cached.try_read_cached().is_none());
    writer.unlock().await.expect("it is held");
    let reader = wait_to_read(&cached).await;
    assert!(stamp.is_some() && reader.stamp().is_some() && reader.stamp() != stamp);
    drop(reader);
    // A plain read is not kept, unless a cached one joins it.
    drop(wait_to_write(&one.rw_lock("a")).await);
    let reader = wait_to_read(&plain).await;
    drop(cached.try_read_cached().expect("it is there"));
    drop(reader);
    assert!(plain.try_read_cached().is_some());
    drop(wait_to_write(&plain).await);
    drop(wait_to_read(&plain).await);
    until_free(&other, "a").await;
}

/// More of them than one call asks back.
pub async fn hundreds_of_clients_make_room_for_a_writer<D: Deployment>(on: &D) {
    let writer = on.client_with(slow_to_poll).await;
    let mut clients = Vec::new();
    for _ in 0..300 {
        let client = on.client_with(slow_to_poll).await;
        drop(read(&client.rw_lock("a").cached()).await);
        clients.push(client);
    }
    assert_eq!(info(&writer, "a").await.hold_count, 300);
    let (took, guard) = timed("the write", wait_to_write(&writer.rw_lock("a"))).await;
    assert!(took < BY_MESSAGE, "{took:?}");
    assert!(clients.iter().all(|client| client.rw_lock("a").try_read_cached().is_none()));
    drop(guard);
}

pub async fn a_cached_read_that_is_idle_is_given_back<D: Deployment>(on: &D) {
    let idle = Duration::from_millis(600);
    let (one, other) = (on.client_with(|builder| builder.cache_idle(idle)).await, on.client().await);
    let cached = one.rw_lock("a").cached();
    let (took, ()) = timed("the end of the read", async {
        let reader = read(&cached).await;
        // The passing of time is the subject: it is not idle while somebody reads.
        pass(idle * 2).await;
        assert!(reader.is_held());
        drop(reader);
        let beside = cached.try_read_cached().expect("it is there");
        drop(beside);
        assert!(!is_free(&info(&other, "a").await));
        until_free(&other, "a").await;
    })
    .await;
    assert!(took >= idle * 3, "{took:?}");
    drop(read(&cached).await);
    assert!(cached.try_read_cached().is_some(), "it can be taken again");
}

pub async fn readers_lose_their_hold_together<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    let lock = one.rw_lock("a").cached();
    let (first, second) = (read(&lock).await, read(&lock).await);
    let token = info(&one, "a").await.token.expect("it is held");
    assert_eq!(other.force_release("a", token).await, Ok(true));
    assert_eq!(soon("the news", first.lost()).await, LossReason::TakenByForce);
    assert!(!second.is_held() && lock.try_read_cached().is_none());
    assert_eq!(second.unlock().await, Err(UnlockError::Lost(LossReason::TakenByForce)));
    // A later read is a new one.
    let later = wait_to_read(&lock).await;
    assert!(later.is_held());
    assert_eq!(first.unlock().await, Err(UnlockError::Lost(LossReason::TakenByForce)));
    assert!(later.is_held() && keeps_writers_out(&other.rw_lock("a")).await);
    drop(later);
    drop(wait_to_write(&other.rw_lock("a")).await);
}

/// A wait that is dropped takes nothing from those that share its ticket.
pub async fn a_reader_that_is_dropped_while_others_wait_leaves_them_waiting<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    let writer = write(&other.rw_lock("a")).await;
    let lock = one.rw_lock("a");
    let stays = tokio::spawn(lock.read());
    until_waiting(&other, "a", 1).await;
    {
        let mut dropped = pin!(lock.read());
        assert!(futures_util::poll!(dropped.as_mut()).is_pending());
        assert!(soon("an answer", lock.try_read()).await.expect("the client is open").is_none());
    }
    assert_eq!(info(&other, "a").await.waiting_count, 1);
    writer.unlock().await.expect("it is held");
    let reader = soon_granted("the read", stays).await;
    reader.unlock().await.expect("it is held");
    until_free(&other, "a").await;
}

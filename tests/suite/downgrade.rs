//! A write becomes a read, without a moment in between.

use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::join;
use lockwright::{DowngradeError, Lease, LockError, LossReason, Owner};

use super::read_write::{keeps_readers_out, keeps_writers_out, read, wait_to_read, wait_to_write, write};
use super::*;

pub async fn a_downgrade_lets_waiting_readers_in_and_no_writer<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    let lock = one.rw_lock("a");
    let writer = write(&lock).await;
    let token = writer.token();
    let waiting = [tokio::spawn(other.rw_lock("a").read()), tokio::spawn(one.rw_lock("a").read())];
    until_waiting(&one, "a", 2).await;
    let behind = tokio::spawn(other.rw_lock("a").write());
    until_waiting(&one, "a", 3).await;
    let (took, readers) = timed("the readers", async {
        let mut readers = vec![writer.downgrade().await.expect("it is held")];
        for waiting in waiting {
            readers.push(waiting.await.expect("no panic").expect("it is granted"));
        }
        readers
    })
    .await;
    assert!(took < BY_MESSAGE, "{took:?}");
    for reader in &readers {
        assert!(reader.is_held() && reader.version() > token && reader.version() == readers[0].version());
        assert!(reader.stamp().is_some());
    }
    assert!(!behind.is_finished() && keeps_readers_out(&lock).await);
    drop(readers);
    let writer = soon_granted("the write", behind).await;
    writer.unlock().await.expect("it is held");
}

/// More than one call lets in: those behind go on by themselves, and wait for no poll.
pub async fn a_downgrade_lets_hundreds_of_readers_in<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    let writer = write(&one.rw_lock("a")).await;
    let waiting: Vec<_> =
        (0..600).map(|_| tokio::spawn(other.rw_lock("a").with_owner(&Owner::new()).read())).collect();
    until_waiting(&one, "a", 600).await;
    let (took, readers) = timed("the readers", async {
        let mut readers = vec![writer.downgrade().await.expect("it is held")];
        for waiting in waiting {
            readers.push(waiting.await.expect("no panic").expect("it is granted"));
        }
        readers
    })
    .await;
    assert!(took < BY_MESSAGE, "{took:?}");
    assert!(readers.iter().all(lockwright::ReadGuard::is_held));
}

/// Later readers of the client share the read that a write has become.
pub async fn a_downgraded_write_is_a_read_like_any_other<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    for lock in [one.rw_lock("a"), one.rw_lock("a").cached()] {
        let reader = wait_to_write(&lock).await.downgrade().await.expect("it is held");
        let beside = lock.read().now_or_never().expect("it does not wait").expect("it is granted");
        assert_eq!(info(&other, "a").await.holds.len(), 1);
        drop(reader);
        assert!(beside.is_held() && keeps_writers_out(&other.rw_lock("a")).await);
        beside.unlock().await.expect("it is held");
    }
    assert!(one.rw_lock("a").try_read_cached().is_some(), "the cached one has stayed");
    drop(wait_to_write(&other.rw_lock("a")).await);
    let owner = Owner::new();
    let lock = one.rw_lock("a").with_owner(&owner);
    let reader = wait_to_write(&lock).await.downgrade().await.expect("it is held");
    assert!(lock.try_read_cached().is_some() && reader.stamp().is_none());
    assert_eq!(lock.try_write().await.err(), Some(LockError::WouldDeadlock));
    reader.unlock().await.expect("it is held");
    until_free(&other, "a").await;
}

/// Other writes of the owner stay, in this process and in another one.
pub async fn a_downgrade_within_a_write_leaves_the_write<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let owner = Owner::new();
    for inner_client in [&one, &other] {
        let outer = wait_to_write(&one.rw_lock("a").with_owner(&owner)).await;
        let inner = write(&inner_client.rw_lock("a").with_owner(&owner)).await;
        let reader = soon("the read", inner.downgrade()).await.expect("it is held");
        assert_eq!(reader.version(), outer.token());
        assert!(outer.is_held() && keeps_readers_out(&other.rw_lock("a")).await);
        outer.unlock().await.expect("it is held");
        let beside = wait_to_read(&other.rw_lock("a")).await;
        assert!(reader.is_held() && keeps_writers_out(&one.rw_lock("a")).await);
        drop((beside, reader));
        until_free(&one, "a").await;
    }
}

/// A write could be prolonged by its downgrade otherwise.
pub async fn a_downgrade_leaves_what_is_left_of_a_limit<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let (limit, gone) = (Duration::from_secs(3), Duration::from_secs(1));
    let limited = [
        one.rw_lock("a").with_lease(Lease::fixed(limit)),
        one.rw_lock("b").with_max_hold(limit),
        one.rw_lock("c").with_max_hold(limit).with_owner(&Owner::new()),
    ];
    let mut writers = Vec::new();
    for lock in &limited {
        writers.push((write(lock).await, None));
    }
    for lock in [one.rw_lock("d").with_lease(Lease::fixed(limit)), one.rw_lock("e").with_max_hold(limit)] {
        let lock = lock.with_owner(&Owner::new());
        writers.push((write(&lock).await, Some(write(&lock).await)));
    }
    // The passing of time is the subject.
    pass(gone).await;
    let mut readers = Vec::new();
    for (writer, within) in writers {
        let reader = writer.downgrade().await.expect("it is held");
        assert!(reader.is_held() && reader.remaining() <= limit - gone, "{:?}", reader.remaining());
        readers.push((reader, within));
    }
    for (reader, _) in &readers {
        assert_eq!(soon("its end", reader.lost()).await, LossReason::Expired);
    }
    drop(readers);
    drop(wait_to_write(&other.rw_lock("a")).await);
}

pub async fn a_downgrade_that_is_dropped_leaves_nothing<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    for lock in [one.rw_lock("a"), one.rw_lock("a").cached(), one.rw_lock("a").with_owner(&Owner::new())] {
        for round in 0..15 {
            let writer = wait_to_write(&lock).await;
            let mut downgrade = Box::pin(writer.downgrade());
            // Its command is under way, or answered already: then the read is dropped with the future.
            let begun = if round > 0 { futures_util::poll!(downgrade.as_mut()) } else { Poll::Pending };
            if round % 3 == 2 {
                until("the read", async || info(&other, "a").await.mode == Some(lockwright::Mode::Read))
                    .await;
            }
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            drop((begun, downgrade));
            let (took, writer) = timed("the write", wait_to_write(&other.rw_lock("a"))).await;
            assert!(took < BY_MESSAGE, "{took:?} in round {round}");
            writer.unlock().await.expect("it is held");
        }
    }
    until_free(&other, "a").await;
}

pub async fn a_write_that_was_lost_does_not_become_a_read<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let lock = one.rw_lock("a");
    let writer = write(&lock).await;
    assert_eq!(other.force_release("a", writer.token()).await, Ok(true));
    assert_eq!(soon("the news", writer.lost()).await, LossReason::TakenByForce);
    let outcome = soon("an answer", writer.downgrade()).await;
    assert_eq!(outcome.unwrap_err(), DowngradeError::Lost(LossReason::TakenByForce));
    assert!(is_free(&info(&other, "a").await));

    let writer = write(&lock).await;
    one.close().await;
    let outcome = soon("an answer", writer.downgrade()).await;
    assert_eq!(outcome.unwrap_err(), DowngradeError::Lost(LossReason::Closed));
    assert!(is_free(&info(&other, "a").await));
}

/// Its command may be under way then; nothing of it stays.
pub async fn closing_ends_a_downgrade<D: Deployment>(on: &D) {
    let other = on.client().await;
    for round in 0..5 {
        let one = on.client().await;
        let writer = write(&one.rw_lock("a")).await;
        let closing = async {
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            one.close().await;
        };
        let (outcome, ()) = soon("the end", join(writer.downgrade(), closing)).await;
        match outcome {
            Err(error) => assert_eq!(error, DowngradeError::Failed(LockError::Closed)),
            Ok(reader) => assert_eq!(soon("the news", reader.lost()).await, LossReason::Closed),
        }
        assert!(is_free(&info(&other, "a").await), "round {round}");
    }
    let reader = read(&other.rw_lock("a")).await;
    reader.unlock().await.expect("it is held");
}

//! Reads that are kept, where nobody could ask for them or another server answers; reads that a write becomes, where the
//! write is gone without a word.

use lockwright::{DowngradeError, Lease, LossReason, Owner, ReadGuard, WriteGuard};

use super::*;
use crate::suite::{info, timed, until_waiting};
use crate::support::time::{eventually, soon_granted};

async fn is_held(client: &Client) -> bool {
    !client.inspect("a").await.expect("the server answers").holds.is_empty()
}

/// While no messages are heard nobody could ask for a hold that readers share: it is given back.
#[tokio::test]
async fn a_cached_read_is_given_back_when_messages_are_no_longer_heard() {
    let server = Server::start();
    let (one, other) = (connect(&server).await, connect(&server).await);
    let cached = one.rw_lock("a").cached();
    drop(cached.read().await.expect("nobody writes"));
    assert!(is_held(&other).await && cached.try_read_cached().is_some());
    server.connection().ok(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually("the end of the cached read", || cached.try_read_cached().is_none()).await;
    soon("a free lock", async { while is_held(&other).await {} }).await;
    // It goes on as before.
    let reader = soon("the read", cached.read()).await.expect("nobody writes");
    soon("a second read", cached.read()).await.expect("nobody writes").unlock().await.expect("it is held");
    reader.unlock().await.expect("it is held");
    drop(soon("the write", other.rw_lock("a").write()).await.expect("it is granted"));
}

/// Another run of a server may have lost writes, though it has our hold: what was cached under its stamps is not fresh.
#[tokio::test]
async fn a_client_that_meets_another_server_reads_anew() {
    let mut server = Server::start();
    let client = connect(&server).await;
    // So long that nothing but the other server ends the hold.
    let cached = client.rw_lock("a").with_lease(Lease::renewed(Duration::from_secs(600))).cached();
    let reader = cached.read().await.expect("nobody writes");
    let (stamp, version) = (reader.stamp(), reader.version());
    reader.unlock().await.expect("it is held");
    server.connection().ok(&["SAVE"]);
    server.restart();
    assert!(
        !server.connection().ok(&["KEYS", "lw:{a}:readers"]).texts().is_empty(),
        "the hold is still there"
    );
    eventually("the end of the cached read", || cached.try_read_cached().is_none()).await;
    let reader = soon("the read", cached.read()).await.expect("nobody writes");
    assert_eq!(reader.version(), version);
    assert!(stamp.is_some() && reader.stamp().is_some() && reader.stamp() != stamp);
    // Of one server stamps stay the same.
    let again = soon("the read", cached.read()).await.expect("nobody writes");
    assert_eq!(again.stamp(), reader.stamp());
}

/// Fails where an owner that reads queues to write: behind its own read, for ever.
#[tokio::test]
async fn b20_a_reader_that_asks_to_write_is_refused_and_reads_on() {
    let server = Server::start();
    let (one, other) = (connect(&server).await, connect(&server).await);
    let owner = Owner::new();
    let lock = one.rw_lock("a").with_owner(&owner);
    for others_wait in [false, true] {
        let reader = lock.read().await.expect("nobody writes");
        let waiting = others_wait.then(|| tokio::spawn(other.rw_lock("a").write()));
        let count = u64::from(others_wait);
        until_waiting(&one, "a", count).await;
        // From this client and from another one, by the handle and by the scope.
        let there = other.rw_lock("a").with_owner(&owner);
        for lock in [&lock, &there] {
            let answers = [
                timed("an answer", lock.try_write()).await,
                timed("an answer", lock.try_write_for(PATIENCE * 10)).await,
                timed("an answer", async { lock.write().await.map(Some) }).await,
                timed("an answer", owner.scope(async { one.rw_lock("a").write().await.map(Some) })).await,
            ];
            for (took, answer) in answers {
                assert_eq!(answer.err(), Some(LockError::WouldDeadlock));
                assert!(took < MARGIN, "{took:?}");
            }
        }
        let seen = info(&other, "a").await;
        assert_eq!((seen.holds.len(), seen.waiting_count), (1, count), "the refused have left a place");
        assert!(reader.is_held());
        reader.unlock().await.expect("it is held");
        if let Some(waiting) = waiting {
            drop(soon_granted("the write", waiting).await);
        }
        soon("the owner's write", lock.write())
            .await
            .expect("it is granted")
            .unlock()
            .await
            .expect("it is held");
    }
    assert!(leftovers(&mut server.connection()).is_empty());
}

/// A server that lost `K` alone writes it again from the reads, and no longer knows whose they are. Fails where the client
/// leaves it to the server to see that an owner would wait for itself: for as long as it is renewed.
#[tokio::test]
async fn an_owner_that_reads_is_refused_though_the_server_has_forgotten_whose_the_read_is() {
    let server = Server::start();
    let (one, other) = (connect(&server).await, connect(&server).await);
    let lock = one.rw_lock("a").with_owner(&Owner::new());
    let reader = soon("the read", lock.read()).await.expect("nobody writes");
    server.connection().ok(&["DEL", "lw:{a}"]);
    // Whoever calls next has K written again.
    assert!(soon("an answer", other.rw_lock("a").try_write()).await.expect("the server answers").is_none());
    assert_eq!(soon("an answer", lock.write()).await.err(), Some(LockError::WouldDeadlock));
    assert_eq!(soon("an answer", lock.try_write()).await.err(), Some(LockError::WouldDeadlock));
    assert!(reader.is_held() && info(&other, "a").await.waiting_count == 0);
    // Beside a write of its own it waits for nobody.
    reader.unlock().await.expect("it is held");
    let writer = soon("the write", lock.write()).await.expect("nobody reads");
    let reader = soon("the read", lock.read()).await.expect("it is its own");
    soon("the write", lock.write()).await.expect("it is its own").unlock().await.expect("it is held");
    drop((writer, reader));
}

/// An owner that writes twice, with a lease of `lease`, on a server that has lost it all; and another client's write.
async fn twice_written_and_lost(server: &Server, lease: Duration) -> ([WriteGuard; 2], WriteGuard) {
    let (one, other) = (connect(server).await, connect(server).await);
    let lock = one.rw_lock("a").with_lease(Lease::renewed(lease)).with_owner(&Owner::new());
    let writes = [lock.write().await.expect("it is free"), lock.write().await.expect("its owner enters")];
    server.connection().ok(&["FLUSHALL"]);
    let written = other.rw_lock("a").write().await.expect("nothing is held");
    (writes, written)
}

/// Lost without a word, and written since: the read that is asked for beside the write is no downgrade.
#[tokio::test]
async fn a_write_within_another_that_was_written_over_is_lost_when_it_is_downgraded() {
    let server = Server::start();
    // So long that no renewal finds the loss.
    let ([outer, inner], written) = twice_written_and_lost(&server, Duration::from_secs(600)).await;
    written.unlock().await.expect("it is held");
    let outcome = soon("an answer", inner.downgrade()).await;
    assert_eq!(outcome.map(|read| read.version()), Err(DowngradeError::Lost(LossReason::GoneAtServer)));
    drop(outer);
    soon("a free lock", connect(&server).await.rw_lock("a").write())
        .await
        .expect("nothing is left")
        .unlock()
        .await
        .ok();
}

/// It would wait for whoever writes now.
#[tokio::test]
async fn a_downgrade_within_a_write_ends_with_the_write() {
    let server = Server::start();
    let ([outer, inner], written) = twice_written_and_lost(&server, Duration::from_millis(900)).await;
    let outcome = soon("the loss", inner.downgrade()).await;
    assert_eq!(
        outcome.map(|read: ReadGuard| read.version()),
        Err(DowngradeError::Lost(LossReason::GoneAtServer))
    );
    assert!(!outer.is_held() && written.is_held());
    written.unlock().await.expect("it is held");
}

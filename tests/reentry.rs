//! Entering a lock again, and reading beside others, counted by the server.

use std::time::Duration;

use lockwright::{Client, Owner};

use crate::support::server::Server;

/// No renewal is due for a long time, so that whatever is counted was sent for an entry.
async fn client(server: &Server) -> Client {
    Client::builder()
        .url(server.url())
        .claim(Duration::from_secs(60))
        .client_deadline(Duration::from_secs(600))
        .connect()
        .await
        .expect("the server is there")
}

#[tokio::test]
async fn re_entry_sends_nothing() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("a").with_owner(&Owner::new());
    let before = server.script_calls();
    let outer = lock.lock().await.expect("it is free");
    assert_eq!(server.script_calls() - before, 1);
    for _ in 0..1_000 {
        let inner = lock.lock().await.expect("the owner enters");
        assert_eq!(inner.token(), outer.token());
        inner.unlock().await.expect("it is held");
        drop(lock.try_lock().await.expect("the client is open").expect("the owner enters"));
    }
    assert_eq!(server.script_calls() - before, 1);
    outer.unlock().await.expect("it is held");
    assert_eq!(server.script_calls() - before, 2);
}

#[tokio::test]
async fn shared_reads_send_nothing() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.rw_lock("a");
    let before = server.script_calls();
    let first = lock.read().await.expect("it is free");
    assert_eq!(server.script_calls() - before, 1);
    for _ in 0..1_000 {
        let beside = lock.read().await.expect("others read");
        beside.unlock().await.expect("it is held");
        drop(client.rw_lock("a").try_read_cached().expect("others read"));
    }
    assert_eq!(server.script_calls() - before, 1);
    // The last one out gives it back, unless it is cached.
    first.unlock().await.expect("it is held");
    assert_eq!(server.script_calls() - before, 2);
    let cached = lock.cached();
    for _ in 0..1_000 {
        cached.read().await.expect("nobody writes").unlock().await.expect("it is held");
    }
    assert_eq!(server.script_calls() - before, 3);
    // A write: asking, the read that is given back, the end.
    lock.write().await.expect("it is granted").unlock().await.expect("it is held");
    assert_eq!(server.script_calls() - before, 6);
}

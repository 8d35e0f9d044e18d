//! Entering a lock again, counted by the server.

use std::time::Duration;

use lockwright::{Client, Owner};

use crate::support::server::Server;

#[tokio::test]
async fn re_entry_sends_nothing() {
    let server = Server::start();
    // No renewal is due for a long time, so that whatever is counted was sent for an entry.
    let client = Client::builder()
        .url(server.url())
        .claim(Duration::from_secs(60))
        .client_deadline(Duration::from_secs(600))
        .connect()
        .await
        .expect("the server is there");
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

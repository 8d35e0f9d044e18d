//! What histories have found, each as a short test. (A queue that lost its TTL stands with the scripts' limits.)

use std::time::Duration;

use lockwright::{Client, LossReason};

/// Its leaving was handed to a courier that had gone.
#[tokio::test(start_paused = true)]
async fn a_guard_that_outlives_its_hold_and_its_client_leaves_nothing_in_the_books() {
    let client = Client::embedded();
    let lock = client.lock("a").with_max_hold(Duration::from_millis(100));
    let guard = lock.lock().await.expect("it is free");
    assert_eq!(guard.lost().await, LossReason::Expired);
    client.close().await;
    drop(guard);
    assert_eq!(lockwright::internals::entries(&client), 0);
}

//! Waiting for a condition, never for a span of time.

use std::time::Duration;

use lockwright::LockError;
use lockwright::internals::clock::Clock;
use tokio::task::JoinHandle;

/// Longer than anything takes on a busy machine, so that only what never comes is missed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` holds; panics where it does not within [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let clock = Clock::boot();
        let deadline = clock.now().plus(PATIENCE);
        while !condition() {
            assert!(clock.now() < deadline, "{place}: {what} does not come");
            clock.sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The result of `future`; panics where there is none within [`PATIENCE`].
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let clock = Clock::boot();
    tokio::select! {
        biased;
        result = future => result,
        () = clock.sleep(PATIENCE) => panic!("{what} does not come"),
    }
}

/// The guard that a spawned waiter is given; panics where it is not within [`PATIENCE`].
pub async fn soon_granted<G>(what: &str, waiter: JoinHandle<Result<G, LockError>>) -> G {
    soon(what, waiter).await.expect("no panic").expect("it is granted")
}

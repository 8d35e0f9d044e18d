//! Finds out that a wire is dead.

use std::time::Duration;

use crate::backend::Failure;
use crate::backend::redis::wire::Wire;
use crate::clock::Clock;
use crate::scripts::Words;

/// So many `PING`s in a row may stay unanswered.
const MISSES: u32 = 3;

/// The interval of `PING`s, and how long each may take: with the default command timeout of 1 s a server that
/// hangs is found within 4 x 0.4 s, which leaves 0.4 s of 2 s to connect anew.
pub fn interval(command_timeout: Duration) -> Duration {
    (command_timeout * 2 / 5).max(Duration::from_millis(10))
}

/// Ends when `wire` is dead, and says how.
///
/// Only a `PING` of our own finds a hung server: while calls go out, neither the client crate nor the kernel does.
pub async fn until_dead(wire: &Wire, interval: Duration, clock: &Clock) -> String {
    tokio::select! {
        biased;
        () = wire.closed() => "the connection was closed".to_owned(),
        () = unanswered(wire, interval, clock) => format!("{MISSES} PINGs were not answered"),
    }
}

async fn unanswered(wire: &Wire, interval: Duration, clock: &Clock) {
    let mut misses = 0;
    while misses < MISSES {
        if misses == 0 {
            clock.sleep(interval).await;
        }
        match wire.call("PING", Words::default(), interval).await {
            // An error is an answer too: PING is refused where writes are (`MISCONF`), or during a long script.
            Ok(_) | Err(Failure::Server(_)) => misses = 0,
            Err(_) => misses += 1,
        }
    }
}

//! A holder that stops for longer than its lease: what it sees of that, and when, and when the next one gets in.
//!
//! ```text
//! cargo run --example lost_lock [-- --redis URL]
//! ```
//! The holder's client lives on a runtime of its own, in a thread that does nothing for a while: nothing is renewed
//! and nothing is heard, as when a process is stopped or cut off.
#![allow(clippy::disallowed_methods, reason = "an example waits as its users do")]

mod support;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use lockwright::{Guard, Lease};
use support::{Failure, Place};
use tokio::sync::oneshot;

const LEASE: Duration = Duration::from_secs(1);
const STOP: Duration = Duration::from_secs(3);

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    support::exit(watch().await)
}

/// A line of the story, with its time.
fn tell(start: Instant, text: &str) {
    println!("{:>5} ms  {text}", start.elapsed().as_millis());
}

/// The holder: takes the lock, shows its guard to an onlooker, and stops.
#[tokio::main(flavor = "current_thread")]
async fn hold(
    place: Place,
    name: String,
    start: Instant,
    shown: oneshot::Sender<Arc<Guard>>,
) -> Result<(), Failure> {
    let client = place.client().await?;
    let guard = Arc::new(client.lock(&name).with_lease(Lease::renewed(LEASE)).lock().await?);
    let (token, trusts) = (guard.token(), guard.remaining().as_millis());
    tell(start, &format!("the first: holds the lock with token {token}, and trusts it for {trusts} ms"));
    let _ = shown.send(guard.clone());
    tokio::time::sleep(LEASE * 2).await;
    tell(start, &format!("the first: two leases later, still held: {}", guard.is_held()));
    tell(start, &format!("the first: stops for {} ms", STOP.as_millis()));
    std::thread::sleep(STOP);
    tell(start, &format!("the first: runs again; is_held() says {} at once", guard.is_held()));
    tell(start, &format!("the first: lost() says: {}", guard.lost().await));
    // Any other copy is gone: the onlooker drops its own when the guard is no longer held.
    match Arc::try_unwrap(guard).map_err(|_| "the onlooker still looks")?.unlock().await {
        Ok(()) => tell(start, "the first: released the lock"),
        Err(error) => tell(start, &format!("the first: unlock() says: {error}")),
    }
    client.close().await;
    Ok(())
}

async fn watch() -> Result<(), Failure> {
    let place = Place::of(&support::options(&support::arguments(), &["--redis URL"])?);
    let (client, name) = (place.client().await?, support::unique("lost lock"));
    let (start, (shown, guard), (ended, end)) = (Instant::now(), oneshot::channel(), channel());
    let other = (place.clone(), name.clone());
    std::thread::spawn(move || ended.send(hold(other.0, other.1, start, shown)));
    let guard = guard.await?;
    let late = guard.token();
    let onlooker = async move {
        while guard.is_held() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tell(start, "an onlooker: the first one's guard is no longer held, though nobody has told it so");
    };
    let next = client.lock(&name).lock();
    let (guard, ()) = tokio::join!(next, onlooker);
    let guard = guard?;
    tell(start, &format!("the second: holds the lock with token {}, larger than {late}", guard.token()));
    let outcome = tokio::task::spawn_blocking(move || end.recv()).await??;
    guard.unlock().await?;
    tell(start, "the second: released the lock");
    client.close().await;
    outcome
}

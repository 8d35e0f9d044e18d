//! How a user tests code that takes locks: on an engine in the test's own process, with a clock that the test moves.
//!
//! ```text
//! cargo test --example testing
//! cargo run --example testing
//! ```
#![allow(clippy::disallowed_methods, reason = "an example waits as its users do")]

use std::time::{Duration, Instant};

use lockwright::{Client, Engine, Lease, LockError};

/// The code under test: runs a job unless another process runs it, and gives up its turn when it takes too long.
async fn nightly_report(client: &Client, work: Duration) -> Result<&'static str, LockError> {
    let lock = client.lock("report").with_lease(Lease::fixed(Duration::from_secs(60)));
    let Some(guard) = lock.try_lock().await? else { return Ok("somebody else does it") };
    tokio::select! {
        _ = guard.lost() => Ok("took too long"),
        () = tokio::time::sleep(work) => Ok("done"),
    }
}

/// What the test below checks, told to people. The clock stands, and jumps to whatever is waited for next.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), LockError> {
    let (really, clock) = (Instant::now(), tokio::time::Instant::now());
    let engine = Engine::new();
    let (one, other) = (Client::embedded_on(&engine), Client::embedded_on(&engine));
    println!("a report that takes 10 s: {}", nightly_report(&one, Duration::from_secs(10)).await?);
    let busy = other.lock("report").lock().await?;
    println!("while another process has the lock: {}", nightly_report(&one, Duration::from_secs(10)).await?);
    drop(busy);
    println!("a report that hangs: {}", nightly_report(&other, Duration::from_secs(24 * 3600)).await?);
    println!("{} s have passed on the test's clock,", clock.elapsed().as_secs());
    println!("and less than one second really: {}", really.elapsed() < Duration::from_secs(1));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_report_that_hangs_gives_up_its_turn() {
        let engine = Engine::new();
        let (one, other) = (Client::embedded_on(&engine), Client::embedded_on(&engine));
        let hanging = tokio::spawn({
            let one = one.clone();
            async move { nightly_report(&one, Duration::MAX).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(nightly_report(&other, Duration::ZERO).await, Ok("somebody else does it"));
        // The test's clock jumps over the minute: this takes no time.
        let began = tokio::time::Instant::now();
        assert_eq!(hanging.await.expect("no panic"), Ok("took too long"));
        assert!(began.elapsed() <= Duration::from_secs(60));
        assert_eq!(nightly_report(&other, Duration::ZERO).await, Ok("done"));
    }
}

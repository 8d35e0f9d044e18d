//! A holder that loses its lock without knowing it, and writes late: a store with a conditional write refuses it.
//!
//! ```text
//! cargo run --example fencing [-- --redis URL]
//! ```
#![allow(clippy::disallowed_methods, reason = "an example waits as its users do")]

mod support;

use std::time::Duration;

use lockwright::{Client, FencedError, FencedKey, Lease};
use support::{Failure, Place};

const LEASE: Duration = Duration::from_millis(200);

/// The same condition in PostgreSQL: `UPDATE 0` is a refusal.
const SQL: &str = "    UPDATE document SET body = $1, token = $2\n    WHERE id = 42 AND token <= $2;";

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    support::exit(run().await)
}

async fn run() -> Result<(), Failure> {
    let place = Place::of(&support::options(&support::arguments(), &["--redis URL"])?);
    let name = support::unique("document 42");
    let (slow, quick) = (place.client().await?, place.client().await?);
    let document = |client: &Client| client.fenced_key(&name);

    // It never asks its guard whether it still holds the lock. Not every program does, and none does at each moment.
    let guard = slow.lock(&name).with_lease(Lease::fixed(LEASE)).lock().await?;
    println!("the slow one:  holds the lock for {LEASE:?}, with token {}", guard.token());
    write("the slow one: ", &document(&slow), guard.token(), "slow, page 1").await?;

    let next = quick.lock(&name).lock().await?;
    println!("the quick one: holds the lock, with the larger token {}", next.token());
    write("the quick one:", &document(&quick), next.token(), "quick, page 1").await?;

    println!("the slow one:  goes on as if nothing had happened");
    write("the slow one: ", &document(&slow), guard.token(), "slow, page 2").await?;

    let found = document(&quick).get().await?.ok_or("something was written")?;
    println!("\nthe document:  {:?}, written with token {}", found.value, found.token);
    println!("\nthe same condition in PostgreSQL, where a refusal is \"UPDATE 0\":\n{SQL}");
    next.unlock().await?;
    drop(guard);
    slow.close().await;
    quick.close().await;
    Ok(())
}

/// Writes, with the token of the hold under which it does.
async fn write(who: &str, document: &FencedKey, token: u64, text: &str) -> Result<(), Failure> {
    match document.set(token, text).await {
        Ok(()) => println!("{who} writes {text:?}"),
        Err(FencedError::Stale { largest }) => {
            println!("{who} wants to write {text:?} and is refused: token {largest} has written since");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

//! A call path that takes one lock again and again: with an owner it re-enters, in this process and in another one;
//! without an owner it would wait for itself.
//!
//! ```text
//! cargo run --example recursive [-- --redis URL]
//! ```
#![allow(clippy::disallowed_methods, reason = "an example waits as its users do")]

mod support;

use std::process::{Command, Stdio};
use std::time::Duration;

use lockwright::{Client, InOwner, Owner};
use support::{Failure, Place};

/// For how long a call is given to enter.
const PATIENCE: Duration = Duration::from_millis(200);

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let arguments = support::arguments();
    support::exit(match &arguments[..] {
        [first, url, name, request] if first == "--service" => service(url, name, request).await,
        arguments => walk(arguments).await,
    })
}

/// Adds up a folder of accounts, under the lock of the ledger, as each of its callers does.
async fn total(client: &Client, ledger: &str, depth: usize) -> Result<u64, Failure> {
    let indent = "  ".repeat(depth);
    let Some(guard) = client.lock(ledger).try_lock_for(PATIENCE).await? else {
        println!("{indent}depth {depth}: not let in within {PATIENCE:?}: it waits for its own caller");
        return Ok(0);
    };
    println!("{indent}depth {depth}: inside, with token {}", guard.token());
    let below = if depth < 3 { Box::pin(total(client, ledger, depth + 1)).await? } else { 0 };
    guard.unlock().await?;
    Ok(1 + below)
}

/// A service that takes the ledger's lock for whoever calls it. Its request says who that is.
async fn serve(client: &Client, ledger: &str, request: &str) -> Result<(), Failure> {
    let owner: Option<Owner> = serde_json::from_str(request)?;
    let lock = client.lock(ledger);
    let lock = owner.iter().fold(lock, |lock, owner| lock.with_owner(owner));
    match lock.try_lock_for(PATIENCE).await? {
        Some(guard) => {
            println!("  the service: inside, with token {}", guard.token());
            // Dropping it would release it in the background, and this process ends.
            guard.unlock().await?;
        }
        None => println!("  the service: not let in within {PATIENCE:?}: it waits for its caller"),
    }
    Ok(())
}

/// The service as a process.
async fn service(url: &str, ledger: &str, request: &str) -> Result<(), Failure> {
    let client = Client::connect(url).await?;
    let served = serve(&client, ledger, request).await;
    // What is to be sent in the background is sent then: here, that it waits no longer.
    client.close().await;
    served
}

/// Sends a request to the service: a process of its own where there is a server, else another client.
async fn call(place: &Place, ledger: &str, owner: Option<&Owner>) -> Result<(), Failure> {
    let request = serde_json::to_string(&owner)?;
    let Place::Server(url) = place else { return serve(&place.client().await?, ledger, &request).await };
    let mut service = Command::new(std::env::current_exe()?);
    let status = service.args(["--service", url, ledger, &request]).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("the service failed: {status}").into()) }
}

async fn walk(arguments: &[String]) -> Result<(), Failure> {
    let place = Place::of(&support::options(arguments, &["--redis URL"])?);
    let (client, ledger) = (place.client().await?, support::unique("ledger"));

    println!("a recursive call without an owner:");
    total(&client, &ledger, 0).await?;

    println!("\nthe same call with an owner:");
    let owner = Owner::new();
    let levels = total(&client, &ledger, 0).in_owner(&owner).await?;
    println!("{levels} levels deep, one token: one hold");

    println!("\na call that holds the lock asks a service in another process, without its owner:");
    let guard = client.lock(&ledger).with_owner(&owner).lock().await?;
    println!("  the caller: inside, with token {}", guard.token());
    call(&place, &ledger, None).await?;
    println!("the same, with its owner sent along in the request:");
    call(&place, &ledger, Some(&owner)).await?;
    guard.unlock().await?;

    println!("\nfree again: {}", client.lock(&ledger).try_lock().await?.is_some());
    client.close().await;
    Ok(())
}

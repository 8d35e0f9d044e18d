//! Faults of processes, networks, servers and load, each on a real server: one test for each id of the catalogue.
//!
//! Above each test stands what makes it fail: the line of `src/` or `lua/` that must stay. The bounds are those of
//! the protocol's table "how long a waiter can be held up", with the claim and the deadline scaled down.

use std::time::Duration;

use lockwright::Client;
use lockwright::internals::clock::{Clock, Moment};
use lockwright::internals::scripts::ALL;
use sha1::{Digest, Sha1};

use crate::suite::until;
use crate::support::kinds::lock_of;
use crate::support::resp::Reply;
use crate::support::server::Server;
use crate::support::time::eventually;
use crate::support::worker;

mod clocks;
mod load;
mod messages;
mod outages;
mod processes;
mod requests;
mod servers;

/// What a test may take beyond its bound, as the protocol's table has it.
pub const MARGIN: Duration = Duration::from_millis(250);

/// No test: what a worker process runs. Without the variable that tells it what to do it ends at once.
#[test]
fn worker() {
    worker::work();
}

pub fn now() -> Moment {
    Clock::boot().now()
}

pub fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// The word by which a script's requests are known: the hash of its text.
pub fn hash(name: &str) -> String {
    let script = ALL.iter().find(|script| script.name == name).expect("there is such a script");
    Sha1::digest(script.text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn acquire() -> String {
    hash("reentrant/acquire")
}

fn leave() -> String {
    hash("reentrant/leave")
}

fn renew() -> String {
    hash("common/renew")
}

/// What is left of the lock's lease at the server, of its longest where it is read; nothing where nobody holds it.
pub fn lease_left(server: &Server, role: &str) -> Duration {
    let left = server.connection().ok(&["PTTL", &format!("lw:{{{}}}", lock_of(role))]).int();
    millis(u64::try_from(left).unwrap_or(0))
}

/// How many tickets wait for the lock, by the server's own count: `inspect` would also list a thousand of them.
pub fn waiting(server: &Server, name: &str) -> u64 {
    match server.connection().ok(&["HGET", &format!("lw:{{{name}}}:waiting"), "queue"]) {
        Reply::Nil => 0,
        state => state.text().rsplit(' ').next().and_then(|living| living.parse().ok()).expect("a number"),
    }
}

/// Waits until the server answers this client.
pub async fn until_answered(client: &Client) {
    until("an answer", async || client.ping().await.is_ok()).await;
}

/// Waits until nothing is left but counters and the layout, and nobody subscribes.
pub async fn check_left(server: &Server) {
    eventually("a server without locks", || {
        let keys = server.connection().ok(&["KEYS", "*"]).texts();
        keys.iter().all(|key| key.ends_with("}:token") || key.ends_with(":layout"))
    })
    .await;
}

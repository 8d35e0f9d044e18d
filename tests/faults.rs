//! Faults on real servers, under the whole client: what `docs/faults.md` lists, each by a test or with a reason why
//! there is none.

use std::time::Duration;

use lockwright::{Client, ClientBuilder, Guard, LockError};

use crate::support::resp::{Connection, Reply};
use crate::support::server::Server;
use crate::support::time::soon;

mod cancel;
mod errors;
mod inputs;
mod list;
mod memory;
mod preflight;
mod reads;
mod replies;
mod server;
mod tasks;

/// A claim as short as one can be here: what takes a claim takes a tenth of what it usually does.
pub const CLAIM: Duration = Duration::from_millis(300);

/// What an operation may take beyond its limit, on a busy machine.
pub const MARGIN: Duration = Duration::from_millis(500);

/// What a wait by polls takes is a tenth of the usual.
pub fn quick(url: &str) -> ClientBuilder {
    Client::builder().url(url).claim(CLAIM).client_deadline(Duration::from_secs(1))
}

/// How long an impatient client waits for a server. On a busy machine a connection takes a part of that.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// For tests whose subject is a server that does not answer.
pub fn impatient(url: &str) -> ClientBuilder {
    quick(url).command_timeout(Duration::from_millis(300)).unavailable_after(PATIENCE)
}

pub async fn connect(server: &Server) -> Client {
    quick(&server.url()).connect().await.expect("the server is there")
}

/// A user with `rules` and everything that they do not take away, and its URL.
pub fn user(server: &Server, rules: &[&str]) -> String {
    let all = ["ACL", "SETUSER", "ann", "reset", "on", ">p", "~*", "&*", "+@all"];
    server.connection().ok(&[&all[..], rules].concat());
    format!("redis://ann:p@127.0.0.1:{}", server.port())
}

/// The keys of locks and queues: counters and the layout are meant to stay.
pub fn leftovers(outside: &mut Connection) -> Vec<String> {
    let mut keys = outside.ok(&["KEYS", "lw:*"]).texts();
    keys.retain(|key| !key.ends_with(":layout") && !key.ends_with("}:token"));
    keys
}

/// Panics where a key of a lock lives for ever.
pub fn assert_all_mortal(outside: &mut Connection) {
    for key in outside.ok(&["KEYS", "lw:{*"]).texts() {
        assert!(outside.ok(&["PTTL", &key]).int() != -1, "{key} lives for ever");
    }
}

/// How many calls of this command the server has had.
pub fn calls_of(outside: &mut Connection, command: &str) -> u64 {
    let stats = outside.ok(&["INFO", "commandstats"]).text();
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls="))?.split(',').next());
    line.map_or(0, |calls| calls.parse().expect("a number"))
}

/// Takes a lock and releases it: that all is well again.
pub async fn works(client: &Client, name: &str) -> u64 {
    let guard: Result<Guard, LockError> = soon("the lock", client.lock(name).lock()).await;
    let guard = guard.expect("it is granted");
    let token = guard.token();
    guard.unlock().await.expect("it is held");
    token
}

/// Sets one value of the server's configuration.
pub fn set(outside: &mut Connection, name: &str, value: &str) {
    assert_eq!(outside.ok(&["CONFIG", "SET", name, value]), Reply::Status("OK".into()));
}

//! One server, supervised: what is in effect, what is found out, what is told, and that nothing is left behind.

use std::time::Duration;

use lockwright::internals::backend::Event;

use crate::support::backend::Client;
use crate::support::server::Server;
use crate::support::time::eventually;

mod end;
mod gather;
mod loss;
mod refusal;
mod service;

/// From the loss of a connection to the next one, with the default settings.
pub const REBUILT: Duration = Duration::from_secs(2);

pub fn url(login: &str, server: &Server) -> String {
    format!("redis://{login}@127.0.0.1:{}", server.port())
}

pub fn hear(server: &Server, channel: &str, text: &str) -> i64 {
    server.connection().ok(&["PUBLISH", channel, text]).int()
}

/// The ids of a client's two connections: of the one that subscribes, and of the other.
pub async fn ids(server: &Server) -> (String, String) {
    let mut found = None;
    // The server may hear of the end of an old connection only now.
    eventually("two connections", || {
        // Views from outside speak RESP2.
        let clients: Vec<_> = server.clients().into_iter().filter(|client| client["resp"] == "3").collect();
        let id = |subscribed: &str| {
            clients.iter().find(|one| one["sub"] == subscribed).map(|one| one["id"].clone())
        };
        found = id("1").zip(id("0")).filter(|_| clients.len() == 2);
        found.is_some()
    })
    .await;
    found.expect("they are there")
}

pub fn kill(server: &Server, id: &str) {
    assert!(kill_if_there(server, id));
}

pub fn kill_if_there(server: &Server, id: &str) -> bool {
    server.connection().ok(&["CLIENT", "KILL", "ID", id]).int() == 1
}

pub async fn message(client: &mut Client) -> (String, u64) {
    match client.event().await {
        Event::Message { text, epoch } => (String::from_utf8(text).unwrap(), epoch),
        other => panic!("{other:?}"),
    }
}

/// How many connections of this process to `server` are open.
pub fn sockets_to(server: &Server) -> usize {
    let to = format!(":{:04X}", server.port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() > 3 && row[2].ends_with(&to) && row[3] == "01").count()
}

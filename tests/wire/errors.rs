//! Errors of the live server, and what they mean.

use lockwright::internals::backend::fault::{Verdict, judge};
use lockwright::internals::backend::redis::wire::{Heard, Wire};
use lockwright::internals::backend::{Failure, Value};
use lockwright::internals::clock::Clock;
use lockwright::internals::error::Fault;

use super::*;
use crate::support::backend::LONG;
use crate::support::server::Server;
use crate::support::time::{eventually, soon};

/// What the live server says, judged.
async fn verdict(wire: &Wire, command: &[&'static str]) -> Verdict {
    match say(wire, command).await {
        Err(Failure::Server(error)) => judge(&error, None),
        other => panic!("{command:?}: {other:?}"),
    }
}

const WRITE: &[&str] = &["EVAL", "return redis.call('set', KEYS[1], 'v')", "1", "k"];

#[tokio::test]
async fn errors_of_the_live_server_are_judged() {
    let server = Server::start_with(&["--enable-protected-configs", "yes"]);
    let mut outside = server.connection();
    let wire = dial(&server.url()).await.unwrap();
    let mut set = |name: &str, value: &str| outside.ok(&["CONFIG", "SET", name, value]);
    set("maxmemory", "1");
    assert_eq!(verdict(&wire, WRITE).await, Verdict::Final(Fault::OutOfMemory));
    assert_eq!(verdict(&wire, &["SET", "k", "v"]).await, Verdict::Final(Fault::OutOfMemory));
    set("maxmemory", "0");
    set("min-replicas-to-write", "3");
    assert_eq!(verdict(&wire, WRITE).await, Verdict::Final(Fault::ReadOnly));
    set("min-replicas-to-write", "0");
    let other = Server::start();
    let mut replica = other.connection();
    replica.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    let read_only = dial(&other.url()).await.unwrap();
    assert_eq!(verdict(&read_only, WRITE).await, Verdict::Final(Fault::ReadOnly));
    replica.ok(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    let orphan = verdict(&read_only, WRITE).await;
    assert!(matches!(orphan, Verdict::Later(_)), "{orphan:?}");
    let renamed = verdict(&wire, &["NO-SUCH-COMMAND", "sesame"]).await;
    assert_eq!(
        renamed,
        Verdict::Final(Fault::Unsupported { detail: "ERR unknown command 'NO-SUCH-COMMAND'".into() })
    );
}

#[tokio::test]
async fn a_failed_snapshot_is_read_only_and_blocks_even_pings() {
    let server = Server::start_with(&["--enable-protected-configs", "yes"]);
    let wire = dial(&server.url()).await.unwrap();
    let mut outside = server.connection();
    outside.ok(&["CONFIG", "SET", "save", "3600 1"]);
    outside.ok(&["CONFIG", "SET", "dir", "/proc"]);
    outside.ok(&["SET", "k", "v"]);
    let _ = outside.call(&["SAVE"]);
    outside.call(&["BGSAVE"]);
    eventually("the failure", || outside.ok(&["INFO", "persistence"]).text().contains("bgsave_status:err"))
        .await;
    assert_eq!(verdict(&wire, WRITE).await, Verdict::Final(Fault::ReadOnly));
    assert_eq!(verdict(&wire, &["PING"]).await, Verdict::Final(Fault::ReadOnly));
    let mut messages = wire.subscribe("channel", LONG).await.expect("it is no write");
    assert_eq!(outside.ok(&["PUBLISH", "channel", "hello"]).int(), 1);
    assert_eq!(soon("the message", messages.next()).await, Heard::Message(b"hello".to_vec()));
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    let server = Server::start_with(&["--busy-reply-threshold", "20"]);
    let wire = dial(&server.url()).await.unwrap();
    let mut outside = server.connection();
    outside.send(&["EVAL", "while true do end", "0"]);
    let clock = Clock::boot();
    let deadline = clock.now().plus(LONG);
    loop {
        match say(&wire, &["GET", "k"]).await {
            Err(Failure::Server(error)) => {
                assert!(matches!(judge(&error, None), Verdict::Later(_)), "{error:?}");
                break;
            }
            other => assert!(clock.now() < deadline, "{other:?}"),
        }
    }
    assert_eq!(say(&wire, &["SCRIPT", "KILL"]).await, Ok(Value::Status("OK".into())));
}

#[tokio::test]
async fn rights_that_are_missing_are_named() {
    let server = Server::start();
    let rule = ["ACL", "SETUSER", "ann", "on", ">p", "~lw:*", "resetchannels", "&lw:*", "+@all", "-hset"];
    server.connection().ok(&rule);
    let wire = dial(&format!("redis://ann:p@127.0.0.1:{}", server.port())).await.unwrap();
    for command in [
        &["HSET", "lw:k", "f", "v"][..],
        &["EVAL", "return redis.call('hset', 'lw:k', 'f', 'v')", "0"],
        &["EVAL", "return redis.call('set', 'k', 'v')", "0"],
        &["EVAL", "return 1", "1", "k"],
        &["EVAL", "return redis.call('publish', 'c', 'm')", "0"],
    ] {
        let verdict = verdict(&wire, command).await;
        assert!(matches!(verdict, Verdict::Final(Fault::Unauthorized { .. })), "{command:?}: {verdict:?}");
    }
}

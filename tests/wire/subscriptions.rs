//! What a subscription hears.

use lockwright::internals::backend::Failure;
use lockwright::internals::backend::redis::wire::{Heard, Messages};

use super::*;
use crate::support::backend::LONG;
use crate::support::server::Server;
use crate::support::time::soon;

#[tokio::test]
async fn a_subscription_is_confirmed_before_it_counts() {
    let server = Server::start();
    let wire = dial(&server.url()).await.unwrap();
    let mut messages = wire.subscribe("channel", LONG).await.unwrap();
    let mut outside = server.connection();
    assert_eq!(outside.ok(&["PUBLISH", "channel", "hello"]).int(), 1);
    assert_eq!(soon("the message", messages.next()).await, Heard::Message(b"hello".to_vec()));
    outside.ok(&["PUBLISH", "other", "hello"]);
    let binary: [&[u8]; 3] = [b"PUBLISH", b"channel", b"\xff\0\r\n"];
    outside.ok(&binary);
    assert_eq!(soon("the message", messages.next()).await, Heard::Message(b"\xff\0\r\n".to_vec()));
    wire.discard().await;
    drop(wire);
    assert_eq!(soon("the end", messages.next()).await, Heard::Closed);
}

#[tokio::test]
async fn a_subscription_is_not_confirmed_while_the_server_says_nothing() {
    let server = Server::start();
    let wire = dial(&server.url()).await.unwrap();
    server.connection().ok(&["CLIENT", "PAUSE", "5000", "ALL"]);
    let outcome = wire.subscribe("channel", SHORT).await.map(drop);
    assert!(matches!(outcome, Err(Failure::Unknown(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_channel_that_is_denied_is_an_error() {
    let server = Server::start();
    server.connection().ok(&["ACL", "SETUSER", "ann", "on", ">p", "~*", "resetchannels", "&lw:*", "+@all"]);
    // The refusal must reach us whatever arrives first.
    for _ in 0..200 {
        let wire = dial(&format!("redis://ann:p@127.0.0.1:{}", server.port())).await.unwrap();
        let Err(Failure::Server(error)) = wire.subscribe("channel", LONG).await else {
            panic!("it is allowed")
        };
        assert_eq!(error.code, "NOPERM");
    }
}

async fn drain(messages: &mut Messages, last: &str) -> (usize, usize) {
    let (mut heard, mut lags) = (0, 0);
    loop {
        match soon("a message", messages.next()).await {
            Heard::Message(text) if text == last.as_bytes() => return (heard, lags),
            Heard::Message(_) => heard += 1,
            Heard::Lagged => lags += 1,
            Heard::Closed => panic!("the wire is gone"),
        }
    }
}

#[tokio::test]
async fn a_reader_that_lags_is_told_and_hears_on() {
    let server = Server::start();
    let wire = dial(&server.url()).await.unwrap();
    let mut messages = wire.subscribe("channel", LONG).await.unwrap();
    let mut outside = server.connection();
    let flood = "for i = 1, 20000 do redis.call('publish', 'channel', 'x') end";
    outside.ok(&["EVAL", flood, "0"]);
    // PING is answered behind the messages, so all of them have arrived.
    say(&wire, &["PING"]).await.unwrap();
    outside.ok(&["PUBLISH", "channel", "last"]);
    let (heard, lags) = drain(&mut messages, "last").await;
    assert!(lags >= 1 && heard < 20_000, "{heard} heard, {lags} lags");
    outside.ok(&["PUBLISH", "channel", "end"]);
    assert_eq!(drain(&mut messages, "end").await, (0, 0));
}

//! How a connection is made, or is not.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use lockwright::internals::backend::Value;
use lockwright::internals::backend::fault::{Verdict, judge};
use lockwright::internals::backend::redis::address::Address;
use lockwright::internals::backend::redis::wire::{Dialer, NoWire};
use lockwright::internals::config::Tls;
use lockwright::internals::error::Fault;

use super::*;
use crate::support::server::Server;

#[tokio::test]
async fn nobody_there_or_nobody_who_answers() {
    let mut server = Server::start();
    let (url, socket) = (server.url(), server.socket_url());
    server.signal("STOP");
    let address = Address::parse(&url).unwrap();
    let dialer = Dialer::new(&address, &Tls::default()).unwrap();
    let hung = dialer.connect(SHORT).await;
    assert!(matches!(hung, Err(NoWire::Unreachable(_))), "{hung:?}");
    server.kill();
    for url in [url, socket] {
        let dead = dial(&url).await;
        assert!(matches!(dead, Err(NoWire::Unreachable(_))), "{dead:?}");
    }
    let nameless = dial("redis://no-such-host.invalid").await;
    assert!(matches!(nameless, Err(NoWire::Unreachable(_))), "{nameless:?}");
}

#[tokio::test]
async fn sockets_and_addresses_of_each_kind() {
    let server = Server::start_with(&["--bind", "127.0.0.1", "-::1"]);
    for url in [server.url(), server.socket_url(), format!("redis://localhost:{}", server.port())] {
        let wire = dial(&url).await.unwrap_or_else(|reason| panic!("{url}: {reason:?}"));
        assert_eq!(say(&wire, &["PING"]).await, Ok(Value::Status("PONG".into())));
    }
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        let wire = dial(&format!("redis://[::1]:{}", server.port())).await.unwrap();
        assert_eq!(say(&wire, &["PING"]).await, Ok(Value::Status("PONG".into())));
    }
}

/// Fails without the poll of fred's `wait_for_connect` before its task is spawned: one connection in about 500 is
/// made between its look at the state and its subscription, and waited for for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_that_is_made_at_once_is_noticed() {
    let server = Server::start();
    for _ in 0..1_500 {
        let wire = crate::support::time::soon("a connection", dial(&server.url())).await.unwrap();
        wire.discard().await;
    }
}

#[tokio::test]
async fn passwords_and_users() {
    let server = Server::start_with(&["--requirepass", "open sesame%"]);
    let mut outside = server.connection();
    outside.ok(&["AUTH", "open sesame%"]);
    outside.ok(&["ACL", "SETUSER", "ann:", "on", ">p@ss/w#rd", "~*", "&*", "+@all"]);
    let at = |login: &str| format!("redis://{login}@127.0.0.1:{}", server.port());
    for (login, user) in [(":open%20sesame%25", "default"), ("ann%3A:p%40ss%2Fw%23rd", "ann:")] {
        let wire = dial(&at(login)).await.unwrap();
        assert_eq!(say(&wire, &["ACL", "WHOAMI"]).await, Ok(bulk(user)));
    }
    for (login, code) in [(":wrong", "WRONGPASS"), ("ann%3A:wrong", "WRONGPASS"), ("bob:x", "WRONGPASS")] {
        let Err(NoWire::Refused(error)) = dial(&at(login)).await else { panic!("{login} gets in") };
        assert_eq!(error.code, code);
    }
    let Err(NoWire::Refused(error)) = dial(&server.url()).await else { panic!("nobody gets in") };
    assert_eq!(error.code, "NOAUTH");
}

#[tokio::test]
async fn a_server_without_a_password_takes_any() {
    let server = Server::start();
    let wire = dial(&format!("redis://:any@127.0.0.1:{}", server.port())).await.unwrap();
    assert_eq!(say(&wire, &["PING"]).await, Ok(Value::Status("PONG".into())));
}

/// A server that answers a command which contains the first text of a pair with the second, and all else with OK.
/// `{asked}` in an answer is what was asked, as old servers repeat it.
pub fn fake(answers: Vec<(String, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://:sesame@{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut bytes = [0; 4_096];
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                let asked = String::from_utf8_lossy(&bytes[..read]).into_owned();
                let answer = answers.iter().find(|(command, _)| asked.contains(command.as_str()));
                let words: Vec<_> =
                    asked.split("\r\n").filter(|word| !word.starts_with(['*', '$'])).collect();
                let text =
                    answer.map_or("+OK\r\n", |(_, text)| text.as_str()).replace("{asked}", &words.join(" "));
                if stream.write_all(text.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    url
}

/// What a server from before RESP3 says to `HELLO`.
pub const OLD: &str = "-ERR unknown command `HELLO`, with args beginning with: {asked}\r\n";

#[tokio::test]
async fn a_server_that_speaks_resp2_only_is_unsupported() {
    let hello = |says: &str| fake(vec![("HELLO".into(), says.into())]);
    let old = hello("-ERR unknown command `HELLO`, with args beginning with: `3`, `sesame`, \r\n");
    let other = hello("-NOPROTO unsupported protocol version\r\n");
    for url in [old, other] {
        let Err(NoWire::Refused(error)) = dial(&url).await else { panic!("RESP2 is taken") };
        assert!(!error.text.contains("sesame"), "{error:?}");
        let verdict = judge(&error, None);
        assert!(matches!(verdict, Verdict::Final(Fault::Unsupported { .. })), "{verdict:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_full_is_asked_again() {
    let server = Server::start_with(&["--maxclients", "2"]);
    let _first = server.connection();
    let _second = dial(&server.url()).await.unwrap();
    match dial(&server.url()).await {
        Err(NoWire::Refused(error)) => assert!(matches!(judge(&error, None), Verdict::Later(_)), "{error:?}"),
        // The server says it and closes; what arrives first differs.
        other => assert!(matches!(other, Err(NoWire::Unreachable(_))), "{other:?}"),
    }
}

#[test]
fn certificates_for_a_url_that_uses_none_are_refused() {
    let tls = Tls { authorities: Some("some".into()), identity: None };
    assert!(Dialer::new(&Address::parse("redis://h").unwrap(), &tls).is_err());
}

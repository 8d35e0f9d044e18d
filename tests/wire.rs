//! One connection: how it is made, and how each call on it ends.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use lockwright::internals::backend::fault::{Verdict, judge};
use lockwright::internals::backend::redis::address::Address;
use lockwright::internals::backend::redis::wire::{Dialer, Heard, Messages, NoWire, Wire, Word};
use lockwright::internals::backend::{Failure, Value};
use lockwright::internals::clock::Clock;
use lockwright::internals::config::Tls;
use lockwright::internals::error::Fault;

use crate::support::backend::LONG;
use crate::support::proxy::{Proxy, Way};
use crate::support::server::Server;
use crate::support::time::{eventually, soon};

const SHORT: Duration = Duration::from_millis(300);

async fn dial(url: &str) -> Result<Wire, NoWire> {
    let address = Address::parse(url).expect("a good URL");
    Dialer::new(&address, &Tls::default()).expect("a good setting").connect(LONG).await
}

fn words(texts: &[&'static str]) -> Vec<Word> {
    texts.iter().map(|&text| text.into()).collect()
}

async fn say(wire: &Wire, command: &[&'static str]) -> Result<Value, Failure> {
    wire.call(command[0], words(&command[1..]), LONG).await
}

async fn eval(wire: &Wire, text: &'static str) -> Result<Value, Failure> {
    say(wire, &["EVAL", text, "0"]).await
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn is_unknown(outcome: &Result<Value, Failure>) -> bool {
    matches!(outcome, Err(Failure::Unknown(_)))
}

#[tokio::test]
async fn replies_of_each_type_arrive_as_they_are() {
    let server = Server::start();
    let wire = dial(&server.url()).await.unwrap();
    assert_eq!(eval(&wire, "return 9007199254740993").await, Ok(Value::Int(9_007_199_254_740_992)));
    assert_eq!(eval(&wire, "return '\\255\\0'").await, Ok(Value::Bulk(vec![255, 0])));
    assert_eq!(eval(&wire, "return redis.status_reply('FINE')").await, Ok(Value::Status("FINE".into())));
    assert_eq!(eval(&wire, "return false").await, Ok(Value::Nil));
    let nested = Value::Array(vec![Value::Int(1), Value::Array(vec![bulk("a")]), Value::Nil]);
    assert_eq!(eval(&wire, "return {1, {'a'}, false}").await, Ok(nested));
    assert_eq!(eval(&wire, "return {}").await, Ok(Value::Array(Vec::new())));
    let Err(Failure::Server(error)) = eval(&wire, "return {1, redis.error_reply('LWX why')}").await else {
        panic!("an error inside of an array")
    };
    assert_eq!((error.code.as_str(), error.text.as_str()), ("LWX", "LWX why"));
    // RESP3 is in effect: a map, not an array of pairs, would not be flat in RESP2 either; ask the server.
    assert_eq!(server.clients()[0]["resp"], "3");
}

#[tokio::test]
async fn a_call_after_the_end_is_not_sent() {
    let mut server = Server::start();
    let discarded = dial(&server.url()).await.unwrap();
    discarded.discard().await;
    assert_eq!(say(&discarded, &["PING"]).await, Err(Failure::NotSent));
    discarded.discard().await;
    let killed = dial(&server.url()).await.unwrap();
    server.kill();
    soon("the end of the wire", killed.closed()).await;
    killed.discard().await;
    assert_eq!(say(&killed, &["PING"]).await, Err(Failure::NotSent));
}

#[tokio::test]
async fn calls_between_the_loss_and_its_discovery_do_not_wait_for_their_timeout() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let wire = dial(&proxy.url()).await.unwrap();
    proxy.cut();
    let clock = Clock::boot();
    // Nobody watches the wire here: calls go on until one is told that it was not sent.
    let watch = async {
        wire.closed().await;
        wire.discard().await;
    };
    let calls = async {
        loop {
            let began = clock.now();
            let outcome = say(&wire, &["PING"]).await;
            assert!(clock.now().since(began) < LONG / 2, "{outcome:?}");
            if outcome == Err(Failure::NotSent) {
                break;
            }
        }
    };
    soon("the end", async { tokio::join!(watch, calls) }).await;
}

#[tokio::test]
async fn a_reply_that_was_lost_leaves_the_outcome_unknown_and_the_command_ran_once() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let wire = dial(&proxy.url()).await.unwrap();
    proxy.swallow(Way::ToClient);
    let mut outside = server.connection();
    let cut = async {
        eventually("the command", || outside.ok(&["GET", "k"]).text_or_empty() == "1").await;
        proxy.cut();
    };
    let (outcome, ()) = tokio::join!(say(&wire, &["INCR", "k"]), cut);
    assert!(is_unknown(&outcome), "{outcome:?}");
    soon("the end of the wire", wire.closed()).await;
    assert_eq!(server.connection().ok(&["GET", "k"]).text(), "1");
}

#[tokio::test]
async fn a_request_that_was_lost_leaves_the_outcome_unknown() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let wire = dial(&proxy.url()).await.unwrap();
    proxy.swallow(Way::ToServer);
    let outcome = wire.call("INCR", words(&["k"]), SHORT).await;
    assert!(is_unknown(&outcome), "{outcome:?}");
    proxy.cut();
    soon("the end of the wire", wire.closed()).await;
    assert_eq!(server.connection().ok(&["EXISTS", "k"]).int(), 0);
}

#[tokio::test]
async fn a_reply_cut_at_any_byte_is_unknown_and_never_another_reply() {
    let server = Server::start();
    // $5\r\nhello\r\n
    for bytes in 1..11 {
        let proxy = Proxy::to(server.port());
        let wire = dial(&proxy.url()).await.unwrap();
        proxy.cut_after(Way::ToClient, bytes);
        let outcome = eval(&wire, "return 'hello'").await;
        assert!(is_unknown(&outcome), "after {bytes} bytes: {outcome:?}");
    }
}

#[tokio::test]
async fn a_hung_server_runs_late_what_it_was_sent_though_the_wire_is_gone() {
    let server = Server::start();
    let wire = dial(&server.url()).await.unwrap();
    server.signal("STOP");
    let timed_out = wire.call("INCR", words(&["k"]), SHORT).await;
    assert!(is_unknown(&timed_out), "{timed_out:?}");
    let discard = async {
        Clock::boot().sleep(SHORT).await;
        wire.discard().await;
    };
    let clock = Clock::boot();
    let began = clock.now();
    let (pending, ()) = tokio::join!(say(&wire, &["INCR", "k"]), discard);
    assert!(is_unknown(&pending), "{pending:?}");
    assert!(clock.now().since(began) < LONG / 2, "a discarded wire answers at once");
    server.signal("CONT");
    eventually("both", || server.connection().ok(&["GET", "k"]).text_or_empty() == "2").await;
    eventually("the end of the socket", || server.clients().is_empty()).await;
}

#[tokio::test]
async fn a_full_socket_does_not_keep_a_wire_from_being_discarded() {
    let server = Server::start();
    let wire = dial(&server.url()).await.unwrap();
    server.signal("STOP");
    let blob = "x".repeat(1 << 20);
    let calls = (0..40).map(|_| wire.call("SET", vec!["k".into(), blob.clone().into()], LONG));
    let discard = async {
        Clock::boot().sleep(SHORT).await;
        soon("the end of the wire", wire.discard()).await;
    };
    let (outcomes, ()) = tokio::join!(futures_util::future::join_all(calls), discard);
    assert!(outcomes.iter().all(is_unknown));
    server.signal("CONT");
    eventually("the end of the socket", || server.clients().is_empty()).await;
}

#[tokio::test]
async fn a_wire_that_is_dropped_leaves_nothing_behind() {
    let server = Server::start();
    let tasks = tokio::runtime::Handle::current().metrics();
    drop(dial(&server.url()).await.unwrap());
    eventually("the end of the socket", || server.clients().is_empty()).await;
    eventually("the end of the tasks", || tasks.num_alive_tasks() == 0).await;
    // The same while it is being made: the server is stopped, so that its answers never come.
    server.signal("STOP");
    let (url, clock) = (server.url(), Clock::boot());
    tokio::select! {
        biased;
        wire = dial(&url) => panic!("{wire:?}"),
        () = clock.sleep(SHORT) => {}
    }
    server.signal("CONT");
    eventually("the end of the tasks", || tasks.num_alive_tasks() == 0).await;
    eventually("the end of the socket", || server.clients().is_empty()).await;
}

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
pub fn fake(answers: &'static [(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://:sesame@{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut bytes = [0; 4_096];
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                let asked = String::from_utf8_lossy(&bytes[..read]).into_owned();
                let answer = answers.iter().find(|(command, _)| asked.contains(command));
                let words: Vec<_> =
                    asked.split("\r\n").filter(|word| !word.starts_with(['*', '$'])).collect();
                let text = answer.map_or("+OK\r\n", |(_, text)| text).replace("{asked}", &words.join(" "));
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
    let old =
        fake(&[("HELLO", "-ERR unknown command `HELLO`, with args beginning with: `3`, `sesame`, \r\n")]);
    let other = fake(&[("HELLO", "-NOPROTO unsupported protocol version\r\n")]);
    for url in [old, other] {
        let Err(NoWire::Refused(error)) = dial(&url).await else { panic!("RESP2 is taken") };
        assert!(!error.text.contains("sesame"), "{error:?}");
        let verdict = judge(&error, None);
        assert!(matches!(verdict, Verdict::Final(Fault::Unsupported { .. })), "{verdict:?}");
    }
}

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

#[cfg(feature = "tls")]
mod tls {
    use lockwright::internals::config::Secret;
    use lockwright::internals::error::ConnectError;

    use super::*;
    use crate::support::server::free_port;
    use crate::support::tls::{Authority, server_arguments};

    fn start(authority: &Authority) -> (Server, u16) {
        let port = free_port();
        let arguments = server_arguments(authority, port);
        (Server::start_with(&arguments.iter().map(String::as_str).collect::<Vec<_>>()), port)
    }

    fn trusting(authority: &Authority) -> Tls {
        Tls { authorities: Some(authority.text("ca.pem")), identity: None }
    }

    fn known_to(authority: &Authority) -> Option<(String, Secret)> {
        Some((authority.text("client.pem"), Secret::new(authority.text("client.key"))))
    }

    async fn dial(url: &str, tls: &Tls) -> Result<Wire, NoWire> {
        let dialer = Dialer::new(&Address::parse(url).unwrap(), tls).unwrap();
        let wire = soon("an answer", dialer.connect(LONG)).await?;
        // A server that wants a certificate says so after the handshake.
        match say(&wire, &["PING"]).await {
            Ok(_) => Ok(wire),
            Err(failure) => Err(NoWire::Unreachable(format!("{failure:?}"))),
        }
    }

    #[tokio::test]
    async fn both_sides_show_certificates() {
        let authority = Authority::new();
        let (server, port) = start(&authority);
        let tls = Tls { identity: known_to(&authority), ..trusting(&authority) };
        for url in [format!("rediss://127.0.0.1:{port}"), format!("valkeys://localhost:{port}/1")] {
            dial(&url, &tls).await.unwrap_or_else(|reason| panic!("{url}: {reason:?}"));
        }
        drop(server);
    }

    #[tokio::test]
    async fn who_is_not_trusted_is_told() {
        let authority = Authority::new();
        let (_server, port) = start(&authority);
        let url = format!("rediss://127.0.0.1:{port}");
        let stranger = Tls { identity: known_to(&authority), ..trusting(&Authority::new()) };
        let system = Tls { identity: known_to(&authority), authorities: None };
        for tls in [stranger, system] {
            let outcome = dial(&url, &tls).await;
            assert!(matches!(outcome, Err(NoWire::Untrusted(_))), "{outcome:?}");
        }
        let nobody = dial(&url, &trusting(&authority)).await;
        assert!(nobody.is_err(), "the server wants a certificate");
        let named = dial(&format!("rediss://127.0.0.2:{port}"), &trusting(&authority)).await;
        assert!(named.is_err(), "no such name in the certificate");
    }

    #[tokio::test]
    async fn plain_text_and_tls_do_not_hang_on_each_other() {
        let authority = Authority::new();
        let (server, port) = start(&authority);
        // A plain server takes the greeting for the beginning of a line and waits for its end.
        let plain = dial(&format!("redis://127.0.0.1:{port}"), &Tls::default()).await;
        assert!(plain.is_err(), "{plain:?}");
        let to_plain = dial(&format!("rediss://127.0.0.1:{}", server.port()), &trusting(&authority)).await;
        assert!(to_plain.is_err(), "{to_plain:?}");
    }

    #[test]
    fn certificates_that_are_none_are_found_before_the_first_attempt() {
        let address = Address::parse("rediss://h").unwrap();
        let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for tls in [
            Tls { authorities: Some("none".into()), identity: None },
            Tls { authorities: Some(pem.into()), identity: None },
            Tls { authorities: None, identity: Some((pem.into(), Secret::new("sesame"))) },
        ] {
            let outcome = Dialer::new(&address, &tls).map(drop);
            assert!(matches!(&outcome, Err(ConnectError::InvalidSetting { .. })), "{outcome:?}");
            assert!(!format!("{outcome:?}").contains("sesame"));
        }
    }
}

#[test]
fn certificates_for_a_url_that_uses_none_are_refused() {
    let tls = Tls { authorities: Some("some".into()), identity: None };
    assert!(Dialer::new(&Address::parse("redis://h").unwrap(), &tls).is_err());
}

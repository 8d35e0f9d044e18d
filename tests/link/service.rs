//! What a connection offers while nothing goes wrong.

use lockwright::internals::backend::fault::{Verdict, judge};
use lockwright::internals::backend::{Event, Failure, Value};
use lockwright::internals::clock::Clock;
use lockwright::internals::error::{ConnectError, Fault};

use super::*;
use crate::support::backend::{BROKEN, Client, ECHO, LONG, call, setup};
use crate::support::logs;
use crate::support::server::Server;

#[tokio::test]
async fn a_connection_has_what_the_url_and_the_settings_say() {
    let server = Server::start();
    server.connection().ok(&["ACL", "SETUSER", "ann", "on", ">p@ss", "~*", "&*", "+@all"]);
    let mut setup = setup(format!("{}/3", url("ann:p%40ss", &server)));
    setup.config.client_name = Some("a-client".into());
    let client = Client::connect(setup).await;
    let connections = server.clients();
    assert_eq!(connections.len(), 2);
    for connection in &connections {
        assert_eq!((connection["user"].as_str(), connection["name"].as_str()), ("ann", "a-client"));
        assert_eq!(connection["resp"], "3");
    }
    assert_eq!(client.count("k").await, Ok(1));
    let mut outside = server.connection();
    outside.ok(&["SELECT", "3"]);
    assert_eq!(outside.ok(&["GET", "k"]).text(), "1");
    assert_eq!(outside.ok(&["GET", "lw:layout"]).text(), "1");
    // The database is in effect after a reconnect too.
    let (_, command) = ids(&server).await;
    kill(&server, &command);
    let mut client = client;
    client.next_up().await;
    assert_eq!(client.count("k").await, Ok(2));
    assert_eq!(outside.ok(&["GET", "k"]).text(), "2");
}

#[tokio::test]
async fn the_first_event_is_a_sample_of_the_servers_clock() {
    let server = Server::start();
    let client = Client::connect(setup(server.socket_url())).await;
    let now = server.connection().ok(&["TIME"]).texts();
    let seconds: u64 = now[0].parse().unwrap();
    let up = &client.up;
    assert!(seconds * 1_000 + 1_000 >= up.server_millis && up.server_millis + 20_000 > seconds * 1_000);
    assert!(up.sent <= up.received && up.received <= Clock::boot().now());
    assert_eq!((up.epoch, up.counted), (1, true));
    assert!(server.connection().ok(&["INFO", "server"]).text().contains(&up.run_id));
}

#[tokio::test]
async fn a_call_and_a_message_carry_their_epoch() {
    let server = Server::start();
    let mut client = Client::connect(setup(server.url())).await;
    let clock = Clock::boot();
    let before = clock.now();
    let answer = client.answer(call(&ECHO, &["k"], &["hello"])).await;
    assert_eq!(answer.outcome, Ok(Value::Bulk(b"hello".to_vec())));
    assert!(before <= answer.sent && answer.sent <= answer.received && answer.received <= clock.now());
    assert_eq!(answer.epoch, client.up.epoch);
    assert_eq!(hear(&server, &client.channel, "m"), 1);
    assert_eq!(message(&mut client).await, ("m".into(), client.up.epoch));
    assert!(client.backend.ping(LONG).await.unwrap() < LONG);
}

#[tokio::test]
async fn a_lua_error_names_the_file_and_its_line() {
    let server = Server::start();
    let client = Client::connect(setup(server.url())).await;
    let Err(Failure::Server(error)) = client.answer(call(&BROKEN, &[], &[])).await.outcome else { panic!() };
    let Verdict::Final(Fault::Rejected { detail }) = judge(&error, Some(&BROKEN)) else {
        panic!("{error:?}")
    };
    assert_eq!(detail, "test/BROKEN.v1.lua:2: attempt to index local 'nothing' (a nil value)");
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_is_told_them() {
    let server = Server::start();
    let client = Client::connect(setup(server.url())).await;
    let mut outside = server.connection();
    for number in 1..=50 {
        outside.ok(&["SCRIPT", "FLUSH"]);
        assert_eq!(client.count("k").await, Ok(number));
    }
    // Many at once: each is repeated once, and each runs once.
    outside.ok(&["SCRIPT", "FLUSH"]);
    let calls = (0..200).map(|_| client.count("many"));
    let outcomes: Vec<_> = futures_util::future::join_all(calls).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(outside.ok(&["GET", "many"]).text(), "200");
}

#[tokio::test]
async fn where_scripts_cannot_be_called_by_hash_they_are_sent_as_texts() {
    for denied in [&["-evalsha"][..], &["-script"], &["-evalsha", "-script"]] {
        let _guard = logs::collect();
        let name = format!("ann{}", denied.concat());
        let server = Server::start();
        let mut rule = vec!["ACL", "SETUSER", &name, "on", ">p", "~*", "&*", "+@all"];
        rule.extend(denied);
        server.connection().ok(&rule);
        let client = Client::connect(setup(url(&format!("{name}:p"), &server))).await;
        for number in 1..=3 {
            assert_eq!(client.count("k").await, Ok(number), "{denied:?}");
        }
        let warnings = logs::own().iter().filter(|line| line.contains("scripts are sent as texts")).count();
        assert_eq!(warnings, 1, "{denied:?}");
    }
}

#[tokio::test]
async fn a_server_without_evalsha_is_served_by_text() {
    let server =
        Server::start_with(&["--rename-command", "EVALSHA", "", "--rename-command", "SCRIPT", "hidden"]);
    let client = Client::connect(setup(server.url())).await;
    assert_eq!(client.count("k").await, Ok(1));
}

#[tokio::test]
async fn what_managed_servers_deny_is_not_needed() {
    let server = Server::start();
    let rule = ["ACL", "SETUSER", "ann", "on", ">p", "~lw:*", "resetchannels", "&lw:wake:*", "+@all"];
    let denied = ["-info", "-client", "-config", "-ping", "-command", "-hello", "-acl"];
    server.connection().ok(&[&rule[..], &denied].concat());
    let mut setup = setup(url("ann:p", &server));
    setup.config.client_name = Some("ignored".into());
    let mut client = Client::connect(setup).await;
    assert_eq!(client.count("lw:{k}").await, Ok(1));
    assert_eq!(hear(&server, &client.channel, "m"), 1);
    message(&mut client).await;
    let (_, command) = ids(&server).await;
    kill(&server, &command);
    let up = client.next_up().await;
    assert_ne!(up.run_id, client.up.run_id, "a server that hides may be another");
}

#[tokio::test]
async fn no_secret_is_shown_by_debug_errors_or_logs() {
    let _guard = logs::collect();
    let secret = "open-sesame-4711";
    let server = Server::start_with(&["--requirepass", secret]);
    let right = setup(url(&format!(":{secret}"), &server));
    assert!(!format!("{right:?}").contains(secret));
    let mut client = Client::connect(right).await;
    assert!(!format!("{:?} {:?}", client.backend, client.events).contains(secret));
    let mut outside = server.connection();
    outside.ok(&["AUTH", secret]);
    outside.ok(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert!(matches!(client.event().await, Event::Down { .. }));
    client.next_up().await;
    client.backend.close().await;
    let wrong = Client::try_connect(setup(url(&format!(":{secret}%20"), &server))).await.map(drop);
    assert!(!format!("{wrong:?} {}", wrong.clone().unwrap_err()).contains(secret));
    // A server of old times repeats what it does not know.
    let old = crate::wire::connecting::fake(vec![("HELLO".into(), crate::wire::connecting::OLD.into())])
        .replace("sesame", secret);
    let outcome = Client::try_connect(setup(old)).await.map(drop);
    assert!(matches!(&outcome, Err(ConnectError::Unsupported { .. })), "{outcome:?}");
    assert!(!format!("{outcome:?}").contains(secret));
    let lines = logs::lines();
    assert!(lines.iter().any(|line| line.contains("TRACE fred")), "nothing was collected");
    let shown: Vec<_> = lines.iter().filter(|line| line.contains(secret)).collect();
    assert!(shown.is_empty(), "{shown:?}");
}

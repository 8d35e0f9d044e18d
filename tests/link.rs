//! One server, supervised: what is in effect, what is found out, what is told, and that nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockwright::internals::backend::fault::{Verdict, judge};
use lockwright::internals::backend::{Event, Failure, Value};
use lockwright::internals::clock::Clock;
use lockwright::internals::error::{ConnectError, Fault};
use lockwright::internals::name::Namespace;

use crate::support::backend::{BROKEN, Client, ECHO, LONG, call, setup};
use crate::support::logs;
use crate::support::proxy::{Proxy, Way};
use crate::support::server::Server;
use crate::support::time::{eventually, soon};

/// What the brief of the link promises from the loss of a connection to the next one.
const REBUILT: Duration = Duration::from_secs(2);

fn url(login: &str, server: &Server) -> String {
    format!("redis://{login}@127.0.0.1:{}", server.port())
}

fn hear(server: &Server, channel: &str, text: &str) -> i64 {
    server.connection().ok(&["PUBLISH", channel, text]).int()
}

/// The ids of the connections: of the one that subscribes, and of the other.
fn ids(server: &Server) -> (String, String) {
    // Views from outside speak RESP2.
    let clients: Vec<_> = server.clients().into_iter().filter(|client| client["resp"] == "3").collect();
    let id = |subscribed: bool| {
        let found: Vec<_> = clients.iter().filter(|client| (client["sub"] == "1") == subscribed).collect();
        assert_eq!(found.len(), 1, "{clients:?}");
        found[0]["id"].clone()
    };
    (id(true), id(false))
}

fn kill(server: &Server, id: &str) {
    assert_eq!(server.connection().ok(&["CLIENT", "KILL", "ID", id]).int(), 1);
}

async fn message(client: &mut Client) -> (String, u64) {
    match client.event().await {
        Event::Message { text, epoch } => (String::from_utf8(text).unwrap(), epoch),
        other => panic!("{other:?}"),
    }
}

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
    let (_, command) = ids(&server);
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
    let (_, command) = ids(&server);
    kill(&server, &command);
    let up = client.next_up().await;
    assert_ne!(up.run_id, client.up.run_id, "a server that hides may be another");
}

#[tokio::test]
async fn each_way_not_to_get_in_has_its_error() {
    let server = Server::start_with(&["--requirepass", "right"]);
    let mut outside = server.connection();
    outside.ok(&["AUTH", "right"]);
    outside.ok(&["ACL", "SETUSER", "deaf", "on", ">p", "~*", "resetchannels", "+@all"]);
    outside.ok(&["ACL", "SETUSER", "blind", "on", ">p", "~other:*", "&*", "+@all"]);
    for login in [":wrong", "bob:p", "deaf:p", "blind:p"] {
        let outcome = Client::try_connect(setup(url(login, &server))).await.map(drop);
        assert!(matches!(&outcome, Err(ConnectError::Unauthorized { .. })), "{login}: {outcome:?}");
    }
    let db = Client::try_connect(setup(format!("{}/99", url(":right", &server)))).await.map(drop);
    assert!(matches!(&db, Err(ConnectError::Rejected { .. })), "{db:?}");
    let url = Client::try_connect(setup("redis://:sesame")).await.map(drop);
    assert!(matches!(&url, Err(ConnectError::InvalidUrl { .. })), "{url:?}");
    eventually("the end of all connections", || outside.ok(&["CLIENT", "LIST"]).text().lines().count() == 1)
        .await;
}

#[tokio::test]
async fn a_server_that_is_down_at_the_start_ends_the_connect_in_time() {
    let mut server = Server::start();
    let limit = Duration::from_millis(700);
    for fault in ["down", "hung"] {
        let mut setup = setup(server.url());
        setup.config.unavailable_after = limit;
        match fault {
            "down" => server.kill(),
            _ => server.signal("STOP"),
        }
        let clock = Clock::boot();
        let began = clock.now();
        let outcome = Client::try_connect(setup).await.map(drop);
        assert!(matches!(&outcome, Err(ConnectError::Unavailable { .. })), "{fault}: {outcome:?}");
        let took = clock.now().since(began);
        assert!(took >= limit && took < limit + Duration::from_millis(500), "{fault}: {took:?}");
        if fault == "down" {
            server.restart();
        }
    }
}

#[tokio::test]
async fn a_server_that_comes_late_is_waited_for() {
    let mut server = Server::start();
    server.kill();
    let connecting = tokio::spawn(Client::connect(setup(server.url())));
    Clock::boot().sleep(Duration::from_millis(200)).await;
    server.restart();
    let client = soon("the connection", connecting).await.unwrap();
    assert_eq!(client.echo("late").await.as_deref(), Ok("late"));
}

#[tokio::test]
async fn another_layout_is_refused_and_nothing_is_touched() {
    let server = Server::start();
    let mut outside = server.connection();
    outside.ok(&["SET", "theirs:layout", "2"]);
    let mut theirs = setup(server.url());
    theirs.config.namespace = Namespace::new("theirs").unwrap();
    let outcome = Client::try_connect(theirs).await.map(drop);
    assert_eq!(outcome, Err(ConnectError::LayoutMismatch { found: "2".into(), known: 1 }));
    assert_eq!(outside.ok(&["GET", "theirs:layout"]).text(), "2");
    outside.ok(&["RPUSH", "list:layout", "x"]);
    let mut list = setup(server.url());
    list.config.namespace = Namespace::new("list").unwrap();
    let outcome = Client::try_connect(list).await.map(drop);
    assert!(matches!(outcome, Err(ConnectError::LayoutMismatch { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_layout_that_changes_while_we_are_away_is_refused_until_it_is_put_right() {
    let server = Server::start();
    let mut client = Client::connect(setup(server.url())).await;
    server.connection().ok(&["SET", "lw:layout", "2"]);
    let (_, command) = ids(&server);
    kill(&server, &command);
    assert!(matches!(client.event().await, Event::Down { .. }));
    let Event::Refused(Fault::Unsupported { detail }) = client.event().await else { panic!("it is taken") };
    assert!(detail.contains("layout 2"), "{detail}");
    assert_eq!(client.echo("x").await, Err(Failure::NotSent));
    server.connection().ok(&["SET", "lw:layout", "1"]);
    assert!(matches!(client.event().await, Event::Up(_)));
}

#[tokio::test]
async fn a_full_server_takes_those_back_who_were_there_before() {
    let server = Server::start();
    let mut client = Client::connect(setup(server.url())).await;
    server.connection().ok(&["CONFIG", "SET", "maxmemory", "1"]);
    let (_, command) = ids(&server);
    kill(&server, &command);
    client.next_up().await;
    assert_eq!(client.echo("full").await.as_deref(), Ok("full"));
    // Who is new cannot leave its mark, and is told why.
    let mut new = setup(server.url());
    new.config.namespace = Namespace::new("new").unwrap();
    assert_eq!(Client::try_connect(new).await.map(drop), Err(ConnectError::OutOfMemory));
}

#[tokio::test]
async fn a_command_connection_that_is_killed_is_replaced_and_both_are_new() {
    let server = Server::start();
    let mut client = Client::connect(setup(server.url())).await;
    let (old_subscription, old_command) = ids(&server);
    kill(&server, &old_command);
    assert!(matches!(client.event().await, Event::Down { .. }));
    let Event::Up(up) = client.event().await else { panic!("no Up after Down") };
    assert!(up.epoch > client.up.epoch);
    assert_eq!(up.run_id, client.up.run_id);
    let (subscription, command) = ids(&server);
    assert!(subscription != old_subscription && command != old_command);
    assert_eq!(client.answer(call(&ECHO, &[], &["x"])).await.epoch, up.epoch);
    assert_eq!(hear(&server, &client.channel, "again"), 1);
    assert_eq!(message(&mut client).await, ("again".into(), up.epoch));
}

#[tokio::test]
async fn a_subscription_that_is_killed_is_replaced_while_commands_go_on() {
    let server = Server::start();
    let mut client = Client::connect(setup(server.url())).await;
    let (subscription, command) = ids(&server);
    kill(&server, &subscription);
    assert!(matches!(client.event().await, Event::Deaf));
    let deaf = client.answer(call(&ECHO, &[], &["x"])).await;
    assert!(deaf.outcome.is_ok());
    let Event::Up(up) = client.event().await else { panic!("no Up after Deaf") };
    assert!(up.epoch > client.up.epoch && up.epoch >= deaf.epoch);
    assert_eq!(ids(&server).1, command, "the command connection stays");
    assert_eq!(hear(&server, &client.channel, "again"), 1);
    assert_eq!(message(&mut client).await, ("again".into(), up.epoch));
}

#[tokio::test]
async fn a_subscription_that_is_denied_later_leaves_commands_alone() {
    let server = Server::start();
    let mut outside = server.connection();
    outside.ok(&["ACL", "SETUSER", "ann", "on", ">p", "~*", "&*", "+@all"]);
    let mut client = Client::connect(setup(url("ann:p", &server))).await;
    // Taking the channel away closes the subscription; the second connection is cut to come back with the first.
    outside.ok(&["ACL", "SETUSER", "ann", "resetchannels"]);
    assert!(matches!(client.event().await, Event::Deaf));
    assert_eq!(client.echo("on").await.as_deref(), Ok("on"));
    let only = server.clients();
    let commands = only.iter().find(|one| one["cmd"].starts_with("evalsha")).expect("it is there");
    kill(&server, &commands["id"]);
    assert!(matches!(client.event().await, Event::Down { .. }));
    assert!(matches!(client.event().await, Event::Deaf));
    let answer = client.answer(call(&ECHO, &[], &["deaf"])).await;
    assert!(answer.outcome.is_ok() && answer.epoch > client.up.epoch);
    outside.ok(&["ACL", "SETUSER", "ann", "&*"]);
    let Event::Up(up) = client.event().await else { panic!("no Up") };
    assert!(up.epoch > answer.epoch);
    assert_eq!(hear(&server, &client.channel, "again"), 1);
}

#[tokio::test]
async fn a_restarted_server_is_found_again_and_told_the_scripts() {
    let mut server = Server::start();
    let mut client = Client::connect(setup(server.url())).await;
    server.kill();
    assert!(matches!(client.event().await, Event::Down { .. }));
    let answer = client.answer(call(&ECHO, &[], &["x"])).await;
    assert_eq!((answer.outcome, answer.epoch), (Err(Failure::NotSent), client.up.epoch));
    server.restart();
    let up = client.next_up().await;
    assert!(up.epoch > client.up.epoch && up.run_id != client.up.run_id);
    assert_eq!(client.count("k").await, Ok(1));
    assert_eq!(server.connection().ok(&["GET", "lw:layout"]).text(), "1");
}

#[tokio::test]
async fn a_hung_server_is_found_under_steady_traffic_and_comes_back() {
    let server = Server::start();
    let mut client = Client::connect(setup(server.url())).await;
    let backend = client.backend.clone();
    let traffic = tokio::spawn(async move {
        let clock = Clock::boot();
        loop {
            let calls = (0..8).map(|_| backend.call(call(&ECHO, &[], &["x"]), Duration::from_millis(300)));
            futures_util::future::join_all(calls).await;
            clock.sleep(Duration::from_millis(10)).await;
        }
    });
    let clock = Clock::boot();
    server.signal("STOP");
    let began = clock.now();
    assert!(matches!(client.event().await, Event::Down { .. }));
    let found = clock.now().since(began);
    assert!(found < REBUILT, "found after {found:?}");
    assert!(!traffic.is_finished());
    server.signal("CONT");
    let began = clock.now();
    client.next_up().await;
    let rebuilt = clock.now().since(began);
    assert!(rebuilt < REBUILT, "back after {rebuilt:?}");
    traffic.abort();
    eventually("the old connections are gone", || server.clients().len() == 2).await;
}

#[tokio::test]
async fn a_half_open_connection_is_replaced_in_time_whichever_way_is_lost() {
    let server = Server::start();
    // The first connection through the proxy is that of the commands, the second the subscription.
    for (number, way) in [(0, Way::ToServer), (0, Way::ToClient), (1, Way::ToServer), (1, Way::ToClient)] {
        let proxy = Proxy::to(server.port());
        let mut client = Client::connect(setup(proxy.url())).await;
        let clock = Clock::boot();
        proxy.swallow_one(number, way);
        let began = clock.now();
        let event = client.event().await;
        match number {
            0 => assert!(matches!(event, Event::Down { .. }), "{event:?}"),
            _ => assert!(matches!(event, Event::Deaf), "{event:?}"),
        }
        client.next_up().await;
        let took = clock.now().since(began);
        assert!(took < REBUILT, "connection {number}, {way:?}: {took:?}");
        assert_eq!(client.echo("there").await.as_deref(), Ok("there"));
        assert!(hear(&server, &client.channel, "m") >= 1);
        assert_eq!(message(&mut client).await.0, "m");
    }
}

#[tokio::test]
async fn a_slow_network_and_a_slow_server_are_not_dead() {
    let server = Server::start_with(&["--busy-reply-threshold", "20"]);
    let proxy = Proxy::to(server.port());
    let mut client = Client::connect(setup(proxy.url())).await;
    proxy.delay(Duration::from_millis(60));
    let clock = Clock::boot();
    let deadline = clock.now().plus(Duration::from_millis(2_500));
    // A script that runs for long is answered with BUSY, PINGs too.
    let mut outside = server.connection();
    outside.send(&["EVAL", "while true do end", "0"]);
    while clock.now() < deadline {
        let answer = client.answer(call(&ECHO, &[], &["x"])).await;
        assert!(!matches!(answer.outcome, Err(Failure::NotSent | Failure::Unknown(_))), "{answer:?}");
        assert_eq!(answer.epoch, client.up.epoch);
    }
    server.connection().ok(&["SCRIPT", "KILL"]);
    hear(&server, &client.channel, "first");
    assert_eq!(message(&mut client).await.0, "first", "no event before it");
}

#[tokio::test]
async fn a_password_that_changed_refuses_us_slowly_until_it_is_right_again() {
    let server = Server::start();
    let mut outside = server.connection();
    outside.ok(&["ACL", "SETUSER", "ann", "on", ">p", "~*", "&*", "+@all"]);
    let mut client = Client::connect(setup(url("ann:p", &server))).await;
    outside.ok(&["ACL", "SETUSER", "ann", "off"]);
    outside.ok(&["CLIENT", "KILL", "USER", "ann"]);
    assert!(matches!(client.event().await, Event::Down { .. }));
    assert!(matches!(client.event().await, Event::Refused(Fault::Unauthorized { .. })));
    let refused = |outside: &mut crate::support::resp::Connection| {
        outside.ok(&["ACL", "LOG"]).items().first().map_or(0, |entry| entry.items()[1].int())
    };
    let before = refused(&mut outside);
    Clock::boot().sleep(Duration::from_millis(1_000)).await;
    let storm = refused(&mut outside) - before;
    assert!(storm <= 1, "{storm} attempts in a second");
    outside.ok(&["ACL", "SETUSER", "ann", "on"]);
    assert!(matches!(client.event().await, Event::Up(_)), "Refused is told once");
    assert_eq!(client.echo("in").await.as_deref(), Ok("in"));
}

#[tokio::test]
async fn attempts_to_reconnect_are_no_tight_loop() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut client = Client::connect(setup(proxy.url())).await;
    let before = proxy.connections();
    // Each connection is cut as soon as something has come back: the connection is made and lost again and again.
    let clock = Clock::boot();
    let deadline = clock.now().plus(Duration::from_secs(2));
    while clock.now() < deadline {
        proxy.cut();
        clock.sleep(Duration::from_millis(1)).await;
    }
    let attempts = proxy.connections() - before;
    assert!(attempts < 30, "{attempts} attempts in 2 s");
    client.next_up().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_hears_that_it_lags_and_loses_no_change_of_state() {
    let server = Server::start();
    let mut client = Client::connect(setup(server.url())).await;
    let flood = "for i = 1, 20000 do redis.call('publish', KEYS[1], 'x') end";
    server.connection().ok(&["EVAL", flood, "1", &client.channel]);
    // The link has passed on what fits by the time the server has answered behind it.
    for _ in 0..3 {
        client.backend.ping(LONG).await.unwrap();
    }
    let (_, command) = ids(&server);
    kill(&server, &command);
    let (mut lagged, mut down) = (false, false);
    loop {
        match client.event().await {
            Event::Lagged => lagged = true,
            Event::Down { .. } => down = true,
            Event::Up(_) => break,
            _ => {}
        }
    }
    assert!(lagged && down, "lagged: {lagged}, down: {down}");
}

#[tokio::test]
async fn the_connections_and_the_tasks_end_with_close_and_with_drop() {
    let server = Server::start();
    let metrics = tokio::runtime::Handle::current().metrics();
    let client = Client::connect(setup(server.url())).await;
    let backend = client.backend.clone();
    let closing = (backend.close(), backend.close());
    soon("the close", async { tokio::join!(closing.0, closing.1) }).await;
    assert_eq!(metrics.num_alive_tasks(), 0);
    eventually("the end of the sockets", || server.clients().is_empty()).await;
    assert_eq!(client.echo("x").await, Err(Failure::NotSent));
    assert_eq!(client.backend.ping(LONG).await, Err(Failure::NotSent));
    let Client { backend, mut events, .. } = client;
    assert!(soon("the end of the events", events.next()).await.is_none());
    soon("the second close", backend.close()).await;

    let client = Client::connect(setup(server.url())).await;
    let pending = client.backend.call(call(&ECHO, &[], &["x"]), LONG);
    drop(client);
    eventually("the end of the tasks", || metrics.num_alive_tasks() == 0).await;
    eventually("the end of the sockets", || server.clients().is_empty()).await;
    assert_eq!(pending.await.outcome, Err(Failure::NotSent));
}

#[tokio::test]
async fn closing_does_not_wait_for_a_hung_server_and_ends_the_calls_that_do() {
    let server = Server::start();
    let client = Client::connect(setup(server.url())).await;
    server.signal("STOP");
    let clock = Clock::boot();
    let began = clock.now();
    let close = async {
        clock.sleep(Duration::from_millis(50)).await;
        client.backend.close().await;
    };
    let (answer, ()) = tokio::join!(client.answer(call(&ECHO, &[], &["x"])), close);
    assert!(matches!(answer.outcome, Err(Failure::Unknown(_))), "{answer:?}");
    assert!(clock.now().since(began) < Duration::from_secs(1));
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    server.signal("CONT");
    eventually("the end of the sockets", || server.clients().is_empty()).await;
}

#[tokio::test]
async fn a_connect_that_is_given_up_leaves_nothing_behind() {
    let server = Server::start();
    server.signal("STOP");
    let clock = Clock::boot();
    tokio::select! {
        biased;
        _ = Client::connect(setup(server.url())) => panic!("the server is stopped"),
        () = clock.sleep(Duration::from_millis(100)) => {}
    }
    server.signal("CONT");
    let metrics = tokio::runtime::Handle::current().metrics();
    eventually("the end of the tasks", || metrics.num_alive_tasks() == 0).await;
    eventually("the end of the sockets", || server.clients().is_empty()).await;
}

/// How many connections of this process to `server` are open.
fn sockets_to(server: &Server) -> usize {
    let to = format!(":{:04X}", server.port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() > 3 && row[2].ends_with(&to) && row[3] == "01").count()
}

#[tokio::test]
async fn two_hundred_rebuilds_leak_nothing() {
    let server = Server::start();
    let metrics = tokio::runtime::Handle::current().metrics();
    for _ in 0..200 {
        let mut client = Client::connect(setup(server.url())).await;
        assert_eq!(sockets_to(&server), 2);
        let (subscription, command) = ids(&server);
        kill(&server, &command);
        kill_if_there(&server, &subscription);
        client.next_up().await;
        client.backend.close().await;
        assert_eq!(metrics.num_alive_tasks(), 0);
        eventually("the end of the sockets", || server.clients().is_empty()).await;
    }
    eventually("the end of the sockets", || sockets_to(&server) == 0).await;
}

fn kill_if_there(server: &Server, id: &str) {
    server.connection().ok(&["CLIENT", "KILL", "ID", id]);
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
    let old = crate::wire::fake(&[("HELLO", crate::wire::OLD)]).replace("sesame", secret);
    let outcome = Client::try_connect(setup(old)).await.map(drop);
    assert!(matches!(&outcome, Err(ConnectError::Unsupported { .. })), "{outcome:?}");
    assert!(!format!("{outcome:?}").contains(secret));
    let lines = logs::lines();
    assert!(lines.iter().any(|line| line.contains("TRACE fred")), "nothing was collected");
    let shown: Vec<_> = lines.iter().filter(|line| line.contains(secret)).collect();
    assert!(shown.is_empty(), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_go_to_their_callers_while_connections_are_killed() {
    let server = Server::start();
    let client = Arc::new(Client::connect(setup(server.url())).await);
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let (client, stop) = (client.clone(), stop.clone());
            tokio::spawn(async move {
                let (mut good, clock) = (0, Clock::boot());
                for round in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let text = format!("{task}-{round}");
                    match client.echo(&text).await {
                        Ok(reply) => assert_eq!(reply, text),
                        Err(_) => clock.sleep(Duration::from_millis(1)).await,
                    }
                    good += 1;
                }
                good
            })
        })
        .collect();
    let mut outside = server.connection();
    let clock = Clock::boot();
    for kind in ["normal", "pubsub"].into_iter().cycle().take(20) {
        outside.ok(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        clock.sleep(Duration::from_millis(100)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut rounds = 0;
    for task in tasks {
        rounds += task.await.unwrap();
    }
    assert!(rounds > 1_000, "{rounds}");
}

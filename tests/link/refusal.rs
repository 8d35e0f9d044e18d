//! Servers that do not take us, or not yet, or no longer.

use std::time::Duration;

use lockwright::internals::backend::{Event, Failure};
use lockwright::internals::clock::Clock;
use lockwright::internals::error::{ConnectError, Fault};
use lockwright::internals::name::Namespace;

use super::*;
use crate::support::backend::{Client, ECHO, call, setup};
use crate::support::server::Server;
use crate::support::time::{eventually, soon};

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
    let (_, command) = ids(&server).await;
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
    let (_, command) = ids(&server).await;
    kill(&server, &command);
    client.next_up().await;
    assert_eq!(client.echo("full").await.as_deref(), Ok("full"));
    // Who is new cannot leave its mark, and is told why.
    let mut new = setup(server.url());
    new.config.namespace = Namespace::new("new").unwrap();
    assert_eq!(Client::try_connect(new).await.map(drop), Err(ConnectError::OutOfMemory));
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

//! Connections that are lost: found out, told and replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockwright::internals::backend::{Event, Failure};
use lockwright::internals::clock::Clock;

use super::*;
use crate::support::backend::{Client, ECHO, LONG, call, setup};
use crate::support::proxy::{Proxy, Way};
use crate::support::server::Server;
use crate::support::time::eventually;

#[tokio::test]
async fn a_command_connection_that_is_killed_is_replaced_and_both_are_new() {
    let server = Server::start();
    let mut client = Client::connect(setup(server.url())).await;
    let (old_subscription, old_command) = ids(&server).await;
    kill(&server, &old_command);
    assert!(matches!(client.event().await, Event::Down { .. }));
    let Event::Up(up) = client.event().await else { panic!("no Up after Down") };
    assert!(up.epoch > client.up.epoch);
    assert_eq!(up.run_id, client.up.run_id);
    let (subscription, command) = ids(&server).await;
    assert!(subscription != old_subscription && command != old_command);
    assert_eq!(client.answer(call(&ECHO, &[], &["x"])).await.epoch, up.epoch);
    assert_eq!(hear(&server, &client.channel, "again"), 1);
    assert_eq!(message(&mut client).await, ("again".into(), up.epoch));
}

#[tokio::test]
async fn a_subscription_that_is_killed_is_replaced_while_commands_go_on() {
    let server = Server::start();
    let mut client = Client::connect(setup(server.url())).await;
    let (subscription, command) = ids(&server).await;
    kill(&server, &subscription);
    assert!(matches!(client.event().await, Event::Deaf));
    let deaf = client.answer(call(&ECHO, &[], &["x"])).await;
    assert!(deaf.outcome.is_ok());
    let Event::Up(up) = client.event().await else { panic!("no Up after Deaf") };
    assert!(up.epoch > client.up.epoch && up.epoch >= deaf.epoch);
    assert_eq!(ids(&server).await.1, command, "the command connection stays");
    assert_eq!(hear(&server, &client.channel, "again"), 1);
    assert_eq!(message(&mut client).await, ("again".into(), up.epoch));
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
    assert!(matches!(outside.read(), crate::support::resp::Reply::Error(_)), "the script has ended");
    hear(&server, &client.channel, "first");
    assert_eq!(message(&mut client).await.0, "first", "no event before it");
}

#[tokio::test]
async fn attempts_to_reconnect_are_no_tight_loop() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut client = Client::connect(setup(proxy.url())).await;
    let clock = Clock::boot();
    // Once nothing answers, and once each connection breaks soon after it was made.
    for answers in [false, true] {
        let before = proxy.connections();
        let deadline = clock.now().plus(Duration::from_secs(2));
        proxy.refuse(!answers);
        while clock.now() < deadline {
            proxy.cut();
            clock.sleep(Duration::from_millis(10)).await;
        }
        let attempts = proxy.connections() - before;
        assert!((1..20).contains(&attempts), "{attempts} attempts in 2 s, answers: {answers}");
        proxy.refuse(false);
        client.next_up().await;
    }
    // And once each breaks as soon as it is up.
    let deadline = clock.now().plus(Duration::from_secs(2));
    let mut ups = 0;
    while clock.now() < deadline {
        proxy.cut();
        client.next_up().await;
        ups += 1;
    }
    assert!((2..12).contains(&ups), "{ups} times up in 2 s");
}

/// Sends more messages than fit, and reads on when the server has got rid of them; whether some were lost then.
async fn flood(server: &Server, client: &mut Client) -> bool {
    let many =
        "for i = 1, 40000 do redis.call('publish', KEYS[1], 'x') end redis.call('publish', KEYS[1], 'last')";
    server.connection().ok(&["EVAL", many, "1", &client.channel]);
    eventually("the end of the flood", || server.clients().iter().all(|one| one["oll"] == "0")).await;
    for _ in 0..3 {
        client.backend.ping(LONG).await.unwrap();
    }
    loop {
        match client.event().await {
            Event::Lagged => return true,
            Event::Message { text, .. } if text == b"last" => return false,
            Event::Message { .. } => {}
            // Its PINGs waited behind the flood for too long; what is left of it went with the old connection.
            Event::Deaf => {
                client.next_up().await;
                return false;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_hears_that_it_lags_and_loses_no_change_of_state() {
    let server = Server::start();
    let mut client = Client::connect(setup(server.url())).await;
    // On a busy machine the messages may still be under way when the reading begins.
    while !flood(&server, &mut client).await {}
    let (_, command) = ids(&server).await;
    kill(&server, &command);
    loop {
        match client.event().await {
            Event::Down { .. } => break,
            Event::Message { .. } | Event::Lagged => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(client.event().await, Event::Up(_)));
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

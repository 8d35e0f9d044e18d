//! Nothing is left behind.

use std::time::Duration;

use lockwright::internals::backend::Failure;
use lockwright::internals::clock::Clock;

use super::*;
use crate::support::backend::{Client, ECHO, LONG, call, setup};
use crate::support::server::Server;
use crate::support::time::{eventually, soon};

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

#[tokio::test]
async fn two_hundred_rebuilds_leak_nothing() {
    let server = Server::start();
    let metrics = tokio::runtime::Handle::current().metrics();
    for _ in 0..200 {
        let mut client = Client::connect(setup(server.url())).await;
        assert_eq!(sockets_to(&server), 2);
        let (subscription, command) = ids(&server).await;
        kill(&server, &command);
        kill_if_there(&server, &subscription);
        client.next_up().await;
        client.backend.close().await;
        // A connection that was being made when it was closed ends a moment later.
        eventually("the end of the tasks", || metrics.num_alive_tasks() == 0).await;
        eventually("the end of the sockets", || server.clients().is_empty()).await;
    }
    eventually("the end of the sockets", || sockets_to(&server) == 0).await;
}

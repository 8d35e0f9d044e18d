//! How calls end.

use lockwright::internals::backend::{Failure, Value};
use lockwright::internals::clock::Clock;

use super::*;
use crate::support::backend::LONG;
use crate::support::proxy::{Proxy, Way};
use crate::support::server::Server;
use crate::support::time::{eventually, soon};

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
    let calls = (0..40).map(|_| wire.call("SET", words(&["k", &blob]), LONG));
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

//! D: a server that stalls, loads, and restarts with less than it had.

use lockwright::{Client, LockError, LossReason, UnlockError};

use super::*;
use crate::suite::{info, is_free, take, timed, until_waiting, wait_for};
use crate::support::fence::Writer;
use crate::support::resp::Reply;
use crate::support::time::{soon, soon_granted};
use crate::support::worker::Scene;

// `local/state/connection.rs`, `not_after`: what was stuck in the server's sockets has no late effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d3_a_stalled_server_ends_holds_and_does_no_late_deeds() {
    let scene = Scene::new();
    let (first, second) = (scene.client().await, scene.client().await);
    let guard = take(&first, "a").await;
    let trusted = now().plus(guard.remaining());
    scene.server.signal("STOP");
    let attempt = second.lock("b").try_lock_for(millis(300)).await;
    assert!(matches!(attempt, Err(LockError::Unavailable { .. })), "{attempt:?}");
    assert_eq!(soon("the loss", guard.lost()).await, LossReason::Expired);
    assert!(now() <= trusted.plus(millis(150)), "{:?} late", now().since(trusted));
    assert!(!guard.is_held());
    Clock::boot().sleep_until(trusted.plus(scene.pace.lease())).await;
    scene.server.signal("CONT");
    until_answered(&second).await;
    let next = wait_for(&second, "a").await;
    let seen = info(&second, "a").await;
    assert_eq!((seen.holds.len(), seen.token), (1, Some(next.token())));
    // Whatever of the attempt arrived late was too late, or is given back at once.
    until_answered(&first).await;
    eventually("nothing of the attempt", || lease_left(&scene.server, "b").is_zero()).await;
    assert!(next.is_held());
    drop((guard, next, first, second));
    check_left(&scene.server).await;
}

// `backend/fault.rs`: LOADING passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d20_a_loading_server_is_waited_for() {
    // So slow a load is made for tests of the server itself.
    let server =
        Server::start_with(&["--key-load-delay", "20", "--loading-process-events-interval-bytes", "1024"]);
    let mut scene = Scene::on(server);
    scene.pace.unavailable = 15_000;
    scene.server.connection().ok(&["DEBUG", "POPULATE", "60000"]);
    scene.server.connection().ok(&["SAVE"]);
    let client = scene.client().await;
    scene.server.kill();
    let port = scene.server.port();
    let restarting = tokio::task::spawn_blocking(move || {
        scene.server.restart();
        scene
    });
    let mut loading = false;
    let waiting = tokio::spawn(client.lock("a").lock());
    while !restarting.is_finished() {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            let answer = crate::support::resp::Connection::to(port).call(&["GET", "x"]);
            loading |= matches!(answer, Reply::Error(text) if text.starts_with("LOADING"));
        }
        Clock::boot().sleep(millis(10)).await;
    }
    assert!(loading, "it was loaded at once");
    let scene = restarting.await.expect("it restarts");
    let guard = soon_granted("the lock", waiting).await;
    guard.unlock().await.expect("it is held");
    assert!(is_free(&info(&client, "a").await));
    drop(scene);
}

/// The server restarts and knows nothing of the holder.
async fn forgotten(mut scene: Scene) {
    let (holder, next): (Client, Client) = (scene.client().await, scene.client().await);
    let guard = take(&holder, "a").await;
    let unlocked = take(&holder, "b").await;
    let mut fence = Writer::to(scene.fence.port());
    assert!(fence.write("a", guard.token()));
    let since = now();
    scene.server.kill();
    scene.server.restart();
    let other = wait_for(&next, "a").await;
    assert!(other.token() > guard.token(), "tokens begin anew: {} after {}", other.token(), guard.token());
    assert!(fence.write("a", other.token()));
    assert!(!fence.write("a", guard.token()), "a stale holder has written");
    let (_, reason) = timed("the loss", guard.lost()).await;
    assert!(now().since(since) <= scene.pace.lease() + MARGIN, "{reason:?}");
    let answer = guard.unlock().await;
    assert!(matches!(answer, Err(UnlockError::Lost(_))), "{answer:?}");
    let answer = unlocked.unlock().await;
    assert!(matches!(answer, Err(UnlockError::Lost(_))), "{answer:?}");
    assert!(other.is_held());
    drop((other, holder, next));
    check_left(&scene.server).await;
}

// `lua/lib`, the token: at least the server's time (mutant 10 of the catalogue).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d21_a_restart_without_data_is_told_and_tokens_rise() {
    let mut scene = Scene::new();
    scene.pace.lease = 3_000;
    forgotten(scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d22_a_restart_with_data_from_before_the_grant_is_told_and_tokens_rise() {
    let mut scene = Scene::new();
    scene.pace.lease = 3_000;
    let client = scene.client().await;
    drop(take(&client, "a").await);
    drop(client);
    check_left(&scene.server).await;
    scene.server.connection().ok(&["SAVE"]);
    forgotten(scene).await;
}

// As D21, and what waits is queued again: `local/state/asking.rs`, `send_again`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d21_whoever_waits_over_a_restart_without_data_is_served() {
    let mut scene = Scene::new();
    scene.pace.unavailable = 10_000;
    let (holder, waiter) = (scene.client().await, scene.client().await);
    let guard = take(&holder, "a").await;
    let waiting = tokio::spawn(waiter.lock("a").lock());
    until_waiting(&holder, "a", 1).await;
    scene.server.kill();
    scene.server.restart();
    let next = soon_granted("the lock", waiting).await;
    assert!(next.token() > guard.token());
    drop((guard, next, holder, waiter));
    check_left(&scene.server).await;
}

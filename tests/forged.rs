//! Messages that no script has sent: they cost time and nothing else.

use lockwright::{Client, Guard, LockError, LossReason};
use tokio::task::JoinHandle;

use crate::suite::{info, take, until_waiting, wait_for};
use crate::support::resp::Connection;
use crate::support::server::Server;
use crate::support::time::{soon, soon_granted};

/// One client holds a lock and another one waits for it.
struct Scene {
    holder: Client,
    waiter: Client,
    guard: Guard,
    waiting: JoinHandle<Result<Guard, LockError>>,
    held: String,
    queued: String,
    outside: Connection,
    _server: Server,
}

impl Scene {
    async fn new() -> Self {
        let server = Server::start();
        let connect = async || Client::connect(&server.url()).await.expect("the server is there");
        let (holder, waiter) = (connect().await, connect().await);
        let guard = take(&holder, "a").await;
        let waiting = tokio::spawn(waiter.lock("a").lock());
        until_waiting(&holder, "a", 1).await;
        let info = info(&holder, "a").await;
        let (held, queued) = (info.holds[0].ticket.clone(), info.waiting[0].ticket.clone());
        let outside = server.connection();
        Self { holder, waiter, guard, waiting, held, queued, outside, _server: server }
    }

    /// Publishes to every client.
    fn publish(&mut self, message: &[u8]) {
        let channels = self.outside.ok(&["PUBSUB", "CHANNELS", "lw:wake:*"]).texts();
        assert_eq!(channels.len(), 2);
        for channel in channels {
            assert_eq!(self.outside.ok(&[b"PUBLISH", channel.as_bytes(), message]).int(), 1);
        }
    }
}

#[tokio::test]
async fn messages_that_make_no_sense_change_nothing() {
    let mut scene = Scene::new().await;
    let whole = format!("grant {} 1 2 3 0 reentrant lw:{{a}}", scene.queued);
    let max = u64::MAX;
    let mut messages: Vec<Vec<u8>> = (0..whole.len()).map(|end| whole.as_bytes()[..end].to_vec()).collect();
    for position in 0..whole.len() {
        for byte in [0, b' ', b'9', b'{', 0xff] {
            let mut text = whole.clone().into_bytes();
            text[position] = byte;
            messages.push(text);
        }
    }
    for ticket in [scene.queued.clone(), scene.held.clone()] {
        for numbers in [format!("{max} {max} {max} 0"), format!("0 {max} 0 1"), format!("0 0 {max} 1")] {
            messages.push(format!("grant {ticket} {numbers} reentrant lw:{{a}}").into_bytes());
        }
        messages.push(format!("held {ticket} fair lw:{{a}}").into_bytes());
        // Of a ticket that the client does not know, and would give back by a script that is not there.
        let client = ticket.split(':').next().expect("a client");
        messages.push(format!("held {client}:987654 read_write lw:{{a}}").into_bytes());
        messages.push(format!("held {ticket} reentrant lw:{{another}}").into_bytes());
    }
    messages.push(vec![b' '; 1_000_000]);
    for message in messages {
        scene.publish(&message);
    }
    // Whatever a client made of them, it goes on.
    assert!(scene.holder.ping().await.is_ok() && scene.waiter.ping().await.is_ok());
    assert!(scene.guard.is_held());
    let token = scene.guard.token();
    let early = scene.waiting.is_finished();
    scene.guard.unlock().await.expect("it is held");
    let guard = soon_granted("the lock", scene.waiting).await;
    assert!(!early && guard.token() > token);
    drop(guard);
    assert!(wait_for(&scene.holder, "a").await.is_held());
}

#[tokio::test]
async fn a_forged_grant_is_found_out() {
    let mut scene = Scene::new().await;
    let now = info(&scene.holder, "a").await.server_millis;
    let (token, end) = (scene.guard.token() + 1, now + 3_000);
    let forged = format!("grant {} {token} {end} {now} 0 reentrant lw:{{a}}", scene.queued);
    scene.publish(forged.as_bytes());
    let guard =
        soon("the forged hold", scene.waiting).await.expect("no panic").expect("it believes the message");
    assert_eq!(guard.token(), token);
    assert_eq!(soon("the truth", guard.lost()).await, LossReason::GoneAtServer);
    assert!(scene.guard.is_held());
    drop(guard);
    scene.guard.unlock().await.expect("it is held");
    assert!(wait_for(&scene.waiter, "a").await.is_held());
}

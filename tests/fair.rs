//! The fair lock on real servers: that its order holds, and that nothing holds up its queue for longer than the
//! protocol's table "how long a waiter can be held up" says.
//!
//! | file | what is in it |
//! |---|---|
//! | `redisson.rs` | public reports on Redisson's fair lock (redisson/redisson), each rebuilt here |
//! | `others.rs` | the same on other locks with a queue |
//! | `stuck.rs` | hundreds of dead, silent and unreachable waiters in front of the living |
//! | `order.rs` | what the order survives |
//! | `places.rs` | positions |
//!
//! A report's test has the name of its repository and its number. What went wrong there is told in a sentence of our
//! own; the trigger is the report's, the bound is that of our table.

use std::time::Duration;

use futures_util::future::BoxFuture;
use lockwright::internals::clock::Moment;
use lockwright::{Client, Guard, LockError};
use tokio::task::JoinHandle;

use crate::chaos_faults::{MARGIN, check_left, lease_left, millis, now, waiting};
use crate::suite::{take, until_waiting};
use crate::support::kinds;
use crate::support::resp::Connection;
use crate::support::time::{eventually, soon, soon_granted};
use crate::support::worker::{Pace, Scene, Worker};

mod order;
mod others;
mod places;
mod redisson;
mod stuck;

/// The lock of all these tests.
const NAME: &str = "fair";

type Waiter = JoinHandle<Result<Guard, LockError>>;

/// A server whose fair lock is held, and who waits for it.
struct Queue {
    scene: Scene,
    holder: Client,
    guard: Option<Guard>,
    length: u64,
}

impl Queue {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Pace)) -> Self {
        let mut scene = Scene::new();
        // No claim, no lease and no answer is missed because the machine is busy, save where a test wants that.
        scene.pace =
            Pace { lease: 3_000, claim: 1_000, deadline: 2_000, timeout: 5_000, unavailable: 20_000 };
        change(&mut scene.pace);
        scene.pace.deadline = scene.pace.deadline.max(2 * scene.pace.claim);
        let holder = scene.client().await;
        let guard = Some(take(&holder, NAME).await);
        Self { scene, holder, guard, length: 0 }
    }

    /// With polls so far between, 10 s, that what comes sooner came by message.
    async fn slow_to_poll() -> Self {
        Self::with(|pace| {
            (pace.lease, pace.claim, pace.deadline, pace.timeout) = (30_000, 20_000, 60_000, 10_000);
        })
        .await
    }

    fn claim(&self) -> Duration {
        self.scene.pace.claim()
    }

    fn poll(&self) -> Duration {
        self.claim() / 2
    }

    /// One more at the end of the queue.
    async fn join(&mut self, client: &Client) -> Waiter {
        self.join_by(kinds::lock(client, NAME)).await
    }

    async fn join_by(&mut self, wait: BoxFuture<'static, Result<Guard, LockError>>) -> Waiter {
        let waiter = tokio::spawn(wait);
        self.grown_by(1).await;
        waiter
    }

    /// One more, with a client of its own.
    async fn join_alone(&mut self) -> Waiter {
        let client = self.scene.client().await;
        self.join(&client).await
    }

    /// One more, in a process of its own.
    async fn join_by_process(&mut self) -> Worker {
        let mut worker = self.scene.worker().await;
        worker.order(&format!("take {NAME}"));
        self.grown_by(1).await;
        worker
    }

    /// Waits until so many more are in the queue.
    async fn grown_by(&mut self, count: u64) {
        self.length += count;
        eventually("a longer queue", || waiting(&self.scene.server, NAME) == self.length).await;
    }

    /// The holder gives the lock back: when it began to.
    async fn release(&mut self) -> Moment {
        let since = now();
        self.guard.take().expect("it is held").unlock().await.expect("it is held");
        since
    }

    /// Kills a process, and waits until the server knows that its connections are closed.
    async fn kill(&self, worker: &mut Worker) {
        self.end_by(worker, "KILL").await;
        worker.kill();
    }

    async fn end_by(&self, worker: &Worker, signal: &str) {
        let connections = self.scene.server.clients().len();
        worker.signal(signal);
        eventually("the end of its connections", || self.scene.server.clients().len() == connections - 2)
            .await;
    }

    /// A key of the lock: `K` and this.
    fn key(&self, suffix: &str) -> String {
        format!("lw:{{{NAME}}}{suffix}")
    }

    /// When the server will have let go of all places whose clients cannot be reached.
    fn end_of_unreachable(&self) -> Moment {
        let (read, mut outside) = (now(), self.scene.server.connection());
        let waiting = outside.ok(&["HGETALL", &self.key(":waiting")]).texts();
        let clients = waiting.chunks(2).filter(|pair| pair[0] != "queue" && !pair[0].contains(':'));
        let mut left = 0;
        for client in clients {
            let heard = outside.ok(&["PUBSUB", "NUMSUB", &format!("lw:wake:{}", client[0])]).items()[1].int();
            let deadline: u64 =
                client[1].split(' ').next().and_then(|word| word.parse().ok()).expect("a deadline");
            if heard == 0 {
                left = left.max(deadline.saturating_sub(server_millis(&mut outside)));
            }
        }
        read.plus(millis(left + 1))
    }

    /// The end of a queue in which there are places of the dead: nobody is there to take them out, and they last no
    /// longer than they may.
    async fn end_of_dead(self) {
        let mut outside = self.scene.server.connection();
        let latest = i64::try_from(self.scene.pace.deadline + 10_000).expect("a short time");
        for key in [self.key(":queue"), self.key(":waiting")] {
            let life = outside.ok(&["PTTL", &key]).int();
            assert!(life == -2 || (1..=latest).contains(&life), "{key} lives for {life} ms");
            outside.ok(&["DEL", &key]);
        }
        self.end().await;
    }

    /// Panics where anything is left of the lock.
    async fn end(self) {
        let Self { scene, holder, .. } = self;
        drop(holder);
        check_left(&scene.server).await;
    }
}

/// The guard of a waiter that must be served within `limit`, and a margin, after `since`.
async fn served(waiter: Waiter, since: Moment, limit: Duration) -> Guard {
    let guard = soon_granted("the lock", waiter).await;
    let took = now().since(since);
    assert!(took <= limit + MARGIN, "served after {took:?}, which may be {limit:?}");
    guard
}

/// The same for one in another process.
async fn served_there(worker: &mut Worker, since: Moment, limit: Duration) -> u64 {
    let (token, at) = worker.granted(NAME).await;
    let took = at.since(since);
    assert!(took <= limit + MARGIN, "served after {took:?}, which may be {limit:?}");
    token
}

/// Serves the waiters one after the other, each within `limit` of the release before it, and panics where their order
/// is another one.
async fn served_in_turn(waiters: Vec<Waiter>, mut since: Moment, limit: Duration) {
    let mut last = 0;
    for waiter in waiters {
        let guard = served(waiter, since, limit).await;
        assert!(guard.token() > last, "token {} after {last}", guard.token());
        last = guard.token();
        since = now();
        guard.unlock().await.expect("it is held");
    }
}

fn server_millis(outside: &mut Connection) -> u64 {
    let clock = outside.ok(&["TIME"]).texts();
    let number = |at: usize| clock[at].parse::<u64>().expect("a number");
    number(0) * 1_000 + number(1) / 1_000
}

/// What is left of the lock's lease at the server.
fn left(queue: &Queue) -> Duration {
    lease_left(&queue.scene.server, NAME)
}

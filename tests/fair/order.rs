//! What the order of a queue survives, and that the kinds do not mix.

use std::collections::BTreeMap;

use futures_util::FutureExt;

use super::*;
use crate::faults::calls_of;
use crate::support::proxy::Proxy;

/// Three clients, two of them at proxies, and four waiters of each that have come by turns.
struct Three {
    queue: Queue,
    proxies: Vec<Proxy>,
    clients: Vec<Client>,
    waiting: Vec<Waiter>,
}

impl Three {
    async fn new(change: impl FnOnce(&mut Pace)) -> Self {
        let mut queue = Queue::with(change).await;
        let (mut proxies, mut clients, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 {
            let proxy = Proxy::to(queue.scene.server.port());
            clients.push(queue.scene.client_at(proxy.url()).await);
            proxies.push(proxy);
        }
        for number in 0..12 {
            waiting.push(queue.join(&clients[number % 3]).await);
        }
        Self { queue, proxies, clients, waiting }
    }

    /// Releases, serves all who are left in their order, and looks that nothing remains.
    async fn end(self) {
        let Self { mut queue, proxies, clients, waiting } = self;
        let since = queue.release().await;
        served_in_turn(waiting, since, Duration::ZERO).await;
        drop((clients, proxies));
        queue.end().await;
    }
}

#[tokio::test]
async fn order_survives_polls() {
    let three = Three::new(|_| {}).await;
    let calls = || calls_of(&mut three.queue.scene.server.connection(), "evalsha");
    let before = calls();
    // Each of the three polls six times in this, or nearly.
    eventually("polls", || calls() >= before + 18).await;
    three.end().await;
}

#[tokio::test]
async fn order_survives_new_connections_within_the_clients_deadline() {
    let three = Three::new(|pace| (pace.claim, pace.deadline) = (4_000, 60_000)).await;
    let server = &three.queue.scene.server;
    for kind in ["normal", "pubsub"] {
        server.connection().ok(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        eventually("new connections", || server.clients().len() == 8).await;
    }
    three.proxies[0].cut();
    eventually("new connections", || server.clients().len() == 8).await;
    // All hear again: whoever did not would be passed over.
    let subscribed = || server.connection().ok(&["PUBSUB", "CHANNELS", "lw:wake:*"]).texts().len();
    eventually("subscriptions", || subscribed() == 4).await;
    for client in three.clients.iter().chain([&three.queue.holder]) {
        crate::chaos_faults::until_answered(client).await;
    }
    three.end().await;
}

#[tokio::test]
async fn order_survives_deaths_limits_and_cancellations_of_others() {
    let mut three = Three::new(|pace| (pace.claim, pace.deadline) = (4_000, 60_000)).await;
    three.queue.length = 12;
    let mut dying = three.queue.join_by_process().await;
    let client = three.clients[1].clone();
    let limited = tokio::spawn(kinds::try_lock_for(&client, NAME, millis(300)));
    three.queue.grown_by(1).await;
    for number in [0, 1, 2] {
        three.waiting.push(three.queue.join(&three.clients[number]).await);
    }
    // One of each client: of the front, the middle and the end.
    for number in [13, 7, 0] {
        three.waiting.remove(number).abort();
    }
    assert!(soon("an outcome", limited).await.expect("no panic").expect("the server answers").is_none());
    three.queue.kill(&mut dying).await;
    until_waiting(&three.queue.holder, NAME, 13).await;
    let Three { mut queue, waiting, .. } = three;
    let since = queue.release().await;
    served_in_turn(waiting, since, Duration::ZERO).await;
    queue.end_of_dead().await;
}

#[tokio::test]
async fn order_survives_a_forced_release() {
    let mut three = Three::new(|pace| (pace.claim, pace.deadline) = (4_000, 60_000)).await;
    let taken = three.queue.guard.take().expect("it is held");
    let since = now();
    assert!(three.queue.holder.force_release(NAME, taken.token()).await.expect("the server answers"));
    let first = served(three.waiting.remove(0), since, Duration::ZERO).await;
    assert_eq!(soon("the loss", taken.lost()).await, lockwright::LossReason::TakenByForce);
    drop(taken);
    // The second time it is taken from one of those who waited.
    assert!(three.queue.holder.force_release(NAME, first.token()).await.expect("the server answers"));
    three.queue.guard = Some(served(three.waiting.remove(0), now(), Duration::ZERO).await);
    drop(first);
    three.end().await;
}

// `lua/lib/judge.lua`: it is skipped and keeps its place. A rule that removed it would serve it last.
#[tokio::test]
async fn who_was_passed_over_without_a_connection_is_served_before_later_ones_when_it_is_back() {
    let mut queue = Queue::with(|pace| (pace.claim, pace.deadline) = (4_000, 60_000)).await;
    let proxy = Proxy::to(queue.scene.server.port());
    let away = queue.scene.client_at(proxy.url()).await;
    let (first, second) = (queue.join(&away).await, queue.join(&away).await);
    let here = queue.join_alone().await;
    let later = [queue.join_alone().await, queue.join(&away).await, queue.join_alone().await];
    let connections = queue.scene.server.clients().len();
    proxy.refuse(true);
    proxy.cut();
    eventually("the end of its connections", || queue.scene.server.clients().len() == connections - 2).await;
    let since = queue.release().await;
    queue.guard = Some(served(here, since, Duration::ZERO).await);
    assert!(!first.is_finished() && !second.is_finished());
    proxy.refuse(false);
    eventually("its connections", || queue.scene.server.clients().len() == connections).await;
    crate::chaos_faults::until_answered(&away).await;
    let since = queue.release().await;
    for waiter in [first, second] {
        assert!(!later.iter().any(JoinHandle::is_finished), "a later one is served before");
        let guard = soon("the lock", waiter).await.expect("no panic").expect("it is granted");
        assert!(now().since(since) <= MARGIN * 2);
        queue.guard = Some(guard);
        queue.release().await;
    }
    served_in_turn(later.into(), now(), Duration::ZERO).await;
    drop(away);
    queue.end().await;
}

/// What the server has of a lock, byte for byte, and when it ends.
fn picture(queue: &Queue) -> BTreeMap<String, (crate::support::resp::Reply, i64)> {
    let mut outside = queue.scene.server.connection();
    let keys = outside.ok(&["KEYS", &queue.key("*")]).texts();
    let dumped = |key: String| {
        let dump = outside.ok(&["DUMP", &key]);
        // An absolute time: what is left becomes less by itself.
        let end = outside.ok(&["PEXPIRETIME", &key]).int();
        (key, (dump, end))
    };
    keys.into_iter().map(dumped).collect()
}

/// One name, first used as `mine`, then as the other kind: everything that the other kind can do.
async fn refused(queue: &Queue, client: &Client, found: &str) {
    let mismatch = |error: Option<LockError>| {
        assert_eq!(error, Some(LockError::KindMismatch { found: found.to_owned() }));
    };
    let before = picture(queue);
    assert!(!before.is_empty());
    let limit = Duration::from_secs(1);
    if found == "fair" {
        let lock = client.lock(NAME);
        mismatch(lock.try_lock().await.err());
        mismatch(lock.try_lock_for(limit).await.err());
        mismatch(lock.lock().await.err());
    } else {
        let lock = client.fair_lock(NAME);
        mismatch(lock.try_lock().await.err());
        mismatch(lock.try_lock_for(limit).await.err());
        mismatch(lock.lock().await.err());
        mismatch(lock.queue().await.err());
    }
    // What is sent in the background has been answered, too.
    drop(take(client, "another").await);
    assert_eq!(picture(queue), before, "the {found} lock was touched");
}

// `lua/lib/acquire.lua`: the kind is compared before anything is written.
#[tokio::test]
async fn one_name_is_one_kind_and_the_other_touches_nothing() {
    for found in ["fair", "reentrant"] {
        // Nobody polls or renews meanwhile, which would be seen as a touch.
        let mut queue = Queue::slow_to_poll().await;
        queue.release().await;
        let own = |client: &Client| match found {
            "fair" => client.fair_lock(NAME).lock().boxed(),
            _ => client.lock(NAME).lock().boxed(),
        };
        let (holder, other) = (queue.holder.clone(), queue.scene.client().await);
        let waiter = queue.scene.client().await;
        let guard = own(&holder).await.expect("it is free");
        refused(&queue, &other, found).await;
        let waiting = tokio::spawn(own(&waiter));
        until_waiting(&holder, NAME, 1).await;
        refused(&queue, &other, found).await;
        // Where the lock is gone and only its queue is there, the queue says what kind it is.
        queue.scene.server.connection().ok(&["DEL", &queue.key("")]);
        refused(&queue, &other, found).await;
        drop(guard);
        waiting.abort();
        drop((waiter, holder));
        until_waiting(&queue.holder, NAME, 0).await;
        // A name that is nobody's any more may be used as the other kind.
        let (reentrant, fair) = (other.lock(NAME), other.fair_lock(NAME));
        drop(match found {
            "fair" => reentrant.try_lock().await,
            _ => fair.try_lock().await,
        });
        drop((other, reentrant, fair));
        queue.end().await;
    }
}

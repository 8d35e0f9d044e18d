//! C, one request at a time: lost, late, doubled, and replies that are lost or broken off.

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use lockwright::{Client, Guard, LockError};

use super::*;
use crate::suite::{info, is_busy, is_free, take, timed, until_waiting, wait_for};
use crate::support::kinds::{self, lock_of};
use crate::support::proxy::{Fate, Proxy};
use crate::support::time::{soon, soon_granted};
use crate::support::worker::Scene;

/// A client whose requests can meet a fate, and one that looks from beside.
struct Road {
    scene: Scene,
    proxy: Proxy,
    client: Client,
    beside: Client,
}

impl Road {
    async fn new() -> Self {
        Self::on(Scene::new()).await
    }

    async fn on(scene: Scene) -> Self {
        let proxy = Proxy::to(scene.server.port());
        let (client, beside) = (scene.client_at(proxy.url()).await, scene.client().await);
        Self { scene, proxy, client, beside }
    }

    /// Holds a lock over one renewal and releases it, while the next request of the script meets `fate`.
    async fn turn_under(&self, role: &str, script: &str, fate: Fate) {
        self.proxy.doom(script, fate, 1);
        let guard = soon("the lock", kinds::hold(&self.client, role)).await.expect("it is granted");
        let seen = info(&self.beside, lock_of(role)).await;
        assert_eq!((seen.holds.len(), seen.token), (1, Some(guard.token())), "{seen:?}");
        let mut left = guard.remaining();
        eventually("a renewal", || guard.remaining() > std::mem::replace(&mut left, guard.remaining())).await;
        assert!(guard.is_held());
        guard.unlock().await.expect("it was held to the end");
        assert!(is_free(&info(&self.beside, lock_of(role)).await));
        assert_eq!(self.proxy.pardon(), 0, "no request met its fate");
    }

    /// Such turns in each role, and with each of its scripts.
    async fn turns_under(fate: Fate) {
        for role in ["a", "read x", "write x"] {
            // Lost connections in a row make the pauses before new ones longer, up to a second: a lease outlasts that.
            let mut scene = Scene::new();
            scene.pace.lease = 3_000;
            let road = Self::on(scene).await;
            let kind = if role == "a" { "reentrant" } else { "read_write" };
            for script in [hash(&format!("{kind}/acquire")), renew(), hash(&format!("{kind}/leave"))] {
                road.turn_under(role, &script, fate).await;
            }
            road.end().await;
        }
    }

    async fn end(self) {
        let Self { scene, client, beside, .. } = self;
        client.close().await;
        beside.close().await;
        check_left(&scene.server).await;
    }
}

// `local/errands/`: `ask`, `leave` and `renew` repeat what was not answered.
#[tokio::test]
async fn c1_a_lost_request_is_sent_again() {
    Road::turns_under(Fate::Lost).await;
}

// `lua/*/acquire`: "`K` holds my ticket"; without it the second sending waits for the first one's hold.
#[tokio::test]
async fn c2_a_lost_reply_is_not_counted_twice() {
    Road::turns_under(Fate::ReplyCut(0)).await;
}

// As C2, and `wire/fred.rs`, `discard`: a new connection begins with an empty decoder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_reply_that_breaks_off_anywhere_is_a_lost_one() {
    let mut road = Road::new().await;
    // Forty clients connect at once.
    road.scene.pace.unavailable = 15_000;
    road.scene.pace.lease = 10_000;
    let turns = (1..=40).map(|bytes| {
        let (scene, beside) = (&road.scene, &road.beside);
        async move {
            let proxy = Proxy::to(scene.server.port());
            let client = scene.client_at(proxy.url()).await;
            let name = format!("cut {bytes}");
            proxy.doom(&acquire(), Fate::ReplyCut(bytes), 1);
            let guard = soon("the lock", client.lock(&name).lock()).await.expect("it is granted");
            let seen = info(beside, &name).await;
            assert_eq!((seen.holds.len(), seen.token), (1, Some(guard.token())), "{bytes} bytes: {seen:?}");
            proxy.doom(&leave(), Fate::ReplyCut(bytes), 1);
            // Where the whole reply had passed before the cut, it is as good as any.
            guard.unlock().await.expect("it was held");
            assert!(is_free(&info(beside, &name).await), "{bytes} bytes");
        }
    });
    // A few at a time: forty clients that connect at once take a busy machine longer than they are patient.
    stream::iter(turns).buffer_unordered(4).collect::<Vec<()>>().await;
    road.end().await;
}

// `local/state/connection.rs`, `not_after`, and the first step of `lua/reentrant/acquire` (mutant `NoDeadline`).
#[tokio::test]
async fn c6_a_request_that_arrives_after_its_time_does_nothing() {
    let road = Road::new().await;
    road.proxy.doom(&acquire(), Fate::Stuck, usize::MAX);
    let (took, answer) = timed("an answer", road.client.lock("a").try_lock_for(millis(600))).await;
    assert!(matches!(answer, Err(LockError::Unavailable { .. })), "{answer:?}");
    assert!((millis(600)..millis(700) + MARGIN).contains(&took), "{took:?}");
    road.proxy.pardon();
    let stuck = road.proxy.kept();
    assert!(stuck > 0);
    // That the requests' time passes is the subject here.
    Clock::boot().sleep(millis(road.scene.pace.timeout) * 2).await;
    assert_eq!(road.proxy.deliver().len(), stuck);
    assert!(is_free(&info(&road.beside, "a").await), "a late request has taken the lock");
    assert!(take(&road.client, "a").await.is_held());
    road.end().await;
}

// `local/state/messages.rs`, `disown` (mutant `UnknownTicketKept`).
#[tokio::test]
async fn c6_a_ghost_that_was_in_time_lasts_one_message() {
    let mut road = Road::new().await;
    road.scene.pace.lease = 20_000;
    road.scene.pace.timeout = 10_000;
    let client = road.scene.client_at(road.proxy.url()).await;
    road.proxy.doom(&acquire(), Fate::Doubled, 1);
    take(&client, "a").await.unlock().await.expect("it is held");
    road.proxy.deliver();
    assert!(lease_left(&road.scene.server, "a") > millis(15_000), "no ghost");
    let (took, guard) = timed("the lock", wait_for(&road.beside, "a")).await;
    assert!(took < millis(1_000), "a ghost lasted for {took:?}");
    drop((guard, client));
    road.end().await;
}

// `lua/reentrant/leave`: only the ticket binds.
#[tokio::test]
async fn c7_a_late_or_repeated_leaving_touches_no_later_hold() {
    let road = Road::new().await;
    let owner = lockwright::Owner::new();
    let lock = road.client.lock("a").with_owner(&owner);
    for fate in [Fate::Stuck, Fate::Doubled] {
        let first = lock.lock().await.expect("it is free");
        road.proxy.doom(&leave(), fate, 1);
        first.unlock().await.expect("it was held");
        let second = lock.lock().await.expect("it is free");
        assert_eq!(road.proxy.deliver().len(), 1);
        let seen = info(&road.beside, "a").await;
        assert_eq!((seen.holds.len(), seen.token), (1, Some(second.token())), "{fate:?}");
        second.extend(road.scene.pace.lease()).await.expect("it is held");
        assert!(is_busy(&road.beside, "a").await);
        second.unlock().await.expect("it is held");
    }
    road.end().await;
}

/// Turns of two clients on one lock, each with the guard held at its end.
async fn turns(clients: [&Client; 2], count: usize) {
    let one = |client: Client| async move {
        let mut last = 0;
        for _ in 0..count {
            let guard: Guard = client.lock("a").lock().await.expect("no false failure");
            assert!(guard.token() > last && guard.is_held());
            last = guard.token();
            guard.unlock().await.expect("no false loss");
        }
    };
    soon("all turns", join_all(clients.map(|client| one(client.clone())))).await;
}

// `local/state/grants.rs`, `granted`: the renewal is due a third of what is left after the round trip.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_a_slow_network_is_no_failure() {
    let mut road = Road::new().await;
    // One round trip takes from 400 ms to 1 s.
    road.scene.pace.timeout = 3_000;
    road.scene.pace.unavailable = 10_000;
    road.scene.pace.lease = 4_000;
    road.scene.pace.claim = 3_000;
    road.scene.pace.deadline = 10_000;
    let clients =
        [road.scene.client_at(road.proxy.url()).await, road.scene.client_at(road.proxy.url()).await];
    road.proxy.delay_between(millis(200), millis(500));
    turns([&clients[0], &clients[1]], 2).await;
    let guard = soon("the lock", clients[0].lock("a").lock()).await.expect("it is granted");
    // Two leases long, so that renewals keep it.
    let end = now().plus(road.scene.pace.lease() * 2);
    while now() < end {
        assert!(guard.is_held(), "a renewal came too late");
        Clock::boot().sleep(millis(50)).await;
    }
    guard.unlock().await.expect("it is held");
    drop(clients);
    road.end().await;
}

// `wire/fred.rs`: replies are read from however many pieces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_single_bytes_at_a_kilobyte_a_second_are_enough() {
    let mut road = Road::new().await;
    road.scene.pace.timeout = 5_000;
    road.scene.pace.unavailable = 10_000;
    road.scene.pace.lease = 10_000;
    road.scene.pace.claim = 5_000;
    road.scene.pace.deadline = 10_000;
    let client = road.scene.client_at(road.proxy.url()).await;
    road.proxy.slow();
    let guard = soon("the lock", client.lock("a").lock()).await.expect("it is granted");
    let waiting = tokio::spawn(road.beside.lock("a").lock());
    until_waiting(&road.beside, "a", 1).await;
    guard.unlock().await.expect("it is held");
    soon_granted("the lock", waiting).await.unlock().await.expect("held");
    drop(client);
    road.end().await;
}

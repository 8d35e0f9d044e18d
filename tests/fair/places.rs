//! Positions: upper bounds, which fall and never rise, save where the place itself was lost.

use futures_util::FutureExt;
use lockwright::internals::chance::Chance;
use lockwright::{Engine, Place, Step};

use super::*;
use crate::suite::pass;
use crate::support::proxy::Proxy;

/// A place, and what was heard of it.
struct Watched {
    place: Place,
    seen: u64,
}

impl Watched {
    async fn at(client: &Client) -> Self {
        let place = soon("a place", client.fair_lock(NAME).queue()).await.expect("the server answers");
        Self { seen: place.position().ahead(), place }
    }

    /// Waits for the lock.
    async fn granted(mut self) -> Guard {
        loop {
            let step = soon("the lock", self.place.next()).await.expect("the server answers");
            if let Step::Granted(guard) = step {
                return guard;
            }
        }
    }

    /// Hears what there is to be heard now.
    fn look(&mut self) -> Option<Guard> {
        loop {
            match self.place.next().now_or_never()?.expect("the server answers") {
                Step::Moved(position) => {
                    assert!(position.ahead() < self.seen, "{position} after {}", self.seen);
                    assert_eq!(position, self.place.position());
                    self.seen = position.ahead();
                }
                Step::Granted(guard) => return Some(guard),
            }
        }
    }
}

/// Places of three clients that come, leave and are served by dice, with all of their positions looked at after each
/// event. The engine is enough: what is heard of a position is the client's own reckoning.
async fn churn(seed: u64) {
    println!("seed {seed}");
    let dice = Chance::from_seed(seed);
    let engine = Engine::new();
    let make =
        || Client::builder().claim(millis(300)).client_deadline(Duration::from_secs(10)).embedded_on(&engine);
    let clients = [(); 3].map(|()| make().expect("the settings are valid"));
    let mut guard = Some(take(&clients[0], NAME).await);
    let mut places: Vec<Watched> = Vec::new();
    for _ in 0..400 {
        match dice.next_u64() % 10 {
            0..=4 => {
                let place = Watched::at(&clients[(dice.next_u64() % 3) as usize]).await;
                places.push(place);
            }
            5 | 6 if !places.is_empty() => {
                drop(places.remove((dice.next_u64() % places.len() as u64) as usize));
            }
            7 | 8 => {
                if let Some(guard) = guard.take() {
                    guard.unlock().await.expect("it is held");
                }
                // Now and then the queue is served to its end, and its numbers begin anew.
                let turns = if dice.next_u64().is_multiple_of(8) { places.len() } else { 1 };
                for turn in 0..turns.min(places.len()) {
                    let next = places.remove(0).granted().await;
                    if turn + 1 < turns {
                        next.unlock().await.expect("it is held");
                    } else {
                        guard = Some(next);
                    }
                }
                if guard.is_none() && places.is_empty() {
                    guard =
                        Some(soon("the lock", kinds::lock(&clients[0], NAME)).await.expect("it is granted"));
                }
            }
            _ => pass(millis(dice.next_u64() % 100)).await,
        }
        let mut granted = None;
        for (ahead, watched) in places.iter_mut().enumerate() {
            if let Some(next) = watched.look() {
                // On a machine that is busy for longer than a claim.
                let lost = guard.take().is_none_or(|guard| !guard.is_held());
                assert!(lost && granted.is_none(), "granted while the lock is held");
                granted = Some((ahead, next));
                continue;
            }
            let (before, seen) = (ahead as u64 - u64::from(granted.is_some()), watched.seen);
            assert!(
                seen >= before,
                "{before} are before a place that was told of {seen} at most; seed {seed}"
            );
        }
        if let Some((at, next)) = granted {
            drop(places.remove(at));
            guard = Some(next);
        }
    }
}

// `local/state/places.rs`, `placed`: what is known of one queue says nothing of the next one, whose numbers begin anew.
#[tokio::test]
async fn positions_are_upper_bounds_and_never_rise_whatever_comes_and_leaves() {
    for _ in 0..4 {
        churn(Chance::from_system().next_u64()).await;
    }
}

/// The holder had number 50 of a queue that is gone. Of the next queue its client has numbers 3 and 40: how many waited
/// when the third had joined says nothing of the fortieth.
#[tokio::test]
async fn positions_of_one_queue_are_not_reckoned_by_the_numbers_of_another() {
    let engine = Engine::new();
    let (one, other) = (Client::embedded_on(&engine), Client::embedded_on(&engine));
    let mut guard = take(&other, NAME).await;
    for last in [50, 40] {
        let mut places = Vec::new();
        for ahead in 0..last {
            let client = if ahead == 2 || ahead + 1 == last { &one } else { &other };
            let watched = Watched::at(client).await;
            assert_eq!(watched.seen, ahead, "in a queue of {last}");
            places.push(watched);
        }
        for watched in places {
            guard.unlock().await.expect("it is held");
            guard = watched.granted().await;
        }
    }
}

/// A client that was not heard of for longer than its deadline has lost its places: it says so, where a lower bound
/// would make a person wait in front of a wrong number for ever.
#[tokio::test]
async fn a_place_that_was_lost_is_told_as_what_it_is_now() {
    let mut queue = Queue::new().await;
    let proxy = Proxy::to(queue.scene.server.port());
    let client = queue.scene.client_at(proxy.url()).await;
    let mut place = Watched::at(&client).await;
    assert_eq!(place.seen, 0);
    queue.length = 1;
    proxy.refuse(true);
    proxy.cut();
    let others = [queue.join_alone().await, queue.join_alone().await, queue.join_alone().await];
    pass(millis(queue.scene.pace.deadline + 200)).await;
    // The walk of a hand-over meets what is dead.
    let since = queue.release().await;
    let [first, rest @ ..] = others;
    queue.guard = Some(served(first, since, Duration::ZERO).await);
    proxy.refuse(false);
    match soon("a step", place.place.next()).await.expect("the server answers") {
        Step::Moved(position) => assert_eq!(position.ahead(), 2),
        Step::Granted(guard) => panic!("{guard:?} before the others"),
    }
    let since = queue.release().await;
    served_in_turn(rest.into(), since, Duration::ZERO).await;
    drop(place.granted().await);
    drop(client);
    queue.end().await;
}

//! Who dies, hangs or cannot be reached holds up the others for no longer than the table says.

use std::collections::BTreeMap;

use lockwright::internals::chance::Chance;
use lockwright::internals::clock::Clock;

use super::*;
use crate::chaos_faults::until_answered;
use crate::faults::calls_of;
use crate::suite::{info, until};
use crate::support::proxy::Proxy;

/// A turn of somebody in a crowd.
#[derive(Clone, Copy)]
struct Turn {
    token: u64,
    /// The number of the task, in the order of joining.
    number: u64,
    at: Moment,
}

/// Waits for so many turns of these workers' crowds, and sorts them by token.
async fn turns(workers: &mut [Worker], count: usize) -> Vec<Turn> {
    let mut turns = Vec::new();
    while turns.len() < count {
        let before = turns.len();
        eventually("another turn", || {
            for worker in workers.iter_mut() {
                while let Some(line) = worker.heard(&format!("served {NAME}")) {
                    let words: Vec<u64> =
                        line.split(' ').map(|word| word.parse().expect("a number")).collect();
                    turns.push(Turn { number: words[0], token: words[1], at: Moment::from_nanos(words[2]) });
                }
            }
            turns.len() > before
        })
        .await;
    }
    turns.sort_unstable_by_key(|turn| turn.token);
    turns
}

/// The times from one turn to the next, the first counted from `since`.
fn gaps(turns: &[Turn], since: Moment) -> Vec<Duration> {
    let starts = std::iter::once(since).chain(turns.iter().map(|turn| turn.at));
    starts.zip(turns).map(|(before, turn)| turn.at.since(before)).collect()
}

/// Panics where a turn waits for anything: a poll or a claim would be far longer. A machine that is busy stands still
/// now and then, for one turn in a hundred at most.
fn check_prompt(turns: &[Turn], since: Moment, poll: Duration) {
    let gaps = gaps(turns, since);
    let slow: Vec<&Duration> = gaps.iter().filter(|&&gap| gap > MARGIN).collect();
    assert!(slow.len() * 100 <= gaps.len(), "{slow:?} of {} turns", gaps.len());
    assert!(slow.iter().all(|&&gap| gap < poll * 3 / 4), "{slow:?} from one turn to the next");
}

/// A thousand waiters in four processes, which join by turns of 25.
async fn thousand(queue: &mut Queue) -> Vec<Worker> {
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(queue.scene.worker().await);
    }
    for first in (0..1_000).step_by(25) {
        workers[first / 25 % 4].order(&format!("crowd {NAME} 25 {first}"));
        queue.grown_by(25).await;
    }
    workers
}

/// What the table says of turns where more than 256 tickets in front cannot be reached, and are dead from a moment on:
/// each costs a poll at most, and has the order of its own client; after that moment nothing, and that of all.
fn check_turns(turns: &[Turn], since: Moment, dead: Moment, poll: Duration) {
    let gap = gaps(turns, since).into_iter().max().expect("there are turns");
    assert!(gap <= poll + MARGIN, "{gap:?} from one turn to the next");
    let mut last = BTreeMap::new();
    for turn in turns {
        assert!(last.insert(turn.number / 25 % 4, turn.number) < Some(turn.number), "out of turn");
    }
    let then: Vec<Turn> = turns.iter().copied().filter(|turn| turn.at > dead).collect();
    assert!(then.len() > turns.len() / 4, "{} of {} turns come after the deadline", then.len(), turns.len());
    // The first one may have been granted just before.
    check_order(&then[1..]);
    check_prompt(&then, then[0].at, poll);
}

fn check_order(turns: &[Turn]) {
    for pair in turns.windows(2) {
        assert!(pair[0].number < pair[1].number, "{} after {}", pair[1].number, pair[0].number);
    }
}

// A7. `lua/lib/judge.lua`: whose message reaches nobody is passed over at once. Without that each costs a claim.
#[tokio::test]
async fn five_hundred_of_a_thousand_waiters_are_killed_at_once() {
    let mut queue = Queue::with(|pace| (pace.claim, pace.deadline) = (3_000, 6_000)).await;
    let mut workers = thousand(&mut queue).await;
    let connections = queue.scene.server.clients().len();
    let mut dead: Vec<Worker> = workers.drain(..2).collect();
    dead.iter().for_each(|worker| worker.signal("KILL"));
    eventually("the end of their connections", || queue.scene.server.clients().len() == connections - 4)
        .await;
    dead.iter_mut().for_each(Worker::kill);
    let end = queue.end_of_unreachable();
    let since = queue.release().await;
    let turns = turns(&mut workers, 500).await;
    // They meet at most 150 dead ones, and fewer than 64 entries of those who were served: a call may look at 256.
    let (first, _) = turns.split_at(150);
    check_order(first);
    check_prompt(first, since, queue.poll());
    check_turns(&turns, since, end, queue.poll());
    drop(workers);
    queue.end_of_dead().await;
}

/// Places of one client that cannot be reached, and a thousand living ones behind them.
async fn behind_unreachable(count: usize, deadline: u64) -> (Vec<Turn>, [Moment; 2], Duration) {
    let mut queue = Queue::with(|pace| (pace.claim, pace.deadline) = (3_000, deadline)).await;
    let proxy = Proxy::to(queue.scene.server.port());
    let client = queue.scene.client_at(proxy.url()).await;
    let unreachable: Vec<Waiter> = (0..count).map(|_| tokio::spawn(kinds::lock(&client, NAME))).collect();
    queue.grown_by(count as u64).await;
    let mut workers = thousand(&mut queue).await;
    let connections = queue.scene.server.clients().len();
    proxy.refuse(true);
    proxy.cut();
    eventually("the end of its connections", || queue.scene.server.clients().len() == connections - 2).await;
    let end = queue.end_of_unreachable();
    let since = queue.release().await;
    let turns = turns(&mut workers, 1_000).await;
    unreachable.iter().for_each(JoinHandle::abort);
    drop((workers, client));
    let poll = queue.poll();
    queue.end_of_dead().await;
    (turns, [since, end], poll)
}

// `lua/lib/judge.lua` and `trim_queue.lua`: it keeps its place, and is no hindrance.
#[tokio::test]
async fn one_unreachable_ticket_in_front_of_a_thousand_costs_them_nothing() {
    let (turns, [since, _], poll) = behind_unreachable(1, 60_000).await;
    check_order(&turns);
    check_prompt(&turns, since, poll);
}

// `lua/lib/walk_queue.lua` and `advance.lua`: at the limit of a call the ticket that polls has it. Without that nobody
// would, until the client's deadline.
#[tokio::test]
async fn three_hundred_unreachable_tickets_in_front_of_a_thousand_cost_a_poll_each_turn_until_they_are_dead()
{
    let (turns, [since, end], poll) = behind_unreachable(300, 6_000).await;
    check_turns(&turns, since, end, poll);
    // It is the limit that was met, and not its edge.
    assert!(turns[19].at.since(since) > poll / 2, "{:?}", turns[19].at.since(since));
}

// `lua/lib/advance.lua`: the client's deadline is cut to the claim's end. Without that each of its places costs a
// claim.
#[tokio::test]
async fn a_silent_client_costs_one_claim_however_many_places_it_has() {
    let mut queue = Queue::with(|pace| pace.deadline = 60_000).await;
    let mut silent = Vec::new();
    for first in [0, 20] {
        let mut worker = queue.scene.worker().await;
        worker.order(&format!("crowd {NAME} 20 {first}"));
        queue.grown_by(20).await;
        silent.push(worker);
    }
    let living = queue.join_alone().await;
    silent.iter().for_each(|worker| worker.signal("STOP"));
    let since = queue.release().await;
    let guard = served(living, since, queue.claim() * 2).await;
    silent.iter().for_each(|worker| worker.signal("CONT"));
    // They find out by themselves, and are served.
    until_waiting(&queue.holder, NAME, 40).await;
    guard.unlock().await.expect("it is held");
    let turns = turns(&mut silent, 40).await;
    for half in [0..20, 20..40] {
        let numbers: Vec<u64> =
            turns.iter().map(|turn| turn.number).filter(|number| half.contains(number)).collect();
        assert_eq!(numbers, half.collect::<Vec<u64>>(), "a client's own are served in turn");
    }
    drop(silent);
    queue.end().await;
}

// `local/state/asking.rs`, `send_again`: whoever finds out brings the others along, and these do not do the same again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_lost_places_of_one_client_are_taken_anew_by_one_call_each() {
    let mut queue = Queue::with(|pace| (pace.lease, pace.claim) = (30_000, 2_000)).await;
    let client = queue.scene.client().await;
    let waiting: Vec<Waiter> = (0..1_000).map(|_| tokio::spawn(kinds::lock(&client, NAME))).collect();
    queue.grown_by(1_000).await;
    let calls = |queue: &Queue| calls_of(&mut queue.scene.server.connection(), "evalsha");
    let before = calls(&queue);
    let keys = [queue.key(":queue"), queue.key(":waiting")];
    assert_eq!(queue.scene.server.connection().ok(&["DEL", &keys[0], &keys[1]]).int(), 2);
    queue.length = 0;
    queue.grown_by(1_000).await;
    // Those that would follow are asked for by then.
    until_answered(&client).await;
    let calls = calls(&queue) - before;
    assert!(calls <= 1_100, "{calls} calls");
    waiting.iter().for_each(JoinHandle::abort);
    until_waiting(&queue.holder, NAME, 0).await;
    queue.release().await;
    drop(client);
    queue.end().await;
}

// `local/state/waits.rs`, `cancel`, and `local/state/messages.rs`, `tell`: a grant that meets the leaving of its ticket
// is given back, or counts. A grant that is lost between the two would cost a claim, or a poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_ends_with_the_release_loses_neither_the_lock_nor_a_turn() {
    let seed = Chance::from_system().next_u64();
    println!("seed {seed}");
    let dice = Chance::from_seed(seed);
    let mut queue = Queue::slow_to_poll().await;
    let (hasty, patient) = (queue.scene.client().await, queue.scene.client().await);
    let mut granted = 0;
    const ROUNDS: usize = 300;
    for round in 0..ROUNDS {
        let limit = millis(40) + Duration::from_micros(dice.next_u64() % 2_000);
        let began = now();
        let first = tokio::spawn(kinds::try_lock_for(&hasty, NAME, limit));
        let joined =
            async |count| first.is_finished() || info(&queue.holder, NAME).await.waiting_count == count;
        until("the first", async || joined(1).await).await;
        // Of the same client in every other round.
        let second = tokio::spawn(kinds::lock(if round % 2 == 0 { &hasty } else { &patient }, NAME));
        until("the second", async || joined(2).await).await;
        Clock::boot().sleep_until(began.plus(millis(40))).await;
        let mut since = queue.release().await;
        let outcome = soon("an outcome", first).await.expect("no panic");
        // On a machine that is busy there may be no answer within the limit.
        let unheard = matches!(outcome, Err(LockError::Unavailable { .. }));
        if let Some(guard) = if unheard { None } else { outcome.expect("the server answers") } {
            assert!(guard.is_held());
            granted += 1;
            since = now();
            guard.unlock().await.expect("it is held");
        }
        drop(served(second, since, Duration::ZERO).await);
        queue.guard = Some(soon("the lock", kinds::lock(&queue.holder, NAME)).await.expect("it is granted"));
    }
    assert!((1..ROUNDS).contains(&granted), "no race: {granted} of {ROUNDS} were granted");
    queue.release().await;
    drop((hasty, patient));
    queue.end().await;
}

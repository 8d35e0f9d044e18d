//! Reports on Redisson's fair lock.

use futures_util::future::join_all;
use lockwright::Lease;
use lockwright::internals::chance::Chance;
use lockwright::internals::clock::Clock;

use super::*;
use crate::suite::{BY_MESSAGE, info, is_busy, pass};
use crate::support::proxy::{Proxy, Way};

/// Panics where the server keeps a client's places for longer than it may.
fn check_deadlines(queue: &Queue) {
    let mut outside = queue.scene.server.connection();
    let now = server_millis(&mut outside);
    let waiting = outside.ok(&["HGETALL", &queue.key(":waiting")]).texts();
    for pair in waiting.chunks(2).filter(|pair| pair[0] != "queue" && !pair[0].contains(':')) {
        let deadline: u64 = pair[1].split(' ').next().and_then(|word| word.parse().ok()).expect("a deadline");
        // The clock was read before.
        let latest = now + queue.scene.pace.deadline + 1_000;
        assert!(deadline <= latest, "{pair:?} at {now}");
    }
}

// Every wait that timed out moved the others' time of expiry into the future, so that a dead one at the head, later on,
// held everybody up for hours.
#[tokio::test]
async fn redisson_1104_short_waits_do_not_lengthen_the_life_of_a_dead_waiter() {
    let mut queue = Queue::new().await;
    let clients = [queue.scene.client().await, queue.scene.client().await, queue.scene.client().await];
    for _ in 0..30 {
        let tries = clients.each_ref().map(|client| kinds::try_lock_for(client, NAME, millis(20)));
        for outcome in join_all(tries).await {
            assert!(!matches!(outcome, Ok(Some(_))), "it is held");
        }
    }
    let mut dead = queue.join_by_process().await;
    let living = queue.join_alone().await;
    check_deadlines(&queue);
    queue.kill(&mut dead).await;
    let since = queue.release().await;
    drop(served(living, since, Duration::ZERO).await);
    drop(clients);
    queue.end().await;
}

// The same drift came by other ways: whoever left in whatever manner left the others' times as they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_2099_no_coming_and_going_lengthens_any_deadline() {
    let dice = Chance::from_system();
    let seed = dice.next_u64();
    println!("seed {seed}");
    let dice = Chance::from_seed(seed);
    let mut queue = Queue::new().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(queue.scene.client().await);
    }
    for _ in 0..40 {
        let below = |limit: u64| dice.next_u64() % limit;
        let mut tasks = Vec::new();
        for client in &clients {
            let (client, span, drops) = (client.clone(), millis(below(30)), below(3) == 0);
            tasks.push(tokio::spawn(async move {
                if drops {
                    tokio::select! {
                        biased;
                        guard = kinds::lock(&client, NAME) => panic!("it is held: {guard:?}"),
                        () = pass(span) => {}
                    }
                } else {
                    // Some of these are over before there is an answer.
                    let outcome = kinds::try_lock_for(&client, NAME, span).await;
                    assert!(!matches!(outcome, Ok(Some(_))), "it is held");
                }
            }));
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        check_deadlines(&queue);
    }
    until_waiting(&queue.holder, NAME, 0).await;
    queue.release().await;
    drop(clients);
    queue.end().await;
}

// Three hundred threads asked at once, without a lease, and after a while nobody got the lock any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_2278_three_hundred_who_ask_at_once_are_all_served() {
    let mut queue = Queue::slow_to_poll().await;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        let client = queue.scene.client().await;
        waiting.extend((0..30).map(|_| tokio::spawn(kinds::lock(&client, NAME))));
    }
    queue.grown_by(300).await;
    let since = queue.release().await;
    let turns = waiting.into_iter().map(async |waiter| {
        let guard = waiter.await.expect("no panic").expect("it is granted");
        guard.unlock().await.expect("it is held");
    });
    let turns = soon("three hundred turns", join_all(turns)).await;
    assert_eq!(turns.len(), 300);
    // One message that nobody hears would cost a poll, which is ten seconds here.
    assert!(now().since(since) < BY_MESSAGE, "{:?}", now().since(since));
    queue.end().await;
}

// Five hundred threads with a lease: after a hundred turns the queue stood still, and its keys remained.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_2883_five_hundred_with_a_lease_are_all_served_in_turn() {
    let mut queue = Queue::slow_to_poll().await;
    let client = queue.scene.client().await;
    let lock = client.fair_lock(NAME).with_lease(Lease::fixed(Duration::from_secs(5)));
    let mut last = None;
    let mut waiting = Vec::new();
    for number in 0..500 {
        let wait = lock.lock();
        waiting.push(async move {
            let guard = wait.await.expect("it is granted");
            let token = guard.token();
            guard.unlock().await.expect("it is held");
            (token, number)
        });
    }
    let turns = tokio::spawn(join_all(waiting));
    queue.grown_by(500).await;
    let since = queue.release().await;
    let mut turns = soon("five hundred turns", turns).await.expect("no panic");
    assert!(now().since(since) < BY_MESSAGE, "{:?}", now().since(since));
    turns.sort_unstable();
    for (_, number) in turns {
        assert!(last < Some(number), "{number} after {last:?}");
        last = Some(number);
    }
    drop((client, lock));
    queue.end().await;
}

// Others took those who had waited for five minutes for dead. They lived, never came back into the queue, and waited
// for a message for ever.
#[tokio::test]
async fn redisson_3004_who_was_taken_for_dead_comes_back_by_itself() {
    let mut queue = Queue::new().await;
    let mut silent = queue.join_by_process().await;
    silent.signal("STOP");
    let other = queue.join_alone().await;
    // Beyond its client's deadline, which is the subject here.
    pass(millis(queue.scene.pace.deadline + 200)).await;
    let since = queue.release().await;
    let guard = served(other, since, Duration::ZERO).await;
    assert_eq!(info(&queue.holder, NAME).await.waiting_count, 0, "it counts as dead");
    silent.signal("CONT");
    until_waiting(&queue.holder, NAME, 1).await;
    let since = now();
    guard.unlock().await.expect("it is held");
    assert!(served_there(&mut silent, since, Duration::ZERO).await > 0);
    drop(silent);
    check_left(&queue.scene.server).await;
}

// A shut-down left waiters in the queue. Whoever used the lock afterwards waited for each of them in turn.
#[tokio::test]
async fn redisson_3178_three_hundred_that_were_shut_down_cost_one_poll() {
    let mut queue = Queue::with(|pace| (pace.claim, pace.deadline) = (1_400, 20_000)).await;
    let mut crowd = queue.scene.worker().await;
    crowd.order(&format!("crowd {NAME} 300 0"));
    queue.grown_by(300).await;
    let living = queue.join_alone().await;
    queue.kill(&mut crowd).await;
    let since = queue.release().await;
    // A call looks at 256 entries.
    drop(served(living, since, queue.poll()).await);
    queue.end_of_dead().await;
}

// Several asked at once for the lock, with a limit of minutes. One of them sat out its limit while the lock was free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_3254_nobody_sits_out_its_limit_at_a_free_lock() {
    let mut queue = Queue::slow_to_poll().await;
    let client = queue.scene.client().await;
    let waits_for = |limit: Duration| {
        let wait = kinds::try_lock_for(&client, NAME, limit);
        // The guard is dropped at once.
        tokio::spawn(async move { wait.await.expect("the server answers").is_some() })
    };
    let waiting: Vec<_> = (0..12)
        .map(|number| {
            (
                number,
                waits_for(match number % 3 {
                    0 => Duration::from_secs(1),
                    _ => Duration::from_secs(60),
                }),
            )
        })
        .collect();
    queue.grown_by(12).await;
    // The first of each three gives up while it waits.
    until_waiting(&queue.holder, NAME, 8).await;
    let since = queue.release().await;
    for (number, waiter) in waiting {
        let granted = soon("an outcome", waiter).await.expect("no panic");
        assert_eq!(granted, number % 3 != 0, "waiter {number}");
    }
    assert!(now().since(since) < BY_MESSAGE, "{:?}", now().since(since));
    drop(client);
    queue.end().await;
}

// The holder ended without a release. Its lease ran out and told nobody, and the second one sat out its own limit.
#[tokio::test]
async fn redisson_3730_a_lease_that_runs_out_is_noticed() {
    let mut queue = Queue::with(|pace| (pace.claim, pace.deadline) = (1_400, 3_000)).await;
    let client = queue.scene.client().await;
    let wait = client.fair_lock(NAME).with_lease(Lease::fixed(millis(1_000))).lock();
    let first = queue.join_by(Box::pin(wait)).await;
    let second = queue.join_alone().await;
    let since = queue.release().await;
    let forgotten = served(first, since, Duration::ZERO).await;
    let since = now();
    std::mem::forget(forgotten);
    drop(served(second, since, millis(1_000)).await);
    client.close().await;
    queue.end().await;
}

// A failover lost the key of the lock. The release found nothing to delete and told nobody.
#[tokio::test]
async fn redisson_3829_waiters_of_a_lock_that_was_deleted_are_served_in_turn() {
    let mut queue = Queue::new().await;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(queue.join_alone().await);
    }
    assert_eq!(queue.scene.server.connection().ok(&["DEL", &queue.key("")]).int(), 1);
    let since = now();
    let guard = queue.guard.take().expect("it is held");
    assert!(guard.unlock().await.is_err(), "it is lost");
    served_in_turn(waiting, since, queue.poll()).await;
    queue.end().await;
}

// A service was stopped while it waited. After its start the keys of its queue were still there, and no try ever
// succeeded.
#[tokio::test]
async fn redisson_4661_what_a_stopped_service_left_behind_stops_no_try() {
    let mut queue = Queue::with(|pace| pace.deadline = 60_000).await;
    let service = queue.join_by_process().await;
    queue.end_by(&service, "TERM").await;
    queue.release().await;
    let again = queue.scene.client().await;
    let there = |queue: &Queue| queue.scene.server.connection().ok(&["LLEN", &queue.key(":queue")]).int();
    assert_eq!(there(&queue), 1, "its place is still there");
    drop(take(&again, NAME).await);
    drop(again);
    queue.end_of_dead().await;
}

// Eight waited ten seconds each for a lease of one second that was never given back; one or two got it.
#[tokio::test]
async fn redisson_4705_eight_leases_in_a_row_run_out_and_all_eight_are_served() {
    const LEASE: Duration = Duration::from_millis(700);
    let mut queue = Queue::new().await;
    let (mut waiting, mut clients) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let client = queue.scene.client().await;
        let wait = client.fair_lock(NAME).with_lease(Lease::fixed(LEASE)).lock();
        waiting.push(queue.join_by(Box::pin(wait)).await);
        clients.push(client);
    }
    let mut since = queue.release().await;
    let mut kept = Vec::new();
    for (number, waiter) in waiting.into_iter().enumerate() {
        let limit = if number == 0 { Duration::ZERO } else { LEASE };
        kept.push(served(waiter, since, limit).await);
        since = now();
    }
    assert!(kept.windows(2).all(|pair| pair[0].token() < pair[1].token()));
    drop((kept, clients));
    queue.end().await;
}

// The answer to a try came too late, and the error that this was left the try's place in the queue.
#[tokio::test]
async fn redisson_5019_a_wait_that_ends_by_an_error_leaves_no_place() {
    let mut queue = Queue::with(|pace| (pace.timeout, pace.unavailable) = (400, 2_000)).await;
    let proxy = Proxy::to(queue.scene.server.port());
    let cut_off = queue.scene.client_at(proxy.url()).await;
    proxy.black_hole(Way::ToClient);
    let wait = tokio::spawn(kinds::try_lock_for(&cut_off, NAME, Duration::from_secs(60)));
    queue.grown_by(1).await;
    let behind = queue.join_alone().await;
    let outcome = soon("an outcome", wait).await.expect("no panic");
    assert!(matches!(outcome, Err(LockError::Unavailable { .. })), "{outcome:?}");
    let since = queue.release().await;
    // Where its connection still counts as one, it is a silent waiter.
    let guard = served(behind, since, queue.claim()).await;
    proxy.heal();
    until_waiting(&queue.holder, NAME, 0).await;
    drop((guard, cut_off));
    queue.end().await;
}

// For how long to sleep was reckoned from a queue that had become older than its first estimate: less than nothing,
// which was taken for ever.
#[tokio::test]
async fn redisson_5503_a_wait_that_outlasts_every_estimate_still_ends_in_time() {
    let mut queue = Queue::with(|pace| (pace.lease, pace.claim, pace.deadline) = (1_500, 1_400, 3_000)).await;
    queue.release().await;
    let mut holder = queue.scene.worker().await;
    let (token, _) = holder.take(NAME).await;
    let waiter = queue.join_alone().await;
    // Longer than lease and deadline; the holder renews. How long is the subject here.
    pass(millis(2 * queue.scene.pace.lease)).await;
    let (since, rest) = (now(), left(&queue));
    holder.kill();
    let guard = served(waiter, since, rest).await;
    assert!(guard.token() > token);
    guard.unlock().await.expect("it is held");
    // And where nothing is left already when it comes, though the key is there, and for ever.
    let mut holder = queue.scene.worker().await;
    holder.take(NAME).await;
    let (since, rest) = (now(), left(&queue));
    holder.kill();
    let mut outside = queue.scene.server.connection();
    assert_eq!(outside.ok(&["PERSIST", &queue.key("")]).int(), 1);
    Clock::boot().sleep_until(since.plus(rest + millis(20))).await;
    assert_eq!(outside.ok(&["EXISTS", &queue.key("")]).int(), 1);
    let late = tokio::spawn(kinds::lock(&queue.holder, NAME));
    drop(served(late, now(), Duration::ZERO).await);
    queue.end().await;
}

// With many threads in one process messages were used up by threads that had gone, and those who waited slept until the
// lease ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_5761_of_many_short_turns_in_two_processes_none_waits_for_a_poll() {
    let mut queue = Queue::slow_to_poll().await;
    let mut workers = [queue.scene.worker().await, queue.scene.worker().await];
    workers.iter_mut().for_each(|worker| worker.order(&format!("turns {NAME} 400")));
    queue.grown_by(16).await;
    let since = queue.release().await;
    for worker in &mut workers {
        assert_eq!(worker.hear(&format!("turns {NAME} 400")).await, "0", "a holder was refused");
    }
    assert!(now().since(since) < BY_MESSAGE, "{:?}", now().since(since));
    assert_eq!(queue.scene.fence.cell(NAME).accepted, 800);
    drop(workers);
    queue.end().await;
}

// All places in the queue were those of a process that had been killed, and the lock stayed blocked for whoever came
// after it.
#[tokio::test]
async fn redisson_6150_a_queue_of_a_dead_process_alone_does_not_outlast_its_lease() {
    let mut queue = Queue::with(|pace| (pace.claim, pace.deadline) = (1_400, 20_000)).await;
    queue.release().await;
    let mut process = queue.scene.worker().await;
    process.take(NAME).await;
    process.order(&format!("crowd {NAME} 10 0"));
    queue.grown_by(10).await;
    let (since, rest) = (now(), left(&queue));
    process.kill();
    let mut again = queue.scene.worker().await;
    again.order(&format!("take {NAME}"));
    served_there(&mut again, since, rest).await;
    assert!(is_busy(&queue.holder, NAME).await);
    assert_eq!(again.ask(&format!("free {NAME}")).await, "ok");
    drop(again);
    drop(take(&queue.holder, NAME).await);
}

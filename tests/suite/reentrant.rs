//! Who is inside, who waits, and in which order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockwright::internals::clock::until as time_until;
use lockwright::{Guard, InvalidName, Kind, LockError, LossReason, Mode, NotObtained, RunError, UnlockError};
use tokio::sync::mpsc;

use super::*;

pub async fn unlock_frees<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = take(&one, "a").await;
    assert!(guard.is_held());
    assert_eq!(guard.unlock().await, Ok(()));
    // At once: the answer says that the server has let go.
    assert!(is_free(&info(&other, "a").await));
    take(&other, "a").await.unlock().await.expect("it is held");
}

pub async fn drop_frees<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    drop(take(&one, "a").await);
    wait_for(&other, "a").await.unlock().await.expect("it is held");
}

pub async fn a_guard_dropped_outside_a_runtime_frees<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = take(&one, "a").await;
    std::thread::spawn(move || drop(guard)).join().expect("no panic outside a runtime");
    wait_for(&other, "a").await.unlock().await.expect("it is held");
}

pub async fn a_second_client_is_told_busy<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = take(&one, "a").await;
    assert!(is_busy(&other, "a").await);
    assert!(is_busy(&one, "a").await);
    // An attempt that does not wait leaves nothing that would get the lock later.
    assert_eq!(info(&other, "a").await.waiting_count, 0);
    guard.unlock().await.expect("it is held");
    assert!(is_free(&info(&other, "a").await));
}

pub async fn a_limited_wait_ends_in_time<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = take(&one, "a").await;
    let lock = other.lock("a");
    // Long enough for a busy machine to answer in, or the outcome would be that nothing is known.
    let limit = Duration::from_secs(1);
    let (took, outcome) = timed("the end of the wait", lock.try_lock_for(limit)).await;
    assert!(matches!(outcome, Ok(None)), "{outcome:?}");
    assert!(took >= limit && took < limit + Duration::from_secs(2), "{took:?}");
    let deadline = in_time(limit);
    let outcome = soon("the end of the wait", lock.try_lock_until(deadline)).await;
    assert!(matches!(outcome, Ok(None)) && time_until(deadline).is_zero(), "{outcome:?}");
    // One attempt, with the time that its answer takes.
    assert!(matches!(lock.try_lock_for(Duration::ZERO).await, Ok(None)));
    until_waiting(&one, "a", 0).await;
    guard.unlock().await.expect("it is held");
    let guard = lock.try_lock_for(Duration::ZERO).await.expect("the server answers");
    assert!(guard.is_some());
}

pub async fn a_limited_wait_takes_what_comes_free<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = take(&one, "a").await;
    let waiting = tokio::spawn(other.lock("a").try_lock_for(PATIENCE));
    until_waiting(&one, "a", 1).await;
    guard.unlock().await.expect("it is held");
    let guard = soon("the lock", waiting).await.expect("no panic").expect("the server answers");
    assert!(guard.is_some_and(|guard| guard.is_held()));
}

pub async fn a_wait_for_a_holder_is_no_wait_for_the_server<D: Deployment>(on: &D) {
    // Less than the 3 s between two polls, in which the server is not asked and says nothing.
    let impatient = |builder: ClientBuilder| {
        let rare_polls = builder.claim(Duration::from_secs(6)).client_deadline(Duration::from_secs(60));
        rare_polls.unavailable_after(Duration::from_secs(2))
    };
    let (one, other) = (on.client().await, on.client_with(impatient).await);
    let guard = take(&one, "a").await;
    let waiting = tokio::spawn(other.lock("a").lock());
    until_waiting(&one, "a", 1).await;
    // The passing of time is the subject: one poll at least.
    pass(Duration::from_secs(4)).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    guard.unlock().await.expect("it is held");
    assert!(soon_granted("the lock", waiting).await.is_held());
}

pub async fn a_release_wakes_a_waiter_of_another_client<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    for round in 0..10 {
        let guard = take(&one, "a").await;
        let waiting = tokio::spawn(other.lock("a").lock());
        until_waiting(&one, "a", 1).await;
        let release = async {
            // Both ways of letting go.
            if round % 2 == 0 {
                drop(guard)
            } else {
                guard.unlock().await.expect("it is held")
            }
            waiting.await.expect("no panic").expect("it is granted")
        };
        let (took, guard) = timed("the lock", release).await;
        assert!(took < BY_MESSAGE, "{took:?}");
        guard.unlock().await.expect("it is held");
    }
}

pub async fn clients_are_served_in_the_order_they_came<D: Deployment>(on: &D) {
    let first = on.client().await;
    let guard = take(&first, "a").await;
    let (entered, mut order) = mpsc::unbounded_channel();
    let mut clients = Vec::new();
    for number in 0..5 {
        let client = on.client().await;
        let (lock, entered) = (client.lock("a"), entered.clone());
        tokio::spawn(async move {
            let guard = lock.lock().await.expect("it is granted");
            entered.send(number).expect("the case listens");
            guard.unlock().await.expect("it is held");
        });
        until_waiting(&first, "a", number + 1).await;
        clients.push(client);
    }
    guard.unlock().await.expect("it is held");
    drop(entered);
    let mut served = Vec::new();
    while let Some(number) = soon("all of them", order.recv()).await {
        served.push(number);
    }
    assert_eq!(served, [0, 1, 2, 3, 4]);
}

pub async fn tokens_rise_from_grant_to_grant<D: Deployment>(on: &D) {
    let clients = [on.client().await, on.client().await];
    let mut last = 0;
    for round in 0..20 {
        // By turns, and twice in a row; free in between, and handed over.
        let client = &clients[round / 2 % 2];
        let guard = wait_for(client, "a").await;
        assert!(guard.token() > last, "{} after {last}", guard.token());
        last = guard.token();
        if round % 3 == 0 { drop(guard) } else { guard.unlock().await.expect("it is held") }
    }
    assert!(last < 1 << 53);
}

pub async fn a_handle_shared_by_two_tasks_excludes<D: Deployment>(on: &D) {
    let client = on.client().await;
    let lock = client.lock("a");
    let inside = Arc::new(AtomicBool::new(false));
    let last = Arc::new(AtomicU32::new(0));
    let tasks = (0..2).map(|_| {
        let (lock, inside, count) = (lock.clone(), inside.clone(), last.clone());
        tokio::spawn(async move {
            for _ in 0..50 {
                let guard = lock.lock().await.expect("it is granted");
                assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                tokio::task::yield_now().await;
                count.fetch_add(1, Ordering::SeqCst);
                inside.store(false, Ordering::SeqCst);
                drop(guard);
            }
        })
    });
    for task in soon("both tasks", join_all(tasks)).await {
        task.expect("no panic");
    }
    assert_eq!(last.load(Ordering::SeqCst), 100);
}

pub async fn waiting_for_one_lock_many_times_in_one_task_ends<D: Deployment>(on: &D) {
    let client = on.client().await;
    let lock = client.lock("a");
    let sections = (0..20).map(|_| async {
        let guard: Guard = lock.lock().await.expect("it is granted");
        tokio::task::yield_now().await;
        let token = guard.token();
        guard.unlock().await.expect("it is held");
        token
    });
    let mut tokens = soon("all sections", join_all(sections)).await;
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 20, "each section had a grant of its own");
}

pub async fn names_are_different_locks<D: Deployment>(on: &D) {
    let client = on.client().await;
    // Names that an escape that loses something would make one lock.
    let longest = "ä".repeat(256);
    let names =
        ["a", "A", "a ", "{a}", "%7Ba%7D", "a}{a", "a:queue", "a:token", "%", "%25", "\0", "\n", &longest];
    let mut guards = Vec::new();
    for name in names {
        guards.push(take(&client, name).await);
    }
    assert!(guards.iter().all(Guard::is_held));
}

pub async fn namespaces_do_not_see_each_other<D: Deployment>(on: &D) {
    let here = on.client_with(|builder| builder.namespace("here")).await;
    let there = on.client_with(|builder| builder.namespace("there")).await;
    let (one, other) = (take(&here, "a").await, take(&there, "a").await);
    assert!(one.is_held() && other.is_held());
}

pub async fn invalid_names_are_told<D: Deployment>(on: &D) {
    let client = on.client().await;
    let too_long = "a".repeat(513);
    for (name, wanted) in [("", InvalidName::Empty), (&too_long, InvalidName::TooLong { bytes: 513 })] {
        // Making a handle is no operation yet.
        let lock = client.lock(name);
        let wanted = LockError::InvalidName(wanted);
        assert_eq!(lock.lock().await.err(), Some(wanted.clone()));
        assert_eq!(lock.try_lock().await.err(), Some(wanted.clone()));
        assert_eq!(lock.try_lock_for(PATIENCE).await.err(), Some(wanted.clone()));
        assert_eq!(client.inspect(name).await.err(), Some(wanted));
    }
}

pub async fn a_section_is_run_under_the_lock<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let lock = one.lock("a");
    let token = lock
        .run(async |guard| {
            assert!(guard.is_held() && is_busy(&other, "a").await);
            guard.token()
        })
        .await
        .expect("it ran");
    // Released when `run` returns.
    let guard = take(&other, "a").await;
    assert!(guard.token() > token);
    guard.unlock().await.expect("it is held");
    assert_eq!(lock.run_for(PATIENCE, async |_| 1).await, Ok(Some(1)));
    assert_eq!(lock.run_or_else(async |_| 1, async |_| 2).await, Ok(1));
}

pub async fn a_section_is_not_begun_without_the_lock<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let guard = take(&one, "a").await;
    let lock = other.lock("a");
    let limit = Duration::from_millis(500);
    assert_eq!(lock.run_for(limit, async |_| panic!("it was begun")).await, Ok(None::<()>));
    let why = lock.run_or_else(async |_| panic!("it was begun"), async |why| why).await;
    assert_eq!(why, Ok(NotObtained::Held));
    drop(guard);
    let nameless = other.lock("");
    let error = LockError::InvalidName(InvalidName::Empty);
    assert_eq!(
        nameless.run(async |_| panic!("it was begun")).await,
        Err::<(), _>(RunError::Lock(error.clone()))
    );
    let why = nameless.run_or_else(async |_| panic!("it was begun"), async |why| why).await;
    assert_eq!(why, Ok(NotObtained::Failed(error)));
}

pub async fn force_takes_a_lock_from_its_holder<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    let guard = take(&one, "a").await;
    let waiting = tokio::spawn(other.lock("a").lock());
    until_waiting(&one, "a", 1).await;
    // On a task of its own, so that nothing but its own waker has it polled.
    let lost = tokio::spawn(guard.lost());
    // A token of another grant is not this one's.
    assert_eq!(other.force_release("a", guard.token() - 1).await, Ok(false));
    assert!(guard.is_held());
    assert_eq!(other.force_release("a", guard.token()).await, Ok(true));
    let (took, reason) = timed("the news", lost).await;
    assert!(took < BY_MESSAGE && reason.expect("no panic") == LossReason::TakenByForce, "after {took:?}");
    assert!(!guard.is_held());
    let next = soon_granted("the lock", waiting).await;
    assert!(next.token() > guard.token());
    assert_eq!(guard.unlock().await, Err(UnlockError::Lost(LossReason::TakenByForce)));
    // What was lost frees nothing.
    assert!(next.is_held() && is_busy(&one, "a").await);

    let lock = one.lock("b");
    let run = lock.run(async |guard| {
        assert_eq!(other.force_release("b", guard.token()).await, Ok(true));
        std::future::pending::<()>().await;
    });
    assert_eq!(soon("the end of the section", run).await, Err(RunError::Lost(LossReason::TakenByForce)));
}

pub async fn inspection_shows_holders_and_waiters<D: Deployment>(on: &D) {
    let one = on.client_with(|builder| builder.label("the first")).await;
    let other = on.client().await;
    assert!(is_free(&info(&other, "a").await));
    let guard = take(&one, "a").await;
    let waiting = tokio::spawn(other.lock("a").with_label("the second").lock());
    until_waiting(&one, "a", 1).await;
    let info = info(&other, "a").await;
    assert_eq!((info.kind, info.mode), (Some(Kind::Reentrant), Some(Mode::Exclusive)));
    assert_eq!((info.owner, info.token), (None, Some(guard.token())));
    assert_eq!((info.holds.len(), info.waiting.len(), info.queue_length), (1, 1, 1));
    assert_eq!(info.holds[0].label.as_deref(), Some("the first"));
    assert_eq!(info.waiting[0].label.as_deref(), Some("the second"));
    // The default lease, of which little has passed.
    assert!((10_000..=30_000).contains(&info.holds[0].left_millis), "{:?}", info.holds);
    guard.unlock().await.expect("it is held");
    soon_granted("the lock", waiting).await.unlock().await.expect("it is held");
    assert!(is_free(&super::info(&other, "a").await));
}

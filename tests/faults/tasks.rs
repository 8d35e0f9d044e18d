//! Tasks, threads and runtimes that end, panic or are shared: B7 to B22.
#![allow(clippy::disallowed_methods, reason = "threads and runtimes of their own are the subject")]

use std::cell::RefCell;
use std::process::Command;
use std::time::Duration;

use lockwright::{Client, Guard, Lease, LockError, LossReason, Owner, UnlockError};
use tokio::runtime::{Builder, Runtime};

use super::{connect, leftovers, quick, works};
use crate::suite::{info, is_busy, pass, take, until, until_free, until_waiting, wait_for};
use crate::support::server::Server;
use crate::support::time::{eventually, soon};

/// Long enough for several renewals, short enough to wait for its end.
const SHORT: Duration = Duration::from_millis(600);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

async fn short(server: &Server) -> Client {
    quick(&server.url()).lease(Lease::renewed(SHORT)).connect().await.expect("the server is there")
}

/// Fails without the release in `Drop for Guard`, or where the watchdog goes on after it.
#[tokio::test]
async fn b7_a_panic_in_the_section_releases() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let lock = client.lock("x");
    let panicking = tokio::spawn(async move { lock.run(async |_| -> () { panic!("on purpose") }).await });
    assert!(soon("the panic", panicking).await.expect_err("it panics").is_panic());
    until_free(&other, "x").await;
    works(&other, "x").await;
    works(&client, "x").await;
}

/// The process of `b8`: takes the lock and aborts.
#[tokio::test]
#[ignore = "the child of b8_a_process_that_aborts_costs_its_lease"]
async fn b8_child() {
    let Ok(url) = std::env::var("LOCKWRIGHT_TEST_URL") else { return };
    let client = quick(&url).lease(Lease::renewed(SHORT)).connect().await.expect("the server is there");
    let _guard = take(&client, "x").await;
    std::process::abort();
}

/// Fails where a lock has no lease of its own at the server.
#[tokio::test]
async fn b8_a_process_that_aborts_costs_its_lease() {
    let server = Server::start();
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program)
        .args(["--exact", "--ignored", "faults::tasks::b8_child"])
        .env("LOCKWRIGHT_TEST_URL", server.url())
        .output()
        .expect("it runs");
    assert!(!child.status.success(), "it does not abort");
    let client = connect(&server).await;
    assert!(server.connection().ok(&["EXISTS", "lw:{x}:token"]).int() == 1, "it never held the lock");
    let left = info(&client, "x").await.holds.first().map_or(0, |hold| hold.left_millis);
    let (took, guard) = crate::suite::timed("the lock", client.lock("x").lock()).await;
    assert!(guard.expect("it is granted").is_held());
    assert!(took <= Duration::from_millis(left + 250), "{took:?} of {left} ms");
}

/// Fails where `max_hold` does not end the renewals.
#[tokio::test]
async fn b9_a_forgotten_guard_ends_with_its_longest_hold_or_its_client() {
    let server = Server::start();
    let (client, other) = (short(&server).await, connect(&server).await);
    let guard = client.lock("x").with_max_hold(SHORT * 2).lock().await.expect("it is free");
    let lost = guard.lost();
    std::mem::forget(guard);
    assert_eq!(soon("the end", lost).await, LossReason::Expired);
    works(&other, "x").await;
    // Without a bound it is renewed for as long as its client lives: that is documented, and no longer.
    std::mem::forget(take(&client, "y").await);
    pass(SHORT * 2).await;
    assert!(is_busy(&other, "y").await);
    client.close().await;
    works(&other, "y").await;
}

thread_local! {
    /// Dropped when its thread ends.
    static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

/// Fails where a drop needs the runtime of its thread.
#[test]
fn b10_guards_may_be_dropped_anywhere_and_after_the_runtime() {
    let server = Server::start();
    let first = runtime();
    let (client, one, two, three, four, five) = first.block_on(async {
        let client = short(&server).await;
        let (one, two, three) =
            (take(&client, "1").await, take(&client, "2").await, take(&client, "3").await);
        let (four, five) = (take(&client, "4").await, take(&client, "5").await);
        (client, one, two, three, four, five)
    });
    // At the end of a thread, when what tokio keeps for it is gone: that was made later.
    std::thread::spawn(move || {
        KEPT.set(Some(four));
        runtime().block_on(async {});
    })
    .join()
    .expect("no panic");
    first.block_on(until_free(&client, "4"));
    // Inside of another runtime that has ended, by the task that it refuses.
    let ended = runtime();
    let second = ended.handle().clone();
    drop(ended);
    let context = second.enter();
    let refused = tokio::spawn(async move {
        std::future::pending::<()>().await;
        drop(five);
    });
    drop(context);
    assert!(first.block_on(refused).expect_err("it is refused").is_cancelled(), "the drop panics");
    first.block_on(until_free(&client, "5"));
    std::thread::spawn(move || drop(one)).join().expect("no panic");
    first.block_on(until_free(&client, "1"));
    // Inside another runtime.
    runtime().block_on(async { drop(two) });
    first.block_on(until_free(&client, "2"));
    drop(first);
    assert!(!three.is_held(), "nobody renews it");
    drop(three);
    runtime().block_on(async {
        let other = connect(&server).await;
        assert!(wait_for(&other, "3").await.is_held(), "its lease ends it");
    });
}

/// Fails where a task that ends with its runtime takes nobody with it (`Orphans`), or blocks the end of the runtime.
#[test]
fn b11_a_runtime_that_ends_loses_its_holds_and_does_not_hang() {
    let server = Server::start();
    let first = runtime();
    let (client, guard) = first.block_on(async {
        let client = short(&server).await;
        let guard = take(&client, "x").await;
        (client, guard)
    });
    first.shutdown_timeout(Duration::ZERO);
    let second = runtime();
    second.block_on(async {
        assert_eq!(soon("the loss", guard.lost()).await, LossReason::Closed);
        assert_eq!(soon("the unlock", guard.unlock()).await, Err(UnlockError::Lost(LossReason::Closed)));
        let again = soon("an answer", client.lock("x").lock()).await;
        assert!(matches!(again, Err(LockError::Closed)), "{again:?}");
        soon("the end", client.close()).await;
        let other = connect(&server).await;
        assert!(wait_for(&other, "x").await.is_held(), "its lease ends it");
    });
}

/// Fails without `Orphans`: whoever waits on another runtime would wait for ever.
#[test]
fn b12_a_waiter_whose_clients_runtime_ends_is_told() {
    let server = Server::start();
    let (first, second) = (runtime(), runtime());
    let holder = second.block_on(connect(&server));
    let guard = second.block_on(take(&holder, "x"));
    let client = first.block_on(connect(&server));
    let waiting = second.spawn(client.lock("x").lock());
    second.block_on(until_waiting(&holder, "x", 1));
    drop(first);
    let waited = second.block_on(soon("the error", waiting)).expect("no panic");
    assert!(matches!(waited, Err(LockError::Closed)), "{waited:?}");
    drop(guard);
    second.block_on(works_after(&holder));
}

async fn works_after(client: &Client) {
    until("an empty queue", async || info(client, "x").await.waiting_count == 0).await;
    works(client, "x").await;
}

/// Fails where a hold is bound to the runtime or thread that took it.
#[test]
fn b13_a_guard_works_on_another_runtime() {
    let server = Server::start();
    let (first, second) = (runtime(), runtime());
    let client = first.block_on(short(&server));
    let guard = first.block_on(take(&client, "x"));
    second.block_on(async {
        // It is renewed by its client's task, wherever it is.
        pass(SHORT * 2).await;
        assert!(guard.is_held());
        guard.extend(Duration::from_secs(5)).await.expect("it is held");
        guard.unlock().await.expect("it is held");
        works(&client, "x").await;
    });
}

/// Fails where a renewal can be sent, or take effect, after the release of its hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b14_no_renewal_outlives_its_hold() {
    let server = Server::start();
    let lease = Lease::renewed(Duration::from_millis(100));
    let client = quick(&server.url()).claim(Duration::from_millis(100)).lease(lease).connect().await;
    let client = client.expect("the server is there");
    // Renewals are due each 33 ms: the sections end around the time when one is.
    let sections = (0..40_u64).map(async |number| {
        let name = format!("l{number}");
        for turn in 0..25 {
            let guard = take(&client, &name).await;
            pass(Duration::from_micros(30_000 + (number * 25 + turn) * 7 % 8_000)).await;
            if turn % 3 == 0 {
                drop(guard);
            } else {
                // On a busy machine so short a lease may end before it is renewed.
                let _ = guard.unlock().await;
            }
            until_free(&client, &name).await;
        }
    });
    futures_util::future::join_all(sections).await;
    let mut outside = server.connection();
    assert_eq!(leftovers(&mut outside), Vec::<String>::new());
    let before = renewals(&server);
    pass(Duration::from_millis(200)).await;
    assert!(leftovers(&mut outside).is_empty() && renewals(&server) == before, "something is still renewed");
}

/// All script calls, since nothing but renewals is under way.
fn renewals(server: &Server) -> u64 {
    super::calls_of(&mut server.connection(), "evalsha")
}

/// Fails where each drop spawns a task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b16_ten_thousand_guards_dropped_at_once_are_released() {
    const COUNT: usize = 10_000;
    let server = Server::start();
    let client = Client::builder().url(server.url()).command_timeout(Duration::from_secs(10)).connect().await;
    let client = client.expect("the server is there");
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let mut guards = Vec::new();
    for chunk in 0..COUNT / 500 {
        let locks = (0..500).map(|number| client.lock(&format!("{chunk}-{number}")).lock());
        let taken = futures_util::future::try_join_all(locks);
        guards.extend(soon("the locks", taken).await.expect("they are free"));
    }
    let most = metrics.num_alive_tasks();
    drop(guards);
    let after = metrics.num_alive_tasks();
    assert!(
        most <= before && after <= before,
        "{before} tasks before, {most} with guards, {after} after the drop"
    );
    let mut outside = server.connection();
    eventually("the releases", || {
        outside.ok(&["EVAL", "return #redis.call('keys', 'lw:*}')", "0"]).int() == 0
    })
    .await;
    assert_eq!(leftovers(&mut outside), Vec::<String>::new());
}

/// Fails where a lost hold still counts for its owner.
#[tokio::test]
async fn b17_re_entry_after_a_loss_is_a_new_acquisition() {
    let server = Server::start();
    let client = connect(&server).await;
    let owner = Owner::new();
    let lock = client.lock("x").with_owner(&owner);
    let (outer, inner) = (lock.lock().await.expect("it is free"), lock.lock().await.expect("it is ours"));
    assert_eq!(outer.token(), inner.token());
    assert!(client.force_release("x", outer.token()).await.expect("the server answers"));
    assert_eq!(soon("the loss", outer.lost()).await, LossReason::TakenByForce);
    let again = lock.lock().await.expect("it is free");
    assert!(again.token() > outer.token() && !inner.is_held() && again.is_held());
    assert!(matches!(inner.unlock().await, Err(UnlockError::Lost(_))));
    assert!(again.is_held() && info(&client, "x").await.holds.len() == 1);
    drop(outer);
    again.unlock().await.expect("it is held");
    assert!(leftovers(&mut server.connection()).is_empty(), "one release was enough");
}

/// Fails where a leaving is bound to the owner or the client, and not to its ticket. (That a guard is unlocked twice
/// does not compile.)
#[tokio::test]
async fn b18_a_late_release_does_not_touch_the_next_hold() {
    let server = Server::start();
    let client = short(&server).await;
    let owner = Owner::new();
    let lock = client.lock("x").with_owner(&owner).with_lease(Lease::fixed(Duration::from_millis(200)));
    let old = lock.lock().await.expect("it is free");
    assert_eq!(soon("the end", old.lost()).await, LossReason::Expired);
    let new = soon("the lock", client.lock("x").with_owner(&owner).lock()).await.expect("it is free");
    assert_eq!(old.unlock().await, Err(UnlockError::Lost(LossReason::Expired)));
    pass(SHORT).await;
    assert!(new.is_held() && is_busy(&connect(&server).await, "x").await);
    new.unlock().await.expect("it is held");
}

/// Two tasks with one owner are one call path, as documented; without an owner each excludes the other.
#[tokio::test]
async fn b21_an_owner_in_two_tasks_excludes_nothing_between_them() {
    let server = Server::start();
    let client = connect(&server).await;
    let owner = Owner::new();
    let (one, two) = (client.lock("x").with_owner(&owner), client.lock("x").with_owner(&owner));
    let one = tokio::spawn(one.lock()).await.expect("no panic").expect("it is free");
    let two = tokio::spawn(two.lock()).await.expect("no panic").expect("it is ours");
    assert_eq!(one.token(), two.token());
    assert!(is_busy(&client, "x").await, "nobody else gets in");
    one.unlock().await.expect("it is held");
    assert!(two.is_held() && is_busy(&client, "x").await);
    drop(two);
    until_free(&client, "x").await;
}

/// Fails where the client's tasks end with its last handle, guards or not.
#[tokio::test]
async fn b22_a_guard_outlives_its_client() {
    let server = Server::start();
    let client = short(&server).await;
    let guard = take(&client, "x").await;
    drop(client);
    pass(SHORT * 2).await;
    assert!(guard.is_held());
    guard.unlock().await.expect("it is held");
    eventually("the end of the connections", || server.clients().is_empty()).await;
    assert!(leftovers(&mut server.connection()).is_empty());
}

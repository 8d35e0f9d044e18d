//! What every back end must do: cases that know no back end. A case is a function over a [`Deployment`]; it stands
//! once in [`for_each_case`], and `tests/conformance.rs` makes a test of it for each back end.

pub mod downgrade;
pub mod fair;
pub mod fenced;
pub mod leases;
pub mod lifecycle;
pub mod load;
pub mod owners;
pub mod read_write;
pub mod reentrant;
pub mod shared_reads;

use std::future::Future;
use std::time::{Duration, Instant};

use lockwright::internals::clock::Clock;
use lockwright::{Client, ClientBuilder, Guard, LockInfo};

use crate::support::kinds;
use crate::support::time::{PATIENCE, soon, soon_granted};

/// The cases, by topic, with what a back end must be capable of to run them.
macro_rules! for_each_case {
    ($then:ident! $arguments:tt) => {
        $then! { $arguments
            [Reentrant] reentrant {
                unlock_frees,
                drop_frees,
                a_guard_dropped_outside_a_runtime_frees,
                a_second_client_is_told_busy,
                a_limited_wait_ends_in_time,
                a_limited_wait_takes_what_comes_free,
                a_wait_for_a_holder_is_no_wait_for_the_server,
                a_release_wakes_a_waiter_of_another_client,
                clients_are_served_in_the_order_they_came,
                tokens_rise_from_grant_to_grant,
                a_handle_shared_by_two_tasks_excludes,
                waiting_for_one_lock_many_times_in_one_task_ends,
                names_are_different_locks,
                namespaces_do_not_see_each_other,
                invalid_names_are_told,
                a_section_is_run_under_the_lock,
                a_section_is_not_begun_without_the_lock,
                force_takes_a_lock_from_its_holder,
                inspection_shows_holders_and_waiters,
            }
            [Reentrant] owners {
                an_owner_enters_again,
                an_owner_enters_again_from_another_client,
                an_owner_is_let_in_past_waiters,
                a_scope_gives_its_owner,
                a_handles_own_owner_comes_first,
                other_owners_wait,
                without_an_owner_nobody_enters_again,
                a_waiter_that_leaves_takes_its_wishes_with_it,
                an_owner_that_is_inside_enters_again_whichever_ticket_it_has,
            }
            [Reentrant] leases {
                invalid_leases_are_told,
                a_lease_shorter_than_the_work_is_renewed,
                a_fixed_lease_ends_and_tells,
                a_fixed_lease_after_a_hand_over_ends_in_time,
                a_short_extension_costs_no_hold,
                extending_moves_the_end,
                extending_never_shortens,
                what_is_left_becomes_less,
                a_longest_hold_ends_the_guard,
                a_longest_hold_is_of_some_length,
            }
            [Reentrant] lifecycle {
                closing_ends_waits_and_guards_and_frees,
                closing_gives_back_what_has_run_out,
                a_closed_client_does_nothing_more,
                the_last_handle_closes,
                a_guard_keeps_its_client_alive,
                a_wait_that_is_dropped_leaves_nothing,
                a_wait_that_is_dropped_while_it_is_granted_leaves_nothing,
                a_ping_is_answered,
            }
            [Reentrant] fenced {
                a_fenced_value_is_written_and_read,
                a_stale_holder_is_refused,
                one_token_may_write_again_from_any_client,
                what_no_fenced_key_can_have_is_told,
            }
            [Reentrant] load {
                a_thousand_tasks_never_overlap,
            }
            [Fair] fair {
                turns_follow_the_order_of_asking_across_clients,
                waiters_that_leave_do_not_hold_up_the_others,
                an_owner_enters_its_fair_lock_again,
                one_name_is_one_kind,
                a_place_at_a_free_lock_is_granted_at_once,
                places_move_forward_and_are_granted,
                a_place_that_is_dropped_is_given_up,
                a_step_that_is_dropped_loses_nothing,
                places_end_with_their_client,
                a_hundred_tasks_take_turns,
            }
            [ReadWrite] read_write {
                many_read_or_one_writes,
                reads_and_writes_dropped_outside_a_runtime_free,
                readers_and_writers_take_turns_in_order,
                readers_at_the_head_enter_together,
                waits_of_readers_and_writers_end_in_time,
                sections_are_run_while_reading_and_writing,
                a_read_write_lock_is_a_kind_of_its_own,
                inspection_shows_readers_and_who_waits,
                force_takes_a_lock_from_all_readers,
                force_tells_hundreds_of_readers,
                a_writer_reads_and_writes_again,
                an_owner_that_waits_to_read_and_to_write_enters_at_once,
                a_reader_that_asks_to_write_would_wait_for_itself,
                an_owner_reads_again_past_waiting_writers,
                each_hold_has_its_own_lease,
                limits_of_reads_and_writes_end_them,
                a_read_or_write_that_is_dropped_while_it_waits_leaves_nothing,
                closing_ends_reads_and_writes,
                two_hundred_tasks_read_and_write,
            }
            [ReadWrite] shared_reads {
                readers_of_one_client_share_one_hold,
                a_read_beside_others_is_done_at_its_first_poll,
                a_crowd_of_readers_does_not_hold_up_a_writer,
                readers_that_come_behind_a_writer_wait_for_it,
                a_read_that_was_not_asked_back_is_asked_for_again,
                a_cached_read_stays_until_somebody_writes,
                a_cached_read_that_is_idle_is_given_back,
                hundreds_of_clients_make_room_for_a_writer,
                readers_lose_their_hold_together,
                a_reader_that_is_dropped_while_others_wait_leaves_them_waiting,
            }
            [ReadWrite] downgrade {
                a_downgrade_lets_waiting_readers_in_and_no_writer,
                a_downgraded_write_is_a_read_like_any_other,
                a_downgrade_within_a_write_leaves_the_write,
                a_downgrade_lets_hundreds_of_readers_in,
                a_downgrade_leaves_what_is_left_of_a_limit,
                a_downgrade_that_is_dropped_leaves_nothing,
                a_write_that_was_lost_does_not_become_a_read,
                closing_ends_a_downgrade,
            }
        }
    };
}
pub(crate) use for_each_case;

/// What a back end can do. A case asks for one of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capability {
    Reentrant,
    Fair,
    ReadWrite,
}

/// A back end with a fresh store behind it, for one case.
#[allow(async_fn_in_trait, reason = "no case sends these futures to another thread")]
pub trait Deployment {
    const CAPABILITIES: &'static [Capability];

    /// One more client of the same store, as another process would have it.
    async fn client_with(&self, customise: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client;

    async fn client(&self) -> Client {
        self.client_with(|builder| builder).await
    }

    /// Called after a case, when all its guards and clients are gone: panics where anything else than what is meant
    /// to stay does stay in the store.
    async fn check_left(&self);
}

/// After this long a case never ends, on the busiest machine.
const HANGS: Duration = Duration::from_secs(180);

/// Runs one case, on a back end that can.
pub async fn run<D: Deployment>(on: D, needs: Capability, case: impl AsyncFnOnce(&D)) {
    if D::CAPABILITIES.contains(&needs) {
        let clock = Clock::boot();
        tokio::select! {
            biased;
            () = Box::pin(case(&on)) => {}
            () = clock.sleep(HANGS) => panic!("the case hangs"),
        }
        on.check_left().await;
    }
}

/// A span within which whatever a message brings must come. With the claim of [`slow_to_poll`] no poll comes that
/// soon.
pub const BY_MESSAGE: Duration = Duration::from_secs(5);

/// A client whose waiters poll each 10 s only: what comes sooner came by message.
pub fn slow_to_poll(builder: ClientBuilder) -> ClientBuilder {
    builder.claim(Duration::from_secs(20)).client_deadline(Duration::from_secs(60))
}

/// Waits until `condition` holds; panics where it does not within [`PATIENCE`].
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let clock = Clock::boot();
    let deadline = clock.now().plus(PATIENCE);
    while !condition().await {
        assert!(clock.now() < deadline, "{what} does not come");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// Lets time pass. For cases whose subject is the passing of time; never to give others time for something.
pub async fn pass(span: Duration) {
    Clock::boot().sleep(span).await;
}

/// The time in `span` from now, as users tell it.
#[allow(clippy::disallowed_methods, reason = "users have no other clock")]
pub fn in_time(span: Duration) -> Instant {
    Instant::now() + span
}

/// How long `future` takes, and its result.
pub async fn timed<T>(what: &str, future: impl Future<Output = T>) -> (Duration, T) {
    let clock = Clock::boot();
    let start = clock.now();
    let result = soon(what, future).await;
    (clock.now().since(start), result)
}

/// Waits until `count` tickets wait for the lock.
pub async fn until_waiting(client: &Client, name: &str, count: u64) {
    until(&format!("a queue of {count} for {name}"), async || {
        info(client, name).await.waiting_count == count
    })
    .await;
}

/// Waits until nobody holds the lock or waits for it.
pub async fn until_free(client: &Client, name: &str) {
    until(&format!("{name} free"), async || is_free(&info(client, name).await)).await;
}

pub fn is_free(info: &LockInfo) -> bool {
    info.kind.is_none() && info.token.is_none() && info.holds.is_empty() && info.waiting_count == 0
}

pub async fn info(client: &Client, name: &str) -> LockInfo {
    client.inspect(name).await.expect("the server answers")
}

/// Takes a lock that is free now; its name tells its [kind](kinds).
pub async fn take(client: &Client, name: &str) -> Guard {
    kinds::try_lock(client, name).await.expect("the server answers").expect("the lock is free")
}

/// Takes a lock that comes free soon.
pub async fn wait_for(client: &Client, name: &str) -> Guard {
    soon("the lock", kinds::lock(client, name)).await.expect("it is granted")
}

/// Whether another client finds the lock held.
pub async fn is_busy(client: &Client, name: &str) -> bool {
    kinds::try_lock(client, name).await.expect("the server answers").is_none()
}

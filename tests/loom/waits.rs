//! Waiters: their registration against their wake-up, and the passing of a hold against their end.

use lockwright::internals::books::Stepped;
use lockwright::internals::scripts::Queued;
use loom::thread;

use super::world::World;
use super::{models, poll_while};

models! {
    a_waiter_is_woken_by_its_grant, RegisteredApart, "a wake-up is missed";
    a_watcher_of_its_place_is_woken_when_it_moves, RegisteredApart, "a wake-up is missed";
    a_waiter_is_woken_by_what_is_passed_to_it, RegisteredApart, "a wake-up is missed";
    what_is_passed_to_somebody_who_leaves_is_given_back, AbandonedApart, "one leaving";
    what_is_passed_over_somebody_who_leaves_reaches_the_next, AbandonedApart, "the next has it";
}

fn a_waiter_is_woken_by_its_grant() {
    let world = World::new();
    let wait = world.enter();
    let answer = {
        let world = world.clone();
        move || world.grant(wait)
    };
    let outcome = poll_while(answer, |waker| world.books.poll(wait, waker));
    let held = outcome.expect("no fault").expect("it waits");
    drop(world.release(&held));
    assert_eq!(world.leavings(held.ticket), 1);
    world.assert_nothing_is_left();
}

fn a_watcher_of_its_place_is_woken_when_it_moves() {
    let world = World::new();
    let wait = world.enter();
    let answer = {
        let world = world.clone();
        let queued = Queued {
            place: 3,
            left_millis: 1,
            new: true,
            more: false,
            sequence: 9,
            living: 3,
            holds: Vec::new(),
        };
        move || world.books.with(&world, |state, now, out| state.queued(wait.lane, &queued, now, out))
    };
    let step = poll_while(answer, |waker| world.books.step(wait, None, waker));
    assert!(matches!(&step, Stepped::At(standing) if standing.ahead == 2), "{step:?}");
}

fn a_waiter_is_woken_by_what_is_passed_to_it() {
    let world = World::new();
    let held = world.hold();
    let wait = world.enter();
    let releasing = {
        let world = world.clone();
        move || drop(world.release(&held))
    };
    let outcome = poll_while(releasing, |waker| world.books.poll(wait, waker));
    let held = outcome.expect("no fault").expect("it waits");
    assert_eq!(held.hold.token(), 11, "the second of the grant's block");
    drop(world.release(&held));
    assert_eq!(world.leavings(held.ticket), 1);
    world.assert_nothing_is_left();
}

/// A holder that releases against the end of the only waiter behind it.
fn what_is_passed_to_somebody_who_leaves_is_given_back() {
    let world = World::new();
    let held = world.hold();
    let (ticket, wait) = (held.ticket, world.enter());
    let releasing = thread::spawn({
        let world = world.clone();
        move || drop(world.release(&held))
    });
    world.books.abandon(&world, wait);
    releasing.join().expect("no panic");
    assert_eq!(world.leavings(ticket), 1, "one leaving");
    world.assert_nothing_is_left();
}

/// The same, and one more behind.
fn what_is_passed_over_somebody_who_leaves_reaches_the_next() {
    let world = World::new();
    let held = world.hold();
    let (wait, next) = (world.enter(), world.enter());
    let releasing = thread::spawn({
        let world = world.clone();
        move || drop(world.release(&held))
    });
    world.books.abandon(&world, wait);
    releasing.join().expect("no panic");
    let held = world.outcome(next).expect("the next has it");
    assert!(matches!(held.hold.token(), 11 | 12));
    drop(world.release(&held));
    assert_eq!(world.leavings(held.ticket), 1);
    world.assert_nothing_is_left();
}

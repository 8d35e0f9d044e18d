//! Arming the watchdog against grants, releases and losses.

use lockwright::LossReason;
use lockwright::internals::clock::Moment;
use lockwright::internals::scripts::{Message, News};
use loom::sync::atomic::Ordering;
use loom::thread;

use super::models;
use super::world::{DUE, LEASE, Sent, World};

models! {
    a_watchdog_is_told_of_what_is_due_before_it_looks, ArmedApart, "the watchdog oversleeps";
    no_renewal_is_sent_behind_a_leaving, SentApart, "renewed behind its leaving";
}

/// The watchdog, about to sleep, against a grant: it has seen the hold, or is called.
fn a_watchdog_is_told_of_what_is_due_before_it_looks() {
    let world = World::new();
    let wait = world.enter();
    let answer = thread::spawn({
        let world = world.clone();
        move || world.grant(wait)
    });
    let next = world.books.renew_due(&world);
    answer.join().expect("no panic");
    assert!(next <= world.later(DUE).time || world.bell.load(Ordering::Relaxed), "the watchdog oversleeps");
}

/// The watchdog, a release and a loss by force, all at once, and the renewal's answer at last: the hold is given back
/// once or lost, is not renewed behind that, and is never trusted again.
fn no_renewal_is_sent_behind_a_leaving() {
    let world = World::new();
    let held = world.hold();
    let world = world.later(DUE);
    let releasing = thread::spawn({
        let (world, held) = (world.clone(), held.clone());
        move || drop(world.release(&held))
    });
    let message = thread::spawn({
        let (world, ticket) = (world.clone(), held.ticket);
        let lock = World::request().lock;
        let message = Message {
            ticket,
            kind: lock.kind,
            keys: lock.keys,
            news: News::Lost { token: held.hold.token() },
        };
        move || world.books.with(&world, |state, now, out| state.tell(message, 0, now, out))
    });
    world.books.renew_due(&world);
    for sent in world.sent() {
        if let Sent::Renew(due) = sent {
            world.books.with(&world, |state, now, out| state.renewed(&due[0], LEASE, false, now, now, out));
        }
    }
    releasing.join().expect("no panic");
    message.join().expect("no panic");

    let sent = world.sent();
    let leaving = sent.iter().position(|sent| matches!(sent, Sent::Leave(_)));
    let renewal = sent.iter().position(|sent| matches!(sent, Sent::Renew(_)));
    assert!(leaving.is_none() || renewal < leaving, "renewed behind its leaving: {sent:?}");
    let taken = held.hold.reason() == Some(LossReason::TakenByForce);
    assert_eq!(world.leavings(held.ticket), usize::from(!taken));
    if taken {
        assert!(held.hold.remaining(Moment::ORIGIN).is_zero(), "a lost hold is trusted");
    }
    world.assert_nothing_is_left();
}

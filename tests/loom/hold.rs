//! One hold: renewals, losses, and those who watch it.

use std::sync::Arc;
use std::task::Waker;

use lockwright::LossReason;
use lockwright::internals::books::Hold;
use lockwright::internals::clock::Moment;
use loom::thread;

use super::{models, poll_while};

models! {
    what_is_lost_is_not_trusted_again, TrustedApart, "a lost hold is trusted";
    whoever_watches_is_told_of_the_loss, WatchedApart, "a wake-up is missed";
}

fn hold() -> Arc<Hold> {
    Arc::new(Hold::new(7, Moment::from_nanos(1_000)))
}

/// A renewal's answer against a loss, under the eyes of a guard.
fn what_is_lost_is_not_trusted_again() {
    let hold = hold();
    let renewal = thread::spawn({
        let hold = hold.clone();
        move || hold.trust(Moment::from_nanos(2_000), false)
    });
    let loss = thread::spawn({
        let hold = hold.clone();
        move || hold.lose(LossReason::Expired).len()
    });
    let is_trusted = || !hold.remaining(Moment::ORIGIN).is_zero();
    let was_lost = hold.reason().is_some();
    assert!(!(was_lost && is_trusted()), "a lost hold is trusted");
    renewal.join().expect("no panic");
    loss.join().expect("no panic");
    assert!(!is_trusted(), "a lost hold is trusted");
}

/// Somebody who begins to watch against the loss.
fn whoever_watches_is_told_of_the_loss() {
    let hold = hold();
    let loss = {
        let hold = hold.clone();
        move || hold.lose(LossReason::Expired).into_iter().for_each(Waker::wake)
    };
    let mut watcher = None;
    let reason = poll_while(loss, |waker| hold.poll_lost(&mut watcher, waker));
    assert_eq!(reason, LossReason::Expired);
}

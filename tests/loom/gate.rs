//! Readers who share a hold, against its end.

use std::sync::Arc;

use lockwright::internals::books::Gate;
use lockwright::internals::clock::Moment;
use loom::thread;

use super::models;

models! {
    the_end_of_a_hold_that_was_kept_is_told, ClosedApart, "nobody tells";
}

/// The last reader of a hold that stays, against its closing and one more reader: whoever is last must tell the books.
fn the_end_of_a_hold_that_was_kept_is_told() {
    let gate = Arc::new(Gate::new());
    gate.keep(Moment::ORIGIN);
    assert!(gate.enter(true));
    let last = thread::spawn({
        let gate = gate.clone();
        move || gate.leave(|| Moment::ORIGIN)
    });
    let late = thread::spawn({
        let gate = gate.clone();
        move || gate.enter(true) && gate.leave(|| Moment::ORIGIN)
    });
    let told = gate.close();
    let told = [told, last.join().expect("no panic"), late.join().expect("no panic")];
    assert!(told.contains(&true), "nobody tells");
    assert!(!gate.enter(true) && gate.close_if_empty());
}

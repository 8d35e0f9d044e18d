//! Readers who share a hold, against its end.

use std::sync::Arc;

use lockwright::internals::books::Gate;
use lockwright::internals::clock::Moment;
use loom::thread;

use super::models;

models! {
    the_end_of_a_hold_that_was_kept_is_told, ClosedApart, "nobody tells";
    a_hold_is_not_given_back_under_a_reader, EmptiedApart, "given back under a reader";
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

/// The last reader of a hold that does not stay, and what the books then do, against one more reader: it is given back, or
/// it is read by.
fn a_hold_is_not_given_back_under_a_reader() {
    let gate = Arc::new(Gate::new());
    assert!(gate.enter(false));
    let late = thread::spawn({
        let gate = gate.clone();
        move || gate.enter(false)
    });
    let given_back = gate.leave(|| Moment::ORIGIN) && gate.close_if_empty();
    let is_inside = late.join().expect("no panic");
    assert!(!(given_back && is_inside), "given back under a reader");
    // And by that one, when it goes.
    assert!(given_back || gate.leave(|| Moment::ORIGIN) && gate.close_if_empty());
    assert!(!gate.enter(false));
}

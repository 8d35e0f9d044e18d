//! Several calls in one script call: each does what it does alone, and none of them is at the mercy of another.

use lockwright::internals::backend::Value;
use lockwright::internals::name::{LockKeys, Namespace};
use lockwright::internals::scripts::*;

use super::denied::{assert_all_mortal, limited, with};
use super::rig::*;

/// Long enough for every batch of these tests.
const LONG: u64 = 60_000_000;
const KINDS: [Kind; 3] = [Kind::Reentrant, Kind::Fair, Kind::ReadWrite];

fn lock(name: &str) -> LockKeys {
    LockKeys::new(&Namespace::default(), name).unwrap()
}

/// Has the calls of the rig be about another lock.
fn on<T>(rig: &mut Rig, name: &str, f: impl FnOnce(&mut Rig) -> T) -> T {
    let other = std::mem::replace(&mut rig.keys, lock(name));
    let result = f(rig);
    rig.keys = other;
    result
}

fn acquire_on(rig: &mut Rig, name: &str, attempt: &Attempt) -> Call {
    on(rig, name, |rig| rig.acquire_call(attempt, Wait::Join))
}

fn leave_on(rig: &mut Rig, name: &str, attempt: &Attempt, next: Option<&Attempt>) -> Call {
    on(rig, name, |rig| rig.leave_call(attempt.ticket, next))
}

/// An attempt that excludes all others, of whichever kind the lock is.
fn attempt(rig: &Rig, peer: &Peer) -> Attempt {
    if rig.kind == Kind::ReadWrite { peer.write() } else { peer.attempt() }
}

/// What calls that go out together bring, and whether one has failed.
fn together(rig: &mut Rig, calls: &[Call], micros: u64) -> (Vec<Option<Value>>, bool) {
    assert!(calls.iter().all(|call| call.is_batched() && call.goes_with(&calls[0])));
    let call = batch(calls.iter(), micros);
    outcomes(rig.value(&call), calls.len())
}

fn acquired(outcome: &Option<Value>) -> AcquireReply {
    AcquireReply::decode(outcome.as_ref().unwrap()).unwrap().reply
}

fn left(outcome: &Option<Value>) -> LeaveReply {
    LeaveReply::decode(outcome.as_ref().unwrap()).unwrap().reply
}

#[test]
fn each_call_does_what_it_does_alone() {
    for kind in KINDS {
        let mut rig = Rig { kind, ..Rig::new() };
        let (a, mut b) = (rig.client(), rig.client());
        let [one, two, three] = [(); 3].map(|()| attempt(&rig, &a));
        let [waiter, next, late] = [&b, &a, &a].map(|peer| attempt(&rig, peer));
        // Free locks, and one that its first call in the batch has taken.
        let calls = [
            acquire_on(&mut rig, "x", &one),
            acquire_on(&mut rig, "y", &two),
            acquire_on(&mut rig, "x", &waiter),
        ];
        let (replies, has_failed) = together(&mut rig, &calls, LONG);
        assert!(!has_failed);
        let (AcquireReply::Granted(first), AcquireReply::Granted(second)) =
            (acquired(&replies[0]), acquired(&replies[1]))
        else {
            panic!("{replies:?}")
        };
        assert!(second.token > first.token, "each call has its own time");
        assert!(matches!(acquired(&replies[2]), AcquireReply::Queued(queued) if queued.place == 1));
        assert_eq!(on(&mut rig, "x", |rig| rig.held_token()), first.token);
        // A release that hands over and queues the next ticket, a plain one, and a free lock between the two.
        let calls = [
            leave_on(&mut rig, "x", &one, Some(&next)),
            acquire_on(&mut rig, "z", &three),
            leave_on(&mut rig, "y", &two, None),
            leave_on(&mut rig, "y", &late, None),
        ];
        let (replies, has_failed) = together(&mut rig, &calls, LONG);
        assert!(!has_failed);
        assert!(
            matches!(
                left(&replies[0]),
                LeaveReply::Freed { more: false, next: Next::Queued { place: 1, .. } }
            ),
            "{replies:?}"
        );
        assert!(matches!(acquired(&replies[1]), AcquireReply::Granted(_)));
        assert_eq!(left(&replies[2]), LeaveReply::Freed { more: false, next: Next::None });
        assert_eq!(left(&replies[3]), LeaveReply::Gone { more: false });
        let told = b.messages();
        let granted =
            |(ticket, news): &(_, News)| *ticket == waiter.ticket && matches!(news, News::Grant { .. });
        assert!(told.iter().any(granted), "{told:?}");
        assert!(on(&mut rig, "x", |rig| rig.held_token()) > first.token);
        assert_eq!(on(&mut rig, "y", |rig| rig.held_token()), 0);
        assert_all_mortal(&mut rig);
    }
}

/// Fails where an error ends the script: those before it would have run, and their clients would not know.
#[test]
fn a_call_that_fails_ends_none_of_the_others() {
    for kind in KINDS {
        let mut rig = Rig { kind, ..Rig::new() };
        let a = rig.client();
        let attempts = [(); 3].map(|()| attempt(&rig, &a));
        let mut calls: Vec<Call> = Vec::new();
        for (name, attempt) in ["x", "y", "z"].into_iter().zip(&attempts) {
            calls.push(acquire_on(&mut rig, name, attempt));
        }
        set_arg(&mut calls[1], 2, "long");
        let (replies, has_failed) = together(&mut rig, &calls, LONG);
        assert!(has_failed);
        assert_eq!(replies[1], None);
        for at in [0, 2] {
            assert!(matches!(acquired(&replies[at]), AcquireReply::Granted(_)), "{replies:?}");
        }
        let replies = together(&mut rig, &calls[1..2], LONG);
        assert_eq!(replies, (vec![None], true));
    }
}

/// Fails where an error that a script hands on is taken for a reply.
#[test]
fn a_grant_that_gets_no_lease_is_no_grant() {
    for kind in KINDS {
        let mut rig = Rig { kind, ..Rig::new() };
        let a = rig.client();
        let held = attempt(&rig, &a);
        let held_call = acquire_on(&mut rig, "held", &held);
        rig.value(&held_call);
        let wanted = attempt(&rig, &a);
        let calls = [acquire_on(&mut rig, "wanted", &wanted), leave_on(&mut rig, "held", &held, None)];
        // The counter is there: a new one would need no PEXPIRE.
        rig.wire.ok(&["SET", &lock("wanted").token(), "7", "PX", "60000"]);
        let mut wire = limited(&mut rig, &["-pexpire"]);
        let (replies, has_failed) = with(&mut rig, &mut wire, |rig| together(rig, &calls, LONG));
        assert!(has_failed);
        assert_eq!(replies[0], None);
        assert_eq!(left(&replies[1]), LeaveReply::Freed { more: false, next: Next::None });
        assert_eq!(on(&mut rig, "wanted", |rig| rig.held_token()), 0);
        assert_all_mortal(&mut rig);
    }
}

#[test]
fn what_takes_long_leaves_the_rest_undone() {
    for kind in KINDS {
        let mut rig = Rig { kind, ..Rig::new() };
        let a = rig.client();
        let (one, two) = (attempt(&rig, &a), attempt(&rig, &a));
        let calls = [acquire_on(&mut rig, "x", &one), acquire_on(&mut rig, "y", &two)];
        let (replies, has_failed) = together(&mut rig, &calls, 0);
        assert!(!has_failed, "it is no failure");
        assert!(matches!(acquired(&replies[0]), AcquireReply::Granted(_)), "one is always carried out");
        assert_eq!(replies[1], None);
        assert_eq!(on(&mut rig, "y", |rig| rig.held_token()), 0);
    }
}

#[test]
fn a_full_server_still_takes_what_leaves() {
    for kind in KINDS {
        let mut rig = Rig { kind, ..Rig::new() };
        let a = rig.client();
        let (held, wanted) = (attempt(&rig, &a), attempt(&rig, &a));
        let held_call = acquire_on(&mut rig, "held", &held);
        rig.value(&held_call);
        let calls = [acquire_on(&mut rig, "wanted", &wanted), leave_on(&mut rig, "held", &held, None)];
        rig.wire.ok(&["CONFIG", "SET", "maxmemory", "1"]);
        let (replies, has_failed) = together(&mut rig, &calls, LONG);
        assert!(has_failed);
        assert_eq!(replies[0], None);
        assert_eq!(left(&replies[1]), LeaveReply::Freed { more: false, next: Next::None });
        // The server looks at its memory before a script's first write, and behind a leaving lets others write, too.
        let held = attempt(&rig, &a);
        let held_call = acquire_on(&mut rig, "held", &held);
        rig.wire.ok(&["CONFIG", "SET", "maxmemory", "0"]);
        rig.value(&held_call);
        rig.wire.ok(&["CONFIG", "SET", "maxmemory", "1"]);
        let calls = [leave_on(&mut rig, "held", &held, None), acquire_on(&mut rig, "wanted", &wanted)];
        let (replies, has_failed) = together(&mut rig, &calls, LONG);
        assert!(!has_failed && matches!(acquired(&replies[1]), AcquireReply::Granted(_)), "{replies:?}");
        assert_all_mortal(&mut rig);
    }
}

#[test]
fn only_what_is_alike_goes_together() {
    let mut rig = Rig::new();
    let a = rig.client();
    let one = rig.acquire_call(&a.attempt(), Wait::Join);
    assert!(one.goes_with(&leave_on(&mut rig, "y", &a.attempt(), None)));
    let fair = Acquire {
        keys: &rig.keys,
        kind: Kind::Fair,
        attempt: &a.attempt(),
        wait: Wait::Join,
        not_after_millis: 0,
        deaf: false,
        terms: rig.terms,
    };
    assert!(!one.goes_with(&fair.call()));
    // The terms are said once for all.
    let deaf = Acquire { kind: Kind::Reentrant, deaf: true, ..fair };
    assert!(!one.goes_with(&deaf.call()));
    let inspect = Inspect { keys: &rig.keys }.call();
    assert!(!inspect.is_batched() && !inspect.goes_with(&inspect) && !one.goes_with(&inspect));
}

/// Whatever a server sends instead of a batch's reply.
#[test]
fn odd_replies_to_a_batch_are_failures() {
    let granted = || Value::Array(vec![Value::Bulk(b"stale".to_vec()), Value::Int(1)]);
    for odd in [Value::Nil, Value::Int(1), Value::Status("OK".into()), Value::Bulk(Vec::new())] {
        assert_eq!(outcomes(odd.clone(), 2), (vec![None; 2], true));
        let (replies, has_failed) = outcomes(Value::Array(vec![granted(), odd]), 2);
        assert_eq!((replies, has_failed), (vec![Some(granted()), None], true));
    }
    let (replies, has_failed) = outcomes(Value::Array(vec![granted(); 3]), 2);
    assert_eq!((replies.len(), has_failed), (2, true));
}

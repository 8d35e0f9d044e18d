//! Keys that are lost alone, keys of another kind of lock, and keys that are not ours.

use std::collections::BTreeMap;

use lockwright::internals::scripts::*;

use super::rig::*;
use crate::support::resp::Reply;

/// Every key with its content and whether it has a TTL.
pub fn everything(rig: &mut Rig) -> BTreeMap<String, (Reply, bool)> {
    let keys = rig.all_keys();
    keys.into_iter()
        .map(|key| {
            let content = rig.wire.ok(&["DUMP", &key]);
            let mortal = rig.ttl(&key) > 0;
            (key, (content, mortal))
        })
        .collect()
}

#[test]
fn with_the_waiting_hash_lost_everybody_registers_again() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let (holder, first, second) = (a.attempt(), a.attempt(), b.attempt());
    rig.granted(&holder);
    rig.queued(&first);
    rig.queued(&second);
    rig.wire.ok(&["DEL", &rig.keys.waiting()]);
    let AcquireReply::Queued(queued) = rig.poll(&second) else { panic!() };
    assert_eq!((queued.new, queued.place), (true, 1));
    assert_eq!(rig.list(), [second.ticket.to_string()], "the orphaned list is gone");
    let AcquireReply::Queued(queued) = rig.poll(&first) else { panic!() };
    assert_eq!((queued.new, queued.place), (true, 2));
}

#[test]
fn with_the_list_lost_everybody_registers_again() {
    let mut rig = Rig::new();
    let (a, b, c) = (rig.client(), rig.client(), rig.client());
    let (holder, first, second) = (a.attempt(), b.attempt(), c.attempt());
    rig.granted(&holder);
    rig.queued(&first);
    rig.queued(&second);
    rig.wire.ok(&["DEL", &rig.keys.queue()]);
    let AcquireReply::Queued(queued) = rig.poll(&second) else { panic!() };
    assert_eq!((queued.new, queued.place), (true, 1));
    assert_eq!(rig.get(&rig.keys.waiting(), "queue"), "reentrant 1 1");
    assert_eq!(rig.places_of(&b), "");
    let newcomer = a.attempt();
    rig.wire.ok(&["DEL", &rig.keys.queue()]);
    assert_eq!(rig.queued(&newcomer).place, 1);
    assert_eq!(rig.get(&rig.keys.waiting(), "queue"), "reentrant 1 1");
    assert!(matches!(rig.poll(&first), AcquireReply::Queued(Queued { new: true, place: 2, .. })));
}

#[test]
fn a_release_with_one_of_the_two_lost_frees_the_lock() {
    for lost in [0, 1] {
        let mut rig = Rig::new();
        let (a, b) = (rig.client(), rig.client());
        let (holder, waiter) = (a.attempt(), b.attempt());
        rig.granted(&holder);
        rig.queued(&waiter);
        let keys = [rig.keys.queue(), rig.keys.waiting()];
        rig.wire.ok(&["DEL", &keys[lost]]);
        assert_eq!(rig.leave(&holder), LeaveReply::Freed { more: false, next: Next::None });
        if lost == 0 {
            assert_eq!(rig.all_keys(), [rig.keys.token()]);
        }
        assert!(matches!(rig.poll(&waiter), AcquireReply::Granted(Granted { waiting: false, .. })));
        rig.leave(&waiter);
    }
}

#[test]
fn with_the_lock_lost_the_next_in_the_queue_has_it() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let (holder, first, second) = (a.attempt(), b.attempt(), b.attempt());
    let token = rig.granted(&holder).token;
    rig.queued(&first);
    rig.queued(&second);
    rig.wire.ok(&["DEL", &rig.lock()]);
    assert_eq!(rig.renew(&[(holder.ticket, LEASE)]), [Renewed::Lost]);
    let AcquireReply::Granted(granted) = rig.poll(&first) else { panic!() };
    assert!(granted.token > token);
    assert_eq!(rig.leave(&holder), LeaveReply::Gone { more: false });
    assert_eq!(rig.held_token(), granted.token, "a late leaving touches no later hold");
}

#[test]
fn a_lock_of_another_kind_is_not_touched() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let (holder, waiter) = (a.attempt(), b.attempt());
    rig.granted(&holder);
    rig.queued(&waiter);
    let (lock, waiting) = (rig.lock(), rig.keys.waiting());
    rig.set(&lock, "kind", "fair");
    rig.set(&waiting, "queue", "fair 1 1");
    let other = a.attempt();
    for wait in [Wait::No, Wait::Join, Wait::Poll] {
        let before = everything(&mut rig);
        let mismatch = AcquireReply::KindMismatch { found: "fair".into() };
        assert_eq!(rig.acquire(&other, wait), mismatch);
        assert_eq!(rig.acquire(&holder, wait), mismatch);
        assert_eq!(everything(&mut rig), before);
    }
    assert_eq!(rig.leave(&holder), LeaveReply::Gone { more: false }, "it is none of this kind's holds");
    assert_eq!(rig.get(&lock, "kind"), "fair");

    // With the lock gone the kind of the queue counts, for as long as it lives.
    rig.wire.ok(&["DEL", &lock]);
    let before = everything(&mut rig);
    let mismatch = AcquireReply::KindMismatch { found: "fair".into() };
    assert_eq!(rig.acquire(&other, Wait::Join), mismatch);
    assert_eq!(rig.leave(&other), LeaveReply::Gone { more: false });
    assert_eq!(everything(&mut rig), before);
    rig.wire.ok(&["DEL", &waiting]);
    rig.granted(&other);
}

/// Makes a key something else, and returns what that is.
fn foreign(rig: &mut Rig, key: &str, at: usize) -> Option<&'static str> {
    let name = rig.lock();
    let makes: &[(&str, &[&str])] = match key.strip_prefix(&name).unwrap() {
        "" => &[
            ("a string", &["SET", key, "x"]),
            ("a list", &["RPUSH", key, "x"]),
            ("a hash", &["HSET", key, "user", "1"]),
            ("half a lock", &["HSET", key, "kind", "reentrant", "owner", "-"]),
            (
                "a lock without a token",
                &[
                    "HSET",
                    key,
                    "kind",
                    "reentrant",
                    "mode",
                    "exclusive",
                    "owner",
                    "-",
                    "token",
                    "x",
                    "block",
                    "1",
                ],
            ),
        ],
        ":waiting" => &[
            ("a string", &["SET", key, "x"]),
            ("a hash whose queue is not ours", &["HSET", key, "queue", "x"]),
        ],
        ":token" => &[
            ("a list", &["RPUSH", key, "1"]),
            ("no number", &["SET", key, "x"]),
            ("a fraction", &["SET", key, "1.5"]),
            ("a negative number", &["SET", key, "-1"]),
            ("too large a number", &["SET", key, "9007199254740993"]),
            ("far too large a number", &["SET", key, "99999999999999999999999"]),
        ],
        other => panic!("{other}"),
    };
    let (what, words) = makes.get(at)?;
    rig.wire.ok(words);
    Some(what)
}

#[test]
fn keys_that_are_not_ours_are_reported_and_not_touched() {
    let mut rig = Rig::new();
    let a = rig.client();
    for key in [rig.lock(), rig.keys.waiting(), rig.keys.token()] {
        let mut at = 0;
        loop {
            rig.wire.ok(&["FLUSHALL"]);
            let Some(what) = foreign(&mut rig, &key, at) else { break };
            at += 1;
            let before = everything(&mut rig);
            for wait in [Wait::No, Wait::Join, Wait::Poll] {
                let reply = rig.acquire(&a.attempt(), wait);
                assert_eq!(reply, AcquireReply::ForeignKey { key: key.clone() }, "{what}");
            }
            let call = Inspect { keys: &rig.keys }.call();
            let reply = InspectReply::decode(&value(rig.run(&call))).unwrap().reply;
            assert_eq!(reply, InspectReply::ForeignKey { key: key.clone() }, "{what}");
            let left = rig.leave(&a.attempt());
            if key == rig.keys.lock() {
                assert_eq!(left, LeaveReply::ForeignKey { key: key.clone() }, "{what}");
                let forced = rig.force_release(1);
                assert_eq!(forced, ForceReleaseReply::ForeignKey { key: key.clone() }, "{what}");
            } else {
                assert_eq!(left, LeaveReply::Gone { more: false }, "{what}");
            }
            assert_eq!(rig.renew(&[(a.attempt().ticket, LEASE)]), [Renewed::Lost], "{what}");
            assert_eq!(everything(&mut rig), before, "{what}");
        }
        assert!(at > 1);
    }
}

#[test]
fn a_queue_that_is_not_ours_is_found_by_the_first_who_waits() {
    let mut rig = Rig::new();
    let a = rig.client();
    rig.granted(&a.attempt());
    let (queue, waiting) = (rig.keys.queue(), rig.keys.waiting());
    rig.wire.ok(&["SET", &queue, "x"]);
    let before = everything(&mut rig);
    assert_eq!(rig.acquire(&a.attempt(), Wait::Join), AcquireReply::ForeignKey { key: queue.clone() });
    assert_eq!(everything(&mut rig), before);
    rig.wire.ok(&["DEL", &queue]);
    rig.wire.ok(&["HSET", &waiting, "user", "1"]);
    let before = everything(&mut rig);
    assert_eq!(rig.acquire(&a.attempt(), Wait::Join), AcquireReply::ForeignKey { key: waiting });
    assert_eq!(everything(&mut rig), before);
}

#[test]
fn a_release_does_not_fail_for_other_keys_that_are_not_ours() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    for (key, with_waiter) in [
        (rig.keys.waiting(), false),
        (rig.keys.queue(), false),
        (rig.keys.token(), false),
        (rig.keys.token(), true),
    ] {
        rig.wire.ok(&["FLUSHALL"]);
        let (holder, waiter, next) = (a.attempt(), b.attempt(), a.attempt());
        rig.granted(&holder);
        if with_waiter {
            rig.queued(&waiter);
        }
        rig.wire.ok(&["SET", &key, "x"]);
        let reply = rig.leave_for(holder.ticket, Some(&next));
        assert!(matches!(reply, LeaveReply::Freed { more: false, .. }), "{key}: {reply:?}");
        let info_next = rig.leave(&next);
        assert!(!matches!(info_next, LeaveReply::ForeignKey { .. }));
        assert_eq!(rig.held_token(), 0, "{key}");
        assert_eq!(rig.wire.ok(&["GET", &key]).text(), "x");
    }
}

#[test]
fn odd_entries_of_a_queue_are_dead_ones() {
    let mut rig = Rig::new();
    let (a, mut b) = (rig.client(), rig.client());
    let (holder, odd, waiter) = (a.attempt(), a.attempt(), b.attempt());
    rig.granted(&holder);
    rig.queued(&odd);
    let (queue, waiting) = (rig.keys.queue(), rig.keys.waiting());
    for entry in ["", "queue", ":", "x", "-"] {
        rig.wire.ok(&["RPUSH", &queue, entry]);
    }
    rig.queued(&waiter);
    rig.set(&waiting, &odd.ticket.to_string(), "what is this");
    rig.leave(&holder);
    assert!(matches!(b.messages()[..], [(ticket, News::Grant { .. })] if ticket == waiter.ticket));
}

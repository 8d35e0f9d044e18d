//! Keys that are lost alone, keys of another kind of lock, keys that are not ours; denied commands and full memory.

use lockwright::internals::scripts::*;

use super::holds::{FREED, assert_only_counter};
use crate::protocol::denied::{assert_all_mortal, assert_denied, full, limited, with};
use crate::protocol::keys::everything;
use crate::protocol::rig::*;
use crate::support::resp::Reply;

#[test]
fn with_the_lock_lost_the_reads_inside_keep_it() {
    let mut rig = Rig::shared();
    let (a, mut b) = (rig.client(), rig.client());
    let (first, second) = (a.read(), b.read());
    let version = rig.granted(&first).token;
    rig.granted(&second);
    rig.wire.ok(&["DEL", &rig.lock()]);
    assert!(
        matches!(rig.renew(&[(first.ticket, LEASE)])[..], [Renewed::Kept { .. }]),
        "nobody has asked yet"
    );
    assert!(rig.is_busy(&rig.client().write()));
    let info = rig.inspect();
    assert_eq!((info.mode, info.token, info.holds.len()), (Some(Mode::Read), Some(version), 2));
    assert!(rig.ttl(&rig.lock()) > LEASE as i64 - 1_000);
    assert!(matches!(rig.renew(&[(second.ticket, LEASE)])[..], [Renewed::Kept { .. }]));
    rig.wire.ok(&["DEL", &rig.lock()]);
    assert_eq!(rig.leave(&first), FREED, "it was one of them");
    assert!(rig.is_busy(&rig.client().write()));
    rig.queued(&a.write());
    assert_eq!(b.messages(), [(second.ticket, News::Held)]);
    rig.leave(&second);
    assert!(rig.held_token() > version);
}

#[test]
fn with_the_lock_and_its_counter_lost_the_version_rises() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let read = a.read();
    let version = rig.granted(&read).token;
    rig.wire.ok(&["DEL", &rig.lock(), &rig.keys.token()]);
    assert!(rig.granted(&a.read()).token > version);
}

#[test]
fn with_the_readers_lost_the_lock_is_free_and_they_hear_of_it() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let (read, write) = (a.read(), b.write());
    rig.granted(&read);
    rig.wire.ok(&["DEL", &rig.keys.readers()]);
    assert_eq!(rig.renew(&[(read.ticket, LEASE)]), [Renewed::Lost], "before and after somebody asks");
    rig.granted(&write);
    assert_eq!(rig.renew(&[(read.ticket, LEASE)]), [Renewed::Lost]);
    assert_eq!(rig.leave(&read), LeaveReply::Gone { more: false });
    assert_eq!(rig.leave(&write), FREED);
    assert_only_counter(&mut rig);
}

#[test]
fn with_the_readers_lost_a_write_keeps_the_lock_and_leaves_it_free() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let (write, read) = (a.write_of(owner(1)), a.read_of(owner(1)));
    rig.granted(&write);
    rig.granted(&read);
    rig.wire.ok(&["DEL", &rig.keys.readers()]);
    assert!(rig.is_busy(&a.read()));
    assert_eq!(rig.leave(&write), FREED);
    assert_only_counter(&mut rig);
}

#[test]
fn a_read_that_was_lost_under_its_owners_write_hears_of_it() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let (write, read, again) = (a.write_of(owner(1)), a.read_of(owner(1)), a.read_of(owner(1)));
    rig.granted(&write);
    rig.granted(&read);
    rig.wire.ok(&["DEL", &rig.keys.readers()]);
    let renewed = rig.renew(&[(read.ticket, LEASE), (write.ticket, LEASE)]);
    assert!(matches!(renewed[..], [Renewed::Lost, Renewed::Kept { .. }]), "{renewed:?}");
    rig.granted(&again);
    assert!(matches!(rig.renew(&[(again.ticket, LEASE)])[..], [Renewed::Kept { .. }]));
    assert_eq!(rig.leave(&write), FREED);
    assert!(rig.is_busy(&a.write()), "the other read is inside");
    assert_eq!(rig.leave(&again), FREED);
    rig.granted(&a.write());
}

#[test]
fn with_half_of_the_queue_lost_everybody_registers_again() {
    for lost in [0, 1] {
        let mut rig = Rig::shared();
        let (a, b) = (rig.client(), rig.client());
        let (inside, write, read) = (a.read(), b.write(), a.read());
        rig.granted(&inside);
        rig.queued(&write);
        rig.queued(&read);
        let keys = [rig.keys.queue(), rig.keys.waiting()];
        rig.wire.ok(&["DEL", &keys[lost]]);
        let AcquireReply::Queued(queued) = rig.poll(&write) else { panic!() };
        assert_eq!((queued.new, queued.place), (true, 1));
        assert_eq!(rig.get(&rig.keys.waiting(), "queue"), "read_write 1 1 1");
        assert!(matches!(rig.poll(&read), AcquireReply::Queued(Queued { new: true, place: 2, .. })));
        assert_eq!(rig.leave(&inside), FREED);
        assert_eq!(rig.inspect().mode, Some(Mode::Write));
    }
}

#[test]
fn a_lock_of_another_kind_is_not_touched() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let (mode_of, other_of) = ([Kind::ReadWrite, Kind::Fair], [Kind::Fair, Kind::ReadWrite]);
    for (kind, other) in mode_of.into_iter().zip(other_of) {
        rig.wire.ok(&["FLUSHALL"]);
        rig.kind = kind;
        let (holder, waiter) =
            if kind == Kind::ReadWrite { (a.read(), b.write()) } else { (a.attempt(), b.attempt()) };
        rig.granted(&holder);
        rig.queued(&waiter);
        rig.kind = other;
        let found = kind.to_string();
        for attempt in
            if other == Kind::ReadWrite { [a.read(), a.write()] } else { [a.attempt(), a.attempt()] }
        {
            let before = everything(&mut rig);
            assert_eq!(
                rig.acquire(&attempt, Wait::Join),
                AcquireReply::KindMismatch { found: found.clone() }
            );
            assert_eq!(rig.leave(&attempt), LeaveReply::Gone { more: false });
            assert_eq!(
                rig.leave(&holder),
                LeaveReply::Gone { more: false },
                "it is none of this kind's holds"
            );
            assert_eq!(everything(&mut rig), before);
        }
        assert_eq!(rig.downgrade(&a.write(), &a.read()), DowngradeReply::Lost);
    }
}

/// What a key can be instead of ours.
fn foreign(rig: &Rig) -> Vec<(String, Vec<Vec<String>>)> {
    let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (lock, readers) = (rig.lock(), rig.keys.readers());
    let (waiting, token) = (rig.keys.waiting(), rig.keys.token());
    let half = ["HSET", &lock, "kind", "read_write", "mode", "read", "owner", "-"];
    let odd = ["HSET", &lock, "kind", "read_write", "mode", "odd", "owner", "-", "token", "1", "block", "1"];
    vec![
        (
            lock.clone(),
            vec![
                command(&["SET", &lock, "x"]),
                command(&["HSET", &lock, "user", "1"]),
                command(&half),
                command(&odd),
            ],
        ),
        (waiting.clone(), vec![command(&["SET", &waiting, "x"]), command(&["HSET", &waiting, "queue", "x"])]),
        (token.clone(), vec![command(&["SET", &token, "x"]), command(&["SET", &token, "9007199254740993"])]),
        (readers.clone(), vec![command(&["SET", &readers, "x"]), command(&["SADD", &readers, "x"])]),
    ]
}

#[test]
fn keys_that_are_not_ours_are_reported_and_not_touched() {
    let mut rig = Rig::shared();
    let a = rig.client();
    for (key, makes) in foreign(&rig) {
        for make in makes {
            rig.wire.ok(&["FLUSHALL"]);
            rig.wire.ok(&make.iter().map(String::as_str).collect::<Vec<_>>());
            let before = everything(&mut rig);
            for attempt in [a.read(), a.write()] {
                for wait in [Wait::No, Wait::Join, Wait::Poll] {
                    let reply = rig.acquire(&attempt, wait);
                    assert_eq!(reply, AcquireReply::ForeignKey { key: key.clone() }, "{make:?}");
                }
            }
            let is_lock = key == rig.lock() || key == rig.keys.readers();
            let left = rig.leave(&a.read());
            let lowered = rig.downgrade(&a.write(), &a.read());
            if is_lock {
                assert_eq!(left, LeaveReply::ForeignKey { key: key.clone() }, "{make:?}");
                assert_eq!(lowered, DowngradeReply::ForeignKey { key: key.clone() }, "{make:?}");
            } else {
                assert_eq!(left, LeaveReply::Gone { more: false }, "{make:?}");
                assert_eq!(lowered, DowngradeReply::Lost, "{make:?}");
            }
            assert_eq!(rig.renew(&[(a.read().ticket, LEASE)]), [Renewed::Lost], "{make:?}");
            assert_eq!(everything(&mut rig), before, "{make:?}");
        }
    }
}

#[test]
fn a_release_does_not_fail_for_a_queue_or_a_counter_that_is_not_ours() {
    let mut rig = Rig::shared();
    let a = rig.client();
    for key in [rig.keys.waiting(), rig.keys.queue(), rig.keys.token()] {
        for attempt in [a.read(), a.write()] {
            rig.wire.ok(&["FLUSHALL"]);
            rig.granted(&attempt);
            rig.wire.ok(&["SET", &key, "x"]);
            let reply = rig.leave_for(attempt.ticket, Some(&a.read()));
            assert!(matches!(reply, LeaveReply::Freed { .. }), "{key}: {reply:?}");
            assert_eq!(rig.wire.ok(&["GET", &key]).text(), "x");
        }
    }
}

#[test]
fn without_the_right_to_pexpire_nothing_is_acquired_and_nothing_lives_for_ever() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let mut wire = limited(&mut rig, &["-pexpire"]);
    let inside = a.read_of(owner(1));
    for (is_free, attempt) in
        [(true, a.read()), (true, a.write()), (false, a.read()), (false, a.read_of(owner(1)))]
    {
        if !is_free {
            rig.granted(&inside);
        }
        let call = rig.acquire_call(&attempt, Wait::Join);
        let (lock, readers) = (rig.lock(), rig.keys.readers());
        let held = |rig: &mut Rig| {
            let tickets: Vec<String> = rig.inspect().holds.into_iter().map(|hold| hold.ticket).collect();
            let mut fields = rig.wire.ok(&["HGETALL", &lock]).texts();
            fields.sort();
            (tickets, fields, rig.wire.ok(&["ZRANGE", &readers, "0", "-1", "WITHSCORES"]))
        };
        let before = held(&mut rig);
        assert_denied(&with(&mut rig, &mut wire, |rig| rig.run(&call)));
        assert_eq!(held(&mut rig), before);
        assert_all_mortal(&mut rig);
    }
    // A write that leaves has left, and the reads that it let in are told that they are not.
    rig.leave(&inside);
    let (mut b, write) = (rig.client(), a.write());
    let read = b.read();
    rig.granted(&write);
    rig.queued(&read);
    let reply = with(&mut rig, &mut wire, |rig| rig.leave(&write));
    assert_eq!(reply, FREED);
    assert!(matches!(b.messages()[..], [(_, News::Grant { .. }), (_, News::Lost { .. })]));
    assert_eq!((rig.held_token(), rig.inspect().holds.len()), (0, 0));
    // K was lost alone: it cannot be written again.
    rig.granted(&inside);
    rig.granted(&a.read());
    rig.wire.ok(&["DEL", &rig.lock()]);
    for attempt in [a.read(), a.write()] {
        let call = rig.acquire_call(&attempt, Wait::Join);
        assert_denied(&with(&mut rig, &mut wire, |rig| rig.run(&call)));
        assert_all_mortal(&mut rig);
    }
    let reply = with(&mut rig, &mut wire, |rig| rig.leave(&inside));
    assert_eq!(reply, LeaveReply::Kept);
    assert_eq!(rig.wire.ok(&["ZCARD", &rig.keys.readers()]).int(), 1);
    assert_all_mortal(&mut rig);
    // A downgrade that is denied leaves the write as it was.
    rig.wire.ok(&["FLUSHALL"]);
    let token = rig.granted(&write).token;
    let call = rig.downgrade_call(&write, &a.read());
    assert_denied(&with(&mut rig, &mut wire, |rig| rig.run(&call)));
    let info = rig.inspect();
    assert_eq!((info.mode, info.token, info.holds.len()), (Some(Mode::Write), Some(token), 1));
    assert_all_mortal(&mut rig);
}

#[test]
fn without_the_right_to_zadd_a_free_lock_stays_free() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let first = a.read();
    rig.granted(&first);
    rig.leave(&first);
    let mut wire = limited(&mut rig, &["-zadd"]);
    let call = rig.acquire_call(&a.read(), Wait::Join);
    assert_denied(&with(&mut rig, &mut wire, |rig| rig.run(&call)));
    assert_eq!(rig.all_keys(), [rig.keys.token()]);
}

#[test]
fn with_full_memory_nothing_new_is_taken_and_nobody_is_told_of_a_grant() {
    let mut rig = Rig::shared();
    let (a, mut b) = (rig.client(), rig.client());
    let is_full = |reply: Reply| assert!(matches!(reply, Reply::Error(text) if text.starts_with("OOM")));
    for attempt in [a.read(), a.write()] {
        let call = rig.acquire_call(&attempt, Wait::Join);
        full(&mut rig, true);
        is_full(rig.run(&call));
        full(&mut rig, false);
        assert!(rig.all_keys().is_empty());
    }
    let (write, read) = (a.write(), b.read());
    rig.granted(&write);
    rig.queued(&read);
    rig.wire.ok(&["DEL", &rig.lock()]);
    full(&mut rig, true);
    for attempt in [a.read(), a.write()] {
        let call = rig.acquire_call(&attempt, Wait::Join);
        is_full(rig.run(&call));
    }
    assert_eq!(b.messages(), [(read.ticket, News::Held)][..0]);
}

#[test]
fn with_full_memory_holds_are_renewed_released_and_handed_over() {
    let mut rig = Rig::shared();
    let (a, mut b) = (rig.client(), rig.client());
    let (write, own, read, next) = (a.write_of(owner(1)), a.read_of(owner(1)), b.read(), a.read());
    rig.granted(&write);
    rig.granted(&own);
    rig.queued(&read);
    full(&mut rig, true);
    let renewed = rig.renew(&[(write.ticket, 40_000), (own.ticket, 40_000)]);
    assert!(matches!(renewed[..], [Renewed::Kept { .. }, Renewed::Kept { .. }]), "{renewed:?}");
    let reply = rig.leave_for(write.ticket, Some(&next));
    assert!(matches!(reply, LeaveReply::Freed { next: Next::Granted(_), .. }), "{reply:?}");
    assert!(matches!(b.messages()[..], [(ticket, News::Grant { .. })] if ticket == read.ticket));
    for read in [own, read, next] {
        assert_eq!(rig.leave(&read), FREED);
    }
    assert_only_counter(&mut rig);
}

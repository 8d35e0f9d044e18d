//! Holds without waiters: who shares the lock, versions, and leases that are each hold's own.

use lockwright::internals::scripts::*;

use crate::protocol::rig::*;

/// What a release leaves when nobody else is there: nothing but the counter.
pub fn assert_only_counter(rig: &mut Rig) {
    assert_eq!(rig.all_keys(), [rig.keys.token()]);
}

pub const FREED: LeaveReply = LeaveReply::Freed { more: false, next: Next::None };

#[test]
fn the_first_read_makes_a_version_where_there_is_none_and_leaves_only_that() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let read = Attempt { label: Some("one two".into()), ..a.read() };
    let before = rig.micros();
    let granted = rig.granted(&read);
    assert!((before..=rig.micros()).contains(&granted.token), "{granted:?}");
    assert_eq!((granted.left_millis, granted.waiting), (LEASE, false));

    let (lock, readers) = (rig.lock(), rig.keys.readers());
    let ends = rig.read_end(read.ticket);
    assert!((LEASE - 1_000..=LEASE).contains(&(ends - rig.now())));
    let field = |rig: &mut Rig, name: &str| rig.get(&lock, name);
    assert_eq!(field(&mut rig, &read.ticket.to_string()), format!("{ends} - one two"));
    assert_eq!((field(&mut rig, "kind"), field(&mut rig, "mode")), ("read_write".into(), "read".into()));
    assert_eq!((field(&mut rig, "owner"), field(&mut rig, "block")), ("-".into(), "1".into()));
    assert_eq!(field(&mut rig, "token"), granted.token.to_string());
    for key in [&lock, &readers] {
        assert!((LEASE as i64 - 1_000..=LEASE as i64).contains(&rig.ttl(key)), "{key}");
    }
    assert_eq!(rig.wire.ok(&["GET", &rig.keys.token()]).text(), granted.token.to_string());
    let life = rig.ttl(&rig.keys.token());
    assert!((DAY - 2_000..=DAY).contains(&life));

    assert_eq!(rig.leave(&read), FREED);
    assert_only_counter(&mut rig);
    assert_eq!(rig.leave(&read), LeaveReply::Gone { more: false });
}

#[test]
fn reads_share_the_lock_and_its_version_and_keep_writes_out() {
    let mut rig = Rig::shared();
    let reads: Vec<Attempt> = (0..3).map(|_| rig.client().read()).collect();
    let write = rig.client().write();
    let versions: Vec<u64> = reads.iter().map(|read| rig.granted(read).token).collect();
    assert!(versions.iter().all(|version| *version == versions[0]));
    for read in &reads {
        assert!(rig.is_busy(&write));
        assert_eq!(rig.leave(read), FREED);
    }
    assert_only_counter(&mut rig);
    rig.granted(&write);
    assert!(rig.is_busy(&reads[0]));
    assert!(rig.is_busy(&rig.client().write()));
    assert_eq!(rig.all_keys(), [rig.lock(), rig.keys.token()], "nothing is left behind");
}

#[test]
fn a_version_changes_with_each_write_and_only_then() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let mut last = 0;
    for _ in 0..5 {
        let write = a.write();
        let token = rig.granted(&write).token;
        assert!(token > last);
        rig.leave(&write);
        for _ in 0..2 {
            let read = a.read();
            last = rig.granted(&read).token;
            assert_eq!(last, token + 1, "a resource that has seen it refuses a writer that lost its lease");
            rig.leave(&read);
        }
    }
    // A write that was only tried is none.
    let read = a.read();
    rig.granted(&read);
    assert!(rig.is_busy(&a.write()));
    rig.leave(&read);
    assert_eq!(rig.granted(&a.read()).token, last);
}

#[test]
fn with_the_counter_lost_versions_still_rise() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let version_after_loss = |rig: &mut Rig| {
        rig.wire.ok(&["DEL", &rig.keys.token()]);
        let (read, write) = (a.read(), a.write());
        let version = rig.granted(&read).token;
        // Who comes later reads what this one reads, whatever becomes of the counter.
        rig.wire.ok(&["DEL", &rig.keys.token()]);
        let beside = a.read();
        assert_eq!(rig.granted(&beside).token, version);
        rig.leave(&read);
        rig.leave(&beside);
        let token = rig.granted(&write).token;
        assert!(token > version, "or a cache would take what it has for fresh");
        rig.leave(&write);
        version
    };
    let first = version_after_loss(&mut rig);
    assert!(version_after_loss(&mut rig) > first);
}

#[test]
fn a_replay_is_the_same_grant_and_lengthens_never_shortens() {
    let mut rig = Rig::shared();
    let a = rig.client();
    for attempt in [a.read(), a.write()] {
        let first = rig.granted(&attempt);
        rig.pass(30);
        let again = rig.granted(&attempt);
        assert_eq!((again.token, again.left_millis), (first.token, LEASE));
        let shorter = rig.granted(&Attempt { lease_millis: 100, ..attempt.clone() });
        assert!(shorter.left_millis > LEASE - 1_000, "{shorter:?}");
        assert!(rig.ttl(&rig.lock()) > LEASE as i64 - 1_000);
        assert_eq!(rig.inspect().holds.len(), 1);
        assert_eq!(rig.leave(&attempt), FREED);
    }
}

#[test]
fn a_dead_read_is_not_kept_alive_by_others_that_renew() {
    let mut rig = Rig::shared();
    let (dead, living) = (Attempt { lease_millis: 150, ..rig.client().read() }, rig.client().read());
    let write = rig.client().write();
    rig.granted(&dead);
    rig.granted(&living);
    for _ in 0..3 {
        rig.pass(60);
        rig.renew(&[(living.ticket, LEASE)]);
    }
    assert_eq!(rig.renew(&[(dead.ticket, LEASE)]), [Renewed::Lost], "its own lease is over");
    assert!(rig.is_busy(&write));
    assert_eq!(rig.leave(&living), FREED);
    rig.granted(&write);
}

#[test]
fn a_write_waits_for_the_dead_read_no_longer_than_that_ones_own_lease() {
    let mut rig = Rig::shared();
    let (dead, living) = (Attempt { lease_millis: 300, ..rig.client().read() }, rig.client().read());
    let write = rig.client().write();
    rig.granted(&dead);
    rig.granted(&living);
    rig.leave(&living);
    let AcquireReply::Busy { left_millis } = rig.acquire(&write, Wait::No) else { panic!() };
    assert!(left_millis <= 300, "what is left is the dead one's: {left_millis}");
    for key in [rig.lock(), rig.keys.readers()] {
        assert!(rig.ttl(&key) <= 300, "{key}");
    }
    rig.pass(320);
    rig.granted(&write);
}

#[test]
fn a_renewal_does_not_shorten_the_lease_of_another_read() {
    let mut rig = Rig::shared();
    let (long, short) = (rig.client().read(), Attempt { lease_millis: 200, ..rig.client().read() });
    let write = rig.client().write();
    rig.granted(&long);
    rig.granted(&short);
    let renewed = rig.renew(&[(short.ticket, 250)]);
    assert_eq!(renewed, [Renewed::Kept { left_millis: 250, waiting: false }]);
    rig.pass(270);
    let AcquireReply::Busy { left_millis } = rig.acquire(&write, Wait::No) else { panic!("a write came in") };
    assert!((LEASE - 2_000..LEASE).contains(&left_millis));
    for key in [rig.lock(), rig.keys.readers()] {
        assert!(rig.ttl(&key) > LEASE as i64 - 2_000, "{key}");
    }
    assert!(matches!(rig.renew(&[(long.ticket, LEASE)])[..], [Renewed::Kept { .. }]));
}

#[test]
fn re_entry_to_write_does_not_add_leases_up() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let outer = a.write_of(owner(1));
    let token = rig.granted(&outer).token;
    let inner: Vec<Attempt> = (0..3).map(|_| a.write_of(owner(1))).collect();
    for write in &inner {
        let granted = rig.granted(write);
        assert_eq!((granted.token, granted.left_millis), (token, LEASE));
        assert!(rig.ttl(&rig.lock()) <= LEASE as i64);
    }
    for write in &inner {
        assert_eq!(rig.leave(write), LeaveReply::Kept);
    }
    assert!(rig.ttl(&rig.lock()) <= LEASE as i64);
    assert_eq!(rig.leave(&outer), FREED);
    assert_only_counter(&mut rig);
}

#[test]
fn a_lock_whose_leases_have_ended_is_free_though_its_keys_are_there() {
    let mut rig = Rig::shared();
    let a = rig.client();
    for brief in [a.read(), a.write(), a.read_of(owner(1))] {
        let brief = Attempt { lease_millis: 100, ..brief };
        rig.granted(&brief);
        let keys = [rig.lock(), rig.keys.readers()];
        keys.iter().for_each(|key| drop(rig.wire.ok(&["PERSIST", key])));
        rig.pass(120);
        assert_eq!(rig.renew(&[(brief.ticket, LEASE)]), [Renewed::Lost]);
        let next = a.write();
        rig.granted(&next);
        assert_eq!(rig.inspect().holds.len(), 1);
        assert_eq!(rig.leave(&brief), LeaveReply::Gone { more: false });
        assert_eq!(rig.leave(&next), FREED);
        assert_only_counter(&mut rig);
    }
}

#[test]
fn reads_whose_leases_have_ended_are_forgotten() {
    let mut rig = Rig::shared();
    let (a, living) = (rig.client(), rig.client().read());
    rig.granted(&living);
    for at in 0..5 {
        let brief = if at < 3 { a.read() } else { a.read_of(owner(at)) };
        rig.granted(&Attempt { lease_millis: 100, ..brief });
    }
    rig.pass(120);
    let other = rig.client().read();
    rig.granted(&other);
    let (lock, readers) = (rig.lock(), rig.keys.readers());
    assert_eq!(rig.wire.ok(&["ZCARD", &readers]).int(), 2);
    assert_eq!(rig.wire.ok(&["HLEN", &lock]).int(), 5 + 2, "holds and owners are gone");
    rig.leave(&living);
    rig.leave(&other);
    assert_only_counter(&mut rig);
}

#[test]
fn a_stale_request_changes_nothing() {
    let mut rig = Rig::shared();
    let a = rig.client();
    for attempt in [a.read(), a.write()] {
        let mut call = rig.acquire_call(&attempt, Wait::Join);
        set_arg(&mut call, 3, &(rig.now() - 1).to_string());
        let reply = AcquireReply::decode(&rig.value(&call)).unwrap().reply;
        assert_eq!(reply, AcquireReply::Stale);
        assert!(rig.all_keys().is_empty());
    }
}

#[test]
fn force_release_ends_all_reads_of_a_version_and_the_next_write_has_it() {
    let mut rig = Rig::shared();
    let (mut a, mut b, mut c) = (rig.client(), rig.client(), rig.client());
    let (first, second, write) = (a.read(), b.read_of(owner(1)), c.write());
    let version = rig.granted(&first).token;
    rig.granted(&second);
    rig.queued(&write);
    a.messages();
    b.messages();
    assert_eq!(rig.inspect().token, Some(version));
    assert_eq!(rig.force_release(version - 1), ForceReleaseReply::NotHeld);
    assert_eq!(rig.force_release(version), ForceReleaseReply::Released { more: false });
    assert_eq!(a.messages(), [(first.ticket, News::Lost { token: version })]);
    assert_eq!(b.messages(), [(second.ticket, News::Lost { token: version })]);
    let [(_, News::Grant { token, .. })] = c.messages()[..] else { panic!() };
    assert!(token > version);
    assert_eq!(rig.renew(&[(first.ticket, LEASE), (second.ticket, LEASE)]), [Renewed::Lost; 2]);
    assert_eq!(
        rig.force_release(token + 1),
        ForceReleaseReply::Released { more: false },
        "either token of the write"
    );
    assert_only_counter(&mut rig);
}

#[test]
fn a_thousand_reads_that_are_ended_by_force_are_out_at_once_and_hear_of_it_in_parts() {
    let mut rig = Rig::shared();
    let (mut reader, mut writer) = (rig.client(), rig.client());
    let reads: Vec<Attempt> = (0..1_000).map(|_| reader.read()).collect();
    for read in &reads {
        rig.granted(read);
    }
    let version = rig.held_token();
    let write = writer.write();
    rig.queued(&write);
    reader.messages();
    assert_eq!(rig.force_release(version), ForceReleaseReply::Released { more: true });
    let [(_, News::Grant { token, .. })] = writer.messages()[..] else { panic!("it has the lock by now") };
    assert_eq!(rig.renew(&[(reads[999].ticket, LEASE)]), [Renewed::Lost]);
    let mut lost: Vec<_> = reader.messages();
    assert_eq!(lost.len(), 256);
    assert_eq!(rig.force_release(version), ForceReleaseReply::Told { more: true });
    // Whoever calls goes on with it, and has what it came for by its next call.
    assert_eq!(rig.force_release(token), ForceReleaseReply::Told { more: true });
    assert_eq!(rig.held_token(), token);
    assert_eq!(rig.force_release(version), ForceReleaseReply::Told { more: false });
    assert_eq!(rig.force_release(version), ForceReleaseReply::NotHeld);
    lost.extend(reader.messages());
    let mut tickets: Vec<_> = lost.iter().map(|(ticket, _)| *ticket).collect();
    tickets.sort();
    assert_eq!(tickets, reads.iter().map(|read| read.ticket).collect::<Vec<_>>(), "each, and once");
    assert!(lost.iter().all(|(_, news)| *news == News::Lost { token: version }), "whosesoever call tells it");
    assert_eq!(rig.leave(&write), FREED);
    assert_only_counter(&mut rig);
}

/// Who is to be told hears of the grant that it had, and nobody else of that caller.
#[test]
fn reads_that_come_after_a_force_stay_while_others_are_still_told() {
    let mut rig = Rig::shared();
    let mut reader = rig.client();
    let reads: Vec<Attempt> = (0..300).map(|_| reader.read()).collect();
    for read in &reads {
        rig.granted(read);
    }
    let version = rig.held_token();
    assert_eq!(rig.force_release(version), ForceReleaseReply::Released { more: true });
    reader.messages();
    // The last of them asks again before it was told, and another one comes; of the same version.
    let (again, new) = (&reads[299], reader.read());
    assert_eq!((rig.granted(again).token, rig.granted(&new).token), (version, version));
    assert_eq!(rig.force_call(version, true), ForceReleaseReply::Told { more: false });
    let lost = reader.messages();
    assert_eq!(lost.len(), 300 - 256 - 1);
    assert!(lost.iter().all(|(ticket, _)| *ticket != again.ticket));
    // Another caller may have told them.
    assert_eq!(rig.force_call(version, true), ForceReleaseReply::Told { more: false });
    assert_eq!(reader.messages(), []);
    assert_eq!(rig.leave(again), FREED);
    assert_eq!(rig.leave(&new), FREED);
    assert_only_counter(&mut rig);
}

#[test]
fn a_key_in_the_place_of_the_ended_reads_is_reported() {
    let mut rig = Rig::shared();
    let read = rig.client().read();
    let version = rig.granted(&read).token;
    let key = rig.keys.ended();
    rig.wire.ok(&["SET", &key, "x"]);
    assert_eq!(rig.force_release(version), ForceReleaseReply::ForeignKey { key });
    assert_eq!(rig.held_token(), version);
}

#[test]
fn a_free_lock_costs_little() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let first = a.read();
    rig.granted(&first);
    rig.leave(&first);
    for (attempt, cost) in [(a.read(), 7), (a.write(), 6)] {
        let call = rig.acquire_call(&attempt, Wait::Join);
        // With the server's own.
        assert!(rig.cost(&call) <= cost + 1, "{:?}: {:?}", attempt.mode, rig.commands());
        assert_eq!(rig.inspect().mode, Some(attempt.mode));
        assert_eq!(rig.leave(&attempt), FREED);
        assert_only_counter(&mut rig);
    }
}

#[test]
fn a_write_taken_by_force_lets_all_waiting_reads_in() {
    let mut rig = Rig::shared();
    let mut peers: Vec<Peer> = (0..3).map(|_| rig.client()).collect();
    let write = rig.client().write();
    let token = rig.granted(&write).token;
    for peer in &peers {
        rig.queued(&peer.read());
    }
    assert_eq!(rig.force_release(token), ForceReleaseReply::Released { more: false });
    for peer in &mut peers {
        assert!(
            matches!(peer.messages()[..], [.., (_, News::Grant { token: version, .. })] if version == token + 1)
        );
    }
    assert_eq!(rig.inspect().holds.len(), 3);
}

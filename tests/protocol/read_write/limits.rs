//! Many reads at once.

use lockwright::internals::scripts::*;

use super::holds::FREED;
use crate::protocol::rig::*;

#[test]
fn one_call_lets_64_reads_in_and_the_next_goes_on() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let write = a.write();
    rig.granted(&write);
    for _ in 0..600 {
        rig.queued(&b.read());
    }
    let last = a.write();
    rig.queued(&last);
    for at in 0..10 {
        let inside = (64 * (at + 1)).min(600);
        let more = inside < 600;
        let reply = rig.leave(&write);
        if at == 0 {
            assert_eq!(reply, LeaveReply::Freed { more, next: Next::None });
        } else {
            assert_eq!(reply, LeaveReply::Gone { more });
        }
        assert_eq!(rig.inspect().hold_count, inside);
        assert_eq!(rig.list().len(), 601 - inside as usize, "no entry is walked over twice");
    }
    assert_eq!(rig.leave(&write), LeaveReply::Gone { more: false });
    assert_eq!(rig.list(), [last.ticket.to_string()]);
}

#[test]
fn letting_a_read_in_costs_its_message_and_little_else() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let write = a.write();
    rig.granted(&write);
    for _ in 0..60 {
        rig.queued(&b.read());
    }
    let call = rig.leave_call(write.ticket, None);
    let cost = rig.cost(&call);
    assert!(cost <= 60 + 30, "{cost}: {:?}", rig.commands());
}

#[test]
fn what_a_read_costs_does_not_grow_with_those_inside() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let mut costs = Vec::new();
    for count in [1, 300] {
        for _ in 0..count {
            rig.granted(&a.read_of(owner(1)));
        }
        let read = a.read();
        let acquire = rig.acquire_call(&read, Wait::Join);
        let enter = rig.cost(&acquire);
        let leave = rig.leave_call(read.ticket, None);
        costs.push((enter, rig.cost(&leave)));
    }
    assert_eq!(costs[0], costs[1]);
}

/// So many reads whose leases end in this moment.
fn ended(rig: &mut Rig, peer: &Peer, count: usize) {
    let reads: Vec<Attempt> = (0..count).map(|_| peer.read()).collect();
    for read in &reads {
        rig.granted(read);
    }
    let (lock, readers, ends) = (rig.lock(), rig.keys.readers(), (rig.now() - 1).to_string());
    for read in &reads {
        let ticket = read.ticket.to_string();
        rig.wire.ok(&["ZADD", &readers, &ends, &ticket]);
        rig.set(&lock, &ticket, &format!("{ends} -"));
    }
}

#[test]
fn many_reads_that_have_ended_are_forgotten_bit_by_bit_and_keep_nobody_out() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let living = a.read();
    rig.granted(&living);
    ended(&mut rig, &a, 600);
    let readers = rig.keys.readers();
    for left in [601 - 256, 601 - 512, 1] {
        assert!(rig.is_busy(&rig.client().write()));
        assert_eq!(rig.wire.ok(&["ZCARD", &readers]).int(), left);
    }
    // With all of them ended, however many there are, the lock is free.
    ended(&mut rig, &a, 600);
    assert_eq!(rig.leave(&living), FREED);
    rig.granted(&rig.client().write());
    assert_eq!(rig.all_keys(), [rig.lock(), rig.keys.token()]);
}

#[test]
fn a_thousand_readers_whose_key_is_lost_stay_inside_at_the_price_of_one() {
    let mut costs = Vec::new();
    for count in [1, 1_200] {
        let mut rig = Rig::shared();
        let a = rig.client();
        let reads: Vec<Attempt> = (0..count).map(|_| a.read()).collect();
        for read in &reads {
            rig.granted(read);
        }
        rig.wire.ok(&["DEL", &rig.lock()]);
        let call = rig.acquire_call(&rig.client().write(), Wait::No);
        costs.push(rig.cost(&call));
        assert!(rig.is_busy(&rig.client().write()));
        let info = rig.inspect();
        assert_eq!((info.mode, info.hold_count), (Some(Mode::Read), count));
        for read in &reads {
            assert!(matches!(rig.renew(&[(read.ticket, LEASE)])[..], [Renewed::Kept { .. }]));
            assert_ne!(rig.get(&rig.lock(), &read.ticket.to_string()), "", "K knows of it again");
            assert_eq!(rig.leave(read), FREED, "it was inside");
        }
        rig.granted(&a.write());
    }
    assert_eq!(costs[0], costs[1]);
}

#[test]
fn who_reads_since_before_the_key_was_lost_is_let_in_again_past_a_waiting_write() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let (read, other) = (a.read(), b.read());
    rig.granted(&read);
    rig.granted(&other);
    rig.wire.ok(&["DEL", &rig.lock()]);
    // The call that restores it, and a later one.
    for attempt in [&read, &other] {
        let AcquireReply::Granted(granted) = rig.poll(attempt) else { panic!("it is inside") };
        assert!(granted.left_millis > LEASE - 1_000);
        rig.queued(&b.write());
    }
}

#[test]
fn inspect_lists_the_first_256_of_many_and_counts_all() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    for _ in 0..300 {
        rig.granted(&a.read());
    }
    for _ in 0..300 {
        rig.queued(&b.write());
    }
    let call = Inspect { keys: &rig.keys }.call();
    let cost = rig.cost(&call);
    assert!(cost <= 20, "{cost}: {:?}", rig.commands());
    let info = rig.inspect();
    assert_eq!((info.holds.len(), info.hold_count), (256, 300));
    assert_eq!((info.waiting.len(), info.waiting_count), (256, 300));
}

/// So many waiting reads of a client.
fn crowd(rig: &mut Rig, peer: &Peer, count: usize) -> Vec<Attempt> {
    let reads: Vec<Attempt> = (0..count).map(|_| peer.read()).collect();
    for read in &reads {
        rig.queued(read);
    }
    reads
}

#[test]
fn at_the_limit_a_read_does_not_overtake_the_write_before_it() {
    for leaves in [false, true] {
        let mut rig = Rig::shared();
        let (a, b) = (rig.client(), rig.client());
        let (holder, write, read) = (a.write(), b.write(), a.read());
        rig.granted(&holder);
        crowd(&mut rig, &b, 64);
        rig.queued(&write);
        if leaves {
            let reply = rig.leave_for(holder.ticket, Some(&read));
            let LeaveReply::Freed { more, next: Next::Queued { place, .. } } = reply else {
                panic!("{reply:?}")
            };
            assert_eq!((more, place), (true, 2));
        } else {
            rig.queued(&read);
            rig.wire.ok(&["DEL", &rig.lock()]);
            let AcquireReply::Queued(queued) = rig.poll(&read) else { panic!("it is in before the write") };
            assert!(queued.more);
        }
        assert_eq!(rig.inspect().holds.len(), 64);
        assert_eq!(rig.list(), [&write, &read].map(|attempt| attempt.ticket.to_string()));
        let AcquireReply::Queued(queued) = rig.poll(&read) else { panic!() };
        assert_eq!((queued.more, queued.place), (false, 2));
    }
}

#[test]
fn nor_where_the_call_met_nothing_but_dead_entries() {
    let mut rig = Rig::shared();
    let (a, b, gone) = (rig.client(), rig.client(), rig.client());
    let (inside, write, read) = (a.read(), b.write(), a.read());
    rig.granted(&inside);
    rig.queued(&gone.write());
    rig.add_dead(255);
    rig.queued(&write);
    rig.queued(&read);
    rig.set_deadline(&gone, -1);
    for more in [true, false] {
        let AcquireReply::Queued(queued) = rig.poll(&read) else { panic!("it is in before the write") };
        assert_eq!((queued.more, queued.place), (more, 2));
        assert_eq!(rig.list().len(), 2);
    }
    // The new ticket of a leaving, where the lock is free then.
    rig.leave(&write);
    rig.leave(&read);
    rig.queued(&gone.write());
    rig.add_dead(255);
    rig.queued(&write);
    rig.set_deadline(&gone, -1);
    let reply = rig.leave_for(inside.ticket, Some(&read));
    let LeaveReply::Freed { more, next: Next::Queued { place, left_millis, .. } } = reply else {
        panic!("{reply:?}")
    };
    assert_eq!((more, place, left_millis), (true, 2, 0));
    let AcquireReply::Queued(queued) = rig.poll(&read) else { panic!("the write has the lock") };
    assert_eq!((queued.more, queued.place), (false, 1));
}

/// Has everybody poll who is told to, and returns how many rounds of messages that took.
fn rounds(rig: &mut Rig, peer: &mut Peer) -> usize {
    for round in 0.. {
        let told = peer.messages().into_iter().filter(|(_, news)| *news == News::Held);
        let told: Vec<_> = told.map(|(ticket, _)| Attempt { ticket, ..peer.read() }).collect();
        if told.is_empty() {
            return round;
        }
        for read in told {
            assert!(matches!(rig.poll(&read), AcquireReply::Granted(_)));
        }
    }
    unreachable!()
}

/// Whatever reply cannot say that there is more to do, a waiting client goes on with it.
#[test]
fn past_the_limit_the_next_one_that_waits_is_told_to_go_on() {
    for way in ["downgrade", "force", "refuse", "poll", "try"] {
        let mut rig = Rig::shared();
        let (a, mut b) = (rig.client(), rig.client());
        let (holder, own, upgrade) = (a.write(), a.read_of(owner(1)), a.write_of(owner(1)));
        let token = rig.granted(&holder).token;
        if way == "refuse" {
            rig.queued(&own);
            rig.queued(&upgrade);
        }
        let reads = crowd(&mut rig, &b, 600);
        b.messages();
        let mut inside = 600;
        match way {
            "downgrade" => {
                assert!(matches!(rig.downgrade(&holder, &a.read()), DowngradeReply::Granted(_)));
                inside += 1;
            }
            "force" => assert_eq!(rig.force_release(token), ForceReleaseReply::Released { more: false }),
            "refuse" => {
                rig.leave(&holder);
                assert_eq!(rig.poll(&upgrade), AcquireReply::WouldDeadlock);
                inside += 1;
            }
            _ => {
                rig.wire.ok(&["DEL", &rig.lock()]);
                match way {
                    "poll" => assert!(matches!(rig.poll(&reads[0]), AcquireReply::Granted(_))),
                    _ => assert!(rig.is_busy(&a.read())),
                }
            }
        }
        assert_eq!(rounds(&mut rig, &mut b), 9, "{way}");
        assert_eq!(rig.inspect().hold_count, inside, "{way}");
    }
}

//! Who is told that a write waits, and when.

use std::collections::BTreeSet;

use lockwright::internals::owner::OwnerId;
use lockwright::internals::scripts::*;
use lockwright::internals::ticket::Ticket;

use crate::protocol::rig::*;

/// How many messages the call sends.
fn published(rig: &mut Rig, call: &Call) -> u64 {
    rig.wire.ok(&["CONFIG", "RESETSTAT"]);
    rig.value(call);
    rig.commands().into_iter().find(|(name, _)| name == "PUBLISH").map_or(0, |(_, calls)| calls)
}

#[test]
fn the_first_write_tells_every_read_when_it_comes_and_at_each_poll() {
    let mut rig = Rig::shared();
    let mut readers: Vec<Peer> = (0..3).map(|_| rig.client()).collect();
    let reads: Vec<Attempt> = readers.iter().map(Peer::read).collect();
    for read in &reads {
        rig.granted(read);
    }
    let write = rig.client().write();
    for at in 0..3 {
        let reply = if at == 0 { rig.acquire(&write, Wait::Join) } else { rig.poll(&write) };
        assert!(matches!(reply, AcquireReply::Queued(Queued { place: 1, .. })));
        for (reader, read) in readers.iter_mut().zip(&reads) {
            assert_eq!(reader.messages(), [(read.ticket, News::Held)], "a lost one costs one poll");
        }
    }
    assert!(matches!(rig.acquire(&rig.client().write(), Wait::No), AcquireReply::Busy { .. }));
    assert_eq!(readers[0].messages(), [], "a try tells nobody");
}

/// So many reads of a client, inside.
fn inside(rig: &mut Rig, peer: &Peer, owner: Option<OwnerId>, count: usize) -> BTreeSet<Ticket> {
    let reads: Vec<Attempt> = (0..count).map(|_| Attempt { owner, ..peer.read() }).collect();
    for read in &reads {
        rig.granted(read);
    }
    reads.iter().map(|read| read.ticket).collect()
}

/// Who has been told since the last call.
fn told(peer: &mut Peer) -> Vec<Ticket> {
    let messages = peer.messages();
    assert!(messages.iter().all(|(_, news)| *news == News::Held));
    messages.into_iter().map(|(ticket, _)| ticket).collect()
}

/// What the writes' calls say until there is no more to do, and whom they told.
fn tell_all(rig: &mut Rig, write: &Attempt, reader: &mut Peer) -> (usize, BTreeSet<Ticket>) {
    let mut all = BTreeSet::new();
    for call in 1.. {
        let AcquireReply::Queued(queued) = rig.poll(write) else { panic!("reads are inside") };
        let told = told(reader);
        assert!((1..=400).contains(&told.len()), "{} in a call", told.len());
        let before = all.len();
        all.extend(&told);
        assert_eq!(all.len(), before + told.len(), "nobody is told twice");
        if !queued.more {
            return (call, all);
        }
    }
    unreachable!()
}

#[test]
fn a_thousand_reads_are_all_told_by_a_few_calls_and_again_from_the_next_poll_on() {
    let mut rig = Rig::shared();
    let (mut reader, writer) = (rig.client(), rig.client());
    let reads = inside(&mut rig, &reader, None, 1_000);
    let write = writer.write();
    let queued = rig.queued(&write);
    assert!(queued.more, "the next call goes on");
    let first = told(&mut reader);
    assert!((256..=400).contains(&first.len()), "{}", first.len());
    let (calls, mut all) = tell_all(&mut rig, &write, &mut reader);
    assert!((2..=3).contains(&calls), "{calls}");
    assert!(first.iter().all(|ticket| all.insert(*ticket)));
    assert_eq!(all, reads);
    assert_eq!(rig.get(&rig.lock(), "told"), "");
    let (calls, all) = tell_all(&mut rig, &write, &mut reader);
    assert!((3..=4).contains(&calls), "{calls}");
    assert_eq!(all, reads, "a lost message costs one poll");
}

#[test]
fn reads_that_come_go_and_renew_between_two_of_these_calls_hear_of_it_all_the_same() {
    let mut rig = Rig::shared();
    let (mut reader, writer, owned) = (rig.client(), rig.client(), rig.client());
    let first = owned.read_of(owner(1));
    rig.granted(&first);
    let mut reads = inside(&mut rig, &reader, None, 600);
    let write = writer.write();
    assert!(rig.queued(&write).more);
    for ticket in told(&mut reader) {
        reads.remove(&ticket);
        rig.leave_for(ticket, None);
    }
    let gone = *reads.first().unwrap();
    reads.remove(&gone);
    rig.leave_for(gone, None);
    let renewed = *reads.first().unwrap();
    assert!(matches!(rig.renew(&[(renewed, LEASE)])[..], [Renewed::Kept { waiting: true, .. }]));
    assert!(rig.granted(&owned.read_of(owner(1))).waiting);
    assert_eq!(tell_all(&mut rig, &write, &mut reader).1, reads);
}

#[test]
fn a_write_begins_anew_where_another_one_has_left_its_telling_unfinished() {
    let mut rig = Rig::shared();
    let (mut reader, writer) = (rig.client(), rig.client());
    let reads = inside(&mut rig, &reader, None, 600);
    let write = writer.write();
    assert!(rig.queued(&write).more);
    rig.leave(&write);
    told(&mut reader);
    let next = writer.write();
    assert!(rig.queued(&next).more);
    let mut all: BTreeSet<Ticket> = told(&mut reader).into_iter().collect();
    all.extend(tell_all(&mut rig, &next, &mut reader).1);
    assert_eq!(all, reads);
    // Or it has died: the next one, which takes its place, goes on.
    let last = rig.client().write();
    rig.queued(&last);
    assert!(matches!(rig.poll(&next), AcquireReply::Queued(Queued { more: true, .. })));
    let mut all: BTreeSet<Ticket> = told(&mut reader).into_iter().collect();
    rig.set_deadline(&writer, -1);
    all.extend(tell_all(&mut rig, &last, &mut reader).1);
    assert_eq!(all, reads);
}

#[test]
fn whose_reply_has_no_room_for_it_has_the_waiting_write_go_on() {
    for lowers in [false, true] {
        let mut rig = Rig::shared();
        let (mut reader, holder, mut writer) = (rig.client(), rig.client(), rig.client());
        let outer = holder.write_of(owner(1));
        rig.granted(&outer);
        let reads = inside(&mut rig, &reader, Some(owner(1)), 600);
        let write = writer.write();
        rig.queued(&write);
        reader.messages();
        if lowers {
            let read = holder.read_of(owner(1));
            assert!(matches!(rig.downgrade(&outer, &read), DowngradeReply::Granted(_)));
            rig.leave(&read);
        } else {
            rig.leave(&outer);
        }
        let mut all: BTreeSet<Ticket> = told(&mut reader).into_iter().collect();
        assert!(all.len() < 600, "{lowers}");
        assert_eq!(writer.messages(), [(write.ticket, News::Held)], "it is to poll");
        all.extend(tell_all(&mut rig, &write, &mut reader).1);
        assert_eq!(all, reads, "{lowers}");
    }
    // A write that joins as a read leaves goes on by itself.
    let mut rig = Rig::shared();
    let (mut reader, writer) = (rig.client(), rig.client());
    let (leaving, write) = (writer.read(), writer.write());
    rig.granted(&leaving);
    let reads = inside(&mut rig, &reader, None, 600);
    let reply = rig.leave_for(leaving.ticket, Some(&write));
    assert!(matches!(reply, LeaveReply::Freed { more: true, next: Next::Queued { .. } }), "{reply:?}");
    let mut all: BTreeSet<Ticket> = told(&mut reader).into_iter().collect();
    all.extend(tell_all(&mut rig, &write, &mut reader).1);
    assert_eq!(all, reads);
}

#[test]
fn later_writes_tell_nobody_while_the_first_one_does() {
    let mut rig = Rig::shared();
    let (mut reader, first_peer, second_peer) = (rig.client(), rig.client(), rig.client());
    let (read, first, second) = (reader.read(), first_peer.write(), second_peer.write());
    rig.granted(&read);
    rig.queued(&first);
    reader.messages();
    assert_eq!(rig.queued(&second).place, 2);
    rig.poll(&second);
    assert_eq!(reader.messages(), []);
    // It has died, with its message lost: its deadline is long, and the next write does not wait for that.
    let (lock, since) = (rig.lock(), rig.now() - CLAIM - 100);
    rig.set(&lock, "told_at", &since.to_string());
    rig.poll(&second);
    assert_eq!(reader.messages(), [(read.ticket, News::Held)]);
    rig.set_deadline(&first_peer, -1);
    rig.poll(&second);
    assert_eq!(reader.messages(), [(read.ticket, News::Held)], "it is the first now");
}

#[test]
fn a_write_behind_reads_that_are_out_of_reach_is_the_first_all_the_same() {
    let mut rig = Rig::shared();
    let (mut reader, silent) = (rig.client(), rig.silent_client());
    let (write, kept) = (reader.write(), silent.read());
    rig.granted(&write);
    rig.queued(&kept);
    rig.leave(&write);
    let read = reader.read();
    rig.granted(&read);
    reader.messages();
    assert_eq!(rig.queued(&rig.client().write()).place, 2);
    assert_eq!(reader.messages(), [(read.ticket, News::Held)]);
}

#[test]
fn neither_a_reads_leaving_nor_its_renewal_nor_a_waiting_read_tells_anybody() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let reads: Vec<Attempt> = (0..5).map(|_| a.read()).collect();
    for read in &reads {
        rig.granted(read);
    }
    let read = b.read();
    rig.queued(&b.write());
    let hold = RenewHold { keys: rig.keys.clone(), ticket: reads[0].ticket, lease_millis: LEASE };
    let calls = [
        rig.leave_call(reads[1].ticket, None),
        Renew { holds: &[hold], deadline_millis: DEADLINE }.call(),
        rig.acquire_call(&read, Wait::Join),
        rig.acquire_call(&read, Wait::Poll),
    ];
    for call in &calls {
        assert_eq!(published(&mut rig, call), 0, "{}", call.script.name);
    }
}

#[test]
fn replies_carry_it_too() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let read = a.read_of(owner(1));
    assert!(!rig.granted(&read).waiting);
    rig.queued(&b.write());
    assert!(rig.granted(&read).waiting, "granted again");
    assert_eq!(rig.renew(&[(read.ticket, LEASE)]), [Renewed::Kept { left_millis: LEASE, waiting: true }]);
    assert!(rig.granted(&a.read_of(owner(1))).waiting, "re-entered");
    let beside = b.read();
    rig.queued(&beside);
    rig.wire.ok(&["DEL", &rig.lock(), &rig.keys.readers()]);
    rig.poll(&beside);
    assert!(rig.inspect().mode == Some(Mode::Write), "the write has it now");
}

#[test]
fn a_renewed_read_is_not_told_of_those_that_are_to_read() {
    let mut rig = Rig::shared();
    let (a, silent) = (rig.client(), rig.silent_client());
    let (write, kept, read) = (a.write(), silent.read(), a.read());
    rig.granted(&write);
    rig.queued(&kept);
    assert!(matches!(rig.renew(&[(write.ticket, LEASE)])[..], [Renewed::Kept { waiting: true, .. }]));
    rig.leave(&write);
    rig.granted(&read);
    assert_eq!(rig.inspect().waiting_count, 1);
    assert!(matches!(rig.renew(&[(read.ticket, LEASE)])[..], [Renewed::Kept { waiting: false, .. }]));
}

#[test]
fn a_write_that_leaves_its_owners_reads_behind_tells_them_where_another_waits() {
    let mut rig = Rig::shared();
    let (mut a, b) = (rig.client(), rig.client());
    let (write, read) = (a.write_of(owner(1)), a.read_of(owner(1)));
    rig.granted(&write);
    rig.granted(&read);
    rig.queued(&b.write());
    a.messages();
    rig.leave(&write);
    assert_eq!(a.messages(), [(read.ticket, News::Held)]);
}

#[test]
fn a_write_that_joins_as_another_ticket_leaves_tells_the_reads_inside_if_it_is_the_first() {
    let mut rig = Rig::shared();
    let (a, mut b, c) = (rig.client(), rig.client(), rig.client());
    let (leaving, other, inside) = (a.read(), c.read(), b.read());
    for read in [&leaving, &other, &inside] {
        rig.granted(read);
    }
    let last = c.read();
    let reply = rig.leave_for(other.ticket, Some(&last));
    assert!(matches!(reply, LeaveReply::Freed { next: Next::Granted(_), .. }));
    assert_eq!(b.messages(), []);
    rig.leave_for(leaving.ticket, Some(&a.write()));
    assert_eq!(b.messages(), [(inside.ticket, News::Held)]);
    rig.leave_for(last.ticket, Some(&c.write()));
    assert_eq!(b.messages(), [], "it is the second one");
}

#[test]
fn a_write_that_joins_as_another_one_leaves_tells_the_reads_that_went_in() {
    let mut rig = Rig::shared();
    let (a, mut b) = (rig.client(), rig.client());
    let (write, read) = (a.write(), b.read());
    rig.granted(&write);
    rig.queued(&read);
    rig.leave_for(write.ticket, Some(&a.write()));
    assert!(matches!(b.messages()[..], [(_, News::Grant { waiting: false, .. }), (_, News::Held)]));
    assert_eq!(rig.leave(&read), LeaveReply::Freed { more: false, next: Next::None });
}

#[test]
fn a_waiting_write_tells_the_write_that_holds() {
    let mut rig = Rig::shared();
    let (mut a, b) = (rig.client(), rig.client());
    let (holder, read, write) = (a.write(), b.read(), b.write());
    rig.granted(&holder);
    rig.queued(&read);
    assert_eq!(a.messages(), [(holder.ticket, News::Held)], "the head of the queue");
    rig.queued(&write);
    assert_eq!(a.messages(), []);
    rig.poll(&write);
    assert_eq!(a.messages(), [(holder.ticket, News::Held)]);
}

#[test]
fn a_waiting_client_hears_of_its_own_holds() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let (ghost, other) = (a.read(), b.read());
    rig.granted(&ghost);
    rig.granted(&other);
    let write = a.write();
    assert_eq!(rig.queued(&write).holds, [ghost.ticket]);
    let read = a.read();
    assert_eq!(rig.queued(&read).holds, [], "it is told by message, of which a deaf client has none");
    let AcquireReply::Queued(queued) = rig.acquire_deaf(&read, Wait::Poll) else { panic!() };
    assert_eq!(queued.holds, [ghost.ticket]);
}

/// The first write's client polls by another of its tickets: it is no silent one.
#[test]
fn where_the_first_write_does_not_poll_another_one_goes_on_with_the_telling() {
    let mut rig = Rig::shared();
    rig.terms.claim_millis = 200;
    let mut reader = rig.client();
    let reads: Vec<Attempt> = (0..300).map(|_| reader.read()).collect();
    for read in &reads {
        rig.granted(read);
    }
    let writer = rig.client();
    let (first, second) = (writer.write(), writer.write());
    assert!(matches!(rig.acquire(&first, Wait::Join), AcquireReply::Queued(Queued { more: true, .. })));
    rig.queued(&second);
    rig.poll(&second);
    // And those that end in the same millisecond as the last of them.
    let told = reader.messages().len();
    assert!((256..300).contains(&told), "{told}: not by each poll of each");
    rig.pass(250);
    rig.poll(&second);
    assert_eq!(reader.messages().len(), 300 - told);
}

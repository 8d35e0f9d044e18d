//! A write that becomes a read.

use lockwright::internals::scripts::*;

use super::holds::{FREED, assert_only_counter};
use crate::protocol::rig::*;

fn granted(reply: &DowngradeReply) -> Granted {
    match reply {
        DowngradeReply::Granted(granted) => *granted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_becomes_a_read_of_what_it_wrote_and_others_may_join() {
    let mut rig = Rig::shared();
    for anonymous in [true, false] {
        let a = rig.client();
        let (write, read) =
            if anonymous { (a.write(), a.read()) } else { (a.write_of(owner(1)), a.read_of(owner(1))) };
        let read = Attempt { lease_millis: 20_000, label: Some("reads".into()), ..read };
        let token = rig.granted(&write).token;
        let reply = granted(&rig.downgrade(&write, &read));
        assert_eq!((reply.token, reply.left_millis, reply.waiting), (token + 1, 20_000, false));
        let info = rig.inspect();
        assert_eq!((info.mode, info.token, info.holds.len()), (Some(Mode::Read), Some(token + 1), 1));
        assert_eq!(
            (&info.holds[0].ticket, info.holds[0].label.as_deref()),
            (&read.ticket.to_string(), Some("reads"))
        );
        for key in [rig.lock(), rig.keys.readers()] {
            assert!((19_000..=20_000).contains(&rig.ttl(&key)), "{key}");
        }
        assert!(rig.is_busy(&a.write()));
        let beside = rig.client().read();
        assert_eq!(rig.granted(&beside).token, token + 1);
        rig.leave(&beside);
        assert_eq!(rig.leave(&write), LeaveReply::Gone { more: false });
        assert_eq!(rig.leave(&read), FREED);
        assert_only_counter(&mut rig);
    }
}

#[test]
fn waiting_reads_go_in_at_once() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let mut peers: Vec<Peer> = (0..3).map(|_| rig.client()).collect();
    let (write, read) = (a.write(), a.read());
    let token = rig.granted(&write).token;
    let reads: Vec<Attempt> = peers.iter().map(Peer::read).collect();
    reads.iter().for_each(|read| drop(rig.queued(read)));
    assert!(!granted(&rig.downgrade(&write, &read)).waiting);
    for (peer, read) in peers.iter_mut().zip(&reads) {
        let messages = peer.messages();
        assert!(
            matches!(messages[..], [(ticket, News::Grant { token: version, .. })]
                if ticket == read.ticket && version == token + 1),
            "{messages:?}"
        );
    }
    assert_eq!(rig.inspect().holds.len(), 4);
}

#[test]
fn a_waiting_write_stays_out_and_those_inside_hear_of_it() {
    let mut rig = Rig::shared();
    let (mut a, mut b) = (rig.client(), rig.client());
    let (write, other, read, next) =
        (a.write_of(owner(1)), a.read_of(owner(1)), a.read_of(owner(1)), b.write());
    rig.granted(&write);
    rig.granted(&other);
    rig.queued(&next);
    a.messages();
    assert!(granted(&rig.downgrade(&write, &read)).waiting);
    assert_eq!(a.messages(), [(other.ticket, News::Held)], "the reply tells the new read");
    assert_eq!(b.messages(), []);
    rig.leave(&other);
    rig.leave(&read);
    assert!(matches!(b.messages()[..], [(ticket, News::Grant { .. })] if ticket == next.ticket));
}

#[test]
fn repeated_it_is_the_same() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let (write, read) = (a.write(), a.read());
    rig.granted(&write);
    let first = granted(&rig.downgrade(&write, &read));
    rig.pass(20);
    let again = granted(&rig.downgrade(&write, &read));
    assert_eq!(again.token, first.token);
    assert!((LEASE - 1_000..LEASE).contains(&again.left_millis), "what is left of it");
    assert_eq!(rig.inspect().holds.len(), 1);
}

#[test]
fn what_is_not_written_any_more_is_lost_and_nothing_is_held() {
    let mut rig = Rig::shared();
    let (a, mut b) = (rig.client(), rig.client());
    let (brief, read) = (Attempt { lease_millis: 100, ..a.write() }, a.read());
    assert_eq!(rig.downgrade(&brief, &read), DowngradeReply::Lost);
    rig.granted(&brief);
    let lock = rig.lock();
    rig.wire.ok(&["PERSIST", &lock]);
    let waiting = b.read();
    rig.queued(&waiting);
    rig.pass(120);
    assert_eq!(rig.downgrade(&brief, &read), DowngradeReply::Lost);
    assert!(matches!(b.messages()[..], [.., (ticket, News::Grant { .. })] if ticket == waiting.ticket));
    assert_eq!(rig.leave(&waiting), FREED);
    // Somebody else writes: nothing of that is touched.
    let other = b.write();
    rig.granted(&other);
    assert_eq!(rig.downgrade(&brief, &read), DowngradeReply::Lost);
    assert_eq!(rig.inspect().holds[0].ticket, other.ticket.to_string());
}

#[test]
fn who_has_given_up_is_granted_nothing_by_a_late_request() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let (write, read) = (a.write(), a.read());
    rig.granted(&write);
    let late = rig.downgrade_call(&write, &read);
    assert_eq!(rig.leave(&write), FREED);
    assert_eq!(rig.leave(&read), LeaveReply::Gone { more: false });
    assert_eq!(DowngradeReply::decode(&rig.value(&late)).unwrap().reply, DowngradeReply::Lost);
    assert_only_counter(&mut rig);
    // Or it came in time, and its answer was lost.
    rig.granted(&write);
    rig.value(&late);
    assert_eq!(rig.leave(&write), LeaveReply::Gone { more: false });
    assert_eq!(rig.leave(&read), FREED);
    assert_only_counter(&mut rig);
}

#[test]
fn other_writes_of_the_owner_stay_and_so_does_their_token() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let outer = Attempt { lease_millis: 10_000, ..a.write_of(owner(1)) };
    let (inner, read) = (b.write_of(owner(1)), b.read_of(owner(1)));
    let token = rig.granted(&outer).token;
    rig.granted(&inner);
    assert_eq!(
        granted(&rig.downgrade(&inner, &Attempt { lease_millis: 5_000, ..read.clone() })).token,
        token
    );
    assert_eq!(rig.inspect().mode, Some(Mode::Write));
    let ttl = rig.ttl(&rig.lock());
    assert!((9_000..=10_000).contains(&ttl), "K ends with the longest hold that is left: {ttl}");
    assert_eq!(rig.leave(&outer), FREED);
    assert_eq!(rig.inspect().token, Some(token + 1));
    assert_eq!(rig.leave(&read), FREED);
    assert_only_counter(&mut rig);
}

#[test]
fn no_ended_write_of_the_owner_stays_behind() {
    let mut rig = Rig::shared();
    let a = rig.client();
    let brief = Attempt { lease_millis: 50, ..a.write_of(owner(1)) };
    let (write, read) = (a.write_of(owner(1)), a.read_of(owner(1)));
    rig.granted(&write);
    rig.granted(&brief);
    rig.pass(70);
    granted(&rig.downgrade(&write, &read));
    let info = rig.inspect();
    let holds: Vec<&str> = info.holds.iter().map(|hold| hold.ticket.as_str()).collect();
    assert_eq!(holds, [read.ticket.to_string()]);
    assert_eq!(rig.leave(&brief), LeaveReply::Gone { more: false });
}

//! One owner, several holds: what re-enters, what waits for itself, and what is seen under a write.

use lockwright::internals::scripts::*;

use super::holds::{FREED, assert_only_counter};
use crate::protocol::rig::*;

#[test]
fn write_read_write_of_one_owner_go_in_with_the_writes_own_token() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let (outer, read, inner) = (a.write_of(owner(1)), b.read_of(owner(1)), a.write_of(owner(1)));
    let token = rig.granted(&outer).token;
    assert_eq!(rig.granted(&read).token, token, "its own write would be refused by whoever saw a larger one");
    assert_eq!(rig.granted(&inner).token, token);
    assert!(rig.is_busy(&a.read()));
    assert!(rig.is_busy(&a.read_of(owner(2))));
    assert_eq!(rig.leave(&inner), LeaveReply::Kept);
    assert_eq!(rig.leave(&read), LeaveReply::Kept);
    assert_eq!(rig.leave(&outer), FREED);
    assert_only_counter(&mut rig);
}

#[test]
fn a_write_that_leaves_its_owners_read_behind_leaves_a_lock_to_read() {
    let mut rig = Rig::shared();
    let (a, b, mut c) = (rig.client(), rig.client(), rig.client());
    let (write, read, waiting) = (a.write_of(owner(1)), a.read_of(owner(1)), c.read());
    let token = rig.granted(&write).token;
    rig.granted(&read);
    rig.queued(&waiting);
    assert_eq!(rig.leave(&write), FREED, "nothing but reads is left");
    let lock = rig.lock();
    assert_eq!((rig.get(&lock, "mode"), rig.get(&lock, "owner")), ("read".into(), "-".into()));
    assert!(matches!(c.messages()[..], [(_, News::Grant { token: version, .. })] if version == token + 1));
    let other = b.read();
    assert_eq!(rig.granted(&other).token, token + 1, "the write is over");
    assert!(rig.is_busy(&b.write()));
    for read in [read, waiting, other] {
        assert_eq!(rig.leave(&read), FREED);
    }
    assert_only_counter(&mut rig);
}

#[test]
fn an_ended_write_beside_a_living_read_is_no_write_any_more() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let write = Attempt { lease_millis: 100, ..a.write_of(owner(1)) };
    let read = a.read_of(owner(1));
    let token = rig.granted(&write).token;
    rig.granted(&read);
    rig.pass(120);
    assert_eq!(rig.granted(&b.read()).token, token + 1);
    assert_eq!(rig.get(&rig.lock(), "mode"), "read");
    assert_eq!(rig.renew(&[(write.ticket, LEASE)]), [Renewed::Lost]);
    assert_eq!(rig.leave(&write), LeaveReply::Gone { more: false });
    assert_eq!(rig.acquire(&a.write_of(owner(1)), Wait::Join), AcquireReply::WouldDeadlock);
    assert_eq!(rig.inspect().holds.len(), 2);
}

#[test]
fn who_reads_and_asks_to_write_would_wait_for_itself() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let read = a.read_of(owner(1));
    rig.granted(&read);
    for wait in [Wait::No, Wait::Join, Wait::Poll] {
        assert_eq!(rig.acquire(&b.write_of(owner(1)), wait), AcquireReply::WouldDeadlock);
    }
    assert_eq!(rig.all_keys(), [rig.lock(), rig.keys.readers(), rig.keys.token()], "and does not wait");
    assert!(matches!(rig.acquire(&b.write_of(owner(2)), Wait::No), AcquireReply::Busy { .. }));
    assert!(matches!(rig.acquire(&b.write(), Wait::No), AcquireReply::Busy { .. }), "nobody is no owner");
    rig.leave(&read);
    rig.granted(&b.write_of(owner(1)));
}

#[test]
fn a_write_that_waits_already_is_told_at_its_next_poll_and_those_behind_it_go_in() {
    let mut rig = Rig::shared();
    let (a, b, mut c) = (rig.client(), rig.client(), rig.client());
    let (other, read, write, behind) = (c.write(), a.read_of(owner(1)), b.write_of(owner(1)), c.read());
    rig.granted(&other);
    for waiting in [&read, &write, &behind] {
        rig.queued(waiting);
    }
    rig.leave(&other);
    assert_eq!(rig.inspect().holds[0].ticket, read.ticket.to_string());
    c.messages();
    assert_eq!(rig.poll(&write), AcquireReply::WouldDeadlock);
    assert_eq!(rig.places_of(&b), "");
    assert!(matches!(c.messages()[..], [(ticket, News::Grant { .. })] if ticket == behind.ticket));
    assert_eq!(rig.inspect().waiting_count, 0);
}

#[test]
fn an_owner_that_reads_is_let_in_past_waiting_writes_and_nobody_else_is() {
    let mut rig = Rig::shared();
    let (a, b, c) = (rig.client(), rig.client(), rig.client());
    let read = a.read_of(owner(1));
    let version = rig.granted(&read).token;
    rig.queued(&c.write());
    let again = b.read_of(owner(1));
    let granted = rig.granted(&again);
    assert_eq!((granted.token, granted.waiting), (version, true), "and hears that a write waits");
    assert!(matches!(rig.acquire(&b.read_of(owner(2)), Wait::No), AcquireReply::Busy { .. }));
    assert!(matches!(rig.acquire(&b.read(), Wait::No), AcquireReply::Busy { .. }));
    let lock = rig.lock();
    let field = format!("reader:{}", owner(1));
    assert_eq!(rig.get(&lock, &field), format!("{} {}", read.ticket, again.ticket));
    rig.granted(&again);
    assert_eq!(
        rig.get(&lock, &field),
        format!("{} {}", read.ticket, again.ticket),
        "a replay is no other read"
    );
    // The first read leaves, and the owner is still inside.
    rig.leave(&read);
    assert_eq!(rig.get(&lock, &field), again.ticket.to_string());
    rig.granted(&a.read_of(owner(1)));
}

#[test]
fn a_read_whose_lease_has_ended_lets_nobody_in() {
    let mut rig = Rig::shared();
    let (a, b, c) = (rig.client(), rig.client(), rig.client());
    rig.granted(&Attempt { lease_millis: 100, ..a.read_of(owner(1)) });
    rig.granted(&b.read());
    rig.queued(&c.write());
    rig.pass(120);
    assert!(matches!(rig.acquire(&b.read_of(owner(1)), Wait::No), AcquireReply::Busy { .. }));
    assert!(matches!(rig.acquire(&b.write_of(owner(1)), Wait::No), AcquireReply::Busy { .. }));
}

#[test]
fn an_owner_that_waits_is_let_in_where_it_holds_and_waits_no_longer() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let (other, first, second) = (a.write(), a.write_of(owner(1)), b.read_of(owner(1)));
    rig.granted(&other);
    rig.queued(&first);
    rig.queued(&second);
    rig.leave(&other);
    assert_eq!(rig.get(&rig.lock(), "owner"), owner(1).to_string());
    let AcquireReply::Granted(granted) = rig.poll(&second) else { panic!("its owner writes") };
    assert_eq!((granted.token, granted.waiting), (rig.held_token(), false));
    assert_eq!(rig.inspect().waiting_count, 0);
    assert_eq!(rig.leave(&first), FREED);
    assert_eq!(rig.leave(&second), FREED);
    assert_only_counter(&mut rig);
}

//! `advance` for a lock that reads share: runs of reads, and one write at a time.

use lockwright::internals::scripts::*;

use super::holds::{FREED, assert_only_counter};
use crate::protocol::rig::*;

/// Whether what has come is a grant of this ticket, and nothing else.
fn is_grant(messages: &[(lockwright::internals::ticket::Ticket, News)], to: &Attempt) -> bool {
    matches!(messages, [(ticket, News::Grant { .. })] if *ticket == to.ticket)
}

#[test]
fn a_read_that_finds_a_waiting_write_queues_behind_it() {
    let mut rig = Rig::shared();
    let (a, b, c) = (rig.client(), rig.client(), rig.client());
    rig.granted(&a.read());
    let (write, read) = (b.write(), c.read());
    let queued = rig.queued(&write);
    assert_eq!((queued.place, queued.new, queued.more), (1, true, false));
    assert!((LEASE - 1_000..=LEASE).contains(&queued.left_millis));
    assert!(rig.is_busy(&c.read()));
    assert_eq!(rig.queued(&read).place, 2);
    assert_eq!(rig.get(&rig.keys.waiting(), "queue"), "read_write 2 2 1", "one of them is to write");
    let entry = rig.get(&rig.keys.waiting(), &write.ticket.to_string());
    assert_eq!(entry.split(' ').collect::<Vec<_>>()[2..], ["write", "30000", "2", "-"]);
}

#[test]
fn phases_alternate_and_reads_enter_together_up_to_the_next_write() {
    let mut rig = Rig::shared();
    let mut peers: Vec<Peer> = (0..7).map(|_| rig.client()).collect();
    let modes = [Mode::Read, Mode::Write, Mode::Read, Mode::Read, Mode::Write, Mode::Write, Mode::Read];
    let tickets: Vec<Attempt> = peers
        .iter()
        .zip(modes)
        .map(|(peer, mode)| if mode == Mode::Read { peer.read() } else { peer.write() })
        .collect();
    rig.granted(&tickets[0]);
    for ticket in &tickets[1..] {
        rig.queued(ticket);
    }
    peers.iter_mut().for_each(|peer| drop(peer.messages()));
    let mut last = 0;
    for (out, next) in [(0..1, 1..2), (1..2, 2..4), (2..4, 4..5), (4..5, 5..6), (5..6, 6..7)] {
        for at in out.clone() {
            assert_eq!(rig.leave(&tickets[at]), FREED);
        }
        let mut versions = Vec::new();
        for at in next.clone() {
            let messages = peers[at].messages();
            assert!(is_grant(&messages, &tickets[at]), "{at}: {messages:?}");
            let (_, News::Grant { token, end_millis, now_millis, waiting }) = messages[0] else { panic!() };
            assert_eq!(end_millis - now_millis, CLAIM);
            assert_eq!(waiting, next.end < 7, "whether a write, or anybody, waits behind {at}");
            versions.push(token);
        }
        assert!(versions.iter().all(|version| *version == versions[0]) && versions[0] > last);
        last = versions[0];
        assert_eq!(rig.inspect().holds.len(), next.len());
    }
    assert_eq!(rig.leave(&tickets[6]), FREED);
    assert_only_counter(&mut rig);
}

#[test]
fn a_handed_over_read_has_a_claim_that_its_first_renewal_makes_a_lease() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    let (write, read, behind) = (a.write(), b.read_of(owner(2)), b.write());
    rig.granted(&write);
    rig.queued(&read);
    rig.queued(&behind);
    rig.leave(&write);
    for key in [rig.lock(), rig.keys.readers()] {
        assert!((CLAIM as i64 - 1_000..=CLAIM as i64).contains(&rig.ttl(&key)), "{key}");
    }
    let deadline: u64 = rig.places_of(&b).split_once(' ').unwrap().0.parse().unwrap();
    assert!(deadline <= rig.now() + CLAIM, "a client that misses its claim loses its places");
    assert_eq!(rig.renew(&[(read.ticket, LEASE)]), [Renewed::Kept { left_millis: LEASE, waiting: true }]);
    assert!(rig.read_end(read.ticket) > rig.now() + LEASE - 1_000);
    assert_eq!(rig.get(&rig.lock(), &format!("reader:{}", owner(2))), read.ticket.to_string());
}

#[test]
fn a_write_whose_reads_have_ended_has_the_lock_at_its_poll() {
    let mut rig = Rig::shared();
    let (a, b) = (rig.client(), rig.client());
    rig.granted(&Attempt { lease_millis: 100, ..a.read() });
    let write = b.write();
    rig.queued(&write);
    rig.pass(120);
    let AcquireReply::Granted(granted) = rig.poll(&write) else { panic!() };
    assert_eq!((granted.left_millis, granted.waiting), (LEASE, false));
    rig.leave(&write);
    assert_only_counter(&mut rig);
}

#[test]
fn a_waiting_write_that_leaves_lets_the_reads_behind_it_in() {
    let mut rig = Rig::shared();
    let (a, b, mut c, mut d) = (rig.client(), rig.client(), rig.client(), rig.client());
    let (inside, write, first, second) = (a.read(), b.write(), c.read(), d.read());
    rig.granted(&inside);
    for waiting in [&write, &first, &second] {
        rig.queued(waiting);
    }
    assert_eq!(rig.leave(&write), LeaveReply::Gone { more: false });
    assert!(is_grant(&c.messages(), &first) && is_grant(&d.messages(), &second));
    assert_eq!(rig.inspect().holds.len(), 3);
}

#[test]
fn a_write_whose_client_is_dead_does_not_stop_the_reads_behind_it() {
    let mut rig = Rig::shared();
    let (a, b, mut c) = (rig.client(), rig.client(), rig.client());
    let (inside, write, read) = (a.read(), b.write(), c.read());
    rig.granted(&inside);
    rig.queued(&write);
    rig.queued(&read);
    rig.set_deadline(&b, -1);
    let newcomer = a.read();
    assert!(!rig.granted(&newcomer).waiting, "nobody is to write any more");
    assert!(is_grant(&c.messages(), &read));
    assert_eq!(rig.all_keys(), [rig.lock(), rig.keys.readers(), rig.keys.token()]);
}

#[test]
fn a_write_out_of_reach_is_skipped_when_the_lock_is_free_and_keeps_its_place() {
    let mut rig = Rig::shared();
    let (a, b, mut c) = (rig.client(), rig.silent_client(), rig.client());
    let (inside, write, read) = (a.write(), b.write(), c.read());
    rig.granted(&inside);
    rig.queued(&write);
    rig.queued(&read);
    let lost = rig.held_token() + 1;
    assert_eq!(rig.leave(&inside), FREED);
    let [(_, News::Grant { token, waiting: true, .. })] = c.messages()[..] else { panic!() };
    assert!(token > lost, "no version that the write's message may have named");
    assert!(matches!(rig.poll(&write), AcquireReply::Queued(Queued { new: false, place: 1, .. })));
    rig.leave(&read);
    let AcquireReply::Granted(granted) = rig.poll(&write) else { panic!() };
    assert!(granted.token > token);
}

#[test]
fn reads_out_of_reach_keep_their_places_and_the_others_go_in() {
    let mut rig = Rig::shared();
    let (a, silent, mut c) = (rig.client(), rig.silent_client(), rig.client());
    let (inside, first, second, third) = (a.write(), silent.read(), c.read(), silent.read());
    rig.granted(&inside);
    for read in [&first, &second, &third] {
        rig.queued(read);
    }
    rig.leave(&inside);
    assert!(is_grant(&c.messages(), &second));
    assert_eq!(rig.list(), [first.ticket, third.ticket].map(|ticket| ticket.to_string()));
    // Nobody is to write: those inside need not leave for them, and newcomers go in.
    assert!(!rig.granted(&a.read()).waiting);
    for read in [&third, &first] {
        let AcquireReply::Granted(granted) = rig.poll(read) else { panic!() };
        assert_eq!(granted.left_millis, LEASE);
    }
    assert_eq!(rig.inspect().waiting_count, 0);
}

#[test]
fn a_read_that_stands_twice_in_the_list_goes_in_once() {
    let mut rig = Rig::shared();
    let (a, mut b) = (rig.client(), rig.client());
    let (inside, twice, keeper) = (a.write(), b.read(), a.write());
    rig.granted(&inside);
    rig.queued(&twice);
    rig.queued(&keeper);
    rig.leave(&twice);
    rig.queued(&twice);
    rig.leave(&keeper);
    assert_eq!(rig.list().len(), 3);
    rig.leave(&inside);
    assert!(is_grant(&b.messages(), &twice));
    assert_eq!(rig.all_keys(), [rig.lock(), rig.keys.readers(), rig.keys.token()]);
}

#[test]
fn a_leaving_read_brings_its_clients_next_one_in_behind_the_write() {
    let mut rig = Rig::shared();
    let (mut a, mut b) = (rig.client(), rig.client());
    let (first, beside, write, next) = (a.read(), b.read(), b.write(), a.read());
    let version = rig.granted(&first).token;
    rig.granted(&beside);
    // Nobody waits: the next one goes in at once.
    let reply = rig.leave_for(first.ticket, Some(&next));
    let LeaveReply::Freed { next: Next::Granted(granted), .. } = reply else { panic!("{reply:?}") };
    assert_eq!((granted.token, granted.left_millis, granted.waiting), (version, LEASE, false));
    rig.queued(&write);
    let last = a.read();
    let reply = rig.leave_for(next.ticket, Some(&last));
    let LeaveReply::Freed { next: Next::Queued { place, left_millis, .. }, .. } = reply else { panic!() };
    assert_eq!((place, left_millis > LEASE - 2_000), (2, true), "the other read is inside");
    a.messages();
    b.messages();
    rig.leave(&beside);
    assert!(is_grant(&b.messages(), &write));
    rig.leave(&write);
    assert!(is_grant(&a.messages(), &last));
}

#[test]
fn a_leaving_write_brings_its_clients_next_one_in() {
    let mut rig = Rig::shared();
    let (a, mut b) = (rig.client(), rig.client());
    let (write, read, next) = (a.write(), b.read(), a.write());
    let token = rig.granted(&write).token;
    rig.queued(&read);
    let reply = rig.leave_for(write.ticket, Some(&next));
    assert!(matches!(reply, LeaveReply::Freed { next: Next::Queued { place: 1, .. }, .. }), "{reply:?}");
    let messages = b.messages();
    assert!(
        matches!(messages[..], [(_, News::Grant { token: version, .. }), (_, News::Held)] if version == token + 1),
        "{messages:?}"
    );
    let own = Attempt { lease_millis: 5_000, ..a.read() };
    rig.leave(&next);
    let reply = rig.leave_for(read.ticket, Some(&own));
    let LeaveReply::Freed { next: Next::Granted(granted), .. } = reply else { panic!("{reply:?}") };
    assert_eq!((granted.token, granted.left_millis), (token + 1, 5_000));
}

#[test]
fn a_deaf_read_is_let_in_unheard_once_it_has_waited_for_a_claim() {
    let mut rig = Rig::shared();
    rig.terms.claim_millis = 100;
    let (a, deaf) = (rig.client(), rig.silent_client());
    let (write, read) = (a.write(), deaf.read());
    rig.granted(&write);
    rig.acquire_deaf(&read, Wait::Join);
    rig.pass(120);
    rig.acquire_deaf(&read, Wait::Poll);
    rig.leave(&write);
    assert_eq!(rig.inspect().holds[0].ticket, read.ticket.to_string());
    assert!(matches!(rig.acquire_deaf(&read, Wait::Poll), AcquireReply::Granted(_)));
}

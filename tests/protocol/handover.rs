//! `advance`: who gets a lock that has become free.

use std::collections::BTreeMap;

use lockwright::internals::scripts::*;
use lockwright::internals::ticket::{ClientId, Ticket, Tickets};

use super::rig::*;

/// What a free-for-all leaves behind: nothing but the counter.
fn assert_only_counter(rig: &mut Rig) {
    assert_eq!(rig.all_keys(), [rig.keys.token()]);
}

#[test]
fn the_lock_is_handed_over_in_order_each_time_with_a_claim() {
    let mut rig = Rig::new();
    let mut clients: Vec<Peer> = (0..4).map(|_| rig.client()).collect();
    let attempts: Vec<Attempt> = clients.iter().map(Peer::attempt).collect();
    let mut last = rig.granted(&attempts[0]).token;
    for attempt in &attempts[1..] {
        rig.queued(attempt);
    }
    for (at, pair) in attempts.windows(2).enumerate() {
        assert_eq!(rig.leave(&pair[0]), LeaveReply::Freed { more: false, next: Next::None });
        let now = rig.now();
        let messages = clients[at + 1].messages();
        let (ticket, News::Grant { token, end_millis, now_millis, .. }) = messages[messages.len() - 1] else {
            panic!("{messages:?}")
        };
        assert_eq!((ticket, end_millis - now_millis), (pair[1].ticket, CLAIM));
        assert!(now - now_millis < 1_000);
        assert!(token > last);
        last = token;
        assert_eq!(rig.held_token(), token);
        let ttl = rig.ttl(&rig.lock());
        assert!((CLAIM as i64 - 1_000..=CLAIM as i64).contains(&ttl), "{ttl}");
        assert_eq!(rig.list().len(), 2 - at);
        assert_eq!(rig.places_of(&clients[at + 1]), "", "its last ticket is gone");
        let renewed = rig.renew(&[(pair[1].ticket, LEASE)]);
        assert_eq!(renewed, [Renewed::Kept { left_millis: LEASE, waiting: at < 2 }]);
    }
    rig.leave(&attempts[3]);
    assert_only_counter(&mut rig);
}

#[test]
fn a_claim_is_no_longer_than_the_lease_and_carries_what_its_entry_says() {
    let mut rig = Rig::new();
    let (a, mut b) = (rig.client(), rig.client());
    let holder = a.attempt();
    rig.granted(&holder);
    let waiter = Attempt { lease_millis: 800, block: 64, label: Some("l".into()), ..b.attempt_of(owner(2)) };
    rig.queued(&waiter);
    rig.leave(&holder);
    let [(_, News::Grant { token, end_millis, now_millis, .. })] = b.messages()[..] else { panic!() };
    assert_eq!(end_millis - now_millis, 800);
    let lock = rig.lock();
    assert_eq!((rig.get(&lock, "block"), rig.get(&lock, "owner")), ("64".into(), owner(2).to_string()));
    assert_eq!(rig.get(&lock, &waiter.ticket.to_string()), format!("{end_millis} {} l", owner(2)));
    assert_eq!(rig.wire.ok(&["GET", &rig.keys.token()]).text(), (token + 63).to_string());
    let again = rig.granted(&waiter);
    assert_eq!((again.token, again.left_millis), (token, 800), "a lost grant is asked for");
}

#[test]
fn the_new_ticket_of_a_leaving_queues_behind_the_others() {
    let mut rig = Rig::new();
    let (a, mut b) = (rig.client(), rig.client());
    let (holder, waiter, next) = (a.attempt(), b.attempt(), a.attempt());
    let first = rig.granted(&holder);
    rig.queued(&waiter);
    let reply = rig.leave_for(holder.ticket, Some(&next));
    assert_eq!(
        reply,
        LeaveReply::Freed { more: false, next: Next::Queued { place: 1, left_millis: CLAIM, sequence: 2 } }
    );
    assert!(matches!(b.messages()[..], [(ticket, News::Grant { .. })] if ticket == waiter.ticket));
    assert_eq!(rig.list(), [next.ticket.to_string()]);
    assert!(rig.places_of(&a).ends_with(" 1"));

    // Nobody else waits any more: the new ticket of the next leaving is granted at once, with its whole lease.
    rig.leave(&next);
    let own = b.attempt();
    let reply = rig.leave_for(waiter.ticket, Some(&own));
    let LeaveReply::Freed { next: Next::Granted(granted), .. } = reply else { panic!("{reply:?}") };
    assert_eq!((granted.left_millis, granted.waiting), (LEASE, false));
    assert!(granted.token > first.token);
    assert_eq!(b.messages(), [], "a reply needs no message");
    rig.leave(&own);
    assert_only_counter(&mut rig);
}

#[test]
fn the_new_ticket_is_not_queued_after_kept_or_gone_nor_too_late() {
    let mut rig = Rig::new();
    let a = rig.client();
    let (one, two, next) = (a.attempt_of(owner(1)), a.attempt_of(owner(1)), a.attempt());
    rig.granted(&one);
    rig.granted(&two);
    assert_eq!(rig.leave_for(one.ticket, Some(&next)), LeaveReply::Kept);
    assert_eq!(rig.leave_for(one.ticket, Some(&next)), LeaveReply::Gone { more: false });
    assert_eq!(rig.inspect().waiting_count, 0);
    let (keys, terms, now) = (rig.keys.clone(), rig.terms, rig.now());
    let late = Some((&next, now - 1));
    let kind = Kind::Reentrant;
    let call = Leave { keys: &keys, kind, ticket: two.ticket, next: late, deaf: false, terms }.call();
    let reply = LeaveReply::decode(&value(rig.run(&call))).unwrap().reply;
    assert_eq!(reply, LeaveReply::Freed { more: false, next: Next::None });
    assert_only_counter(&mut rig);
}

#[test]
fn an_unreachable_waiter_is_passed_over_and_keeps_its_place() {
    let mut rig = Rig::new();
    let (a, mut b, mut c) = (rig.client(), rig.client(), rig.client());
    let (holder, two, three, fourth) = (a.attempt(), b.attempt(), c.attempt(), b.attempt());
    rig.granted(&holder);
    for attempt in [&two, &three, &fourth] {
        rig.queued(attempt);
    }
    b.hang_up(&mut rig);
    rig.leave(&holder);
    assert!(matches!(c.messages()[..], [(ticket, News::Grant { .. })] if ticket == three.ticket));
    assert_eq!(rig.list()[0], two.ticket.to_string());
    assert!(rig.places_of(&b).ends_with(" 2"));
    assert!(matches!(rig.poll(&two), AcquireReply::Queued(Queued { place: 1, new: false, .. })));

    // Freed with nobody reachable: the lock stays free, and the next poll has it.
    assert_eq!(rig.leave(&three), LeaveReply::Freed { more: false, next: Next::None });
    assert_eq!(rig.held_token(), 0);
    let AcquireReply::Granted(granted) = rig.poll(&two) else { panic!() };
    assert_eq!(granted.left_millis, LEASE);
    assert!(granted.waiting);
}

#[test]
fn one_message_for_each_unreachable_client_not_for_each_ticket() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.silent_client());
    let holder = a.attempt();
    rig.granted(&holder);
    for _ in 0..20 {
        rig.queued(&b.attempt());
    }
    let call = rig.leave_call(holder.ticket, None);
    rig.cost(&call);
    let published = rig.commands().into_iter().find(|(name, _)| name == "PUBLISH");
    assert_eq!(published, Some(("PUBLISH".into(), 1)));
    assert_eq!(rig.list().len(), 20);
}

#[test]
fn where_counts_cannot_be_trusted_the_silent_are_given_their_claim() {
    let mut rig = Rig::new();
    rig.terms.counted = false;
    let (a, b, c) = (rig.client(), rig.silent_client(), rig.client());
    let (holder, silent, third, fourth) = (a.attempt(), b.attempt(), c.attempt(), b.attempt());
    rig.granted(&holder);
    for attempt in [&silent, &third, &fourth] {
        rig.queued(attempt);
    }
    rig.leave(&holder);
    assert_eq!(rig.inspect().holds[0].ticket, silent.ticket.to_string());
    // Its other ticket has until the end of that claim to be heard of.
    let deadline: u64 = rig.places_of(&b).split_once(' ').unwrap().0.parse().unwrap();
    assert_eq!(rig.get(&rig.lock(), &silent.ticket.to_string()), format!("{deadline} -"));
}

#[test]
fn a_missed_claim_takes_all_places_of_its_client_that_a_walk_meets() {
    let mut rig = Rig::new();
    rig.terms.counted = false;
    rig.terms.claim_millis = 150;
    let (a, b, mut c) = (rig.client(), rig.silent_client(), rig.client());
    let (holder, first, second, third) = (a.attempt(), b.attempt(), b.attempt(), c.attempt());
    rig.granted(&holder);
    for attempt in [&first, &second, &third] {
        rig.queued(attempt);
    }
    rig.leave(&holder);
    rig.pass(200);
    let AcquireReply::Granted(_) = rig.poll(&third) else { panic!("one claim for each silent client") };
    assert_eq!(c.messages(), []);
    assert_eq!(rig.places_of(&b), "");
    // A client that calls again has its places back only where no walk has met them.
    assert!(matches!(rig.poll(&second), AcquireReply::Queued(Queued { new: true, place: 1, .. })));
}

#[test]
fn a_call_within_its_claim_restores_a_clients_places() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let (holder, first, second) = (a.attempt(), b.attempt(), b.attempt());
    rig.granted(&holder);
    rig.queued(&first);
    rig.queued(&second);
    rig.leave(&holder);
    let left = |rig: &mut Rig| {
        rig.places_of(&b).split_once(' ').unwrap().0.parse::<u64>().unwrap() as i64 - rig.now() as i64
    };
    assert!(left(&mut rig) <= CLAIM as i64);
    rig.renew(&[(first.ticket, LEASE)]);
    assert!(left(&mut rig) > CLAIM as i64);
}

#[test]
fn a_leaving_that_queues_again_does_not_lengthen_the_deadline_it_has_cut() {
    let mut rig = Rig::new();
    let a = rig.client();
    let (holder, other, next) = (a.attempt(), a.attempt(), a.attempt());
    rig.granted(&holder);
    rig.queued(&other);
    assert!(matches!(
        rig.leave_for(holder.ticket, Some(&next)),
        LeaveReply::Freed { next: Next::Queued { .. }, .. }
    ));
    let places = rig.places_of(&a);
    let (deadline, count) = places.split_once(' ').unwrap();
    assert_eq!(count, "1");
    assert!(deadline.parse::<u64>().unwrap() <= rig.now() + CLAIM, "{places}");
}

#[test]
fn a_deaf_client_gets_the_lock_unheard_once_it_has_waited_for_a_claim() {
    let mut rig = Rig::new();
    rig.terms.claim_millis = 200;
    let (a, b) = (rig.client(), rig.silent_client());
    let (holder, waiter) = (a.attempt(), b.attempt());
    rig.granted(&holder);
    rig.acquire_deaf(&waiter, Wait::Join);
    let next = a.attempt();
    let LeaveReply::Freed { next: Next::Granted(_), .. } = rig.leave_for(holder.ticket, Some(&next)) else {
        panic!("too early for the deaf one")
    };
    rig.pass(250);
    rig.acquire_deaf(&waiter, Wait::Poll);
    rig.leave(&next);
    assert_eq!(rig.inspect().holds[0].ticket, waiter.ticket.to_string());
    let AcquireReply::Granted(granted) = rig.acquire_deaf(&waiter, Wait::Poll) else { panic!() };
    assert_eq!(granted.left_millis, LEASE, "its poll makes the claim a whole lease");
}

/// A leaving overtakes a request: its old entry, in front, is that of a younger ticket now.
#[test]
fn a_ghost_of_a_deaf_client_does_not_hide_those_that_have_waited_for_long() {
    let mut rig = Rig::new();
    rig.terms.claim_millis = 200;
    let (a, b) = (rig.client(), rig.silent_client());
    let (holder, ghost, waiter, later) = (a.attempt(), b.attempt(), b.attempt(), a.attempt());
    rig.granted(&holder);
    rig.acquire_deaf(&ghost, Wait::Join);
    rig.acquire_deaf(&waiter, Wait::Join);
    rig.queued(&later);
    rig.leave(&ghost);
    rig.pass(250);
    rig.acquire_deaf(&ghost, Wait::Join);
    rig.leave(&holder);
    assert_eq!(rig.inspect().holds[0].ticket, waiter.ticket.to_string());
}

#[test]
fn a_client_that_is_silent_for_longer_than_its_deadline_is_removed() {
    let mut rig = Rig::new();
    let (a, mut b, mut c) = (rig.client(), rig.client(), rig.client());
    let (holder, dead, living) = (a.attempt(), b.attempt(), c.attempt());
    rig.granted(&holder);
    rig.queued(&dead);
    rig.queued(&living);
    rig.set_deadline(&b, -1);
    rig.leave(&holder);
    assert_eq!(b.messages(), []);
    assert!(matches!(c.messages()[..], [(ticket, News::Grant { .. })] if ticket == living.ticket));
    rig.leave(&living);
    assert_only_counter(&mut rig);
}

#[test]
fn an_entry_that_stands_twice_counts_once() {
    let mut rig = Rig::new();
    let (a, mut b, mut c) = (rig.client(), rig.client(), rig.client());
    let (holder, twice, other) = (a.attempt(), b.attempt(), c.attempt());
    rig.granted(&holder);
    rig.queued(&twice);
    rig.queued(&other);
    rig.leave(&twice);
    // A late acquire of a ticket that has left: the dead entry lives again, and there is a second one.
    rig.queued(&twice);
    assert_eq!(rig.list().len(), 3);
    b.hang_up(&mut rig);
    rig.leave(&holder);
    assert!(matches!(c.messages()[..], [(ticket, News::Grant { .. })] if ticket == other.ticket));
    assert!(matches!(rig.leave(&other), LeaveReply::Freed { .. }));
    assert_eq!(rig.get(&rig.keys.waiting(), "queue"), "reentrant 3 1");
    assert!(matches!(rig.poll(&twice), AcquireReply::Granted(Granted { waiting: false, .. })));
    rig.leave(&twice);
    assert_only_counter(&mut rig);
}

#[test]
fn a_second_entry_of_a_kept_ticket_does_not_hide_the_tickets_behind_it() {
    let mut rig = Rig::new();
    let (a, b, mut c) = (rig.client(), rig.silent_client(), rig.client());
    let (holder, twice, other) = (a.attempt(), b.attempt(), c.attempt());
    rig.granted(&holder);
    rig.queued(&twice);
    let keeper = b.attempt();
    rig.queued(&keeper);
    rig.leave(&twice);
    rig.queued(&twice);
    rig.leave(&keeper);
    // In another chunk of the list.
    rig.add_dead(70);
    rig.queued(&other);
    rig.leave(&holder);
    assert!(matches!(c.messages()[..], [(ticket, News::Grant { .. })] if ticket == other.ticket));
    assert_eq!(rig.list(), [twice.ticket.to_string()]);
}

#[test]
fn who_leaves_the_queue_of_a_free_lock_wakes_the_next() {
    let mut rig = Rig::new();
    let (a, b, mut c) = (rig.client(), rig.silent_client(), rig.silent_client());
    let (holder, first, second) = (a.attempt(), b.attempt(), c.attempt());
    rig.granted(&holder);
    rig.queued(&first);
    rig.queued(&second);
    rig.leave(&holder);
    assert_eq!(rig.held_token(), 0, "nobody can be reached");
    c.listen(&rig.server);
    assert_eq!(rig.leave(&first), LeaveReply::Gone { more: false });
    assert!(matches!(c.messages()[..], [(ticket, News::Grant { .. })] if ticket == second.ticket));
}

#[test]
fn a_try_on_a_free_lock_is_busy_when_a_waiter_before_it_gets_it() {
    let mut rig = Rig::new();
    let (a, mut b, c) = (rig.client(), rig.client(), rig.client());
    let (holder, waiter, tried) = (a.attempt(), b.attempt(), c.attempt());
    rig.granted(&holder);
    rig.queued(&waiter);
    let lock = rig.lock();
    rig.wire.ok(&["DEL", &lock]);
    assert_eq!(rig.acquire(&tried, Wait::No), AcquireReply::Busy { left_millis: CLAIM });
    assert!(matches!(b.messages()[..], [(_, News::Grant { .. })]));
    assert!(rig.all_keys() == [lock, rig.keys.token()], "and leaves nothing behind");
}

#[test]
fn a_newcomer_on_a_free_lock_queues_behind_who_gets_it() {
    let mut rig = Rig::new();
    let (a, mut b, c) = (rig.client(), rig.client(), rig.client());
    let (holder, waiter, newcomer) = (a.attempt(), b.attempt(), c.attempt());
    rig.granted(&holder);
    rig.queued(&waiter);
    let lock = rig.lock();
    rig.wire.ok(&["DEL", &lock]);
    let queued = rig.queued(&newcomer);
    assert_eq!((queued.place, queued.left_millis, queued.new), (1, CLAIM, true));
    let held = (waiter.ticket, News::Held);
    assert!(matches!(b.messages()[..], [(_, News::Grant { .. }), last] if last == held));
}

#[test]
fn force_release_ends_the_grant_of_that_token_only_and_hands_over() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (rig.client(), rig.client());
    let (holder, inner, waiter) = (
        Attempt { block: 64, ..a.attempt_of(owner(1)) },
        a.attempt_of(owner(1)),
        Attempt { block: 64, ..b.attempt() },
    );
    let token = rig.granted(&holder).token;
    rig.granted(&inner);
    rig.queued(&waiter);
    a.messages();
    for wrong in [token - 1, token + 64, 0] {
        assert_eq!(rig.force_release(wrong), ForceReleaseReply::NotHeld);
    }
    assert_eq!(rig.force_release(token + 63), ForceReleaseReply::Released { more: false });
    let lost = |ticket| (ticket, News::Lost { token });
    assert_eq!(a.messages(), [lost(holder.ticket), lost(inner.ticket)]);
    let [(_, News::Grant { token: next, .. })] = b.messages()[..] else { panic!() };
    assert!(next > token + 63);
    assert_eq!(rig.renew(&[(holder.ticket, LEASE)]), [Renewed::Lost]);
    assert_eq!(rig.force_release(token), ForceReleaseReply::NotHeld, "a later grant is safe");
    rig.wire.ok(&["ZADD", &rig.keys.readers(), "1", "x"]);
    assert_eq!(rig.force_release(next), ForceReleaseReply::Released { more: false });
    assert_only_counter(&mut rig);
}

#[test]
fn in_a_cluster_messages_go_to_a_channel_in_the_locks_own_slot() {
    let mut rig = Rig::new();
    rig.terms.sharded = true;
    let (a, mut b) = (rig.client(), rig.client());
    let (holder, waiter) = (a.attempt(), b.attempt());
    b.listen_sharded(&rig.server, &format!("lw:wake:{{a%7Bb%7D \u{1f512}}}:{}", b.id));
    rig.granted(&holder);
    rig.queued(&waiter);
    rig.leave(&holder);
    assert!(matches!(b.messages()[..], [(ticket, News::Grant { .. })] if ticket == waiter.ticket));
}

/// What a call has left of the lock, and what it said: times count from the clock of the token that it minted.
#[derive(PartialEq, Debug)]
struct Left {
    reply: LeaveReply,
    lock: BTreeMap<String, String>,
    waiting: BTreeMap<String, String>,
    list: Vec<String>,
    told: Vec<(Ticket, News)>,
    counter: u64,
    lives: [i64; 4],
}

/// The fields of a hash, with the numbers that are times as how many `unit`s (ms) they are from the time of the token.
fn fields(rig: &mut Rig, key: &str, token: u64, unit: i64) -> BTreeMap<String, String> {
    let millis = token / 1_000;
    let word = |word: &str| match word.parse::<u64>() {
        Ok(number) if number == token => "token".to_owned(),
        Ok(number) if number.abs_diff(millis) < 100_000_000 => {
            format!("{:+}", (number as i64 - millis as i64 + unit / 2).div_euclid(unit))
        }
        _ => word.to_owned(),
    };
    let flat = rig.wire.ok(&["HGETALL", key]).texts();
    let pairs = flat.chunks(2);
    pairs.map(|pair| (pair[0].clone(), pair[1].split(' ').map(word).collect::<Vec<_>>().join(" "))).collect()
}

/// The usual case of a leaving is done before anything else is defined, and so a second time: it must leave what the
/// long way leaves.
#[test]
fn the_short_way_and_the_long_way_leave_the_same() {
    // Which clients wait (0 is the holder's), and what is special.
    let scenes: [(&[usize], &str); 13] = [
        (&[1], ""),
        (&[1, 1], ""),
        (&[1, 2], ""),
        (&[1, 0, 2], ""),
        (&[0, 1], ""),
        (&[0, 0], ""),
        (&[0], ""),
        (&[1, 2], "owner"),
        (&[1, 2], "short"),
        (&[1, 2], "uncounted"),
        (&[1, 0], "heard again"),
        (&[3, 1, 3], "unreachable"),
        (&[1, 2], "bounds"),
    ];
    for kind in [Kind::Reentrant, Kind::Fair] {
        for (waiting, special) in scenes {
            let ids = [(); 4].map(|()| ClientId::random());
            let mut ways = Vec::new();
            for is_short in [true, false] {
                let mut rig = Rig { kind, ..Rig::new() };
                let mut peers: Vec<Peer> = ids.iter().map(|_| rig.silent_client()).collect();
                for (number, peer) in peers.iter_mut().enumerate() {
                    (peer.id, peer.tickets) = (ids[number], Tickets::new(ids[number]));
                    if number != 3 && special != "uncounted" {
                        peer.listen(&rig.server);
                    }
                }
                rig.terms.counted = special != "uncounted";
                if special == "bounds" {
                    (rig.terms.claim_millis, rig.terms.deadline_millis) = (1, 1);
                }
                let holder = peers[0].attempt();
                rig.granted(&holder);
                let mut first = peers[waiting[0]].attempt();
                match special {
                    "owner" => {
                        (first.owner, first.label, first.block) =
                            (Some(owner(7)), Some("a label".into()), 64);
                    }
                    "short" => first.lease_millis = 700,
                    _ => {}
                }
                rig.queued(&first);
                for &number in &waiting[1..] {
                    let next = peers[number].attempt();
                    match special {
                        // It was deaf, and is not any more.
                        "heard again" => drop(rig.acquire_deaf(&next, Wait::Join)),
                        _ => drop(rig.queued(&next)),
                    }
                }
                peers.iter_mut().filter(|peer| peer.listens()).for_each(|peer| drop(peer.messages()));
                // With a next ticket that comes too late to be queued it goes the long way.
                let late = peers[0].attempt();
                let mut call = rig.leave_call(holder.ticket, (!is_short).then_some(&late));
                if !is_short {
                    set_arg(&mut call, 4, "1");
                }
                rig.wire.ok(&["CONFIG", "RESETSTAT"]);
                let reply = rig.value(&call);
                // Only the long way reads K.
                let reads = rig.commands().iter().any(|(name, _)| name == "HGETALL");
                assert_eq!(reads, !is_short || special == "unreachable", "{kind} {waiting:?} {special}");
                let reply = LeaveReply::decode(&reply).unwrap().reply;
                let token = rig.held_token();
                let (lock, all) = (rig.lock(), rig.keys.clone());
                let lives = [lock.clone(), all.queue(), all.waiting(), all.token()]
                    .map(|key| (rig.ttl(&key) + 500).div_euclid(1_000));
                let mut told = Vec::new();
                for peer in peers.iter_mut().filter(|peer| peer.listens()) {
                    told.extend(peer.messages());
                }
                for (_, news) in &mut told {
                    let News::Grant { token: of, end_millis, now_millis, .. } = news else {
                        panic!("{news:?}")
                    };
                    assert_eq!((*of, *now_millis), (token, token / 1_000));
                    (*of, *end_millis, *now_millis) = (0, *end_millis - *now_millis, 0);
                }
                let counter: u64 = rig.wire.ok(&["GET", &all.token()]).text().parse().unwrap();
                ways.push(Left {
                    reply,
                    // What others have written before is a little older each time.
                    waiting: fields(&mut rig, &all.waiting(), token, 1_000),
                    lock: fields(&mut rig, &lock, token, 1),
                    list: rig.list(),
                    told,
                    counter: counter - token,
                    lives,
                });
            }
            assert_eq!(ways[0], ways[1], "{kind} {waiting:?} {special}");
            assert!(ways[0].lock.contains_key("owner"), "{kind} {waiting:?} {special}: it was handed over");
        }
    }
}

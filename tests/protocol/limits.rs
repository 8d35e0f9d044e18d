//! Long queues: no call walks further than 256 entries, or tells more than 128 clients in vain, and none walks the same
//! ones again and again.

use lockwright::internals::scripts::*;

use super::rig::*;

/// A held lock behind whose holder so many dead entries stand; the queue is alive by the tickets of `waiters`, which
/// are at its tail.
fn held(rig: &mut Rig, dead: usize, waiters: &[&Attempt]) -> Attempt {
    let holder = rig.client().attempt();
    rig.granted(&holder);
    // The first ticket makes the queue; it leaves, and is the first dead entry.
    let first = rig.client().attempt();
    rig.queued(&first);
    rig.add_dead(dead - 1);
    for waiter in waiters {
        rig.queued(waiter);
    }
    rig.leave(&first);
    holder
}

#[test]
fn up_to_255_dead_entries_cost_one_call() {
    let mut rig = Rig::new();
    let mut a = rig.client();
    let waiter = a.attempt();
    let holder = held(&mut rig, 255, &[&waiter]);
    assert_eq!(rig.leave(&holder), LeaveReply::Freed { more: false, next: Next::None });
    assert!(matches!(a.messages()[..], [(_, News::Grant { .. })]));
    assert_eq!(rig.all_keys(), [rig.lock(), rig.keys.token()]);
}

#[test]
fn the_256th_entry_is_the_last_that_a_call_looks_at() {
    let mut rig = Rig::new();
    let waiter = rig.client().attempt();
    let holder = held(&mut rig, 256, &[&waiter]);
    assert_eq!(rig.leave(&holder), LeaveReply::Freed { more: true, next: Next::None });
    assert_eq!(rig.list(), [waiter.ticket.to_string()]);
}

#[test]
fn beyond_the_limit_the_lock_is_left_free_and_the_client_calls_again() {
    let mut rig = Rig::new();
    let mut a = rig.client();
    let waiter = a.attempt();
    let holder = held(&mut rig, 600, &[&waiter]);
    assert_eq!(rig.leave(&holder), LeaveReply::Freed { more: true, next: Next::None });
    assert_eq!(rig.list().len(), 601 - 256);
    assert_eq!(rig.leave(&holder), LeaveReply::Gone { more: true });
    assert_eq!(rig.list().len(), 601 - 512);
    assert_eq!(a.messages(), []);
    assert_eq!(rig.leave(&holder), LeaveReply::Gone { more: false });
    assert!(matches!(a.messages()[..], [(ticket, News::Grant { .. })] if ticket == waiter.ticket));
}

#[test]
fn a_forced_release_that_stops_at_the_limit_has_the_next_one_that_waits_go_on() {
    let mut rig = Rig::new();
    let (silent, mut a) = (rig.silent_client(), rig.client());
    let (unreachable, waiter) = (silent.attempt(), a.attempt());
    held(&mut rig, 300, &[&unreachable, &waiter]);
    let token = rig.held_token();
    assert_eq!(rig.force_release(token), ForceReleaseReply::Released { more: false });
    assert_eq!(a.messages(), [(waiter.ticket, News::Held)]);
    assert!(matches!(rig.poll(&waiter), AcquireReply::Granted(_)));
}

#[test]
fn at_the_limit_a_poll_gets_the_lock_and_a_newcomer_does_not() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let (waiter, newcomer) = (a.attempt(), b.attempt());
    let holder = held(&mut rig, 900, &[&waiter]);
    rig.leave(&holder);
    assert_eq!(rig.acquire(&b.attempt(), Wait::No), AcquireReply::Busy { left_millis: 0 });
    let queued = rig.queued(&newcomer);
    assert_eq!((queued.left_millis, queued.new, queued.more), (0, true, true));
    assert!(matches!(rig.poll(&waiter), AcquireReply::Granted(Granted { waiting: true, .. })));
}

#[test]
fn at_the_limit_the_new_ticket_of_a_leaving_gets_the_lock() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let (waiter, next) = (a.attempt(), b.attempt());
    let holder = held(&mut rig, 300, &[&waiter]);
    let reply = rig.leave_for(holder.ticket, Some(&next));
    assert!(matches!(reply, LeaveReply::Freed { next: Next::Granted(Granted { waiting: true, .. }), .. }));
    rig.leave(&next);
    assert_eq!(rig.inspect().holds[0].ticket, waiter.ticket.to_string());
}

#[test]
fn one_unreachable_ticket_at_the_head_does_not_stop_a_long_queue() {
    let mut rig = Rig::new();
    let (a, silent, living) = (rig.client(), rig.silent_client(), rig.client());
    let mut holder = a.attempt();
    rig.granted(&holder);
    let head = silent.attempt();
    rig.queued(&head);
    let waiters: Vec<Attempt> = (0..700).map(|_| living.attempt()).collect();
    for waiter in &waiters {
        rig.queued(waiter);
    }
    rig.wire.ok(&["CONFIG", "RESETSTAT"]);
    for waiter in waiters {
        let reply = rig.leave(&holder);
        assert_eq!(reply, LeaveReply::Freed { more: false, next: Next::None });
        assert_eq!(rig.get(&rig.lock(), "kind"), "reentrant", "never left free");
        assert_ne!(rig.get(&rig.lock(), &waiter.ticket.to_string()), "");
        holder = waiter;
    }
    let walks = rig.commands().into_iter().find(|(name, _)| name == "LRANGE").unwrap().1;
    assert!(walks <= 3 * 700, "{walks} chunks for 700 hand-overs");
    assert_eq!(rig.leave(&holder), LeaveReply::Freed { more: false, next: Next::None });
    assert!(rig.list().len() <= 65);
    assert!(matches!(rig.poll(&head), AcquireReply::Granted(_)));
}

#[test]
fn a_queue_that_is_cut_down_to_those_out_of_reach_still_ends() {
    let mut rig = Rig::new();
    let (silent, listening) = (rig.silent_client(), rig.client());
    let (head, holder, waiter) = (silent.attempt(), listening.attempt(), listening.attempt());
    rig.granted(&holder);
    rig.queued(&head);
    rig.add_dead(70);
    rig.queued(&waiter);
    rig.leave(&holder);
    assert_eq!(rig.list(), [head.ticket.to_string()]);
    let queue = rig.keys.queue();
    assert!(rig.ttl(&queue) > 0);
}

#[test]
fn unreachable_tickets_up_to_the_limit_are_not_asked_again_in_a_loop() {
    let mut rig = Rig::new();
    let (a, silent, living) = (rig.client(), rig.silent_client(), rig.client());
    let (holder, waiter) = (a.attempt(), living.attempt());
    rig.granted(&holder);
    for _ in 0..300 {
        rig.queued(&silent.attempt());
    }
    rig.queued(&waiter);
    let reply = rig.leave(&holder);
    assert_eq!(reply, LeaveReply::Freed { more: false, next: Next::None }, "nothing was removed: no `more`");
    assert_eq!(rig.list().len(), 301);
    assert!(matches!(rig.poll(&waiter), AcquireReply::Granted(_)), "the first poll");
}

/// So many tickets, each of a client of its own that cannot be reached.
fn unreachable(rig: &mut Rig, count: usize) -> Vec<String> {
    let attempts: Vec<Attempt> = (0..count).map(|_| rig.silent_client().attempt()).collect();
    attempts.iter().for_each(|attempt| drop(rig.queued(attempt)));
    attempts.iter().map(|attempt| attempt.ticket.to_string()).collect()
}

/// How many messages the server was asked to send since the last reset.
fn published(rig: &mut Rig) -> u64 {
    rig.commands().into_iter().find(|(name, _)| name == "PUBLISH").map_or(0, |(_, calls)| calls)
}

#[test]
fn up_to_127_clients_out_of_reach_cost_one_call() {
    let mut rig = Rig::new();
    let (holder, mut living) = (rig.client().attempt(), rig.client());
    rig.granted(&holder);
    let kept = unreachable(&mut rig, 127);
    let waiter = living.attempt();
    rig.queued(&waiter);
    assert_eq!(rig.leave(&holder), LeaveReply::Freed { more: false, next: Next::None });
    assert!(matches!(living.messages()[..], [(ticket, News::Grant { .. })] if ticket == waiter.ticket));
    assert_eq!(rig.list(), kept);
}

#[test]
fn of_300_clients_out_of_reach_a_call_tells_128_and_the_next_poll_has_the_lock() {
    let mut rig = Rig::new();
    let (holder, mut living) = (rig.client().attempt(), rig.client());
    rig.granted(&holder);
    let kept = unreachable(&mut rig, 300);
    let waiter = living.attempt();
    rig.queued(&waiter);
    rig.wire.ok(&["CONFIG", "RESETSTAT"]);
    assert_eq!(rig.leave(&holder), LeaveReply::Freed { more: false, next: Next::None });
    assert_eq!(published(&mut rig), 128);
    assert_eq!((living.messages(), rig.held_token()), (Vec::new(), 0));
    rig.wire.ok(&["CONFIG", "RESETSTAT"]);
    assert!(matches!(rig.poll(&waiter), AcquireReply::Granted(_)));
    assert_eq!(published(&mut rig), 128);
    assert_eq!(rig.list()[..300], kept, "they keep their places");
}

#[test]
fn dead_entries_between_clients_out_of_reach_cost_one_call_more() {
    let mut rig = Rig::new();
    let holder = rig.client().attempt();
    rig.granted(&holder);
    let mut kept = unreachable(&mut rig, 100);
    rig.add_dead(10);
    kept.extend(unreachable(&mut rig, 200));
    let waiter = rig.client().attempt();
    rig.queued(&waiter);
    assert_eq!(rig.leave(&holder), LeaveReply::Freed { more: true, next: Next::None });
    assert_eq!(rig.leave(&holder), LeaveReply::Gone { more: false });
    kept.push(waiter.ticket.to_string());
    assert_eq!(rig.list(), kept, "only the dead ones are out");
    assert!(matches!(rig.poll(&waiter), AcquireReply::Granted(_)));
}

#[test]
fn who_cannot_say_that_there_is_more_tells_32_clients_in_vain_at_most() {
    let mut rig = Rig::new();
    let holder = rig.client().attempt();
    rig.granted(&holder);
    unreachable(&mut rig, 1);
    rig.add_dead(255);
    unreachable(&mut rig, 100);
    let waiter = rig.client().attempt();
    rig.queued(&waiter);
    let token = rig.held_token();
    rig.wire.ok(&["CONFIG", "RESETSTAT"]);
    assert_eq!(rig.force_release(token), ForceReleaseReply::Released { more: false });
    assert_eq!(published(&mut rig), 1 + 1 + 32, "the holder, the first one, and those behind the limit");
    assert!(matches!(rig.poll(&waiter), AcquireReply::Granted(_)));
}

#[test]
fn compaction_keeps_the_kept_in_their_order() {
    let mut rig = Rig::new();
    let (a, mut last) = (rig.client(), rig.client());
    let holder = a.attempt();
    rig.granted(&holder);
    let silent: Vec<Peer> = (0..5).map(|_| rig.silent_client()).collect();
    let kept: Vec<Attempt> = silent.iter().map(Peer::attempt).collect();
    for attempt in &kept {
        rig.queued(attempt);
        rig.add_dead(20);
    }
    let waiter = last.attempt();
    rig.queued(&waiter);
    rig.add_dead(3);
    rig.leave(&holder);
    assert!(matches!(last.messages()[..], [(ticket, News::Grant { .. })] if ticket == waiter.ticket));
    let tickets: Vec<String> = kept.iter().map(|attempt| attempt.ticket.to_string()).collect();
    let list = rig.list();
    assert_eq!(list[..5], tickets);
    assert_eq!(list.len(), 8, "the three behind the granted one were not walked");
    assert!(rig.ttl(&rig.keys.queue()) > 0);
}

#[test]
fn what_was_walked_over_behind_a_kept_ticket_is_taken_out() {
    let mut rig = Rig::new();
    let (a, silent, living) = (rig.client(), rig.silent_client(), rig.client());
    let (holder, kept) = (a.attempt(), silent.attempt());
    rig.granted(&holder);
    rig.queued(&kept);
    rig.add_dead(3);
    rig.queued(&living.attempt());
    let last = living.attempt();
    rig.queued(&last);
    rig.leave(&holder);
    assert_eq!(rig.list(), [kept.ticket, last.ticket].map(|ticket| ticket.to_string()));
}

/// Found by simulated histories: its old entry was still in the list, behind one that could not be reached.
#[test]
fn a_ticket_that_missed_its_claim_joins_anew_at_the_tail() {
    let mut rig = Rig::new();
    rig.terms.claim_millis = 50;
    let (holder, silent, mut slow, other) = (rig.client(), rig.silent_client(), rig.client(), rig.client());
    let (held, kept, missed) = (holder.attempt(), silent.attempt(), slow.attempt());
    let (second, third) = (other.attempt(), other.attempt());
    rig.granted(&held);
    for attempt in [&kept, &missed, &second, &third] {
        rig.queued(attempt);
    }
    rig.leave(&held);
    assert!(matches!(slow.messages()[..], [(ticket, News::Grant { .. })] if ticket == missed.ticket));
    rig.pass(100);
    rig.poll(&third);
    assert_ne!(rig.get(&rig.lock(), &second.ticket.to_string()), "", "the next one has it");
    assert!(matches!(rig.poll(&missed), AcquireReply::Queued(Queued { new: true, .. })));
    rig.leave(&second);
    assert_eq!(rig.get(&rig.lock(), &missed.ticket.to_string()), "", "it had come before the third");
    assert_ne!(rig.get(&rig.lock(), &third.ticket.to_string()), "");
}

/// The same where its owner had let it in past the queue.
#[test]
fn a_ticket_that_entered_past_the_queue_and_was_lost_joins_anew_at_the_tail() {
    let mut rig = Rig::new();
    rig.terms.claim_millis = 50;
    let (a, b, c) = (rig.client(), rig.client(), rig.client());
    let (held, outer, first, last) = (a.attempt(), a.attempt_of(owner(1)), b.attempt(), b.attempt());
    let inner = Attempt { lease_millis: 60, ..c.attempt_of(owner(1)) };
    rig.granted(&held);
    for attempt in [&outer, &first, &inner, &last] {
        rig.queued(attempt);
    }
    rig.leave(&held);
    assert!(matches!(rig.poll(&inner), AcquireReply::Granted(_)), "its owner has the lock");
    rig.leave(&outer);
    rig.pass(100);
    assert!(matches!(rig.poll(&first), AcquireReply::Granted(_)), "the owner's holds have ended");
    assert!(matches!(rig.poll(&inner), AcquireReply::Queued(Queued { new: true, .. })));
    rig.leave(&first);
    assert_ne!(rig.get(&rig.lock(), &last.ticket.to_string()), "", "it had come before");
}

/// A held lock with a queue of `living` tickets, and dead entries in front of the last hundred of them.
fn with_dead(rig: &mut Rig, living: usize, dead: usize) -> Vec<String> {
    let holder = rig.client().attempt();
    rig.granted(&holder);
    let peer = rig.silent_client();
    let attempts: Vec<Attempt> = (0..living).map(|_| peer.attempt()).collect();
    for (at, attempt) in attempts.iter().enumerate() {
        if at == living - 100 {
            rig.add_dead(dead);
        }
        rig.queued(attempt);
    }
    attempts.iter().map(|attempt| attempt.ticket.to_string()).collect()
}

#[test]
fn a_list_of_mostly_dead_entries_is_rewritten_by_the_next_enqueue() {
    let mut rig = Rig::new();
    let mut tickets = with_dead(&mut rig, 600, 1_000);
    assert_eq!(rig.list().len(), 1_600, "not yet: a thousand is no more than a thousand");
    let queue = rig.keys.queue();
    rig.wire.ok(&["RPUSH", &queue, &tickets[0], "dead"]);
    let last = rig.client().attempt();
    assert_eq!(rig.queued(&last).place, 601);
    tickets.push(last.ticket.to_string());
    assert_eq!(rig.list(), tickets, "in their order, each once");
    assert!(rig.ttl(&queue) > DEADLINE as i64 + 9_000);
}

#[test]
fn a_list_with_more_living_than_dead_entries_is_not_rewritten() {
    let mut rig = Rig::new();
    with_dead(&mut rig, 1_200, 1_100);
    rig.queued(&rig.client().attempt());
    assert_eq!(rig.list().len(), 2_301);
}

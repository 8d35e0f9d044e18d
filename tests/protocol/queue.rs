//! The queue while the lock is held: joining, places, polls, leaving, deadlines.

use lockwright::internals::scripts::*;

use super::rig::*;

#[test]
fn a_waiter_joins_once_and_hears_its_place() {
    let mut rig = Rig::new();
    let (a, b, c) = (rig.client(), rig.client(), rig.client());
    let held = rig.granted(&a.attempt());
    let (first, second) =
        (b.attempt(), Attempt { label: Some("me".into()), block: 64, ..c.attempt_of(owner(3)) });
    let queued = rig.queued(&first);
    assert_eq!((queued.place, queued.new, queued.more, &queued.holds[..]), (1, true, false, &[][..]));
    assert!((LEASE - 1_000..=LEASE).contains(&queued.left_millis));
    assert_eq!(rig.queued(&second).place, 2);
    let again = rig.queued(&second);
    assert_eq!((again.place, again.new), (2, false));
    assert_eq!(rig.list(), [first.ticket.to_string(), second.ticket.to_string()]);

    let waiting = rig.keys.waiting();
    let entry = rig.get(&waiting, &second.ticket.to_string());
    let words: Vec<&str> = entry.split(' ').collect();
    assert_eq!(words[0], "2");
    assert!(rig.now() - words[1].parse::<u64>().unwrap() < 1_000);
    assert_eq!(words[2..], ["exclusive", "30000", "64", &owner(3).to_string(), "me"]);
    assert_eq!(rig.get(&waiting, "queue"), "reentrant 2 2");
    for key in [waiting, rig.keys.queue()] {
        let most = DEADLINE as i64 + 10_000;
        assert!((most - 1_000..=most).contains(&rig.ttl(&key)), "{key}");
    }
    assert_eq!(rig.held_token(), held.token);
}

#[test]
fn a_poll_restores_what_has_run_down() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    rig.granted(&a.attempt());
    let waiter = b.attempt();
    rig.queued(&waiter);
    rig.set_deadline(&b, 10);
    for key in [rig.keys.queue(), rig.keys.waiting()] {
        rig.wire.ok(&["PEXPIRE", &key, "500"]);
    }
    assert!(matches!(rig.poll(&waiter), AcquireReply::Queued(Queued { new: false, .. })));
    let deadline: u64 = rig.places_of(&b).split_once(' ').unwrap().0.parse().unwrap();
    assert!(deadline - rig.now() > DEADLINE - 1_000);
    for key in [rig.keys.queue(), rig.keys.waiting()] {
        assert!(rig.ttl(&key) > DEADLINE as i64 + 9_000);
    }
}

#[test]
fn a_shorter_deadline_does_not_cut_the_life_of_the_queue() {
    let mut rig = Rig::new();
    let (a, b, c) = (rig.client(), rig.client(), rig.client());
    rig.granted(&a.attempt());
    rig.terms.deadline_millis = 60_000;
    rig.queued(&b.attempt());
    rig.terms.deadline_millis = 1_000;
    let waiter = c.attempt();
    rig.queued(&waiter);
    rig.poll(&waiter);
    for key in [rig.keys.queue(), rig.keys.waiting()] {
        assert!(rig.ttl(&key) > 69_000, "{key}");
    }
}

#[test]
fn the_head_and_every_poll_tell_the_holder() {
    let mut rig = Rig::new();
    let (mut a, b, c) = (rig.client(), rig.client(), rig.client());
    let holder = a.attempt();
    rig.granted(&holder);
    let held = (holder.ticket, News::Held);
    let (first, second) = (b.attempt(), c.attempt());
    rig.queued(&first);
    assert_eq!(a.messages(), [held]);
    rig.queued(&second);
    assert_eq!(a.messages(), [], "not the head");
    rig.queued(&first);
    assert_eq!(a.messages(), [held]);
    rig.poll(&second);
    assert_eq!(a.messages(), [held], "a poll tells from any place");
    rig.acquire(&b.attempt(), Wait::No);
    assert_eq!(a.messages(), [], "who does not wait tells nobody");
}

#[test]
fn a_waiter_hears_of_all_holds_of_its_own_client() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let holds = [a.attempt_of(owner(1)), a.attempt_of(owner(1)), b.attempt_of(owner(1))];
    for hold in &holds {
        rig.granted(hold);
    }
    assert_eq!(rig.queued(&a.attempt()).holds, [holds[0].ticket, holds[1].ticket]);
    assert_eq!(rig.queued(&b.attempt()).holds, [holds[2].ticket]);
}

#[test]
fn a_waiter_leaves_without_a_trace_when_it_was_the_last() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    rig.granted(&a.attempt());
    let (first, second) = (b.attempt(), b.attempt());
    rig.queued(&first);
    rig.queued(&second);
    assert!(rig.places_of(&b).ends_with(" 2"));
    assert_eq!(rig.leave(&first), LeaveReply::Gone { more: false });
    assert!(rig.places_of(&b).ends_with(" 1"));
    assert_eq!(rig.get(&rig.keys.waiting(), "queue"), "reentrant 2 1");
    assert_eq!(rig.list().len(), 2, "its entry in the list is dead, not searched for");
    assert_eq!(rig.leave(&first), LeaveReply::Gone { more: false });
    assert_eq!(rig.get(&rig.keys.waiting(), "queue"), "reentrant 2 1", "counted once");
    assert_eq!(rig.leave(&second), LeaveReply::Gone { more: false });
    assert_eq!(rig.all_keys(), [rig.lock(), rig.keys.token()]);
}

#[test]
fn dead_entries_at_the_head_do_not_count_in_a_place() {
    let mut rig = Rig::new();
    let (a, b, c) = (rig.client(), rig.client(), rig.client());
    rig.granted(&a.attempt());
    let leaving: Vec<Attempt> = (0..40).map(|_| b.attempt()).collect();
    for attempt in &leaving {
        rig.queued(attempt);
    }
    let (mine, other) = (c.attempt(), b.attempt());
    rig.queued(&other);
    assert_eq!(rig.queued(&mine).place, 42);
    for attempt in &leaving {
        rig.leave(attempt);
    }
    assert_eq!(rig.queued(&mine).place, 2);
    assert_eq!(rig.list(), [other.ticket.to_string(), mine.ticket.to_string()], "and they are trimmed");
}

#[test]
fn tickets_that_left_from_the_middle_do_not_count_in_a_place() {
    let mut rig = Rig::new();
    let (a, b, c) = (rig.client(), rig.client(), rig.client());
    rig.granted(&a.attempt());
    let (head, mine) = (b.attempt(), c.attempt());
    rig.queued(&head);
    let leaving: Vec<Attempt> = (0..40).map(|_| b.attempt()).collect();
    for attempt in leaving.iter().chain([&mine]) {
        rig.queued(attempt);
    }
    for attempt in &leaving {
        rig.leave(attempt);
    }
    assert_eq!(rig.queued(&mine).place, 2);
}

#[test]
fn a_leaving_keeps_the_other_places_of_its_client() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let (holder, leaving, staying) = (a.attempt(), b.attempt(), b.attempt());
    rig.granted(&holder);
    rig.queued(&leaving);
    rig.queued(&staying);
    for leaving in [leaving.ticket, b.attempt().ticket] {
        rig.set_deadline(&b, 10);
        assert_eq!(rig.leave_for(leaving, None), LeaveReply::Gone { more: false });
        let deadline: u64 = rig.places_of(&b).split_once(' ').unwrap().0.parse().unwrap();
        assert!(deadline - rig.now() > DEADLINE - 1_000);
    }
}

#[test]
fn the_queue_is_deaf_to_nobody_by_default_and_remembers_who_is() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    rig.granted(&a.attempt());
    let waiter = b.attempt();
    rig.acquire_deaf(&waiter, Wait::Join);
    assert!(rig.places_of(&b).ends_with(" 1 deaf"));
    assert!(rig.inspect().waiting[0].deaf);
    rig.renew(&[(waiter.ticket, LEASE)]);
    assert!(rig.places_of(&b).ends_with(" 1 deaf"), "renew does not know");
    rig.poll(&waiter);
    assert!(rig.places_of(&b).ends_with(" 1"));
}

#[test]
fn everything_is_shown_to_people() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.silent_client());
    let holder = Attempt { label: Some("job 7".into()), block: 64, ..a.attempt_of(owner(4)) };
    let granted = rig.granted(&holder);
    let (first, second) = (Attempt { label: Some("next".into()), ..b.attempt() }, b.attempt_of(owner(5)));
    rig.queued(&first);
    rig.queued(&second);
    rig.add_dead(3);
    let info = rig.inspect();
    assert_eq!((info.kind, info.mode), (Some(Kind::Reentrant), Some(Mode::Exclusive)));
    assert_eq!(info.owner.as_deref(), Some("00000000"));
    assert_eq!((info.token, info.last_token), (Some(granted.token), Some(granted.token + 63)));
    assert_eq!((info.waiting_count, info.queue_length), (2, 5));
    assert_eq!(info.holds.len(), 1);
    assert_eq!(info.holds[0].ticket, holder.ticket.to_string());
    assert_eq!(info.holds[0].label.as_deref(), Some("job 7"));
    assert!((LEASE - 1_000..=LEASE).contains(&info.holds[0].left_millis));
    let tickets: Vec<&str> = info.waiting.iter().map(|wait| wait.ticket.as_str()).collect();
    assert_eq!(tickets, [first.ticket.to_string(), second.ticket.to_string()]);
    assert_eq!(info.waiting[0].label.as_deref(), Some("next"));
    assert_eq!((&info.waiting[0].owner, info.waiting[1].owner.as_deref()), (&None, Some("00000000")));
    assert!(info.waiting[0].client_left_millis > DEADLINE - 1_000);
    assert!(info.server_millis - info.waiting[1].arrival_millis < 1_000);

    rig.wire.ok(&["FLUSHALL"]);
    let info = rig.inspect();
    assert_eq!((info.kind, info.mode, info.owner, info.token), (None, None, None, None));
    assert!(info.holds.is_empty() && info.waiting.is_empty() && rig.all_keys().is_empty());
}

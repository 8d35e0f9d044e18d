//! Half-allowed steps: commands that an ACL denies in the middle of a script, and a server whose memory is full.

use lockwright::internals::scripts::*;

use super::rig::*;
use crate::support::resp::{Connection, Reply};

/// A connection whose user lacks what `rules` take away.
pub fn limited(rig: &mut Rig, rules: &[&str]) -> Connection {
    let all = ["ACL", "SETUSER", "limited", "reset", "on", "nopass", "~*", "&*", "+@all"];
    let words: Vec<&str> = all.into_iter().chain(rules.iter().copied()).collect();
    rig.wire.ok(&words);
    let mut wire = rig.server.connection();
    wire.ok(&["AUTH", "limited", "x"]);
    wire
}

/// Makes the calls of `f` on the limited connection.
pub fn with<T>(rig: &mut Rig, wire: &mut Connection, f: impl FnOnce(&mut Rig) -> T) -> T {
    std::mem::swap(&mut rig.wire, wire);
    let result = f(rig);
    std::mem::swap(&mut rig.wire, wire);
    result
}

pub fn assert_denied(reply: &Reply) {
    let Reply::Error(text) = reply else { panic!("not denied: {reply:?}") };
    assert!(text.contains("permission") || text.contains("can't"), "{text}");
}

pub fn assert_all_mortal(rig: &mut Rig) {
    for key in rig.all_keys() {
        assert!(rig.ttl(&key) > 0, "{key} lives for ever");
    }
}

#[test]
fn a_release_without_the_right_to_publish_frees_the_lock_for_the_next_poll() {
    for rules in [["resetchannels"], ["-publish"]] {
        let mut rig = Rig::new();
        let (a, mut b) = (rig.client(), rig.client());
        let (holder, waiter) = (a.attempt(), b.attempt());
        rig.granted(&holder);
        rig.queued(&waiter);
        let mut wire = limited(&mut rig, &rules);
        let reply = with(&mut rig, &mut wire, |rig| rig.leave(&holder));
        assert_eq!(reply, LeaveReply::Freed { more: false, next: Next::None });
        assert_eq!((rig.held_token(), b.messages()), (0, vec![]));
        assert_eq!(rig.list(), [waiter.ticket.to_string()], "it keeps its place");
        assert!(matches!(rig.poll(&waiter), AcquireReply::Granted(_)));
    }
}

/// Fails where the next holder is told before the release is sure: it would trust a hold that it has not.
#[test]
fn a_release_that_is_denied_tells_nobody() {
    for kind in [Kind::Reentrant, Kind::Fair] {
        let mut rig = Rig { kind, ..Rig::new() };
        let (a, mut b) = (rig.client(), rig.client());
        let (holder, waiter) = (a.attempt(), b.attempt());
        let token = rig.granted(&holder).token;
        rig.queued(&waiter);
        let mut wire = limited(&mut rig, &["-del"]);
        let call = rig.leave_call(holder.ticket, None);
        assert_denied(&with(&mut rig, &mut wire, |rig| rig.run(&call)));
        assert_eq!((rig.held_token(), b.messages()), (token, vec![]));
        assert_eq!(rig.list(), [waiter.ticket.to_string()]);
        assert_eq!(rig.leave(&holder), LeaveReply::Freed { more: false, next: Next::None });
        assert_eq!(b.messages().len(), 1);
    }
}

#[test]
fn without_the_right_to_publish_uncounted_grants_do_not_go_unheard() {
    let mut rig = Rig::new();
    rig.terms.counted = false;
    let (a, b) = (rig.client(), rig.client());
    let (holder, waiter) = (a.attempt(), b.attempt());
    rig.granted(&holder);
    rig.queued(&waiter);
    let mut wire = limited(&mut rig, &["-publish"]);
    with(&mut rig, &mut wire, |rig| rig.leave(&holder));
    assert_eq!(rig.held_token(), 0, "a message that was not sent has reached nobody");
}

#[test]
fn without_the_right_to_pexpire_nothing_is_acquired_and_nothing_lives_for_ever() {
    let mut rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let mut wire = limited(&mut rig, &["-pexpire"]);
    let attempt = a.attempt();
    let call = rig.acquire_call(&attempt, Wait::Join);
    let run = |rig: &mut Rig, wire: &mut Connection, call: &Call| with(rig, wire, |rig| rig.run(call));
    assert_denied(&run(&mut rig, &mut wire, &call));
    assert_eq!(rig.all_keys(), [rig.keys.token()]);

    // Waiting is denied as well, whether or not others wait.
    let (holder, waiter) = (b.attempt_of(owner(1)), b.attempt());
    rig.granted(&holder);
    let call = rig.acquire_call(&attempt, Wait::Join);
    assert_denied(&run(&mut rig, &mut wire, &call));
    assert_eq!(rig.all_keys(), [rig.lock(), rig.keys.token()]);
    rig.queued(&waiter);
    assert_denied(&run(&mut rig, &mut wire, &call));
    assert_eq!(rig.list(), [waiter.ticket.to_string()]);
    assert_eq!(rig.inspect().waiting_count, 1);

    // Re-entry and renewal: denied, and the hold is what it was.
    let again = rig.acquire_call(&a.attempt_of(owner(1)), Wait::No);
    assert_denied(&run(&mut rig, &mut wire, &again));
    let hold = RenewHold { keys: rig.keys.clone(), ticket: holder.ticket, lease_millis: 99_000 };
    let renew = Renew { holds: &[hold], deadline_millis: DEADLINE }.call();
    assert_denied(&run(&mut rig, &mut wire, &renew));
    let info = rig.inspect();
    assert_eq!(info.holds.len(), 1);
    assert!(info.holds[0].left_millis <= LEASE);
    assert_all_mortal(&mut rig);
}

#[test]
fn a_release_without_the_right_to_pexpire_is_done_and_takes_its_hand_over_back() {
    let mut rig = Rig::new();
    let (a, mut b) = (rig.client(), rig.client());
    let (holder, waiter) = (a.attempt(), b.attempt());
    let first = rig.granted(&holder).token;
    rig.queued(&waiter);
    let mut wire = limited(&mut rig, &["-pexpire"]);
    let next = a.attempt();
    let reply = with(&mut rig, &mut wire, |rig| rig.leave_for(holder.ticket, Some(&next)));
    assert_eq!(reply, LeaveReply::Freed { more: false, next: Next::None });
    assert_eq!(rig.held_token(), 0);
    let [(_, News::Grant { token, .. }), (ticket, News::Lost { token: lost })] = b.messages()[..] else {
        panic!()
    };
    assert_eq!((ticket, lost), (waiter.ticket, token));
    assert_all_mortal(&mut rig);
    let AcquireReply::Granted(granted) = rig.poll(&waiter) else { panic!() };
    assert!(granted.token > token && token > first, "the token that was told is never told again");
}

#[test]
fn a_try_that_cannot_pass_the_lock_on_is_denied_and_not_busy() {
    let mut rig = Rig::new();
    let (a, mut b) = (rig.client(), rig.client());
    rig.granted(&a.attempt());
    rig.queued(&b.attempt());
    rig.wire.ok(&["DEL", &rig.lock()]);
    let mut wire = limited(&mut rig, &["-pexpire"]);
    let call = rig.acquire_call(&a.attempt(), Wait::No);
    assert_denied(&with(&mut rig, &mut wire, |rig| rig.run(&call)));
    assert!(matches!(b.messages()[..], [(_, News::Grant { .. }), (_, News::Lost { .. })]));
    assert_eq!(rig.all_keys(), [rig.keys.token()]);
}

#[test]
fn a_new_ticket_that_cannot_be_given_a_lease_leaves_a_free_lock() {
    let mut rig = Rig::new();
    let a = rig.client();
    let (holder, next) = (a.attempt(), a.attempt());
    rig.granted(&holder);
    let mut wire = limited(&mut rig, &["-pexpire"]);
    let reply = with(&mut rig, &mut wire, |rig| rig.leave_for(holder.ticket, Some(&next)));
    assert_eq!(reply, LeaveReply::Freed { more: false, next: Next::None });
    assert_eq!(rig.all_keys(), [rig.keys.token()]);
}

/// Fills the server's memory, or empties it again.
pub fn full(rig: &mut Rig, is_full: bool) {
    rig.wire.ok(&["CONFIG", "SET", "maxmemory", if is_full { "1" } else { "0" }]);
}

#[test]
fn with_full_memory_nothing_new_is_taken() {
    let mut rig = Rig::new();
    let a = rig.client();
    let call = rig.acquire_call(&a.attempt(), Wait::Join);
    full(&mut rig, true);
    let assert_full = |reply: Reply| assert!(matches!(reply, Reply::Error(text) if text.starts_with("OOM")));
    assert_full(rig.run(&call));
    assert!(rig.all_keys().is_empty());
    full(&mut rig, false);
    rig.granted(&a.attempt());
    full(&mut rig, true);
    let call = rig.acquire_call(&a.attempt(), Wait::Join);
    assert_full(rig.run(&call));
    assert_eq!(rig.all_keys(), [rig.lock(), rig.keys.token()]);
}

#[test]
fn with_full_memory_holds_are_renewed_released_and_handed_over() {
    let mut rig = Rig::new();
    let (a, mut b) = (rig.client(), rig.client());
    let (outer, inner) = (a.attempt_of(owner(1)), a.attempt_of(owner(1)));
    let (mine, waiter, next) = (a.attempt(), b.attempt(), a.attempt());
    rig.granted(&outer);
    rig.granted(&inner);
    rig.queued(&waiter);
    rig.queued(&mine);
    full(&mut rig, true);

    let kept = Renewed::Kept { left_millis: 40_000, waiting: true };
    assert_eq!(rig.renew(&[(outer.ticket, 40_000), (inner.ticket, 40_000)]), [kept, kept]);
    // A lost hold of a client that waits: its places live on all the same.
    assert_eq!(rig.renew(&[(next.ticket, LEASE)]), [Renewed::Lost]);
    assert!(matches!(rig.poll(&waiter), AcquireReply::Queued(Queued { new: false, .. })));
    assert!(rig.granted(&outer).left_millis > 39_000);
    assert_eq!(rig.leave(&inner), LeaveReply::Kept);
    let reply = rig.leave_for(outer.ticket, Some(&next));
    assert!(matches!(reply, LeaveReply::Freed { next: Next::Queued { place: 2, .. }, .. }), "{reply:?}");
    assert!(matches!(b.messages()[..], [(ticket, News::Grant { .. })] if ticket == waiter.ticket));
    assert_eq!(rig.leave(&mine), LeaveReply::Gone { more: false });

    // The lock goes away; a leaving that is no hold passes it on.
    rig.wire.ok(&["DEL", &rig.lock()]);
    assert_eq!(rig.leave(&waiter), LeaveReply::Gone { more: false });
    assert_eq!(rig.inspect().holds[0].ticket, next.ticket.to_string());
    assert!(matches!(rig.leave(&next), LeaveReply::Freed { .. }));
    assert_eq!(rig.all_keys(), [rig.keys.token()]);
}

/// Whoever is told of a grant has it: nothing that may be denied stands between the message and the hold.
#[test]
fn a_queue_that_may_not_be_trimmed_is_walked_and_handed_over_all_the_same() {
    for rules in [["-lpush"], ["-ltrim"]] {
        let mut rig = Rig::new();
        let (a, silent, mut living) = (rig.client(), rig.silent_client(), rig.client());
        let (holder, kept, waiter) = (a.attempt(), silent.attempt(), living.attempt());
        rig.granted(&holder);
        rig.add_dead(1);
        rig.queued(&kept);
        rig.add_dead(70);
        rig.queued(&waiter);
        let mut wire = limited(&mut rig, &rules);
        let reply = with(&mut rig, &mut wire, |rig| rig.leave(&holder));
        assert_eq!(reply, LeaveReply::Freed { more: false, next: Next::None }, "{rules:?}");
        let [(ticket, News::Grant { token, .. })] = living.messages()[..] else { panic!("{rules:?}") };
        assert_eq!((ticket, token), (waiter.ticket, rig.held_token()));
        assert_eq!(rig.inspect().holds[0].ticket, waiter.ticket.to_string());
        assert_eq!(rig.inspect().waiting_count, 1, "{rules:?}: only the granted one is out");
        // The kept one has its place.
        let next = living.attempt();
        rig.queued(&next);
        with(&mut rig, &mut wire, |rig| rig.leave(&waiter));
        assert!(matches!(living.messages()[..], [(ticket, News::Grant { .. })] if ticket == next.ticket));
        with(&mut rig, &mut wire, |rig| rig.leave(&next));
        assert!(matches!(rig.poll(&kept), AcquireReply::Granted(_)), "{rules:?}");
        assert_all_mortal(&mut rig);
    }
}

//! Asking: repeated with the same ticket until it is answered or no longer wanted.

use std::sync::Arc;
use std::time::Duration;

use super::{Sent, Setback};
use crate::clock::Moment;
use crate::courier::Backoff;
use crate::error::LockError;
use crate::local::Local;
use crate::local::lane::{Lane, LaneId};
use crate::local::outbox::{Due, Outbox};
use crate::local::state::State;
use crate::scripts::{Acquire, AcquireReply, Call};
use crate::ticket::Ticket;

/// What to do about a ticket now.
enum Step {
    Call(Call, Duration),
    /// No connection.
    Wait,
    Done,
}

/// What became of a call.
#[derive(PartialEq, Eq)]
enum Asked {
    Done,
    /// It came too late by an old sample of the server's time. Its answer is a new one.
    Stale,
    Unanswered,
}

pub async fn ask(local: Arc<Local>, lane: LaneId, ticket: Ticket, poll: bool) {
    let mut backoff = Backoff::new();
    let mut was_stale = false;
    loop {
        let step = local.with(|state, now, out| next_ask(&local, state, lane, ticket, poll, now, out));
        match step {
            Step::Done => return,
            Step::Wait => {}
            Step::Call(call, timeout) => {
                let answer = local.send(call, timeout).await;
                let asked = local.with(|state, now, out| {
                    let asked = take_answer(&local, state, lane, ticket, &answer, now, out);
                    if asked == Asked::Done {
                        state.asked(lane, ticket, out);
                    }
                    asked
                });
                match asked {
                    Asked::Done => return,
                    // At once, for so it is whenever a client comes back to its locks after a long while. Once, for a
                    // server's clock may leap.
                    Asked::Stale if !std::mem::replace(&mut was_stale, true) => continue,
                    Asked::Stale | Asked::Unanswered => {}
                }
            }
        }
        let pause = backoff.next(&local.chance);
        let until = local.with(|state, now, _| match state.wanted(lane, ticket).is_some() {
            true => now.plus(pause).min(state.patience(&state.lanes[&lane])),
            false => now,
        });
        local.clock.sleep_until(until).await;
    }
}

fn next_ask(
    local: &Local,
    state: &mut State,
    id: LaneId,
    ticket: Ticket,
    poll: bool,
    now: Moment,
    out: &mut Outbox,
) -> Step {
    let Some(waiting) = state.wanted(id, ticket).and_then(Lane::waiting) else { return Step::Done };
    waiting.asking_since.get_or_insert(now);
    if let Some(fault) = state.refused.clone() {
        state.fail(id, &fault.into(), now, out);
        return Step::Done;
    }
    let lane = &state.lanes[&id];
    let patience = state.patience(lane);
    if now >= patience {
        state.give_up_waiting(id, now, out);
        return Step::Done;
    }
    let usual = if poll { state.poll_timeout(id) } else { state.spans.command_timeout };
    let timeout = usual.min(patience.since(now));
    let Some(not_after_millis) = state.not_after(timeout, now) else { return Step::Wait };
    let call = Acquire {
        keys: &lane.request.lock.keys,
        kind: lane.request.lock.kind,
        attempt: &lane.attempt,
        wait: lane.wait(poll),
        not_after_millis,
        deaf: state.deaf,
        terms: local.terms(state),
    }
    .call();
    if let Some(waiting) = state.wanted(id, ticket).and_then(|lane| lane.waiting()) {
        waiting.sent = true;
    }
    Step::Call(call, timeout)
}

/// Applies the answer to an asking.
fn take_answer(
    local: &Local,
    state: &mut State,
    id: LaneId,
    ticket: Ticket,
    answer: &Sent,
    now: Moment,
    out: &mut Outbox,
) -> Asked {
    let reply = match local.read(state, answer, AcquireReply::decode) {
        Ok(reply) => reply,
        Err(Setback::Later) => return Asked::Unanswered,
        Err(Setback::Final(fault)) => {
            if state.wanted(id, ticket).is_some() {
                state.fail(id, &fault.into(), now, out);
            }
            return Asked::Done;
        }
    };
    let Some(lane) = state.wanted(id, ticket) else {
        replay(state, id, ticket, &reply, answer, now, out);
        return Asked::Done;
    };
    let lock = lane.request.lock.clone();
    match reply {
        AcquireReply::Granted(granted) => state.granted(id, &granted, answer.source(), now, out),
        AcquireReply::Queued(queued) => {
            // Called new though it had waited, or of another number where that answer was lost: it was dropped there,
            // and its client's other tickets with it.
            if state.mark_queued(id) && queued.new || state.has_another_number(id, queued.sequence) {
                state.send_again(&lock, id, out);
                state.mark_queued(id);
            }
            match state.would_deadlock(id, now) {
                true => state.fail(id, &LockError::WouldDeadlock, now, out),
                false => state.queued(id, &queued, now, out),
            }
        }
        AcquireReply::Busy { .. } if state.would_deadlock(id, now) => {
            state.fail(id, &LockError::WouldDeadlock, now, out);
        }
        AcquireReply::Busy { .. } => state.busy(id, now, out),
        AcquireReply::WouldDeadlock => state.fail(id, &LockError::WouldDeadlock, now, out),
        AcquireReply::Stale => return Asked::Stale,
        AcquireReply::KindMismatch { found } => state.fail(id, &LockError::KindMismatch { found }, now, out),
        AcquireReply::ForeignKey { key } => state.fail(id, &LockError::ForeignKey { key }, now, out),
    }
    Asked::Done
}

/// An answer to an asking that is no longer under way: of a ticket that is a hold by now, or was given back.
fn replay(
    state: &mut State,
    id: LaneId,
    ticket: Ticket,
    reply: &AcquireReply,
    answer: &Sent,
    now: Moment,
    out: &mut Outbox,
) {
    let AcquireReply::Granted(granted) = reply else { return };
    let left = Duration::from_millis(granted.left_millis);
    if let Some(lane) = state.held_lane(id, ticket) {
        let due = Due { lane: id, lock: lane.request.lock.clone(), ticket, lease_millis: 0 };
        state.renewed(&due, left, granted.waiting, answer.base(), now, out);
    }
}

//! Leaving: repeated until the server has answered, or has let go by itself.

use std::sync::Arc;
use std::time::Duration;

use super::{Sent, Setback};
use crate::backend::{Answer, Failure};
use crate::clock::Moment;
use crate::courier::Backoff;
use crate::error::{LockError, LossReason, UnlockError};
use crate::local::Local;
use crate::local::lane::{LaneId, QueuePlace};
use crate::local::outbox::{Departure, Outbox};
use crate::local::state::State;
use crate::scripts::{Call, Leave, LeaveReply, Next};
use crate::ticket::Ticket;

pub async fn leave(local: Arc<Local>, mut departure: Departure) {
    let mut backoff = Backoff::new();
    // Whether an earlier attempt took out what was still ours: its answer was lost, or it had more to do.
    let mut freed = false;
    let (outcome, brought_in) = loop {
        let (call, timeout, carries) =
            local.with(|state, now, _| leaving_call(&local, state, &departure, now));
        let answer = local.send(call, timeout).await;
        let left =
            local.with(|state, now, out| take_leave(&local, state, &departure, carries, &answer, now, out));
        match left {
            Left::Again { freed: now_freed } => freed |= now_freed,
            Left::Later(detail) if local.clock.now() >= departure.give_up => {
                break (Err(UnlockError::Unanswered { detail }), false);
            }
            Left::Later(_) => local.clock.sleep(backoff.next(&local.chance)).await,
            Left::Done { outcome: Err(UnlockError::Lost(_)), brought_in } if freed => {
                break (Ok(()), brought_in);
            }
            Left::Done { outcome, brought_in } => break (outcome, brought_in),
        }
        let Answer { outcome, sent, .. } = &answer.answer;
        freed |= matches!(outcome, Err(Failure::Unknown(_))) && *sent < departure.trusted;
    };
    local.with(|state, _, out| {
        state.left(departure.ticket);
        // Whatever became of the leaving: a next ticket that it did not bring in must ask for itself.
        if let Some((lane, ticket)) = departure.next.filter(|_| !brought_in) {
            state.asked(lane, ticket, out);
            state.ask(lane, false, out);
        }
    });
    if let Some(done) = departure.done.take() {
        let _ = done.send(outcome);
    }
}

/// What became of one attempt to leave.
enum Left {
    /// `brought_in`: the server knows the next ticket.
    Done {
        outcome: Result<(), UnlockError>,
        brought_in: bool,
    },
    /// The server has removed all that one call may: there is more.
    /// `freed`: that call freed the lock.
    Again {
        freed: bool,
    },
    Later(String),
}

fn leaving_call(
    local: &Local,
    state: &mut State,
    departure: &Departure,
    now: Moment,
) -> (Call, Duration, bool) {
    let timeout = state.spans.command_timeout;
    let terms = local.terms(state);
    let not_after = state.not_after(timeout, now);
    let deaf = state.deaf;
    let next = departure.next.and_then(|(id, ticket)| {
        let lane = state.wanted(id, ticket)?;
        lane.waiting()?.sent = true;
        Some(&*lane)
    });
    let next = next.zip(not_after).map(|(lane, not_after)| (&lane.attempt, not_after));
    let carried = next.is_some();
    let call = Leave {
        keys: &departure.lock.keys,
        kind: departure.lock.kind,
        ticket: departure.ticket,
        next,
        deaf,
        terms,
    }
    .call();
    (call, timeout, carried)
}

fn take_leave(
    local: &Local,
    state: &mut State,
    departure: &Departure,
    carries: bool,
    answer: &Sent,
    now: Moment,
    out: &mut Outbox,
) -> Left {
    let reply = match local.read(state, answer, LeaveReply::decode) {
        Ok(reply) => reply,
        Err(Setback::Later) => {
            // The waiters behind this release wait for a server, too, and no longer than any others.
            if let Some((id, ticket)) = departure.next
                && state.wanted(id, ticket).is_some_and(|lane| lane.since < now)
                && now >= state.patience(&state.lanes[&id])
            {
                state.give_up_waiting(id, now, out);
            }
            return Left::Later(state.trouble.clone());
        }
        Err(Setback::Final(fault)) => {
            state.trouble = LockError::from(fault.clone()).to_string();
            // Who waits for the next ticket has no other way to hear of it.
            if let Some((id, ticket)) = departure.next
                && state.wanted(id, ticket).is_some()
            {
                state.fail(id, &fault.into(), now, out);
            }
            return Left::Later(state.trouble.clone());
        }
    };
    match reply {
        LeaveReply::Gone { more: true } => Left::Again { freed: false },
        LeaveReply::Freed { more: true, next: Next::None } => Left::Again { freed: true },
        LeaveReply::Freed { next, more } => {
            let next = departure.next.filter(|_| carries).zip(Some(next));
            let brought_in =
                next.is_some_and(|((id, ticket), next)| take_next(state, id, ticket, next, answer, now, out));
            // What the call left undone is done by the new ticket's poll.
            if let Some(((id, _), _)) = next.filter(|_| more) {
                state.ask(id, true, out);
            }
            Left::Done { outcome: Ok(()), brought_in }
        }
        LeaveReply::Kept => Left::Done { outcome: Ok(()), brought_in: false },
        LeaveReply::Gone { .. } | LeaveReply::ForeignKey { .. } => {
            Left::Done { outcome: Err(UnlockError::Lost(LossReason::GoneAtServer)), brought_in: false }
        }
    }
}

/// Applies what a leaving says of the next ticket that it carried. Returns whether the server knows it.
fn take_next(
    state: &mut State,
    id: LaneId,
    ticket: Ticket,
    next: Next,
    answer: &Sent,
    now: Moment,
    out: &mut Outbox,
) -> bool {
    if state.wanted(id, ticket).is_none() {
        return true;
    }
    match next {
        Next::None => return false,
        Next::Queued { place, left_millis, sequence } => {
            state.mark_queued(id);
            state.placed(
                id,
                QueuePlace { sequence, ahead: place.saturating_sub(1), living: place, up_to: sequence },
                out,
            );
            state.queued_with(id, left_millis, now, out);
        }
        Next::Granted(granted) => state.granted(id, &granted, answer.source(), now, out),
    }
    state.asked(id, ticket, out);
    true
}

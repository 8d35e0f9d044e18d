//! Renewing, and making one hold longer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Sent, Setback, millis};
use crate::clock::Moment;
use crate::error::{ExtendError, LossReason};
use crate::local::Local;
use crate::local::outbox::{Due, Outbox};
use crate::local::state::State;
use crate::scripts::{Renew, RenewHold, RenewReply, Renewed};

pub async fn renew(local: Arc<Local>, due: Vec<Due>) {
    let holds: Vec<RenewHold> = due.iter().map(renewal).collect();
    let timeout = local.spans.command_timeout;
    let call = Renew { holds: &holds, deadline_millis: millis(local.spans.client_deadline) }.call();
    let answer = local.send(call, timeout).await;
    local.with(|state, now, out| match local.read(state, &answer, RenewReply::decode) {
        Ok(RenewReply { holds }) => {
            for (due, reply) in due.iter().zip(holds) {
                take_renewal(state, due, reply, &answer, now, out);
            }
        }
        Err(_) => due.iter().for_each(|due| state.renewal_unanswered(due, now, out)),
    });
}

fn renewal(due: &Due) -> RenewHold {
    RenewHold { keys: due.lock.keys.clone(), ticket: due.ticket, lease_millis: due.lease_millis }
}

fn take_renewal(state: &mut State, due: &Due, reply: Renewed, answer: &Sent, now: Moment, out: &mut Outbox) {
    match reply {
        Renewed::Kept { left_millis, waiting } => {
            state.renewed(due, Duration::from_millis(left_millis), waiting, answer.base(), now, out);
        }
        Renewed::Lost => {
            if state.held_lane(due.lane, due.ticket).is_some() {
                state.lose(due.lane, LossReason::GoneAtServer, now, out);
            }
        }
    }
}

/// Makes one hold longer, and says so.
pub async fn extend(
    local: Arc<Local>,
    due: Due,
    length: Duration,
    done: oneshot::Sender<Result<(), ExtendError>>,
) {
    let call = Renew { holds: &[renewal(&due)], deadline_millis: millis(local.spans.client_deadline) }.call();
    let answer = local.send(call, local.spans.command_timeout).await;
    let result = local.with(|state, now, out| match local.read(state, &answer, RenewReply::decode) {
        Ok(RenewReply { holds }) => {
            let reply = holds.first().copied().unwrap_or(Renewed::Lost);
            if matches!(reply, Renewed::Kept { .. }) {
                state.extended(&due, length, answer.base());
            }
            take_renewal(state, &due, reply, &answer, now, out);
            state.still_held(&due)
        }
        Err(Setback::Final(fault)) => Err(fault.into()),
        Err(Setback::Later) => Err(ExtendError::Unavailable { detail: state.trouble.clone() }),
    });
    let _ = done.send(result);
}

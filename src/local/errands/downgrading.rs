//! A downgrade: repeated until it is answered, or given up with everything that it may have brought.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::leaving::leave;
use super::{Sent, Setback};
use crate::clock::Moment;
use crate::courier::Backoff;
use crate::error::{DowngradeError, Fault, LockError, LossReason};
use crate::guard::Grip;
use crate::local::outbox::Outbox;
use crate::local::state::{Downgrading, State};
use crate::local::{HoldRef, Local, Tether};
use crate::scripts::{Downgrade, DowngradeReply};

/// Has the tether, so that a read which nobody takes is given back as any other.
pub async fn downgrade(
    tether: Arc<Tether>,
    work: Box<Downgrading>,
    done: oneshot::Sender<Result<Grip, DowngradeError>>,
) {
    let local = tether.local().clone();
    let limit = local.clock.now().plus(local.spans.unavailable_after);
    let mut backoff = Backoff::new();
    loop {
        let call = local.with(|state, _, _| {
            let (keys, terms) = (&work.lock.keys, local.terms(state));
            Downgrade { keys, write: work.write, read: &work.read, terms }.call()
        });
        let answer = local.send(call, local.spans.command_timeout).await;
        match local.with(|state, now, out| take_answer(&local, state, &work, &answer, now, out)) {
            Step::Held(held) => {
                let _ = done.send(Ok(Grip::new(tether, held)));
                return;
            }
            Step::Lost(reason) => {
                let _ = done.send(Err(DowngradeError::Lost(reason)));
                return;
            }
            Step::Later if !done.is_closed() && local.clock.now() < limit => {
                local.clock.sleep(backoff.next(&local.chance)).await;
            }
            Step::Later => {
                let detail = local.books.look(|state| state.trouble.clone());
                return give_up(&local, work, Fault::Unavailable { detail }.into(), done).await;
            }
            Step::GiveUp(error) => return give_up(&local, work, error, done).await,
        }
    }
}

enum Step {
    Held(Arc<HoldRef>),
    Lost(LossReason),
    Later,
    GiveUp(LockError),
}

fn take_answer(
    local: &Local,
    state: &mut State,
    work: &Downgrading,
    answer: &Sent,
    now: Moment,
    out: &mut Outbox,
) -> Step {
    let reply = local.read(state, answer, DowngradeReply::decode);
    if state.closed {
        return Step::GiveUp(LockError::Closed);
    }
    match reply {
        Ok(DowngradeReply::Granted(granted)) => {
            match state.downgraded(work, &granted, answer.source(), now, out) {
                Some(held) => Step::Held(held),
                None => Step::Lost(LossReason::Expired),
            }
        }
        Ok(DowngradeReply::Lost) => {
            state.downgrade_lost(work);
            Step::Lost(LossReason::GoneAtServer)
        }
        Ok(DowngradeReply::ForeignKey { key }) => Step::GiveUp(LockError::ForeignKey { key }),
        Err(Setback::Later) => match state.refused.clone() {
            Some(fault) => Step::GiveUp(fault.into()),
            None => Step::Later,
        },
        Err(Setback::Final(fault)) => Step::GiveUp(fault.into()),
    }
}

async fn give_up(
    local: &Arc<Local>,
    work: Box<Downgrading>,
    error: LockError,
    done: oneshot::Sender<Result<Grip, DowngradeError>>,
) {
    let departures = local.with(|state, now, _| state.give_up_downgrade(*work, now));
    let _ = done.send(Err(DowngradeError::Failed(error)));
    for departure in departures {
        leave(local.clone(), departure).await;
    }
}

//! What the courier carries for the books: asking, leaving, renewing, downgrading; and looking, which they know nothing
//! of. Each is repeated with the same ticket until it is answered or no longer wanted; that is safe, since every script
//! is idempotent per ticket. (A renewal is sent once: the watchdog has it sent again.)

mod asking;
mod downgrading;
mod leaving;
mod looking;
mod renewing;

use std::sync::Arc;
use std::time::Duration;

use super::Local;
use super::outbox::Errand;
use super::state::State;
use crate::backend::fault::{Verdict, judge};
use crate::backend::{Answer, Epoch, Failure, Pending, Value};
use crate::clock::Moment;
use crate::error::Fault;
use crate::mutant::{self, Mutant};
use crate::scripts::{Call, Malformed, Script, Terms, Timed};

/// Makes the parcel of an errand.
pub fn carry(local: Arc<Local>, errand: Errand) -> Pending<()> {
    match errand {
        Errand::Ask { lane, ticket, poll } => Box::pin(asking::ask(local, lane, ticket, poll)),
        Errand::Leave(departure) => Box::pin(leaving::leave(local, departure)),
        Errand::Renew(due) => Box::pin(renewing::renew(local, due)),
        Errand::Extend { due, length, done } => Box::pin(renewing::extend(local, due, length, done)),
        Errand::Downgrade { tether, work, done } => Box::pin(downgrading::downgrade(tether, work, done)),
    }
}

/// What a failed call means.
enum Setback {
    /// Nothing is known: try again.
    Later,
    Final(Fault),
}

/// What an answer says once its server time is taken from it.
type Said<T> = Result<T, Setback>;

/// A call that has ended, and the script that an error in it is about.
struct Sent {
    script: &'static Script,
    answer: Answer,
}

impl Sent {
    /// From when on what it grants counts, and which connection has brought it.
    fn source(&self) -> (Moment, Epoch) {
        (self.base(), self.answer.epoch)
    }

    /// From when on a validity counts.
    fn base(&self) -> Moment {
        if mutant::is(Mutant::ValidityFromReply) { self.answer.received } else { self.answer.sent }
    }
}

impl Local {
    async fn send(&self, call: Call, timeout: Duration) -> Sent {
        Sent { script: call.script, answer: self.backend.call(call, timeout).await }
    }

    fn terms(&self, state: &State) -> Terms {
        Terms {
            claim_millis: millis(self.spans.claim),
            deadline_millis: millis(self.spans.client_deadline),
            sharded: false,
            counted: state.counted,
        }
    }

    /// Reads an answer, and takes the server's time, if it tells that, as the newest sample.
    fn read<T>(
        &self,
        state: &mut State,
        sent: &Sent,
        decode: impl FnOnce(&Value) -> Result<Timed<T>, Malformed>,
    ) -> Said<T> {
        let Sent { script, answer } = sent;
        let value = match &answer.outcome {
            Ok(value) => value,
            Err(failure) => return Err(setback(state, failure, script)),
        };
        match decode(value) {
            Ok(Timed { server_millis, reply }) => {
                state.heard(answer, server_millis);
                Ok(reply)
            }
            Err(Malformed) => Err(Setback::Final(Fault::Rejected {
                detail: "a script answered in a form that this version does not know".to_owned(),
            })),
        }
    }
}

fn setback(state: &mut State, failure: &Failure, script: &Script) -> Setback {
    match failure {
        Failure::NotSent => Setback::Later,
        Failure::Unknown(detail) => {
            state.trouble.clone_from(detail);
            Setback::Later
        }
        Failure::Server(error) => match judge(error, Some(script)) {
            Verdict::Later(detail) => {
                state.trouble = detail;
                Setback::Later
            }
            Verdict::Final(fault) => Setback::Final(fault),
        },
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

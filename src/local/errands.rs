//! What the courier carries for the books: asking, leaving, renewing. Each is repeated with the same ticket until
//! it is answered or no longer wanted; that is safe, since every script is idempotent per ticket.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Local;
use super::lane::{Lane, LaneId, QueuePlace};
use super::state::{Departure, Due, Errand, Outbox, Sample, State};
use crate::backend::fault::{Verdict, judge};
use crate::backend::{Answer, Failure, Pending, Value};
use crate::clock::Moment;
use crate::courier::Backoff;
use crate::error::{ExtendError, Fault, FencedError, LockError, LossReason, PingError, UnlockError};
use crate::mutant::{self, Mutant};
use crate::name::LockKeys;
use crate::scripts::{
    Acquire, AcquireReply, Call, FencedGet, FencedGetReply, FencedSet, FencedSetReply, FencedValue,
    ForceRelease, ForceReleaseReply, Inspect, InspectReply, Leave, LeaveReply, LockInfo, Malformed, Next,
    Renew, RenewHold, RenewReply, Renewed, Script, Terms, Timed,
};
use crate::ticket::Ticket;
use crate::token::TOKEN_LIMIT;

/// Makes the parcel of an errand.
pub fn carry(local: Arc<Local>, errand: Errand) -> Pending<()> {
    match errand {
        Errand::Ask { lane, ticket, poll } => Box::pin(ask(local, lane, ticket, poll)),
        Errand::Leave(departure) => Box::pin(leave(local, departure)),
        Errand::Renew(due) => Box::pin(renew(local, due)),
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

    /// Reads an answer, and takes the server's time in it as the newest sample.
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
                let sample = Sample { server_millis, sent: answer.sent, received: answer.received };
                state.heard(answer.epoch, sample);
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

// ---- asking ---------------------------------------------------------------------------------------------------

/// What to do about a ticket now.
enum Step {
    Call(Call, Duration),
    /// No connection.
    Wait,
    Done,
}

async fn ask(local: Arc<Local>, lane: LaneId, ticket: Ticket, poll: bool) {
    let mut backoff = Backoff::new();
    loop {
        let step = local.with(|state, now, out| next_ask(&local, state, lane, ticket, poll, now, out));
        match step {
            Step::Done => return,
            Step::Wait => {}
            Step::Call(call, timeout) => {
                let answer = local.send(call, timeout).await;
                let done = local.with(|state, now, out| {
                    let done = take_answer(&local, state, lane, ticket, &answer, now, out);
                    if done {
                        state.asked(lane, ticket, out);
                    }
                    done
                });
                if done {
                    return;
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
    let usual = if poll { state.poll_timeout(lane) } else { state.spans.command_timeout };
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

/// Applies the answer to an asking. Returns whether the errand is done.
fn take_answer(
    local: &Local,
    state: &mut State,
    id: LaneId,
    ticket: Ticket,
    answer: &Sent,
    now: Moment,
    out: &mut Outbox,
) -> bool {
    let reply = match local.read(state, answer, AcquireReply::decode) {
        Ok(reply) => reply,
        Err(Setback::Later) => return false,
        Err(Setback::Final(fault)) => {
            if state.wanted(id, ticket).is_some() {
                state.fail(id, &fault.into(), now, out);
            }
            return true;
        }
    };
    let Some(lane) = state.wanted(id, ticket) else {
        replay(state, id, ticket, &reply, answer, now, out);
        return true;
    };
    let lock = lane.request.lock.clone();
    match reply {
        AcquireReply::Granted(granted) => state.granted(id, &granted, answer.base(), now, out),
        AcquireReply::Queued(queued) => {
            let waited_before = state.mark_queued(id);
            state.queued(id, &queued, now, out);
            // Called new though it had waited: it was dropped there, and its client's other tickets with it.
            if queued.new && waited_before {
                state.send_again(&lock, id, out);
            }
        }
        AcquireReply::Busy { .. } => state.busy(id, now, out),
        AcquireReply::WouldDeadlock => state.fail(id, &LockError::WouldDeadlock, now, out),
        // The reply's server time is the newest sample now: the next request is in time.
        AcquireReply::Stale => return false,
        AcquireReply::KindMismatch { found } => state.fail(id, &LockError::KindMismatch { found }, now, out),
        AcquireReply::ForeignKey { key } => state.fail(id, &LockError::ForeignKey { key }, now, out),
    }
    true
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

// ---- leaving --------------------------------------------------------------------------------------------------

async fn leave(local: Arc<Local>, mut departure: Departure) {
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
            Left::Later(detail) if local.clock.now() >= local.leave_limit(&departure) => {
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
        LeaveReply::Freed { next, .. } => {
            let next = departure.next.filter(|_| carries).zip(Some(next));
            let brought_in =
                next.is_some_and(|((id, ticket), next)| take_next(state, id, ticket, next, answer, now, out));
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
        Next::Granted(granted) => state.granted(id, &granted, answer.base(), now, out),
    }
    state.asked(id, ticket, out);
    true
}

impl Local {
    /// Until when a leaving is repeated: until the server has let go by itself; once the client is closing, only as
    /// long as anybody waits for a silent server.
    fn leave_limit(&self, departure: &Departure) -> Moment {
        let closing = self.with_state(|state| state.closed_at);
        let limit = closing.map_or(Moment::NEVER, |at| at.plus(self.spans.unavailable_after));
        departure.give_up.min(limit)
    }
}

// ---- renewing -------------------------------------------------------------------------------------------------

async fn renew(local: Arc<Local>, due: Vec<Due>) {
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
pub fn extend(
    local: Arc<Local>,
    due: Due,
    length: Duration,
    done: oneshot::Sender<Result<(), ExtendError>>,
) -> Pending<()> {
    Box::pin(async move {
        let call =
            Renew { holds: &[renewal(&due)], deadline_millis: millis(local.spans.client_deadline) }.call();
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
    })
}

// ---- looking --------------------------------------------------------------------------------------------------

impl Local {
    /// Sends a call on behalf of a caller who waits for the answer, repeated until there is one.
    async fn request<T: Send + 'static>(
        self: &Arc<Self>,
        call: Call,
        decode: fn(&Value) -> Result<Timed<T>, Malformed>,
    ) -> Result<T, Fault> {
        let (done, answer) = oneshot::channel();
        let local = self.clone();
        self.courier.post(Box::pin(async move {
            let _ = done.send(local.repeat(call, decode).await);
        }));
        answer.await.unwrap_or(Err(Fault::Closed))
    }

    async fn repeat<T>(
        self: &Arc<Self>,
        call: Call,
        decode: fn(&Value) -> Result<Timed<T>, Malformed>,
    ) -> Result<T, Fault> {
        let limit = self.clock.now().plus(self.spans.unavailable_after);
        let mut backoff = Backoff::new();
        loop {
            if self.is_closed() {
                return Err(Fault::Closed);
            }
            let answer = self.send(call.clone(), self.spans.command_timeout).await;
            match self.with(|state, _, _| self.read(state, &answer, decode)) {
                Ok(reply) => return Ok(reply),
                Err(Setback::Final(fault)) => return Err(fault),
                Err(Setback::Later) if self.clock.now() >= limit => {
                    return Err(Fault::Unavailable {
                        detail: self.with_state(|state| state.trouble.clone()),
                    });
                }
                Err(Setback::Later) => self.clock.sleep(backoff.next(&self.chance)).await,
            }
        }
    }

    pub async fn inspect(self: &Arc<Self>, keys: LockKeys) -> Result<LockInfo, LockError> {
        match self.request(Inspect { keys: &keys }.call(), InspectReply::decode).await? {
            InspectReply::Info(info) => Ok(info),
            InspectReply::ForeignKey { key } => Err(LockError::ForeignKey { key }),
        }
    }

    pub async fn force_release(self: &Arc<Self>, keys: LockKeys, token: u64) -> Result<bool, LockError> {
        let call =
            ForceRelease { keys: &keys, token, terms: self.with_state(|state| self.terms(state)) }.call();
        match self.request(call, ForceReleaseReply::decode).await? {
            ForceReleaseReply::Released => Ok(true),
            ForceReleaseReply::NotHeld => Ok(false),
            ForceReleaseReply::ForeignKey { key } => Err(LockError::ForeignKey { key }),
        }
    }

    pub async fn fenced_set(
        self: &Arc<Self>,
        keys: LockKeys,
        token: u64,
        value: &str,
    ) -> Result<(), FencedError> {
        if token >= TOKEN_LIMIT {
            return Err(FencedError::InvalidToken { token });
        }
        let ticket = self.with_state(State::new_ticket);
        let call = FencedSet { keys: &keys, token, ticket, value }.call();
        match self.request(call, FencedSetReply::decode).await? {
            FencedSetReply::Written => Ok(()),
            FencedSetReply::Stale { largest } => Err(FencedError::Stale { largest }),
            FencedSetReply::ForeignKey { key } => Err(FencedError::ForeignKey { key }),
        }
    }

    pub async fn fenced_get(self: &Arc<Self>, keys: LockKeys) -> Result<Option<FencedValue>, FencedError> {
        match self.request(FencedGet { keys: &keys }.call(), FencedGetReply::decode).await? {
            FencedGetReply::Value(value) => Ok(Some(value)),
            FencedGetReply::None => Ok(None),
            FencedGetReply::ForeignKey { key } => Err(FencedError::ForeignKey { key }),
        }
    }

    pub async fn ping(&self) -> Result<Duration, PingError> {
        if self.is_closed() {
            return Err(PingError::Closed);
        }
        self.backend.ping(self.spans.command_timeout).await.map_err(|failure| match failure {
            Failure::NotSent => {
                PingError::Unavailable { detail: self.with_state(|state| state.trouble.clone()) }
            }
            Failure::Unknown(detail) => PingError::Unavailable { detail },
            Failure::Server(error) => match judge(&error, None) {
                Verdict::Later(detail) => PingError::Unavailable { detail },
                Verdict::Final(fault) => fault.into(),
            },
        })
    }
}

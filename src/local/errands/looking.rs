//! Calls of callers who wait for the answer: looks, fenced values, forced releases.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Setback;
use crate::backend::fault::{Verdict, judge};
use crate::backend::{Failure, Value};
use crate::courier::Backoff;
use crate::error::{Fault, FencedError, LockError, PingError};
use crate::local::Local;
use crate::local::state::State;
use crate::name::LockKeys;
use crate::scripts::{
    Call, FencedGet, FencedGetReply, FencedSet, FencedSetReply, FencedValue, ForceRelease, ForceReleaseReply,
    Inspect, InspectReply, LockInfo, Malformed, Timed,
};
use crate::token::TOKEN_LIMIT;

impl Local {
    /// Sends a call on behalf of a caller who waits for the answer, repeated until there is one.
    async fn request<T: Send + 'static>(
        self: &Arc<Self>,
        call: Call,
        decode: fn(&Value) -> Result<Timed<T>, Malformed>,
    ) -> Result<T, Fault> {
        let local = self.clone();
        self.carry(async move { local.repeat(call, decode).await }).await
    }

    /// Has work go on though its caller should be gone.
    async fn carry<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        let (done, answer) = oneshot::channel();
        self.courier.post(Box::pin(async move {
            let _ = done.send(work.await);
        }));
        self.courier.set_out();
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
                        detail: self.books.look(|state| state.trouble.clone()),
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
        let terms = self.books.look(|state| self.terms(state));
        let local = self.clone();
        let reply = self.carry(async move {
            let mut released = false;
            loop {
                let call = ForceRelease { keys: &keys, token, goes_on: released, terms }.call();
                match local.repeat(call, ForceReleaseReply::decode).await {
                    Ok(ForceReleaseReply::Released { more: true }) => released = true,
                    Ok(ForceReleaseReply::Told { more }) if more || !released => {}
                    // Those who were not told hear it at their renewals.
                    Err(_) if released => return Ok((true, ForceReleaseReply::Told { more: true })),
                    // What was lost on the way is sent again: by then the first one may have released it.
                    reply => return Ok((released, reply?)),
                }
            }
        });
        match reply.await? {
            (_, ForceReleaseReply::Released { .. } | ForceReleaseReply::Told { .. }) => Ok(true),
            (released, ForceReleaseReply::NotHeld) => Ok(released),
            (_, ForceReleaseReply::ForeignKey { key }) => Err(LockError::ForeignKey { key }),
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
        let ticket = self.books.look(State::new_ticket);
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
                PingError::Unavailable { detail: self.books.look(|state| state.trouble.clone()) }
            }
            Failure::Unknown(detail) => PingError::Unavailable { detail },
            Failure::Server(error) => match judge(&error, None) {
                Verdict::Later(detail) => PingError::Unavailable { detail },
                Verdict::Final(fault) => fault.into(),
            },
        })
    }
}

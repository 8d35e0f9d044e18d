//! What an event leaves to be done once the books are closed.

use std::task::Waker;

use tokio::sync::oneshot;

use super::lane::{LaneId, LockRef};
use crate::clock::Moment;
use crate::error::{LossReason, UnlockError};
use crate::ticket::Ticket;

/// What a transition leaves to be done once the books are closed.
#[derive(Debug, Default)]
pub struct Outbox {
    pub errands: Vec<Errand>,
    pub wakers: Vec<Waker>,
    /// Wakers of those who have gone.
    pub unwanted: Vec<Waker>,
    pub reports: Vec<Report>,
    /// A renewal, or a poll, is due before its task would look.
    pub renew_sooner: bool,
    pub poll_sooner: bool,
}

/// What is to be logged. A subscriber is the user's code, and may call this client.
#[derive(Debug)]
pub enum Report {
    Lost { token: u64, reason: LossReason },
    WaitsForItself,
    Unreadable,
}

impl Report {
    pub fn log(self) {
        match self {
            Self::Lost { token, reason } => tracing::warn!(token, %reason, "a lock was lost"),
            Self::Unreadable => tracing::debug!("a message that is none of ours was ignored"),
            Self::WaitsForItself => tracing::warn!(
                "a task has waited for one lease for a lock that it holds itself; to re-enter, run both \
                 acquisitions in one `Owner::scope`"
            ),
        }
    }
}

/// What the courier is to do.
#[derive(Debug)]
pub enum Errand {
    Ask { lane: LaneId, ticket: Ticket, poll: bool },
    Leave(Departure),
    Renew(Vec<Due>),
}

/// A ticket that is given back.
#[derive(Debug)]
pub struct Departure {
    pub lock: LockRef,
    pub ticket: Ticket,
    /// The lane whose next ticket is queued by the same call.
    pub next: Option<(LaneId, Ticket)>,
    /// After this the server has let go of it by itself.
    pub give_up: Moment,
    /// Until when the hold is ours: that it is gone after a leaving that was sent before this is our own doing.
    pub trusted: Moment,
    pub done: Option<oneshot::Sender<Result<(), UnlockError>>>,
}

/// A hold that is to be renewed.
#[derive(Clone, Debug)]
pub struct Due {
    pub lane: LaneId,
    pub lock: LockRef,
    pub ticket: Ticket,
    pub lease_millis: u64,
}

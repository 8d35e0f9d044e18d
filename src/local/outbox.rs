//! What an event leaves to be done: the commands that it sends, at the end of its section; the rest behind it.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::oneshot;

use super::lane::{LaneId, LockRef};
use super::state::Downgrading;
use super::tether::Tether;
use crate::clock::Moment;
use crate::error::{DowngradeError, ExtendError, LossReason, UnlockError};
use crate::guard::Grip;
use crate::ticket::Ticket;

/// What an event leaves to be done.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Handed to the courier inside the section, so that their order is that of the events.
    pub errands: Vec<Errand>,
    // The user's code, and what may run it: behind the section.
    pub wakers: Vec<Waker>,
    /// Wakers of those who have gone: dropped, not woken.
    pub unwanted: Vec<Waker>,
    pub reports: Vec<Report>,
    /// A renewal, or a poll, is due before its task would look.
    pub renew_sooner: bool,
    pub poll_sooner: bool,
}

/// What is to be logged. A subscriber is the user's code, and may call this client.
#[derive(Debug)]
pub enum Report {
    Lost {
        token: u64,
        reason: LossReason,
    },
    /// A task has waited for one lease for a lock whose only guard it has acquired. It is innocent where it has given that
    /// guard to another task; where readers share the hold, or an owner has it more than once, nothing is said.
    WaitsForItself,
    Unreadable,
}

impl Report {
    pub fn log(self) {
        match self {
            Self::Lost { token, reason } => tracing::warn!(token, %reason, "a lock was lost"),
            Self::Unreadable => tracing::debug!("a message that is none of ours was ignored"),
            Self::WaitsForItself => tracing::warn!(
                "a task has waited for one lease for a lock that it has acquired itself, and that is still held; to \
                 re-enter, run both acquisitions in one `Owner::scope`"
            ),
        }
    }
}

/// What the courier is to do.
#[derive(Debug)]
pub enum Errand {
    Ask {
        lane: LaneId,
        ticket: Ticket,
        poll: bool,
    },
    Leave(Departure),
    Renew(Vec<Due>),
    Extend {
        due: Due,
        length: Duration,
        done: oneshot::Sender<Result<(), ExtendError>>,
    },
    /// Posted in the section that takes the write off the books: a closing behind it gives nothing back, but has the
    /// courier carry through what it has.
    Downgrade {
        tether: Arc<Tether>,
        work: Box<Downgrading>,
        done: oneshot::Sender<Result<Grip, DowngradeError>>,
    },
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

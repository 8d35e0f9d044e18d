//! The faults that a history has, and when each began and ended.

use crate::dice::Nanos;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A process is stopped, often for longer than its lease, and continued.
    Stop,
    /// A process is gone for good.
    Die,
    /// A client is closed while its tasks hold and wait.
    Quit,
    /// The server stands still, and then does all that has come meanwhile.
    Stall,
    /// The server closes a subscription; the client notices later.
    Close,
    /// A subscription is dead, and counts as a receiver all the same.
    HalfOpen,
    /// A client's connections are lost, and made anew later.
    Down,
    /// Messages are lost on a subscription that lives, and the client is told so.
    Lag,
    FlushScripts,
    /// A key is deleted by hand, or evicted.
    DropLock,
    DropQueue,
    DropWaiting,
    DropToken,
    /// The read holds of a read/write lock, and nothing else.
    DropReaders,
    FlushAll,
    /// Another server takes over, without the last writes and with another clock.
    Failover,
    /// The server's clock is set.
    StepClock,
    /// A client ends a hold by force.
    Force,
    /// A request is lost.
    RequestLost,
    /// A request is executed when its client no longer waits for it.
    RequestLate,
    ReplyLost,
    MessageLost,
    /// Something was on its way for longer than usual.
    Slow,
}

/// All of them.
pub const FAULTS: &[Fault] = &[
    Fault::Stop,
    Fault::Die,
    Fault::Quit,
    Fault::Stall,
    Fault::Close,
    Fault::HalfOpen,
    Fault::Down,
    Fault::Lag,
    Fault::FlushScripts,
    Fault::DropLock,
    Fault::DropQueue,
    Fault::DropWaiting,
    Fault::DropToken,
    Fault::DropReaders,
    Fault::FlushAll,
    Fault::Failover,
    Fault::StepClock,
    Fault::Force,
    Fault::RequestLost,
    Fault::RequestLate,
    Fault::ReplyLost,
    Fault::MessageLost,
    Fault::Slow,
];

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stopped",
            Self::Die => "died",
            Self::Quit => "client_closed",
            Self::Stall => "server_stalled",
            Self::Close => "subscription_closed",
            Self::HalfOpen => "subscription_half_open",
            Self::Down => "connection_lost",
            Self::Lag => "messages_lagged",
            Self::FlushScripts => "scripts_flushed",
            Self::DropLock => "lock_deleted",
            Self::DropQueue => "queue_deleted",
            Self::DropWaiting => "waiting_deleted",
            Self::DropToken => "token_deleted",
            Self::DropReaders => "readers_deleted",
            Self::FlushAll => "flushall",
            Self::Failover => "failover",
            Self::StepClock => "clock_step",
            Self::Force => "forced",
            Self::RequestLost => "request_lost",
            Self::RequestLate => "request_late",
            Self::ReplyLost => "reply_lost",
            Self::MessageLost => "message_lost",
            Self::Slow => "slow",
        }
    }

    /// Whether holds may overlap because of it.
    pub fn is_loss(self) -> bool {
        use Fault::*;
        matches!(self, DropLock | DropReaders | FlushAll | Failover | StepClock | Force)
    }
}

/// One fault of a history.
#[derive(Clone, Copy, Debug)]
pub struct Incident {
    pub fault: Fault,
    /// Whom it touches; `None` is everybody.
    pub client: Option<usize>,
    pub began: Nanos,
    /// `Nanos::MAX` until it has ended.
    pub ended: Nanos,
}

//! What the layers above ask of a server, and what it tells them. Each back end implements [`Backend`]; nothing
//! above this file knows which one it has.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::clock::Moment;
use crate::error::Fault;
use crate::scripts::Call;
use crate::sync::{AtomicBool, Ordering};
use std::sync::Arc;

#[cfg(feature = "embedded")]
pub mod embedded;
pub mod fault;
#[cfg(feature = "redis")]
pub mod redis;

/// A reply of the server, in the types of its protocol that our scripts use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Nil,
    Int(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// A status reply, such as `OK`.
    Status(String),
    Array(Vec<Value>),
}

/// How a call ended that brought no reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The server answered with an error.
    Server(ServerError),
    /// The call certainly had no effect and never will.
    NotSent,
    /// The call may have run, or may run later, even seconds after this.
    Unknown(String),
}

/// An error that a server sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerError {
    /// Its first word, `NOSCRIPT` for instance.
    pub code: String,
    /// The whole text.
    pub text: String,
}

/// Counts the connections of one client: a command wire and a subscription wire that were there together have the
/// same epoch. A clock sample, and a message, count only within one: after a reconnect the other side may be
/// another server with another clock.
pub type Epoch = u64;

/// The end of a call.
#[derive(Clone, Debug)]
pub struct Answer {
    pub outcome: Result<Value, Failure>,
    /// When the call was handed to the connection, on the client's clock.
    pub sent: Moment,
    /// When the answer was there.
    pub received: Moment,
    /// The epoch in which the call was sent.
    pub epoch: Epoch,
}

/// What a back end tells without being asked.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message on this client's channel, heard in `epoch`.
    Message { text: Vec<u8>, epoch: Epoch },
    /// Connected, and subscribed, for the first time or anew: every waiter polls and every hold is renewed.
    Up(Up),
    /// The subscription is down and the command connection is not: no messages come until the next [`Event::Up`].
    Deaf,
    /// The command connection is down; calls end as [`Failure::NotSent`] until the next [`Event::Up`].
    Down { detail: String },
    /// Messages were lost: every waiter polls.
    Lagged,
    /// The server refuses the client for good (another layout, a wrong password): the reason is the answer to all
    /// calls until an [`Event::Up`].
    Refused(Fault),
}

/// A connection that is ready.
#[derive(Clone, Debug)]
pub struct Up {
    pub epoch: Epoch,
    /// The server's clock in milliseconds, asked at `sent` and answered at `received`.
    pub server_millis: u64,
    pub sent: Moment,
    pub received: Moment,
    /// Whether the number that `PUBLISH` returns can be trusted to count this client's subscriptions.
    pub counted: bool,
    /// Which run of which server this is: another one may have other data.
    pub run_id: String,
}

/// A future that owns all it needs.
pub type Pending<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// One server, or one deployment of servers, as the layers above see it.
pub trait Backend: Send + Sync + fmt::Debug + 'static {
    /// Sends one script call, once: no attempt is repeated, save where it is known not to have run (after `NOSCRIPT`, and
    /// not one that asks for a lock), or not to have run to its end (in a batch). Ends after `timeout` at the latest.
    ///
    /// The call takes its place when the future is first polled, which may be on a user's stack: no answer comes of that
    /// poll. Those on one lock run in that order, whenever they are sent.
    /// Dropping the future after it neither recalls the call nor hears its answer: only the courier polls it.
    fn call(&self, call: Call, timeout: Duration) -> Pending<Answer>;

    /// Asks for an answer on the command connection, and returns the round trip.
    fn ping(&self, timeout: Duration) -> Pending<Result<Duration, Failure>>;

    /// Closes all connections and ends the back end's tasks. Calls after it end as [`Failure::NotSent`].
    fn close(&self) -> Pending<()>;
}

/// The sending half of [`events`].
#[derive(Clone, Debug)]
pub struct EventSender {
    queue: mpsc::Sender<Event>,
    lagged: Arc<AtomicBool>,
}

/// The receiving half of [`events`].
#[derive(Debug)]
pub struct EventReceiver {
    queue: mpsc::Receiver<Event>,
    lagged: Arc<AtomicBool>,
}

/// How many events may wait for a client that is slow to read them.
const EVENT_CAPACITY: usize = 8_192;

/// The stream of events from a back end to its client. It never blocks the sender and never grows without bound:
/// what does not fit is lost, and the receiver hears [`Event::Lagged`] instead.
pub fn events() -> (EventSender, EventReceiver) {
    let (sender, receiver) = mpsc::channel(EVENT_CAPACITY);
    let lagged = Arc::new(AtomicBool::new(false));
    (EventSender { queue: sender, lagged: lagged.clone() }, EventReceiver { queue: receiver, lagged })
}

impl EventSender {
    /// Hands over a message; it may be dropped where the receiver lags behind.
    pub fn message(&self, text: Vec<u8>, epoch: Epoch) {
        if self.queue.try_send(Event::Message { text, epoch }).is_err() {
            self.lagged.store(true, Ordering::Release);
        }
    }

    /// Notes that messages were lost before they came here.
    pub fn lagged(&self) {
        // Through the queue where there is room, so that a receiver that sleeps wakes up.
        if self.queue.try_send(Event::Lagged).is_err() {
            self.lagged.store(true, Ordering::Release);
        }
    }

    /// Hands over a change of state, which must not be lost: waits for room. Ends at once where the receiver is gone.
    pub async fn state(&self, event: Event) {
        let _ = self.queue.send(event).await;
    }
}

impl EventReceiver {
    /// The next event; `None` when the back end is gone.
    ///
    /// # Cancel safety
    /// Cancelling it loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        if self.lagged.swap(false, Ordering::AcqRel) {
            return Some(Event::Lagged);
        }
        self.queue.recv().await
    }
}

//! What is around the books in a model: a clock that stands, a courier that writes down, a bell.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use lockwright::Lease;
use lockwright::internals::books::{
    Books, Due, Entered, Errand, HoldRef, Released, Request, State, Surroundings, WaiterRef, fixture,
};
use lockwright::internals::clock::Moment;
use lockwright::internals::scripts::{Granted, Kind, Mode};
use lockwright::internals::ticket::Ticket;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, Ordering};

pub const LEASE: Duration = Duration::from_secs(3);
/// When a hold of the start is to be renewed, and after it.
pub const DUE: Duration = Duration::from_secs(1);

/// What was sent, in its order.
#[derive(Clone, Debug)]
pub enum Sent {
    Ask,
    Leave(Ticket),
    Renew(Vec<Due>),
    Other,
}

/// One client's books, and the world as one thread of the model sees it.
#[derive(Clone)]
pub struct World {
    pub books: Arc<Books>,
    pub time: Moment,
    sent: Arc<Mutex<Vec<Sent>>>,
    pub bell: Arc<AtomicBool>,
}

impl Surroundings for World {
    fn now(&self) -> Moment {
        self.time
    }

    fn send(&self, errand: Errand) {
        let sent = match errand {
            Errand::Ask { .. } => Sent::Ask,
            Errand::Leave(departure) => Sent::Leave(departure.ticket),
            Errand::Renew(due) => Sent::Renew(due),
            Errand::Extend { .. } | Errand::Downgrade { .. } => Sent::Other,
        };
        self.sent.lock().expect("no thread panics").push(sent);
    }

    fn set_out(&self) {}

    fn look_sooner(&self, renew: bool, _: bool) {
        self.bell.fetch_or(renew, Ordering::Relaxed);
    }
}

impl World {
    pub fn new() -> Self {
        Self {
            books: Arc::new(Books::new(fixture::state())),
            time: Moment::ORIGIN,
            sent: Arc::default(),
            bell: Arc::default(),
        }
    }

    /// The same world, later.
    pub fn later(&self, by: Duration) -> Self {
        Self { time: self.time.plus(by), ..self.clone() }
    }

    /// What is asked for.
    pub fn request() -> Request {
        Request { lease: Lease::renewed(LEASE), ..fixture::request(Kind::Reentrant, Mode::Exclusive) }
    }

    /// A wait for the lock.
    pub fn enter(&self) -> WaiterRef {
        let request = Self::request();
        match self.books.with(self, |state, now, out| state.enter(request, None, now, out)) {
            Entered::Wait(wait) => wait,
            Entered::Now(outcome) => panic!("{outcome:?}"),
        }
    }

    /// The server's answer to the wait's asking: the lock is its.
    pub fn grant(&self, wait: WaiterRef) {
        let left_millis = LEASE.as_millis().try_into().expect("it is short");
        let granted = Granted { token: 10, left_millis, waiting: false };
        self.books.with(self, |state, now, out| state.granted(wait.lane, &granted, (now, 0), now, out));
    }

    /// What a wait has brought by now.
    pub fn outcome(&self, wait: WaiterRef) -> Option<Arc<HoldRef>> {
        match self.books.poll(wait, Waker::noop()) {
            Poll::Ready(outcome) => outcome.expect("no fault"),
            Poll::Pending => None,
        }
    }

    /// A hold at the start.
    pub fn hold(&self) -> Arc<HoldRef> {
        let wait = self.enter();
        self.grant(wait);
        self.outcome(wait).expect("it was granted")
    }

    pub fn release(&self, held: &HoldRef) -> Released {
        self.books.with(self, |state, now, out| state.release(held, None, now, out))
    }

    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().expect("no thread panics").clone()
    }

    /// How often this ticket's leaving was sent.
    pub fn leavings(&self, of: Ticket) -> usize {
        self.sent().iter().filter(|sent| matches!(sent, Sent::Leave(ticket) if *ticket == of)).count()
    }

    /// Panics unless the books are empty once all leavings are answered.
    pub fn assert_nothing_is_left(&self) {
        for sent in self.sent() {
            if let Sent::Leave(ticket) = sent {
                self.books.with(self, |state, _, _| state.left(ticket));
            }
        }
        assert_eq!(self.books.look(State::entries), 0, "something is left in the books");
    }
}

//! A simulated client's back end: it puts calls into the network and waits for what comes back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwright::internals::backend::{Answer, Backend, Failure, Pending, Value};
use lockwright::internals::clock::{Clock, Moment};
use lockwright::internals::scripts::Call;
use tokio::sync::oneshot;

type Outcome = Result<Value, Failure>;

/// A call on its way to the server.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: u64,
    pub call: Call,
    pub timeout: Duration,
}

/// The client's side of its two connections.
pub struct Wire {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ready: bool,
    closed: bool,
    epoch: u64,
    last_id: u64,
    outbox: Vec<Request>,
    waiting: BTreeMap<u64, oneshot::Sender<Outcome>>,
}

impl Wire {
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { clock, state: Mutex::default() })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no critical section of this file panics")
    }

    /// Calls go out from now on, in this epoch.
    pub fn open(&self, epoch: u64) {
        let mut state = self.state();
        (state.ready, state.epoch) = (true, epoch);
    }

    /// The command connection is lost, and with it all answers.
    pub fn lose(&self) {
        let mut state = self.state();
        state.ready = false;
        let lost = std::mem::take(&mut state.waiting);
        drop(state);
        for answer in lost.into_values() {
            let _ = answer.send(Err(Failure::Unknown("the connection was lost".into())));
        }
    }

    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// The calls that were made since the last look.
    pub fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.state().outbox)
    }

    /// An answer arrives; nobody may wait for it any more.
    pub fn answer(&self, id: u64, outcome: Outcome) {
        let waiting = self.state().waiting.remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(outcome);
        }
    }

    fn send(&self, call: Call, timeout: Duration) -> Option<(u64, u64, oneshot::Receiver<Outcome>)> {
        let mut state = self.state();
        if !state.ready || state.closed {
            return None;
        }
        state.last_id += 1;
        let (id, epoch) = (state.last_id, state.epoch);
        let (answer, answered) = oneshot::channel();
        state.waiting.insert(id, answer);
        state.outbox.push(Request { id, call, timeout });
        Some((id, epoch, answered))
    }
}

/// The back end that the client has: the trait is for values, and the wire is shared.
#[derive(Clone, Debug)]
pub struct BackEnd(pub Arc<Wire>);

impl Backend for BackEnd {
    fn call(&self, call: Call, timeout: Duration) -> Pending<Answer> {
        let wire = self.0.clone();
        Box::pin(async move {
            let sent = wire.clock.now();
            let Some((id, epoch, answered)) = wire.send(call, timeout) else {
                let epoch = wire.state().epoch;
                return Answer { outcome: Err(Failure::NotSent), sent, received: sent, epoch };
            };
            let outcome = tokio::select! {
                biased;
                outcome = answered => outcome.unwrap_or(Err(Failure::NotSent)),
                () = wire.clock.sleep(timeout) => {
                    wire.state().waiting.remove(&id);
                    Err(Failure::Unknown("no answer in time".into()))
                }
            };
            Answer { outcome, sent, received: wire.clock.now(), epoch }
        })
    }

    fn ping(&self, _timeout: Duration) -> Pending<Result<Duration, Failure>> {
        Box::pin(async { Ok(Duration::ZERO) })
    }

    fn close(&self) -> Pending<()> {
        let wire = self.0.clone();
        Box::pin(async move { wire.state().closed = true })
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

/// The client's clock in nanoseconds, for those who map it to the history's.
pub fn reading(moment: Moment) -> u64 {
    moment.as_nanos()
}

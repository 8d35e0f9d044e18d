//! A client's connection to an engine: it never breaks, and every call is answered at once.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;

use super::{Channels, Engine, Instruments, Subscription};
use crate::backend::{
    Answer, Backend, Epoch, Event, EventReceiver, EventSender, Failure, Pending, Up, Value, events,
};
use crate::clock::Clock;
use crate::config::Config;
use crate::error::Fault;
use crate::name::Namespace;
use crate::scripts::{Call, LAYOUT, Script};
use crate::sync::{Arc, Mutex, lock};
use crate::ticket::ClientId;

/// There is only ever one connection.
const EPOCH: Epoch = 1;

#[derive(Clone, Debug)]
struct Connection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    clock: Clock,
    closed: AtomicBool,
    subscription: Mutex<Option<Subscription>>,
}

/// Connects a client to an engine. The first event is there already: [`Event::Up`], or [`Event::Refused`] where
/// the engine's keys have another layout.
pub fn connect(
    engine: &Engine,
    config: &Config,
    client: ClientId,
    clock: Clock,
) -> (Arc<dyn Backend>, EventReceiver) {
    let (sender, receiver) = events();
    let connection = Connection(Arc::new(Inner {
        engine: engine.clone(),
        clock,
        closed: AtomicBool::new(false),
        subscription: Mutex::new(None),
    }));
    match check_layout(engine, &config.namespace) {
        Ok(()) => connection.open(&config.namespace, client, sender),
        Err(fault) => {
            connection.0.closed.store(true, Ordering::Release);
            announce(&sender, Event::Refused(fault));
        }
    }
    (Arc::new(connection), receiver)
}

fn check_layout(engine: &Engine, namespace: &Namespace) -> Result<(), Fault> {
    let (key, layout) = (namespace.layout_key(), LAYOUT.to_string().into_bytes());
    let rejected = |error: crate::backend::ServerError| Fault::Rejected { detail: error.text };
    engine.command(&[&b"SET"[..], key.as_bytes(), &layout, b"NX"]).map_err(rejected)?;
    match engine.command(&[&b"GET"[..], key.as_bytes()]).map_err(rejected)? {
        Value::Bulk(found) if found == layout => Ok(()),
        other => {
            Err(Fault::Unsupported { detail: format!("{key} is {other:?}: the locks have another layout") })
        }
    }
}

/// The stream is new and has room.
fn announce(sender: &EventSender, event: Event) {
    let _ = sender.state(event).now_or_never();
}

impl Connection {
    /// Subscribes before it says so: no message falls between.
    fn open(&self, namespace: &Namespace, client: ClientId, sender: EventSender) {
        let channel = namespace.wake_channel(client);
        let messages = sender.clone();
        let sink = Box::new(move |text| messages.message(text, EPOCH));
        *lock(&self.0.subscription) =
            Some(self.0.engine.subscribe(Channels::Plain, channel.as_bytes(), sink));
        let sent = self.0.clock.now();
        announce(
            &sender,
            Event::Up(Up {
                epoch: EPOCH,
                server_millis: self.0.engine.micros() / 1000,
                sent,
                received: self.0.clock.now(),
                counted: true,
                run_id: self.0.engine.run_id(),
            }),
        );
    }
}

fn run(engine: &Engine, script: &'static Script, call: &Call) -> Result<Value, Failure> {
    match engine.run(script, &call.keys, &call.args) {
        Err(Failure::Server(error)) if error.code == "NOSCRIPT" => {
            engine.load(script)?;
            engine.run(script, &call.keys, &call.args)
        }
        outcome => outcome,
    }
}

/// Lets other tasks have their turn, as waiting for a socket would: a caller's first step sends, and brings no answer.
async fn breathe() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Backend for Connection {
    fn call(&self, call: Call, _timeout: Duration) -> Pending<Answer> {
        let this = self.0.clone();
        Box::pin(async move {
            let sent = this.clock.now();
            let outcome = if this.closed.load(Ordering::Acquire) {
                Err(Failure::NotSent)
            } else {
                run(&this.engine, call.script, &call)
            };
            let received = this.clock.now();
            breathe().await;
            Answer { outcome, sent, received, epoch: EPOCH }
        })
    }

    fn ping(&self, _timeout: Duration) -> Pending<Result<Duration, Failure>> {
        let closed = self.0.closed.load(Ordering::Acquire);
        Box::pin(async move { if closed { Err(Failure::NotSent) } else { Ok(Duration::ZERO) } })
    }

    fn close(&self) -> Pending<()> {
        let this = self.0.clone();
        Box::pin(async move {
            this.closed.store(true, Ordering::Release);
            drop(lock(&this.subscription).take());
        })
    }
}

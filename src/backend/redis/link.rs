//! One server, supervised: a command wire and a subscription wire, watched, and built anew when they are lost.
//!
//! The command wire never subscribes, and on the subscription wire runs nothing but pub/sub and `PING`: the answer
//! to a refused subscription can be taken for the answer to a command. (What a fresh subscription wire is asked
//! before it subscribes is harmless.)
//!
//! | state | commands | messages | left when |
//! |---|---|---|---|
//! | up | go out | are heard | a wire is closed, or leaves several `PING`s unanswered |
//! | deaf | go out | are lost | the subscription is there again, or the command wire is lost |
//! | down | are not sent | are lost | both wires are there again, or the command wire alone |
//!
//! Each up, and each deaf after a down, begins a new epoch. One task does all of it (`supervisor.rs`); calls go past
//! it, straight to the wire (`call.rs`), or, where others are under way, together by another task (`gather.rs`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::backend::{Answer, Epoch, EventReceiver, Failure, Pending, Value, events};
use crate::clock::Clock;
use crate::error::ConnectError;
use crate::scripts::{Call, Script, Words};
use crate::sync::{Arc, Mutex, lock};

use super::Setup;
use super::wire::{Dialer, Wire};
use gather::Gather;
use supervisor::Supervisor;

mod backoff;
mod call;
mod gather;
mod handshake;
mod preflight;
mod pulse;
mod supervisor;

/// The handle to one supervised server. When it is dropped, its task and its wires end.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    closing: Arc<watch::Sender<bool>>,
    /// Ends when the task has ended.
    done: watch::Receiver<()>,
}

/// What calls and the supervisor share.
#[derive(Debug)]
struct Shared {
    clock: Clock,
    scripts: Vec<Known>,
    gather: Gather,
    ready: Mutex<Option<Arc<Ready>>>,
    epoch: AtomicU64,
    warned_of_texts: AtomicBool,
    warned_of_eviction: AtomicBool,
}

/// A script, and the hash under which servers know it: they tell it when they load the script.
#[derive(Debug)]
struct Known {
    script: &'static Script,
    hash: OnceLock<String>,
}

/// A command wire that takes calls.
#[derive(Debug)]
struct Ready {
    epoch: Epoch,
    wire: Arc<Wire>,
    /// Whether scripts are sent as texts, since this server runs none by hash.
    by_text: Arc<AtomicBool>,
}

impl Link {
    /// Connects and subscribes, trying again until `unavailable_after`; then [`supervisor`] takes over.
    pub async fn connect(
        dialer: Dialer,
        db: u32,
        setup: &Setup,
        scripts: &[&'static Script],
    ) -> Result<(Self, EventReceiver), ConnectError> {
        let (sender, receiver) = events();
        let shared = Arc::new(Shared::new(setup.clock.clone(), scripts));
        let mut supervisor = Supervisor::new(dialer, db, setup, shared.clone(), sender);
        supervisor.first().await?;
        let (closing, close) = watch::channel(false);
        let (alive, done) = watch::channel(());
        let gathering = tokio::spawn(gather::run(shared.clone()));
        tokio::spawn(async move {
            supervisor.run_until(close).await;
            gathering.abort();
            let _ = gathering.await;
            drop(alive);
        });
        Ok((Self { shared, closing: Arc::new(closing), done }, receiver))
    }

    pub fn call(&self, call: Call, timeout: Duration) -> Pending<Answer> {
        let shared = self.shared.clone();
        Box::pin(async move { gather::call(&shared, call, timeout).await })
    }

    pub fn ping(&self, timeout: Duration) -> Pending<Result<Duration, Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let ready = shared.ready().ok_or(Failure::NotSent)?;
            let sent = shared.clock.now();
            let _: Value = ready.wire.call("PING", Words::default(), timeout).await?;
            Ok(shared.clock.now().since(sent))
        })
    }

    pub fn close(&self) -> Pending<()> {
        let (closing, mut done) = (self.closing.clone(), self.done.clone());
        Box::pin(async move {
            closing.send_replace(true);
            // Nothing is ever sent: it ends when the task drops its half.
            let _ = done.changed().await;
        })
    }
}

impl Shared {
    fn new(clock: Clock, scripts: &[&'static Script]) -> Self {
        let known = |&script: &&'static Script| Known { script, hash: OnceLock::new() };
        Self {
            clock,
            scripts: scripts.iter().map(known).collect(),
            gather: Gather::default(),
            ready: Mutex::new(None),
            epoch: AtomicU64::new(0),
            warned_of_texts: AtomicBool::new(false),
            warned_of_eviction: AtomicBool::new(false),
        }
    }

    /// The command wire, where there is one. A snapshot: a call that is under way stays on the wire it began on.
    fn ready(&self) -> Option<Arc<Ready>> {
        lock(&self.ready).clone()
    }

    fn set_ready(&self, ready: Option<Ready>) {
        if let Some(ready) = &ready {
            self.epoch.store(ready.epoch, Ordering::Relaxed);
        }
        *lock(&self.ready) = ready.map(Arc::new);
    }

    fn known(&self, script: &Script) -> Option<&Known> {
        self.scripts.iter().find(|known| std::ptr::eq(known.script, script))
    }
}

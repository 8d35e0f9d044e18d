//! The same scripts in this process, on an engine in memory: a test double with real semantics.

mod commands;
mod connection;
mod convert;
mod keyspace;
mod number;
mod pubsub;
mod sandbox;
mod scripting;
mod sha1;
mod sorted;
mod words;

use std::fmt;

use uuid::Uuid;

pub use self::connection::connect;
use self::keyspace::Keyspace;
pub use self::pubsub::{Channels, Sink, Subscription};
use self::scripting::Scripting;
use crate::backend::{Failure, ServerError, Value};
use crate::chance;
use crate::clock::{self, Clock};
use crate::scripts::{Script, Words};
use crate::sync::{Arc, Mutex, lock};

/// A server in memory, for unit tests and examples: the same Lua scripts as on Redis, on keys of its own.
///
/// Clients that share an engine share its locks, as processes that talk to one server do. A clone is the same
/// engine. Nothing is stored; the last clone takes all locks with it.
///
/// Time is tokio's, so a test that pauses it sees leases run out at once. Where runtimes with different clocks
/// share an engine, its time is that of the one that is furthest ahead: holds may then last longer at the engine
/// than their guards trust them, never shorter.
///
/// ```
/// use lockwright::Engine;
///
/// let engine = Engine::new();
/// let other_process = engine.clone();
/// # drop(other_process);
/// ```
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    /// Held for the length of a script or command: they run one after the other.
    scripting: Mutex<Scripting>,
    hub: pubsub::Hub,
    time: Arc<dyn Fn() -> u64 + Send + Sync>,
    run_id: Uuid,
}

/// The keys of an engine at one moment; see [`Engine::snapshot`].
#[derive(Clone, Debug)]
pub struct Snapshot(Keyspace);

impl Engine {
    /// An engine with no keys, whose clock starts at the time of day.
    pub fn new() -> Self {
        Self::with_time(flowing_time())
    }
}

/// The parts of an [`Engine`] that the layers above, simulation and the tests of this repository use. A trait,
/// because users have the type and must not have these.
#[doc(hidden)]
pub trait Instruments: Sized {
    /// An engine whose clock (microseconds since 1970) is the caller's: it may stand, jump, or go back.
    /// `micros` is called while the engine works, so it must not call the engine.
    fn with_time(micros: Arc<dyn Fn() -> u64 + Send + Sync>) -> Self;

    /// Calls a script as `EVALSHA` does: where it is not loaded, the answer is `NOSCRIPT`.
    fn run(&self, script: &'static Script, keys: &Words, args: &Words) -> Result<Value, Failure>;

    /// Loads a script, as `SCRIPT LOAD` does.
    fn load(&self, script: &'static Script) -> Result<(), Failure>;

    /// Forgets all scripts, as `SCRIPT FLUSH` does.
    fn flush_scripts(&self);

    /// Runs any script, as `EVAL` does.
    fn eval(&self, text: &[u8], keys: &[&[u8]], args: &[&[u8]]) -> Result<Value, ServerError>;

    /// Runs one command, as a connection would send it.
    fn command<W: AsRef<[u8]>>(&self, words: &[W]) -> Result<Value, ServerError>;

    /// The names of all keys that are there.
    fn keys(&self) -> Vec<Vec<u8>>;

    /// All keys as they are now. Cheap: values are shared until they change.
    fn snapshot(&self) -> Snapshot;

    /// Puts all keys back to what they were: a failover that lost the writes since then.
    fn restore(&self, snapshot: &Snapshot);

    /// Subscribes to a channel. `sink` decides what becomes of messages; the subscription counts as a receiver
    /// for as long as it lives.
    fn subscribe(&self, channels: Channels, name: &[u8], sink: Sink) -> Subscription;

    /// The channels that have subscribers.
    fn channels(&self) -> Vec<Vec<u8>>;

    /// The engine's clock, in microseconds since 1970.
    fn micros(&self) -> u64;

    /// Which run of which server this is.
    fn run_id(&self) -> String;
}

impl Instruments for Engine {
    fn with_time(micros: Arc<dyn Fn() -> u64 + Send + Sync>) -> Self {
        let hub = pubsub::Hub::default();
        let scripting = Mutex::new(Scripting::new(hub.clone(), micros.clone()));
        Self(Arc::new(Inner { scripting, hub, time: micros, run_id: chance::identity() }))
    }

    fn run(&self, script: &'static Script, keys: &Words, args: &Words) -> Result<Value, Failure> {
        lock(&self.0.scripting).run_shipped(script, keys, args).map_err(|text| Failure::Server(error(&text)))
    }

    fn load(&self, script: &'static Script) -> Result<(), Failure> {
        lock(&self.0.scripting).load_shipped(script).map_err(|text| Failure::Server(error(&text)))
    }

    fn flush_scripts(&self) {
        lock(&self.0.scripting).flush();
    }

    fn eval(&self, text: &[u8], keys: &[&[u8]], args: &[&[u8]]) -> Result<Value, ServerError> {
        lock(&self.0.scripting).eval(text, keys, args).map_err(|text| error(&text))
    }

    fn command<W: AsRef<[u8]>>(&self, words: &[W]) -> Result<Value, ServerError> {
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        lock(&self.0.scripting).command(&words).map_err(|text| error(&text))
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        lock(&self.0.scripting).with_keys(|keys| keys.names().map(<[u8]>::to_vec).collect())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot(lock(&self.0.scripting).with_keys(|keys| keys.clone()))
    }

    fn restore(&self, snapshot: &Snapshot) {
        lock(&self.0.scripting).with_keys(|keys| *keys = snapshot.0.clone());
    }

    fn subscribe(&self, channels: Channels, name: &[u8], sink: Sink) -> Subscription {
        self.0.hub.subscribe(channels, name, sink)
    }

    fn channels(&self) -> Vec<Vec<u8>> {
        self.0.hub.channels()
    }

    fn micros(&self) -> u64 {
        (self.0.time)()
    }

    fn run_id(&self) -> String {
        self.0.run_id.as_simple().to_string()
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.run_id())
    }
}

fn error(text: &str) -> ServerError {
    let code = text.split(' ').next().unwrap_or_default();
    ServerError { code: code.to_owned(), text: text.to_owned() }
}

/// The time of day now, moved on by tokio's clock. It never goes back, whichever runtime asks.
fn flowing_time() -> Arc<dyn Fn() -> u64 + Send + Sync> {
    let (clock, start) = (Clock::tokio(), clock::wall_micros());
    let latest = std::sync::atomic::AtomicU64::new(start);
    Arc::new(move || {
        let now = start.saturating_add(clock.now().as_nanos() / 1000);
        latest.fetch_max(now, std::sync::atomic::Ordering::Relaxed).max(now)
    })
}

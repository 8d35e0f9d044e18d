//! The one server of a history: the embedded engine, its clock, and who is subscribed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lockwright::internals::backend::{Failure, ServerError, Value};
use lockwright::internals::embedded::{Channels, Engine, Instruments, Snapshot, Subscription};
use lockwright::internals::scripts::{Call, Script};
use lockwright::internals::ticket::{ClientId, Ticket};

use crate::audit::Held;
use crate::dice::Nanos;
use crate::mutants::Rewrite;
use crate::order::Queue;

/// The server's clock when a history begins, in microseconds since 1970.
const BEGIN: u64 = 1_700_000_000_000_000;

/// A message that a script has sent to a subscription.
#[derive(Clone, Debug)]
pub struct Posted {
    pub client: usize,
    pub generation: u64,
    pub text: Vec<u8>,
}

pub struct Server {
    pub engine: Engine,
    micros: Arc<AtomicU64>,
    /// How far its clock is ahead of the history's, in microseconds.
    pub ahead: i64,
    /// Which server it is: what was sent to an earlier one is lost.
    pub incarnation: u32,
    /// Until then it does nothing.
    pub stands_until: Nanos,
    posted: Arc<Mutex<Vec<Posted>>>,
    subscriptions: BTreeMap<(usize, u64), Subscription>,
    rewrite: Option<&'static Rewrite>,
}

impl Server {
    pub fn new(rewrite: Option<&'static Rewrite>) -> Self {
        let micros = Arc::new(AtomicU64::new(BEGIN));
        let clock = micros.clone();
        let engine = Engine::with_time(Arc::new(move || clock.load(Ordering::Relaxed)));
        Self {
            engine,
            micros,
            ahead: 0,
            incarnation: 0,
            stands_until: 0,
            posted: Arc::default(),
            subscriptions: BTreeMap::new(),
            rewrite,
        }
    }

    pub fn set_now(&self, now: Nanos) {
        let micros = (BEGIN + now / 1_000).saturating_add_signed(self.ahead);
        self.micros.store(micros, Ordering::Relaxed);
    }

    pub fn millis(&self) -> u64 {
        self.micros.load(Ordering::Relaxed) / 1_000
    }

    /// When the server's clock shows `millis`, on the history's.
    fn history_time(&self, millis: u64) -> Nanos {
        let begin = i128::from(BEGIN) + i128::from(self.ahead);
        u64::try_from((i128::from(millis) * 1_000 - begin) * 1_000).unwrap_or(0)
    }

    pub fn run(&self, call: &Call) -> Result<Value, Failure> {
        self.engine.run(self.script(call), &call.keys, &call.args)
    }

    pub fn load(&self, call: &Call) {
        self.engine.load(self.script(call)).expect("our scripts compile");
    }

    fn script(&self, call: &Call) -> &'static Script {
        self.rewrite.map_or(call.script, |rewrite| rewrite.of(call.script))
    }

    /// The messages sent since the last look.
    pub fn take_posted(&self) -> Vec<Posted> {
        std::mem::take(&mut *self.posted.lock().expect("nobody panics while posting"))
    }

    pub fn subscribe(&mut self, client: usize, id: ClientId, generation: u64) {
        let channel = format!("lw:wake:{id}");
        let posted = self.posted.clone();
        let sink = Box::new(move |text| {
            posted.lock().expect("nobody panics while posting").push(Posted { client, generation, text });
        });
        let subscription = self.engine.subscribe(Channels::Plain, channel.as_bytes(), sink);
        self.subscriptions.insert((client, generation), subscription);
    }

    pub fn unsubscribe(&mut self, client: usize, generation: u64) {
        self.subscriptions.remove(&(client, generation));
    }

    pub fn unsubscribe_all(&mut self, client: usize) {
        self.subscriptions.retain(|&(subscriber, _), _| subscriber != client);
    }

    pub fn is_subscribed(&self, client: usize) -> bool {
        self.subscriptions.range((client, 0)..=(client, u64::MAX)).next().is_some()
    }

    fn items(&self, command: &[&str]) -> Vec<Value> {
        match self.engine.command(command) {
            Ok(Value::Array(items)) => items,
            _ => Vec::new(),
        }
    }

    /// `K:queue` and `K:waiting`.
    pub fn queue(&self, lock: &str, subscribed: impl Fn(ClientId) -> bool) -> Queue {
        let list = self.items(&["LRANGE", &format!("{lock}:queue"), "0", "-1"]);
        let list = list.iter().filter_map(|item| Ticket::parse(text(item))).collect();
        let mut queue = Queue { now: self.millis(), list, ..Queue::default() };
        for pair in self.items(&["HGETALL", &format!("{lock}:waiting")]).chunks_exact(2) {
            queue.read(text(&pair[0]), text(&pair[1]), &subscribed);
        }
        queue
    }

    /// `K`; empty where nobody holds the lock. Of reads from before `K` was lost only `K:readers` knows.
    pub fn held(&self, lock: &str) -> Held {
        let mut held = Held::default();
        for pair in self.items(&["HGETALL", lock]).chunks_exact(2) {
            let (field, value) = (text(&pair[0]), text(&pair[1]));
            match field {
                "mode" => value.clone_into(&mut held.mode),
                "owner" => value.clone_into(&mut held.owner),
                "token" => held.token = value.parse().unwrap_or(0),
                "block" => held.block = value.parse().unwrap_or(0),
                _ => {
                    let Some(ticket) = Ticket::parse(field) else { continue };
                    let mut words = value.split(' ');
                    let ends = words.next().and_then(|ends| ends.parse().ok()).unwrap_or(0);
                    held.holds.push((ticket, self.history_time(ends)));
                    held.owners.push(words.next().unwrap_or_default().to_owned());
                }
            }
        }
        if held.mode == "read" {
            let readers = format!("{lock}:readers");
            for pair in self.items(&["ZRANGE", &readers, "0", "-1", "WITHSCORES"]).chunks_exact(2) {
                let Some(ticket) = Ticket::parse(text(&pair[0])) else { continue };
                if !held.holds.iter().any(|&(other, _)| other == ticket) {
                    held.holds.push((ticket, self.history_time(text(&pair[1]).parse().unwrap_or(0))));
                    held.owners.push("-".to_owned());
                }
            }
        }
        held
    }

    pub fn delete(&self, key: &str) -> bool {
        self.engine.command(&["DEL", key]) == Ok(Value::Int(1))
    }

    pub fn flush_all(&self) {
        let _: Result<Value, ServerError> = self.engine.command(&["FLUSHALL"]);
    }

    /// Another server takes over, with the keys as they were and a clock that differs by `ahead`.
    pub fn fail_over(&mut self, snapshot: &Snapshot, ahead: i64, now: Nanos) {
        self.incarnation += 1;
        self.ahead = ahead;
        self.subscriptions.clear();
        self.engine.restore(snapshot);
        self.engine.flush_scripts();
        self.set_now(now);
    }

    /// The keys that outlive all use, and what else is there.
    pub fn leftovers(&self) -> Vec<String> {
        let keys = self.engine.keys().into_iter().map(|key| String::from_utf8_lossy(&key).into_owned());
        keys.filter(|key| !key.ends_with(":token") && !key.ends_with(":layout")).collect()
    }
}

fn text(value: &Value) -> &str {
    match value {
        Value::Bulk(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
        _ => "",
    }
}

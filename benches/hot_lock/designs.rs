//! The designs that are compared. `broadcast` and `poll` are references for this bench alone: the ways in which
//! Redisson and most small libraries wait, on the same connection as ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockwright::internals::backend::redis::{Setup, connect_with};
use lockwright::internals::backend::{Backend, Event, EventReceiver, Value};
use lockwright::internals::chance::Chance;
use lockwright::internals::clock::Clock;
use lockwright::internals::config::{Config, Secret, Tls};
use lockwright::internals::scripts::{Call, Script};
use lockwright::internals::ticket::ClientId;
use lockwright::{Client, FairLock, Guard, LockError, ReentrantLock, Step};
use tokio::sync::Semaphore;

use crate::support::monotonic;

const LEASE_MS: &str = "30000";

/// Takes the lock, or says how long it is held.
static TAKE: Script = script(
    "bench/take",
    "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return -1 end \
     return redis.call('PTTL', KEYS[1])",
);
/// Frees the lock and wakes everybody.
static FREE: Script = script(
    "bench/free",
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end redis.call('DEL', KEYS[1]) \
     redis.call('PUBLISH', ARGV[2], '0') return 1",
);
/// Frees the lock.
static DROP: Script = script(
    "bench/drop",
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
);

const fn script(name: &'static str, text: &'static str) -> Script {
    Script { name, version: 1, text, parts: &[] }
}

/// One id for all processes, so that all listen on one channel.
const EVERYBODY: &str = "00000000-0000-4000-8000-000000000000";

#[derive(Clone)]
pub enum Design {
    Reentrant(ReentrantLock),
    Fair(FairLock),
    /// The same by places, so that it is known when each was in the queue.
    Places(FairLock),
    Broadcast(Arc<Shared>),
    Poll(Arc<Shared>),
}

pub enum Held {
    Guard(Guard),
    Value(String),
}

pub struct Shared {
    wire: Arc<dyn Backend>,
    process: ClientId,
    /// Of this run alone: whoever is cut off at the end of a run leaves the lock taken.
    key: String,
    chance: Chance,
    attempts: AtomicU64,
    /// One permit a message: of each process, one waiter tries.
    woken: Semaphore,
}

impl Design {
    pub async fn connect(design: &str, url: &str, run: &str) -> Self {
        let client = async || Client::connect(url).await.expect("the server is there");
        match design {
            "reentrant" => return Self::Reentrant(client().await.lock(run)),
            "fair" => return Self::Fair(client().await.fair_lock(run)),
            "places" => return Self::Places(client().await.fair_lock(run)),
            _ => {}
        }
        let setup = Setup {
            url: Secret::new(url),
            tls: Tls::default(),
            config: Config::default(),
            client: ClientId::parse(EVERYBODY).expect("an id"),
            clock: Clock::boot(),
            chance: Chance::from_system(),
        };
        let (wire, events) = connect_with(setup, &[&TAKE, &FREE, &DROP]).await.expect("the server is there");
        let shared = Arc::new(Shared {
            wire,
            process: ClientId::random(),
            key: format!("bench:{{{run}}}"),
            chance: Chance::from_system(),
            attempts: AtomicU64::new(0),
            woken: Semaphore::new(0),
        });
        tokio::spawn(listen(shared.clone(), events));
        if design == "poll" { Self::Poll(shared) } else { Self::Broadcast(shared) }
    }

    /// `None` when the run is over; else also when it was told its place.
    pub async fn acquire(&self, left: Duration) -> Option<(Held, u64)> {
        let held = match self {
            Self::Places(lock) => {
                return tokio::time::timeout(left, by_place(lock)).await.ok();
            }
            Self::Reentrant(lock) => until_the_end(lock.try_lock_for(left).await),
            Self::Fair(lock) => until_the_end(lock.try_lock_for(left).await),
            Self::Broadcast(shared) => {
                tokio::time::timeout(left, shared.take_when_woken()).await.ok().map(Held::Value)
            }
            Self::Poll(shared) => {
                tokio::time::timeout(left, shared.take_by_polls()).await.ok().map(Held::Value)
            }
        };
        held.map(|held| (held, 0))
    }

    pub async fn release(&self, held: Held) {
        match (self, held) {
            (_, Held::Guard(guard)) => guard.unlock().await.expect("it is held"),
            (Self::Poll(shared), Held::Value(value)) => {
                shared.call(&DROP, vec![value]).await;
            }
            (Self::Broadcast(shared), Held::Value(value)) => {
                shared.call(&FREE, vec![value, format!("lw:wake:{EVERYBODY}")]).await;
            }
            (Self::Reentrant(_) | Self::Fair(_) | Self::Places(_), Held::Value(_)) => {}
        }
    }
}

async fn by_place(lock: &FairLock) -> (Held, u64) {
    let mut place = lock.queue().await.expect("the server answers");
    let placed = monotonic();
    loop {
        if let Step::Granted(guard) = place.next().await.expect("the server answers") {
            return (Held::Guard(guard), placed);
        }
    }
}

impl Held {
    pub fn token(&self) -> u64 {
        match self {
            Self::Guard(guard) => guard.token(),
            Self::Value(_) => 0,
        }
    }
}

/// A wait that is cut off by the end of the run before the server has answered is no failure.
fn until_the_end(attempt: Result<Option<Guard>, LockError>) -> Option<Held> {
    match attempt {
        Ok(guard) => guard.map(Held::Guard),
        Err(LockError::Unavailable { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

async fn listen(shared: Arc<Shared>, mut events: EventReceiver) {
    while let Some(event) = events.next().await {
        if matches!(event, Event::Message { .. }) && shared.woken.available_permits() == 0 {
            shared.woken.add_permits(1);
        }
    }
}

impl Shared {
    async fn call(&self, script: &'static Script, args: Vec<String>) -> i64 {
        let call = Call {
            script,
            keys: [self.key.as_str()].into(),
            args: args.iter().map(String::as_str).collect(),
        };
        match self.wire.call(call, Duration::from_secs(5)).await.outcome {
            Ok(Value::Int(number)) => number,
            other => panic!("{other:?}"),
        }
    }

    /// What is left of somebody's lease; negative where the lock is ours now.
    async fn take(&self, value: &str) -> i64 {
        self.call(&TAKE, vec![value.to_owned(), LEASE_MS.to_owned()]).await
    }

    fn value(&self) -> String {
        format!("{}:{}", self.process, self.attempts.fetch_add(1, Ordering::Relaxed))
    }

    async fn take_when_woken(&self) -> String {
        let value = self.value();
        loop {
            let left = self.take(&value).await;
            if left < 0 {
                return value;
            }
            let patience = Duration::from_millis(left.unsigned_abs().max(1));
            if let Ok(permit) = tokio::time::timeout(patience, self.woken.acquire()).await {
                permit.expect("never closed").forget();
            }
        }
    }

    async fn take_by_polls(&self) -> String {
        let value = self.value();
        while self.take(&value).await >= 0 {
            tokio::time::sleep(self.chance.jitter(Duration::from_millis(50), 50)).await;
        }
        value
    }
}

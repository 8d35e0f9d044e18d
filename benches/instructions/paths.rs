//! The paths, each as a loop.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockwright::internals::backend::{Answer, Backend, Event, Failure, Pending, Up, Value, events};
use lockwright::internals::chance::Chance;
use lockwright::internals::clock::Clock;
use lockwright::internals::config::Config;
use lockwright::internals::name::{LockKeys, Namespace};
use lockwright::internals::scripts::{Acquire, AcquireReply, Attempt, Call, Kind, Mode, Terms, Wait};
use lockwright::internals::ticket::{ClientId, Tickets};
use lockwright::{Client, Owner, internals};

/// `encode`: a call for a lock; `decode`: its answer; `pass`: a section whose lock comes from, and goes to, another
/// task of the same client; `reentry`: a section inside another one of the same owner.
pub const ALL: [&str; 4] = ["encode", "decode", "pass", "reentry"];

pub fn run(path: &str, times: u64) {
    match path {
        "encode" => encode(times),
        "decode" => decode(times),
        _ => {
            // Time stands still: no timer fires, whatever the machine does.
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
            runtime.block_on(async {
                match path {
                    "pass" => pass(times).await,
                    "reentry" => reentry(times).await,
                    other => panic!("there is no path {other}"),
                }
            });
        }
    }
}

fn encode(times: u64) {
    let keys = LockKeys::new(&Namespace::default(), "order:42").expect("a name");
    let ticket = Tickets::new(ClientId::random()).next();
    let attempt =
        Attempt { ticket, mode: Mode::Exclusive, owner: None, lease_millis: 30_000, block: 64, label: None };
    let terms = Terms { claim_millis: 3_000, deadline_millis: 10_000, sharded: false, counted: true };
    for _ in 0..times {
        let (kind, wait, not_after_millis) = (Kind::Reentrant, Wait::Join, 1_785_000_000_000);
        let (keys, attempt) = (black_box(&keys), black_box(&attempt));
        black_box(Acquire { keys, kind, attempt, wait, not_after_millis, deaf: false, terms }.call());
    }
}

fn decode(times: u64) {
    let reply = granted(1_785_000_000_000_000);
    for _ in 0..times {
        let _ = black_box(AcquireReply::decode(black_box(&reply)));
    }
}

/// Two tasks that both want the lock all the time: each section's lock is passed on inside the client. Every 64th
/// goes back to the server, here a stand-in that costs next to nothing.
async fn pass(times: u64) {
    let client = client().await;
    let task = || {
        let lock = client.lock("order:42");
        async move {
            for _ in 0..times / 2 {
                let guard = lock.lock().await.expect("it is granted");
                // The other one asks meanwhile.
                tokio::task::yield_now().await;
                guard.unlock().await.expect("it is held");
            }
        }
    };
    tokio::join!(task(), task());
}

async fn reentry(times: u64) {
    let lock = client().await.lock("order:42").with_owner(&Owner::new());
    let _outer = lock.lock().await.expect("it is granted");
    for _ in 0..times {
        lock.lock().await.expect("it is granted").unlock().await.expect("it is held");
    }
}

fn granted(token: u64) -> Value {
    Value::Bulk(format!("granted 1785000000000 {token} 30000 0").into_bytes())
}

/// A client of a server that grants whatever is asked for.
async fn client() -> Client {
    let (sender, receiver) = events();
    let clock = Clock::tokio();
    let (sent, received) = (clock.now(), clock.now());
    let (server_millis, run_id) = (1_785_000_000_000, String::new());
    sender.state(Event::Up(Up { epoch: 1, server_millis, sent, received, counted: true, run_id })).await;
    // The stand-in keeps the sender: without one the client would think that its back end is gone.
    let server =
        Granting { clock: clock.clone(), tokens: AtomicU64::new(1_785_000_000_000_000), _events: sender };
    let (config, chance) = (Config::default(), Chance::from_seed(1));
    internals::client((Arc::new(server), receiver), config, ClientId::random(), clock, chance)
}

#[derive(Debug)]
struct Granting {
    clock: Clock,
    tokens: AtomicU64,
    _events: internals::backend::EventSender,
}

impl Backend for Granting {
    fn call(&self, call: Call, _timeout: Duration) -> Pending<Answer> {
        let now = self.clock.now();
        let token = self.tokens.fetch_add(64, Ordering::Relaxed);
        let reply = match call.script.name {
            "reentrant/acquire" => granted(token),
            "reentrant/leave" => freed(call.args.len() > 2, token),
            other => panic!("nobody answers {other} here"),
        };
        Box::pin(async move { Answer { outcome: Ok(reply), sent: now, received: now, epoch: 1 } })
    }

    fn ping(&self, _timeout: Duration) -> Pending<Result<Duration, Failure>> {
        Box::pin(async { Ok(Duration::ZERO) })
    }

    fn close(&self) -> Pending<()> {
        Box::pin(async {})
    }
}

/// The answer to a leaving: an array where it brings a new ticket, for that is no usual case.
fn freed(with_next: bool, token: u64) -> Value {
    let word = |word: &str| Value::Bulk(word.as_bytes().to_vec());
    if !with_next {
        return word("freed");
    }
    let [now, more, left, waiting] = [1_785_000_000_000, 0, 30_000, 0].map(Value::Int);
    let token = Value::Int(i64::try_from(token).expect("a token"));
    Value::Array(vec![word("freed"), now, more, word("granted"), token, left, waiting])
}

//! The same random steps on the embedded engine and on a real server: replies to the byte and type, then type,
//! value and remaining life of every key.
//!
//! `LOCKWRIGHT_STEPS` says how many steps, `LOCKWRIGHT_SERVERS` on which server programs (separated by spaces),
//! `LOCKWRIGHT_SEED` from which seed.

mod generate;
mod known;
mod protocol;
mod state;

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockwright::internals::backend::{ServerError, Value};
use lockwright::internals::chance::Chance;
use lockwright::internals::embedded::{Engine, Instruments};

pub use self::generate::ATTACKS;
use self::generate::{Check, Dice, Step};
use self::known::{Facts, align};
use self::protocol::Protocol;
use crate::support::resp::{Connection, Reply};
use crate::support::server::Server;

/// So many steps are sent at once.
const BATCH: usize = 50;
/// The two clocks may be this far apart, in milliseconds: the engine's is the server's of just before the step.
const APART: i64 = 15;

#[test]
fn the_engine_does_what_servers_do() {
    let setting = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let steps: usize = setting("LOCKWRIGHT_STEPS", "20000").parse().expect("a number of steps");
    let seed = match env::var("LOCKWRIGHT_SEED") {
        Ok(text) => text.parse().expect("a seed"),
        Err(_) => Chance::from_system().next_u64(),
    };
    for program in setting("LOCKWRIGHT_SERVERS", "redis-server").split_whitespace() {
        println!("{program}: LOCKWRIGHT_SEED={seed} LOCKWRIGHT_STEPS={steps}");
        Run::start(program, seed).steps(steps);
    }
}

/// One history on one server.
struct Run {
    _server: Server,
    connection: Connection,
    facts: Facts,
    engine: Engine,
    /// The engine's clock.
    micros: Arc<AtomicU64>,
    dice: Dice,
    protocol: Protocol,
    /// When keys expire soon: around these moments the two sides may differ.
    risky: Vec<i64>,
    done: usize,
    undecided: usize,
    differences: usize,
}

impl Run {
    fn start(program: &str, seed: u64) -> Self {
        let server = Server::start_program(program, &[]);
        let mut connection = server.connection();
        let facts = Facts::read(&connection.ok(&["INFO", "server"]).text());
        let micros = Arc::new(AtomicU64::new(0));
        let shown = micros.clone();
        let engine = Engine::with_time(Arc::new(move || shown.load(Ordering::Relaxed)));
        let dice = Dice::new(seed);
        Self {
            _server: server,
            connection,
            facts,
            engine,
            micros,
            dice,
            protocol: Protocol::new(),
            risky: Vec::new(),
            done: 0,
            undecided: 0,
            differences: 0,
        }
    }

    fn steps(mut self, steps: usize) {
        while self.done < steps {
            self.batch();
            assert!(self.differences < 20, "enough");
        }
        println!("{} steps, {} not decided by reason of the clock", self.done, self.undecided);
        assert_eq!(self.differences, 0);
        assert!(self.undecided * 5 < self.done, "the machine is too slow for this test");
    }

    fn batch(&mut self) {
        let steps: Vec<Step> =
            (0..BATCH).map(|_| generate::step(&self.dice, &self.facts, &self.protocol)).collect();
        for step in &steps {
            self.connection.send(&["TIME"]);
            self.connection.send(&step.words);
            self.connection.send(&state::COMMAND);
        }
        self.connection.send(&["TIME"]);
        let mut before = read_time(&mut self.connection);
        let mut clean = true;
        for step in &steps {
            let (reply, keys) = (self.connection.read(), self.connection.read());
            let after = read_time(&mut self.connection);
            if clean {
                clean = self.compare(step, reply, &keys, before, after);
            }
            before = after;
        }
        self.done += steps.len();
        if !clean {
            for words in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"]] {
                self.connection.ok(words);
                self.engine.command(words).expect("the engine flushes");
            }
            self.risky.clear();
        }
        if self.risky.iter().any(|end| (0..100).contains(&(end - millis(before)))) {
            // Long enough for a short life to end on both sides.
            self.connection.call(&["BLPOP", "nothing", "0.1"]);
        }
    }

    /// Runs a step on the engine. False where both sides must start anew.
    fn compare(&mut self, step: &Step, reply: Reply, keys: &Reply, before: u64, after: u64) -> bool {
        let (start, end) = (millis(before), millis(after));
        self.risky.retain(|moment| *moment > start - 1000);
        let risk = self.risky.iter().any(|moment| (start - APART..=end + APART).contains(moment));
        if risk || end - start >= APART - 5 {
            self.undecided += 1;
            return false;
        }
        self.micros.store(before, Ordering::Relaxed);
        let ours = as_reply(self.engine.command(&step.words));
        let ours_after = state::of_engine(&self.engine);
        if ours_after.iter().any(|key| (0..=APART).contains(&key.life)) {
            self.undecided += 1;
            return false;
        }
        let (engine, server) = align(&self.facts, sorted(ours, step.check), sorted(reply, step.check));
        let mut equal = alike(&engine, &server, step.check);
        if !equal {
            println!("{:?}\n  engine: {engine:?}\n  server: {server:?}", show(step));
        }
        let (engine, server) = (ours_after, state::of_server(keys));
        if !state::alike(&self.facts, &engine, &server, APART) {
            println!("after {:?}\n  engine: {engine:?}\n  server: {server:?}", show(step));
            equal = false;
        }
        let lives = engine.iter().map(|key| key.life).filter(|life| (0..60_000).contains(life));
        self.risky.extend(lives.map(|life| life + start));
        self.risky.sort_unstable();
        self.risky.dedup();
        self.differences += usize::from(!equal);
        equal
    }
}

fn millis(micros: u64) -> i64 {
    i64::try_from(micros / 1000).expect("a time")
}

fn read_time(connection: &mut Connection) -> u64 {
    let parts: Vec<u64> =
        connection.read().texts().iter().map(|part| part.parse().expect("a number")).collect();
    parts[0] * 1_000_000 + parts[1]
}

fn as_reply(outcome: Result<Value, ServerError>) -> Reply {
    fn convert(value: Value) -> Reply {
        match value {
            Value::Nil => Reply::Nil,
            Value::Int(number) => Reply::Int(number),
            Value::Bulk(bytes) => Reply::Bulk(bytes),
            Value::Status(text) => Reply::Status(text),
            Value::Array(items) => Reply::Array(items.into_iter().map(convert).collect()),
        }
    }
    outcome.map_or_else(|error| Reply::Error(error.text), convert)
}

fn sorted(reply: Reply, check: Check) -> Reply {
    let width = match check {
        Check::Unordered => 1,
        Check::UnorderedPairs => 2,
        Check::Exact | Check::Timed => return reply,
    };
    match reply {
        Reply::Array(items) => Reply::Array(state::sort(items, width)),
        other => other,
    }
}

fn alike(engine: &Reply, server: &Reply, check: Check) -> bool {
    match (engine, server) {
        (Reply::Int(engine), Reply::Int(server)) if check == Check::Timed => {
            (engine - server).abs() <= APART || engine.abs().min(server.abs()) > i64::MAX / 2
        }
        // The two parts of TIME: only that there are two numbers.
        (Reply::Array(engine), Reply::Array(server)) if check == Check::Timed => engine.len() == server.len(),
        _ => engine == server,
    }
}

fn show(step: &Step) -> Vec<String> {
    step.words
        .iter()
        .map(|word| {
            word.escape_ascii()
                .to_string()
                .chars()
                .rev()
                .take(200)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect()
        })
        .collect()
}

//! What the benches share: a server of their own, statistics, output.
#![allow(dead_code, missing_docs, reason = "each bench uses its own part of it")]
#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]

pub mod delay;
#[path = "../../tests/support/resp.rs"]
pub mod resp;
#[path = "../../tests/support/server.rs"]
pub mod server;

use std::time::Duration;

use lockwright::internals::backend::redis::{Setup, connect_with};
use lockwright::internals::backend::{Backend, EventReceiver};
use lockwright::internals::chance::Chance;
use lockwright::internals::clock::Clock;
use lockwright::internals::config::{Config, Secret, Tls};
use lockwright::internals::scripts::{Call, Script, Words};
use lockwright::internals::ticket::ClientId;

/// The least that a script call costs: what every figure is compared to.
pub static FLOOR: Script =
    Script { name: "bench/floor", version: 1, text: "return 1", parts: &[("bench/floor.lua", "return 1")] };

/// The least that can be called a lock with a lease and a fencing token: no queue, no owner, no data loss survived.
/// After <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>, with a counter for the token.
static NAIVE_TAKE: Script = Script {
    name: "bench/take",
    version: 1,
    text: "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and redis.call('INCR', KEYS[2])",
    parts: &[],
};
static NAIVE_FREE: Script = Script {
    name: "bench/free",
    version: 1,
    text: "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])",
    parts: &[],
};

/// The library's own connection, without anything of it above.
pub async fn bare(url: &str) -> (std::sync::Arc<dyn Backend>, EventReceiver) {
    let setup = Setup {
        url: Secret::new(url),
        tls: Tls::default(),
        config: Config::default(),
        client: ClientId::random(),
        clock: Clock::boot(),
        chance: Chance::from_system(),
    };
    connect_with(setup, &[&FLOOR, &NAIVE_TAKE, &NAIVE_FREE]).await.expect("the server is there")
}

/// A call that does nothing.
pub fn floor_call(key: &str) -> Call {
    Call { script: &FLOOR, keys: [key].into(), args: Words::default() }
}

/// The two calls of a naive lock.
pub fn naive_calls(key: &str, value: &str) -> [Call; 2] {
    let token = format!("{key}:token");
    let take = Call { script: &NAIVE_TAKE, keys: [key, &token].into(), args: [value, "30000"].into() };
    [take, Call { script: &NAIVE_FREE, keys: [key].into(), args: [value].into() }]
}

/// Whether the command line has this flag.
pub fn has_flag(flag: &str) -> bool {
    std::env::args().any(|arg| arg == flag)
}

/// The value at this share of the sorted values; zero where there are none.
pub fn quantile(values: &mut [u64], share: f64) -> u64 {
    values.sort_unstable();
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(0)
}

/// The median of rounds.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

pub fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The machine's monotonic clock in nanoseconds, the same in all processes.
pub fn monotonic() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).expect("after boot") * 1_000_000_000
        + u64::try_from(time.tv_nsec).expect("nanos")
}

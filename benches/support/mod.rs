//! What the benches share: a server of their own, statistics, output.
#![allow(dead_code, missing_docs, reason = "each bench uses its own part of it")]
#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]

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
    connect_with(setup, &[&FLOOR]).await.expect("the server is there")
}

/// A call that does nothing.
pub fn floor_call(key: &str) -> Call {
    Call { script: &FLOOR, keys: [key].into(), args: Words::default() }
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

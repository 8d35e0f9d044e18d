//! Random faults of every kind on a real server and on worker processes, for a minute or as many as are asked for
//! (`LOCKWRIGHT_CHAOS_MINUTES`), and a judge over everything that was seen.
//!
//! | file | what is in it |
//! |---|---|
//! | `work.rs` | a worker process: takes locks, writes to the resource, reports |
//! | `nemesis.rs` | the faults, and how each is done and undone |
//! | `history.rs` | what was reported, and the judge |
//! | `arena.rs` | server, proxies and workers, one fault after the other, and the recovery after each |
//!
//! The seed is printed, and taken from `LOCKWRIGHT_SEED` where it is set: it repeats the faults and their order. The
//! last line is JSON.

mod arena;
mod history;
mod nemesis;
#[path = "../support/mod.rs"]
mod support;
mod work;

use std::io::Write;
use std::time::Duration;

use lockwright::internals::chance::Chance;

/// No test: what a worker process runs. Without the variable that tells it what to do it ends at once.
#[test]
fn worker() {
    work::work();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<f64>().expect("a number"));
    let minutes = number("LOCKWRIGHT_CHAOS_MINUTES").unwrap_or(1.0);
    let seed = std::env::var("LOCKWRIGHT_SEED").map(|text| text.parse().expect("a seed"));
    let seed = seed.unwrap_or_else(|_| Chance::from_system().next_u64());
    print(&format!("chaos for {minutes} min with LOCKWRIGHT_SEED={seed}"));
    let mut arena = arena::Arena::open(seed).await;
    arena.fight(Duration::from_secs_f64(minutes * 60.0)).await;
    let report = arena.close().await;
    for violation in report.violations.iter().take(20) {
        print(violation);
    }
    print(&report.json(seed, minutes).to_string());
    assert!(report.waits_in_order() > 0, "the order of the fair locks was never judged");
    assert!(report.reads_beside_writes() > 0, "reads were never judged against writes");
    assert!(report.violations.is_empty(), "{} violations, seed {seed}", report.violations.len());
}

/// Past the harness, which keeps what a test prints to itself.
fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("stdout is there");
}

//! Seeded histories: real clients on one engine under faults, judged by an independent checker.
//!
//! `LOCKWRIGHT_HISTORIES=n cargo test --release --test simulation -- --nocapture` plays n of them and prints their
//! sum; `LOCKWRIGHT_SEED=s` plays the one of this seed again and prints what happened in it.

mod audit;
mod checker;
mod client;
mod debts;
mod dice;
mod faults;
mod history;
mod link;
mod liveness;
mod mix;
mod mutants;
mod report;
mod server;
mod strikes;
mod wire;
mod workload;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use report::{Summary, play};
use world::Recipe;

/// Where the seeds of a run begin.
const FIRST_SEED: u64 = 50_000_000;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

fn mix() -> Option<&'static str> {
    let name = std::env::var("LOCKWRIGHT_MIX").ok()?;
    Some(mix::MIXES.iter().find(|mix| mix.name == name).expect("LOCKWRIGHT_MIX names a mix").name)
}

/// Plays the histories of these seeds on all cores.
fn play_all(first: u64, histories: u64, mix: Option<&'static str>) -> Summary {
    let next = AtomicU64::new(first);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let worker = || {
            let mut summary = Summary::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + histories {
                    return summary;
                }
                let recipe = Recipe { seed, mix, traced: false, mutant: None };
                summary.add(&play(recipe));
            }
        };
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().fold(Summary::default(), |mut sum, worker| {
            sum.merge(worker.join().expect("a history panicked"));
            sum
        })
    })
}

#[test]
fn histories() {
    if let Some(seed) = number("LOCKWRIGHT_SEED") {
        let outcome = play(Recipe { seed, mix: mix(), traced: true, mutant: None });
        println!("{}", outcome.trace.join("\n"));
        for violation in &outcome.violations {
            println!("{violation:?}");
        }
        assert_eq!(outcome.failures().count(), 0, "seed {seed}, mix {}", outcome.mix);
        return;
    }
    let usual = if cfg!(debug_assertions) { 200 } else { 10_000 };
    let summary = play_all(
        number("LOCKWRIGHT_FIRST").unwrap_or(FIRST_SEED),
        number("LOCKWRIGHT_HISTORIES").unwrap_or(usual),
        mix(),
    );
    println!("{}", summary.json());
    for (seed, mix, violation) in summary.failures.iter().take(20) {
        println!("seed {seed} ({mix}): {}: {}", violation.rule, violation.what);
    }
    assert_eq!(summary.violations, 0);
}

#[test]
fn every_mutant_is_found() {
    let mut missed = Vec::new();
    for mutation in &mutants::ALL {
        match mutation.find(FIRST_SEED) {
            Some((tries, outcome)) => {
                let first = outcome.failures().next().expect("it was found by one");
                println!("mutant {}: history {tries} ({}): {}", mutation.number, first.rule, mutation.rule);
            }
            None => missed.push(mutation.number),
        }
    }
    assert!(missed.is_empty(), "mutants that nothing found: {missed:?}");
}

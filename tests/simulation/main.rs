//! Seeded histories: real clients on one engine under faults, judged by an independent checker.
//!
//! `LOCKWRIGHT_HISTORIES=n cargo test --release --test simulation -- --nocapture` plays n of them and prints their
//! sum; `LOCKWRIGHT_SEED=s` plays the one of this seed again and prints what happened in it; `LOCKWRIGHT_MUTANT=m` has
//! `every_mutant_is_found` look for this one only.

mod audit;
mod brute;
mod checker;
mod client;
mod debts;
mod dice;
mod faults;
mod found;
mod history;
mod link;
mod liveness;
mod mix;
mod mutants;
mod order;
mod phases;
mod report;
mod server;
mod sharing;
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
    let worker = || {
        let mut summary = Summary::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + histories {
                return summary;
            }
            summary.add(&play(Recipe { seed, mix, traced: false, mutant: None }));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().fold(Summary::default(), |mut sum, worker| {
            sum.merge(worker.join().expect("a history panicked"));
            sum
        })
    })
}

/// Plays one history, prints all that happened in it, and returns what was wrong.
fn show(seed: u64, mix: Option<&'static str>) -> Vec<String> {
    let outcome = play(Recipe { seed, mix, traced: true, mutant: None });
    println!("{}", outcome.trace.join("\n"));
    let failures = outcome.failures().map(|violation| format!("{}: {}", violation.rule, violation.what));
    failures.collect()
}

fn replay_command(seed: u64, mix: Option<&str>) -> String {
    let mix = mix.map(|mix| format!("LOCKWRIGHT_MIX={mix} ")).unwrap_or_default();
    format!("{mix}LOCKWRIGHT_SEED={seed} cargo test --release --test simulation histories -- --nocapture")
}

#[test]
fn histories() {
    if let Some(seed) = number("LOCKWRIGHT_SEED") {
        let failures = show(seed, mix());
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        return;
    }
    let (first, histories) = (number("LOCKWRIGHT_FIRST"), number("LOCKWRIGHT_HISTORIES"));
    let histories = histories.unwrap_or(if cfg!(debug_assertions) { 200 } else { 10_000 });
    let summary = play_all(first.unwrap_or(FIRST_SEED), histories, mix());
    println!("{}", summary.json());
    if let Some((seed, ..)) = summary.failures.first() {
        show(*seed, mix());
        for (seed, mix, violation) in summary.failures.iter().take(20) {
            println!("seed {seed} ({mix}): {}: {}", violation.rule, violation.what);
        }
        panic!("{} violations; to replay: {}", summary.violations, replay_command(*seed, mix()));
    }
    if mix().is_none() {
        let missing = summary.shortfalls();
        assert!(missing.is_empty(), "the run shows too little: {missing:?}");
    }
}

/// On another thread, too: nothing of a history comes from outside it.
#[test]
fn a_seed_plays_the_same_history_again() {
    for mix in mix::MIXES {
        let recipe = |seed| Recipe { seed, mix: Some(mix.name), traced: true, mutant: None };
        for seed in FIRST_SEED..FIRST_SEED + 3 {
            let once = play(recipe(seed)).trace;
            let again = std::thread::spawn(move || play(recipe(seed)).trace).join().expect("it ends");
            assert!(once.len() > 100, "seed {seed} of {}", mix.name);
            assert!(once == again, "seed {seed} of {} differs", mix.name);
        }
    }
}

#[test]
fn every_mutant_is_found() {
    let mut missed = Vec::new();
    let only = number("LOCKWRIGHT_MUTANT");
    for mutation in
        mutants::ALL.iter().filter(|mutation| only.is_none_or(|only| only == mutation.number.into()))
    {
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

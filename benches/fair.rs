//! What the fair lock costs where very many wait, have left, are dead or cannot be reached.
//!
//! `cargo bench --bench fair [-- --json]`
//!
//! Times of calls are the server's own (`INFO commandstats`, the time of `EVALSHA`), each call by itself.
#![allow(clippy::disallowed_methods, missing_docs, dead_code, reason = "a bench measures real time")]

#[path = "fair/client.rs"]
mod client;
#[path = "server_time/measure.rs"]
mod measure;
#[path = "../tests/protocol/rig.rs"]
mod rig;
#[path = "fair/scene.rs"]
mod scene;
mod support;

use std::collections::BTreeMap;

use measure::timed;
use rig::Rig;
use scene::{MANY, SCENES, Scene};
use support::{floor_call, has_flag, median};

/// What no call may take longer than, the rewrite of the list excepted, in microseconds.
const LIMIT: f64 = 2_500.0;

/// By call: the server's microseconds for each.
pub type Samples = BTreeMap<&'static str, Vec<f64>>;

fn main() {
    if !has_flag("--json") {
        println!(
            "{:24}{:24}{:>8}{:>12}{:>10}{:>10}{:>8}",
            "10,000 tickets", "call", "calls", "median us", "max us", "x floor", "over"
        );
    }
    for (name, make) in SCENES {
        let mut samples = Samples::new();
        let mut scene = make();
        let floor = floor(&mut scene.rig);
        scene.ask(&mut samples);
        scene.hand_over(&mut samples);
        make().join(&mut samples);
        for (call, samples) in samples {
            report(name, call, samples, floor);
        }
    }
    hand_over_at_any_length();
    rewrites();
    client::measure();
}

/// The median of a script that does nothing.
fn floor(rig: &mut Rig) -> f64 {
    median((0..500).map(|_| timed(rig, &floor_call("floor")).1).collect())
}

fn report(scene: &str, call: &str, samples: Vec<f64>, floor: f64) {
    let (calls, over) = (samples.len(), samples.iter().filter(|&&micros| micros > LIMIT).count());
    let max = samples.iter().copied().fold(0.0, f64::max);
    let median = median(samples);
    let x_floor = median / floor;
    if has_flag("--json") {
        println!(
            "{{\"bench\":\"fair\",\"tickets\":{MANY},\"scene\":\"{scene}\",\"call\":\"{call}\",\"calls\":{calls},\
             \"median_us\":{median:.0},\"max_us\":{max:.0},\"x_floor\":{x_floor:.1},\"max_x_floor\":{:.1},\
             \"over_2500_us\":{over}}}",
            max / floor
        );
    } else {
        println!("{scene:24}{call:24}{calls:>8}{median:>12.0}{max:>10.0}{x_floor:>10.1}{over:>8}");
    }
}

/// A figure by itself: its name, and its values each by name.
pub fn figure(name: &str, values: &[(&str, f64)]) {
    if has_flag("--json") {
        let values: Vec<String> =
            values.iter().map(|(name, value)| format!("\"{name}\":{value:.3}")).collect();
        println!("{{\"bench\":\"fair\",\"figure\":\"{name}\",{}}}", values.join(","));
    } else {
        let values: Vec<String> = values.iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
        println!("{name}: {}", values.join(", "));
    }
}

/// The server's time for a release that hands over, behind which one waits, or ten thousand: the mean of many, without
/// anything between them but the newcomers that keep the queue as long as it is.
fn hand_over_at_any_length() {
    let (mut short, mut long) = (scene::waiting(1), scene::waiting(MANY));
    let (mut at_one, mut at_many, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..9 {
        let round = |scene: &mut Scene| scene.turns(200);
        let (one, many) = (round(&mut short), round(&mut long));
        at_one.push(one);
        at_many.push(many);
        ratios.push(many / one);
    }
    let floor = floor(&mut short.rig);
    let (one, many) = (median(at_one), median(at_many));
    figure(
        "hand-over",
        &[
            ("at_1_us", one),
            ("at_10000_us", many),
            ("ratio", median(ratios)),
            ("x_floor_at_1", one / floor),
            ("x_floor_at_10000", many / floor),
        ],
    );
}

/// The rewrite of a list of mostly departed tickets: how long it takes for each entry, and how often it comes where
/// whoever joins also leaves.
fn rewrites() {
    let mut per_entry = Vec::new();
    for _ in 0..5 {
        let mut scene = scene::left();
        let entries = scene.length() as f64;
        let (rewrote, micros) = scene.join_once();
        assert!(rewrote, "a list of departed tickets is rewritten");
        per_entry.push(micros / entries);
    }
    let mut scene = scene::waiting(1);
    let enqueues = 5_000;
    let rewrites = (0..enqueues).filter(|_| scene.join_and_leave()).count();
    figure(
        "rewrite",
        &[
            ("us_per_entry", median(per_entry)),
            ("rewrites", rewrites as f64),
            ("enqueues", f64::from(enqueues)),
            ("per_1000_enqueues", rewrites as f64 * 1_000.0 / f64::from(enqueues)),
        ],
    );
}

//! The suite of `tests/suite` on each back end.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use lockwright::internals::embedded::Instruments;
use lockwright::{Client, ClientBuilder, Engine};

use crate::suite::{self, Capability, Deployment, for_each_case};
use crate::support::server::Server;
use crate::support::time::eventually;

/// Makes a test of every case for one back end.
macro_rules! suite {
    ($back_end:ident, $start:expr) => {
        mod $back_end {
            use super::*;
            for_each_case! { tests! ($start) }
        }
    };
}

macro_rules! tests {
    (($start:expr) $([$needs:ident] $topic:ident { $($case:ident,)* })*) => {
        $(mod $topic {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    suite::run($start, Capability::$needs, suite::$topic::$case).await;
                }
            )*
        })*
    };
}

suite!(redis, Redis::start());
suite!(embedded, Embedded::default());

/// A `redis-server` of the test's own.
struct Redis(Server);

impl Redis {
    fn start() -> Self {
        Self(Server::start())
    }

    /// The keys of the server that a lock or a queue would leave.
    fn leftovers(&self) -> Vec<String> {
        let mut keys = self.0.connection().ok(&["KEYS", "*"]).texts();
        keys.retain(|key| !stays(key));
        keys
    }
}

impl Deployment for Redis {
    const CAPABILITIES: &'static [Capability] =
        &[Capability::Reentrant, Capability::Fair, Capability::ReadWrite];

    async fn client_with(&self, customise: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        let builder = Client::builder().url(self.0.url());
        customise(builder).connect().await.expect("the server is there")
    }

    /// Only counters and the layout stay, and the counters not for ever.
    async fn check_left(&self) {
        eventually("a server without locks", || self.leftovers().is_empty()).await;
        let mut outside = self.0.connection();
        for key in outside.ok(&["KEYS", "*:token"]).texts() {
            let life = outside.ok(&["PTTL", &key]).int();
            assert!((1..=25 * 3_600 * 1_000).contains(&life), "{key} lives for {life} ms");
        }
    }
}

/// An engine in this process.
#[derive(Default)]
struct Embedded(Engine);

impl Embedded {
    fn leftovers(&self) -> Vec<String> {
        let keys = self.0.keys().into_iter().map(|key| String::from_utf8(key).expect("our keys are UTF-8"));
        keys.filter(|key| !stays(key)).collect()
    }
}

impl Deployment for Embedded {
    const CAPABILITIES: &'static [Capability] =
        &[Capability::Reentrant, Capability::Fair, Capability::ReadWrite];

    async fn client_with(&self, customise: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        customise(Client::builder()).embedded_on(&self.0).expect("the settings are valid")
    }

    async fn check_left(&self) {
        eventually("an engine without locks", || self.leftovers().is_empty()).await;
    }
}

/// Whether a key is meant to stay when all is released: a lock's counter, a fenced value, or the layout.
fn stays(key: &str) -> bool {
    ["}:token", "}:fenced", ":layout"].iter().any(|end| key.ends_with(end))
}

/// The check after each case can fail.
#[tokio::test]
async fn what_is_held_is_seen_from_outside_and_gone_after_the_release() {
    let redis = Redis::start();
    let client = redis.client().await;
    let (held, _other) = (client.lock("held").lock().await, client.lock("other").lock().await);
    let waiting = tokio::spawn(redis.client().await.lock("held").lock());
    suite::until_waiting(&client, "held", 1).await;
    let keys: BTreeSet<String> = redis.leftovers().into_iter().collect();
    let wanted = ["lw:{held}", "lw:{held}:queue", "lw:{held}:waiting", "lw:{other}"];
    assert_eq!(keys, wanted.map(str::to_owned).into());
    waiting.abort();
    drop(held);
    drop(_other);
    redis.check_left().await;
    let mut keys = redis.0.connection().ok(&["KEYS", "*"]).texts();
    keys.sort();
    assert_eq!(keys, ["lw:layout", "lw:{held}:token", "lw:{other}:token"]);
}

// ---- that nothing is missing ---------------------------------------------------------------------------------------

macro_rules! names {
    (() $([$needs:ident] $topic:ident { $($case:ident,)* })*) => {
        &[$($((Capability::$needs, concat!(stringify!($topic), "::", stringify!($case))),)*)*]
    };
}
const CASES: &[(Capability, &str)] = for_each_case! { names! () };

#[test]
fn every_case_that_is_written_is_listed() {
    let mut written = BTreeSet::new();
    for entry in fs::read_dir(tests_folder().join("suite")).expect("the suite can be listed") {
        let path = entry.expect("the suite can be listed").path();
        let text = fs::read_to_string(&path).expect("a file of the suite is UTF-8");
        let topic = path.file_stem().and_then(|stem| stem.to_str()).expect("a topic's name").to_owned();
        for rest in text.split("\npub async fn ").skip(1) {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            if rest[name.len()..].starts_with("<D: Deployment>(on: &D)") {
                written.insert(format!("{topic}::{name}"));
            }
        }
    }
    let listed: BTreeSet<String> = CASES.iter().map(|&(_, name)| name.to_owned()).collect();
    assert_eq!(listed, written);
    assert_eq!(listed.len(), CASES.len(), "a case is listed twice");
}

#[test]
fn every_back_end_runs_every_case() {
    let back_ends = back_ends();
    assert!(!back_ends.is_empty());
    let tests = own_tests(&[]);
    let ignored = own_tests(&["--ignored"]);
    for back_end in back_ends {
        for (_, case) in CASES {
            let test = format!("conformance::{back_end}::{case}: test");
            assert!(tests.contains(&test), "{test} is not run");
            assert!(!ignored.contains(&test), "{test} is ignored");
        }
    }
}

/// A capability that some case needs, so that a back end which claims it runs something.
#[test]
fn every_capability_that_is_claimed_has_cases() {
    for capability in Redis::CAPABILITIES {
        assert!(CASES.iter().any(|(needs, _)| needs == capability), "{capability:?}");
    }
}

#[test]
fn every_back_end_of_the_library_has_a_suite() {
    let folder = tests_folder().join("../src/backend");
    let folders = fs::read_dir(folder).expect("src can be listed").filter_map(Result::ok);
    let written: BTreeSet<String> = folders
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().expect("a module's name"))
        .collect();
    assert_eq!(back_ends(), written);
}

/// The back ends that have a suite here, read from the text: whatever features this binary has.
fn back_ends() -> BTreeSet<String> {
    let lines = include_str!("conformance.rs").lines();
    lines.filter_map(|line| line.strip_prefix("suite!(")?.split(',').next()).map(str::to_owned).collect()
}

fn tests_folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The tests that this binary would run.
fn own_tests(arguments: &[&str]) -> BTreeSet<String> {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args(["--list", "--format", "terse"]).args(arguments).output();
    let text = String::from_utf8(output.expect("it runs").stdout).expect("names are UTF-8");
    text.lines().map(str::to_owned).collect()
}

//! The examples do what they say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::server::Server;

/// Builds the examples, once for all tests, and returns the program of one. With all features, as `scripts/test` builds
/// everything.
fn build(name: &str) -> PathBuf {
    static PROGRAMS: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    PROGRAMS.get_or_init(build_all).get(name).unwrap_or_else(|| panic!("no example {name}")).clone()
}

fn build_all() -> BTreeMap<String, PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What cargo tells this test of its package would make it build dependencies anew that look at it.
    for (name, _) in std::env::vars_os() {
        let told = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if name.to_str().is_some_and(|name| told.iter().any(|prefix| name.starts_with(prefix))) {
            cargo.env_remove(name);
        }
    }
    let output = cargo
        .args(["build", "--all-features", "--message-format", "json-render-diagnostics", "--examples"])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let messages = text(&output.stdout);
    let messages =
        messages.lines().map(|line| serde_json::from_str::<Value>(line).expect("cargo prints JSON"));
    let program = |message: Value| {
        Some((message["target"]["name"].as_str()?.to_owned(), message["executable"].as_str()?.into()))
    };
    messages.filter_map(program).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs an example, without anything on the path that it could start.
fn run(name: &str, arguments: &[&str]) -> Output {
    Command::new(build(name)).args(arguments).env("PATH", "").output().expect("it runs")
}

/// What an example prints that goes well.
fn printed(name: &str, arguments: &[&str]) -> String {
    let output = run(name, arguments);
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// On the engine, and on a server. What was left on the server is given back.
fn everywhere(name: &str, arguments: &[&str], check: impl Fn(&str)) {
    check(&printed(name, arguments));
    let server = Server::start();
    let url = server.url();
    let mut with_server = vec!["--redis", &url];
    with_server.extend(arguments);
    check(&printed(name, &with_server));
    let keys = server.connection().ok(&["KEYS", "*"]).texts();
    assert!(keys.iter().any(|key| key.ends_with(":token")), "it did not use that server: {keys:?}");
    let stays = |key: &String| [":token", ":fenced", "lw:layout"].iter().any(|end| key.ends_with(end));
    assert!(keys.iter().all(stays), "{keys:?}");
}

/// The lines of `text` in which these words stand, one after the other, in this order.
#[track_caller]
fn in_order(text: &str, words: &[&str]) {
    let mut lines = text.lines();
    for word in words {
        assert!(lines.any(|line| line.contains(word)), "{word:?} does not come in its place:\n{text}");
    }
}

/// The numbers in a row of the table of a sale.
fn row(table: &str, kind: &str) -> Vec<u64> {
    let row = table.lines().find_map(|line| line.strip_prefix(kind)).unwrap_or_else(|| panic!("{table}"));
    row.split_whitespace().map(|cell| cell.parse().expect("a number")).collect()
}

#[test]
fn a_flash_sale_oversells_without_the_lock_and_never_with_it() {
    everywhere("flash_sale", &["--stock", "30", "--json"], |printed| {
        let figures: Value = serde_json::from_str(printed.lines().last().expect("a line")).expect("JSON");
        let number = |sale: &str, field: &str| figures[sale][field].as_u64().expect(field);
        assert!(number("without_lock", "oversold") > 0, "{figures}");
        assert_eq!(number("without_lock", "sold"), 30 + number("without_lock", "oversold"));
        assert_eq!((number("with_lock", "sold"), number("with_lock", "oversold")), (30, 0));
        assert!(number("with_lock", "sections_per_s") > 0, "{figures}");
        let (p50, p99) = (number("with_lock", "handover_p50_us"), number("with_lock", "handover_p99_us"));
        assert!(p50 > 0 && p50 <= p99, "{figures}");
    });
}

#[test]
fn a_flash_sale_with_fencing_refuses_the_worker_that_comes_late() {
    everywhere("flash_sale", &["--workers", "2", "--stock", "20", "--fencing"], |table| {
        assert_eq!(row(table, "with a lock")[..3], [20, 0, 0], "{table}");
        let stops = row(table, "a worker stops");
        assert!(stops[1] > 0 && stops[2] == 0, "a late write sells again what was sold: {table}");
        assert_eq!(row(table, "it stops, with fencing")[..3], [20, 0, 1], "{table}");
    });
}

#[test]
fn a_flash_sale_shows_what_it_does_and_says_what_it_does_not_understand() {
    let output = run("flash_sale", &["--stock", "3"]);
    assert!(text(&output.stderr).contains("without a lock: "), "{}", text(&output.stderr));
    for (arguments, what) in [
        (["--redis", "http://nowhere", "--stock", "3"], "invalid URL"),
        (["--stok", "3", "", ""], "--stock N"),
    ] {
        let output = run("flash_sale", &arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(what), "{}", text(&output.stderr));
    }
}

#[test]
fn a_recursive_call_needs_an_owner() {
    everywhere("recursive", &[], |printed| {
        in_order(
            printed,
            &[
                "without an owner",
                "depth 0: inside",
                "  depth 1: not let in",
                "with an owner",
                "      depth 3: inside",
                "4 levels deep",
                "the caller: inside",
                "the service: not let in",
                "sent along",
                "the service: inside",
                "free again: true",
            ],
        );
        let tokens = |who: &str| {
            let lines = printed.lines().filter(|line| line.contains(who));
            lines.filter_map(|line| line.split("token ").nth(1)).collect::<BTreeSet<_>>()
        };
        assert_eq!(tokens("the caller"), tokens("the service"), "{printed}");
    });
}

#[test]
fn a_holder_that_stops_loses_its_lock_and_hears_of_it() {
    everywhere("lost_lock", &[], |printed| {
        in_order(
            printed,
            &[
                "the first: holds the lock",
                "still held: true",
                "the first: stops",
                "no longer held",
                "the second: holds the lock",
                "is_held() says false",
                "lost() says: the lease ended",
                "unlock() says: the lock was lost",
                "the second: released",
            ],
        );
    });
}

#[test]
fn a_late_write_is_refused() {
    everywhere("fencing", &[], |printed| {
        let late = "the slow one:  wants to write \"slow, page 2\" and is refused";
        in_order(
            printed,
            &["writes \"slow, page 1\"", "writes \"quick, page 1\"", late, "\"quick, page 1\", written"],
        );
        assert!(printed.contains("AND token <= $2"), "{printed}");
    });
}

#[test]
fn jobs_are_done_in_order_though_a_runner_is_killed() {
    everywhere("job_runner", &["--jobs", "8"], |printed| {
        let jobs: Vec<String> = (1..=8).map(|job| format!(" job {job}")).collect();
        in_order(printed, &jobs.iter().map(String::as_str).collect::<Vec<_>>());
        in_order(printed, &["runner 4", "before", "killed", "8 jobs are done, in "]);
        // One more than there are jobs, or a few where turns were lost, too.
        let turns = printed.split("done, in ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        assert!((9..12).contains(&turns.expect("a number")), "{printed}");
        // Whatever it was doing is begun once more, by somebody else.
        let rows: Vec<&str> = printed.lines().skip(3).collect();
        let job = |row: &&str| -> Option<u64> {
            let cells = row.split(" job ").skip(1);
            cells.filter_map(|rest| rest.split(' ').next()?.parse().ok()).max()
        };
        let killed = rows.iter().position(|row| row.contains("killed")).expect("one is killed");
        let begun = rows[..killed].iter().filter_map(job).max();
        assert!(begun.is_some() && job(&rows[killed + 1]) == begun, "{printed}");
    });
}

#[test]
fn a_test_with_its_own_clock_takes_no_time() {
    let printed = printed("testing", &[]);
    in_order(&printed, &["10 s: done", "somebody else does it", "took too long", "really: true"]);
}

/// An example that is added must be run here; each is short.
#[test]
fn every_example_is_run_and_short() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let own = include_str!("examples.rs");
    let mut seen = 0;
    for path in std::fs::read_dir(folder).expect("there are examples").map(|entry| entry.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
            assert!(own.contains(&format!("(\"{name}\", ")), "{name} is not run");
            let lines = std::fs::read_to_string(&path).expect("UTF-8").lines().count();
            assert!(lines < 100, "{name} has {lines} lines");
            seen += 1;
        }
    }
    assert!(seen >= 5);
}

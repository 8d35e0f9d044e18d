//! How many instructions the paths of a client take that no server has a part in, counted by callgrind: a guard
//! against regressions that the noise of a machine cannot trip. It fails where a path takes more than
//! `instructions.txt` says, by 3 %; by 15 % where another compiler was used.
//!
//! ```text
//! cargo bench --bench instructions                 compare
//! cargo bench --bench instructions -- --record     write benches/instructions.txt anew
//! ```
#![allow(clippy::disallowed_methods, missing_docs, reason = "a bench counts what it likes")]

#[path = "instructions/paths.rs"]
mod paths;

use std::fmt::Write;
use std::process::{Command, ExitCode};

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt");
/// A path is run this often, and twice as often: the difference is free of what goes before and after.
const TIMES: u64 = 2_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--path") {
        paths::run(&args[at + 1], args[at + 2].parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    let compiler = compiler();
    let counts: Vec<(&str, f64)> = paths::ALL.iter().map(|&path| (path, count(path))).collect();
    if args.iter().any(|arg| arg == "--record") {
        std::fs::write(RECORD, record(&compiler, &counts)).expect("the record can be written");
        print!("{}", record(&compiler, &counts));
        return ExitCode::SUCCESS;
    }
    let known = std::fs::read_to_string(RECORD).expect("there is a record");
    compare(&known, &compiler, &counts)
}

/// The compiler, and the machine's architecture.
fn compiler() -> String {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(program).arg("--version").output().expect("rustc runs");
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    format!("{version}, {}", std::env::consts::ARCH)
}

fn record(compiler: &str, counts: &[(&str, f64)]) -> String {
    let mut text = format!("compiler {compiler}\n");
    for (path, count) in counts {
        writeln!(text, "{path} {count:.0}").expect("a string takes everything");
    }
    text
}

/// The instructions of one pass through a path.
fn count(path: &str) -> f64 {
    let (once, twice) = (collected(path, TIMES), collected(path, 2 * TIMES));
    (twice - once) as f64 / TIMES as f64
}

fn collected(path: &str, times: u64) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--path", path, &times.to_string()])
        .output()
        .expect("valgrind must be installed");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{path}: {text}");
    let number = text.split("Collected :").nth(1).and_then(|rest| rest.split_whitespace().next());
    number.unwrap_or_else(|| panic!("no count: {text}")).parse().expect("a number")
}

fn compare(known: &str, compiler: &str, counts: &[(&str, f64)]) -> ExitCode {
    let value = |name: &str| known.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let recorded = value("compiler").expect("the record names its compiler");
    let tolerance = if recorded == compiler { 3.0 } else { 15.0 };
    if recorded != compiler {
        println!("recorded with {recorded}; this is {compiler}: {tolerance} % are tolerated instead of 3 %");
    }
    let mut all_is_well = true;
    println!("{:10}{:>12}{:>12}{:>9}", "path", "recorded", "now", "change");
    for (path, now) in counts {
        let before: f64 = value(path).expect("the record has every path").parse().expect("a number");
        let change = (now / before - 1.0) * 100.0;
        let remark = match change {
            change if change > tolerance => "  too many",
            change if change < -tolerance => "  fewer: record it",
            _ => "",
        };
        all_is_well &= change <= tolerance;
        println!("{path:10}{before:>12.0}{now:>12.0}{change:>+8.1}%{remark}");
    }
    if all_is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

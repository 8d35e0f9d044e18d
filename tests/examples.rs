//! The examples do what they say.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::server::Server;

/// Builds an example and returns its program. With all features, as `scripts/test` builds everything.
fn build(name: &str) -> PathBuf {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What cargo tells a test of its package would make the build scripts of others run again, here and after it.
    for (variable, _) in std::env::vars_os() {
        let told = ["CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|start| variable.to_string_lossy().starts_with(start));
        if told {
            cargo.env_remove(variable);
        }
    }
    let output = cargo
        .args(["build", "--all-features", "--message-format", "json-render-diagnostics", "--example", name])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
    let messages =
        messages.lines().map(|line| serde_json::from_str::<Value>(line).expect("cargo prints JSON"));
    let mut programs = messages.filter(|message| message["target"]["name"] == name);
    programs.find_map(|message| message["executable"].as_str().map(PathBuf::from)).expect("a program")
}

fn flash_sale(arguments: &[&str]) -> Command {
    let mut command = Command::new(build("flash_sale"));
    command.args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What stands in the last line of a sale that went well.
fn figures(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let line = printed.lines().last().expect("a last line");
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_flash_sale_oversells_without_the_lock_and_never_with_it() {
    let output = flash_sale(&["--stock", "30", "--json"]).output().expect("it runs");
    let figures = figures(&output);
    let number = |sale: &str, field: &str| figures[sale][field].as_u64().expect(field);
    let sold = number("without_lock", "sold");
    assert!(number("without_lock", "oversold") > 0, "{figures}");
    assert_eq!(sold, 30 + number("without_lock", "oversold"));
    assert_eq!((number("with_lock", "sold"), number("with_lock", "oversold")), (30, 0));
    assert!(number("with_lock", "sections_per_s") > 0, "{figures}");
    let (p50, p99) = (number("with_lock", "handover_p50_us"), number("with_lock", "handover_p99_us"));
    assert!(p50 > 0 && p50 <= p99, "{figures}");
    // It shows what it does while it does it, beside the figures.
    assert!(text(&output.stderr).contains("without a lock: "), "{}", text(&output.stderr));
}

#[test]
fn a_flash_sale_runs_on_a_given_server() {
    let server = Server::start();
    let output = flash_sale(&["--redis", &server.url(), "--workers", "2", "--stock", "10"]).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let row = table.lines().find(|line| line.starts_with("with a lock")).expect("a row");
    let cells: Vec<&str> = row.split_whitespace().skip(3).collect();
    assert_eq!(cells[..2], ["10", "0"], "{table}");
    let keys = server.connection().ok(&["KEYS", "*"]).texts();
    assert!(keys.iter().any(|key| key.ends_with(":token")), "it did not use that server: {keys:?}");
    assert!(keys.iter().all(|key| key.ends_with(":token") || key == "lw:layout"), "{keys:?}");
}

#[test]
fn a_flash_sale_without_a_server_says_what_to_do() {
    let output = flash_sale(&["--stock", "3"]).env("PATH", "").output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("apt-get install redis-server"), "{}", text(&output.stderr));
    let output = flash_sale(&["--redis", "http://nowhere", "--stock", "3"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("invalid URL"), "{}", text(&output.stderr));
    let output = flash_sale(&["--stok", "3"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--stock N"), "{}", text(&output.stderr));
}

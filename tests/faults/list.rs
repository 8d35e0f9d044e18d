//! The list of faults and the list of their tests agree, and each test that is named is there and is run.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const FAULTS: &str = include_str!("../../docs/faults.md");
const TESTS: &str = include_str!("../faults.toml");

/// Every id that there is, so that none can be taken out of both lists.
const ALL: &str = "A1-A7 A9-A15 B1-B4 B6-B14 B16-B22 C1-C7 C9-C10 C12-C15 C17-C29 D1-D24 D26-D26 D28-D29 D31-D40 E1-E16 \
                   F1n-F3n F5n-F10n G1-G6 G8-G8 G10-G10";

fn all() -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for range in ALL.split_whitespace() {
        let (first, last) = range.split_once('-').expect("a range");
        let number = |id: &str| id[1..].trim_end_matches('n').parse::<u32>().expect("a number");
        let end = if first.ends_with('n') { "n" } else { "" };
        ids.extend((number(first)..=number(last)).map(|number| format!("{}{number}{end}", &first[..1])));
    }
    ids
}

/// The ids of the tables, each with what stands behind it.
fn listed(text: &str) -> BTreeMap<String, String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let is_id = |id: &str| {
        let digits = id.get(1..).unwrap_or_default().trim_end_matches('n');
        id.starts_with(|first: char| ('A'..='G').contains(&first)) && digits.parse::<u32>().is_ok()
    };
    let mut found = BTreeMap::new();
    for (id, rest) in rows.filter(|(id, _)| is_id(id)) {
        assert!(rest.split(" | ").count() == 2 && rest.len() > 20, "{id} says nothing: {rest}");
        assert!(found.insert(id.to_owned(), rest.to_owned()).is_none(), "{id} is listed twice");
    }
    found
}

/// The lines `id = "text"`.
fn tested(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let pair = line.split_once(" = \"").and_then(|(id, text)| Some((id, text.strip_suffix('"')?)));
        let (id, text) = pair.unwrap_or_else(|| panic!("no id and text: {line}"));
        assert!(found.insert(id.to_owned(), text.to_owned()).is_none(), "{id} is tested twice");
    }
    found
}

/// What is wrong with a list of tests.
fn complaints(
    faults: &BTreeSet<String>,
    tests: &BTreeMap<String, String>,
    run: &BTreeSet<String>,
) -> Vec<String> {
    let missing = faults.iter().filter(|id| !tests.contains_key(*id)).map(|id| format!("{id} has no line"));
    let unknown = tests.keys().filter(|id| !faults.contains(*id)).map(|id| format!("{id} is no fault"));
    let wrong = tests.iter().filter_map(|(id, text)| match text.strip_prefix("reason: ") {
        Some(reason) => (reason.len() < 10).then(|| format!("{id} gives no reason")),
        None => (!run.contains(text)).then(|| format!("{id}: there is no test {text}")),
    });
    missing.chain(unknown).chain(wrong).collect()
}

/// The tests of this binary that are run.
fn run() -> BTreeSet<String> {
    let list = |arguments: &[&str]| -> BTreeSet<String> {
        let program = std::env::current_exe().expect("this program");
        let output = Command::new(program).args(["--list", "--format", "terse"]).args(arguments).output();
        let text = String::from_utf8(output.expect("it runs").stdout).expect("names are UTF-8");
        text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
    };
    list(&[]).difference(&list(&["--ignored"])).cloned().collect()
}

#[test]
fn every_fault_has_its_test_or_a_reason() {
    let listed: BTreeSet<String> = listed(FAULTS).into_keys().collect();
    assert_eq!(listed, all());
    let complaints = complaints(&listed, &tested(TESTS), &run());
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The comparison finds what it is there for.
#[test]
fn each_fault_of_the_lists_is_found() {
    let ids = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect::<BTreeSet<_>>();
    let run = ids(&["a::test"]);
    let tests = tested("# a comment\n\nA1 = \"a::test\"\nA2 = \"reason: it cannot be shown\"\n");
    assert_eq!(complaints(&ids(&["A1", "A2"]), &tests, &run), Vec::<String>::new());
    assert_eq!(complaints(&ids(&["A1", "A2", "A3"]), &tests, &run), ["A3 has no line"]);
    assert_eq!(complaints(&ids(&["A1"]), &tests, &run), ["A2 is no fault"]);
    assert_eq!(complaints(&ids(&["A1", "A2"]), &tests, &ids(&[])), ["A1: there is no test a::test"]);
    assert_eq!(complaints(&ids(&["A1"]), &tested("A1 = \"reason: \""), &run), ["A1 gives no reason"]);
}

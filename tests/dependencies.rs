//! What a user takes in with the library: permissive licences only, and each crate once.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Licences that ask for no more than to be named.
const PERMISSIVE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that are there in more than one version, and who keeps them.
const TWICE: &[(&str, &str)] = &[
    ("getrandom", "fred's rand 0.8 (and ring) use 0.2; uuid and tempfile use 0.4"),
    ("socket2", "fred hands out sockets of 0.5; tokio uses 0.6"),
    ("syn", "derive macros move from 2 to 3 one by one; at compile time only"),
    ("windows-sys", "on Windows only; each crate that calls the system pins its own"),
];

#[test]
fn every_licence_is_permissive() {
    let packages = packages();
    assert!(packages.len() > 50, "only {} packages were read", packages.len());
    let odd: Vec<String> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(is_permissive))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(odd.is_empty(), "not known to be permissive:\n{}", odd.join("\n"));
}

#[test]
fn no_crate_is_there_twice_without_a_reason() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        versions.entry(text(&package["name"])).or_default().insert(text(&package["version"]));
    }
    let found: BTreeSet<&str> =
        versions.iter().filter(|(_, versions)| versions.len() > 1).map(|(name, _)| name.as_str()).collect();
    let allowed: BTreeSet<&str> = TWICE.iter().map(|(name, _)| *name).collect();
    let new: Vec<String> =
        found.difference(&allowed).map(|name| format!("{name}: {:?}", versions[*name])).collect();
    assert!(new.is_empty(), "in several versions (`cargo tree -d` tells why): {new:?}");
    let stale: Vec<_> = allowed.difference(&found).collect();
    assert!(stale.is_empty(), "no longer there twice, so take them off the list: {stale:?}");
}

/// A `rust-version` that some dependency contradicts is a promise that nobody can use.
#[test]
fn no_dependency_needs_a_newer_rust() {
    let packages = packages();
    let version = |package: &Value| -> Option<(u32, u32)> {
        let mut parts =
            package["rust_version"].as_str()?.split('.').map(|part| part.parse().expect("a number"));
        Some((parts.next()?, parts.next()?))
    };
    let own =
        packages.iter().find(|package| package["name"] == env!("CARGO_PKG_NAME")).expect("this package");
    let own = version(own).expect("Cargo.toml names a rust-version");
    let newer: Vec<&Value> = packages.iter().filter(|package| version(package) > Some(own)).collect();
    let newer: Vec<String> = newer.iter().map(|package| format!("{}", package["id"])).collect();
    assert!(newer.is_empty(), "they need a newer Rust than {own:?}: {newer:?}");
}

#[test]
fn expressions_are_read_as_their_standard_says() {
    for (expression, permissive) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("MIT OR GPL-3.0-only", true),
        ("GPL-3.0-only/MIT", true),
        ("MIT AND GPL-3.0-only", false),
        // AND binds closer than OR.
        ("GPL-3.0-only AND MIT OR ISC", true),
        ("GPL-3.0-only AND (MIT OR ISC)", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", true),
        ("Apache-2.0 WITH Some-exception", false),
        ("MIT OR", false),
        ("MIT)", false),
        ("(MIT", false),
        ("", false),
    ] {
        assert_eq!(is_permissive(expression), permissive, "{expression:?}");
    }
}

/// Everything that any feature on any target brings in, tests included.
fn packages() -> Vec<Value> {
    let mut metadata: Value = serde_json::from_slice(&metadata()).expect("cargo metadata prints JSON");
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("no packages: {other}"),
    }
}

fn metadata() -> Vec<u8> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--all-features", "--locked"])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// Whether an SPDX expression lets everybody choose permissive licences only. What cannot be read is not.
fn is_permissive(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Expression { words: &words };
    reader.any().is_some_and(|permissive| permissive && reader.words.is_empty())
}

struct Expression<'a> {
    words: &'a [&'a str],
}

impl<'a> Expression<'a> {
    fn take(&mut self, wanted: &str) -> bool {
        let found = self.words.first() == Some(&wanted);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn word(&mut self) -> Option<&'a str> {
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        Some(word)
    }

    fn any(&mut self) -> Option<bool> {
        let mut permissive = self.all()?;
        while self.take("OR") {
            permissive |= self.all()?;
        }
        Some(permissive)
    }

    fn all(&mut self) -> Option<bool> {
        let mut permissive = self.one()?;
        while self.take("AND") {
            permissive &= self.one()?;
        }
        Some(permissive)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let permissive = self.any()?;
            return self.take(")").then_some(permissive);
        }
        let mut name = self.word()?.to_owned();
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.word()?);
        }
        Some(PERMISSIVE.contains(&name.as_str()))
    }
}

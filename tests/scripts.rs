//! The scripts as texts: headers against bodies, Rust types and a live server; and what was shipped.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use lockwright::internals::backend::Value;
use lockwright::internals::name::{LockKeys, Namespace};
use lockwright::internals::scripts::*;
use lockwright::internals::ticket::{ClientId, Ticket, Tickets};
use sha1::{Digest, Sha1};

use crate::protocol::rig::{Rig, owner, set_arg};
use crate::support::server::Server;
use header::{Header, Slot};

mod header;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/lua");

/// The text without comments.
fn code(script: &Script) -> String {
    script.text.lines().map(|line| line.split("--").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// What stands between `open` and `close`, wherever it does.
fn between<'a>(text: &'a str, open: &str, close: char) -> Vec<&'a str> {
    text.split(open).skip(1).filter_map(|rest| rest.split(close).next()).collect()
}

/// The slots of `KEYS` or `ARGV` that the body reads, in the form of the header.
fn slots_read(code: &str, array: &str) -> BTreeSet<String> {
    between(code, &format!("{array}["), ']').iter().map(|slot| slot.replace([' ', '*'], "")).collect()
}

fn names(slots: &[Slot]) -> BTreeSet<String> {
    slots.iter().map(|slot| slot.index.clone()).collect()
}

#[test]
fn headers_name_the_script_and_every_slot_that_its_body_reads() {
    for script in ALL {
        let header = Header::of(script);
        assert_eq!((header.name.as_str(), header.version), (script.name, script.version));
        assert_eq!(header.layout, LAYOUT, "{}", script.name);
        assert!(!header.effect.is_empty());
        let code = code(script);
        assert_eq!(slots_read(&code, "KEYS"), names(&header.keys), "KEYS of {}", script.name);
        assert_eq!(slots_read(&code, "ARGV"), names(&header.args), "ARGV of {}", script.name);
    }
}

#[test]
fn headers_name_every_command_and_every_message() {
    for script in ALL {
        let (header, code) = (Header::of(script), code(script));
        let commands: BTreeSet<&str> = ["redis.call('", "redis.pcall('", "peek('"]
            .iter()
            .flat_map(|open| between(&code, open, '\''))
            .collect();
        assert_eq!(commands, header.needs.iter().map(String::as_str).collect(), "NEEDS of {}", script.name);
        let calls = code.matches("redis.call(").count() + code.matches("redis.pcall(").count();
        let named = code.matches("redis.call('").count() + code.matches("redis.pcall('").count();
        // `peek` passes on what it is given, twice.
        assert_eq!(calls - named, 2 * code.matches("function peek(").count(), "{}", script.name);
        for message in ["grant", "held", "lost"] {
            let is_sent = code.contains(&format!("'{message}'")) || code.contains(&format!("'{message} '"));
            let is_told = header.wakes.iter().any(|wake| wake == message);
            assert_eq!(is_sent, is_told, "{message} in {}", script.name);
        }
    }
}

/// Two calls of each script: with everything that it can carry, and with as little (`renew`: with one hold, and
/// with a hundred).
fn sample_calls() -> BTreeMap<&'static str, (Call, Call)> {
    let keys = LockKeys::new(&Namespace::default(), "sample").unwrap();
    let tickets = Tickets::new(ClientId::random());
    let terms = Terms { claim_millis: 3_000, deadline_millis: 10_000, sharded: false, counted: true };
    let (deaf, not_after_millis, wait) = (false, 7, Wait::Join);
    let full = Attempt {
        ticket: tickets.next(),
        mode: Mode::Read,
        owner: Some(owner(1)),
        lease_millis: 1_000,
        block: 64,
        label: Some("label".into()),
    };
    let bare = Attempt { owner: None, label: Some(String::new()), ..full.clone() };
    let of = |kind, attempt: &Attempt| match kind {
        Kind::ReadWrite => attempt.clone(),
        _ => Attempt { mode: Mode::Exclusive, ..attempt.clone() },
    };
    let acquire = |kind, attempt| {
        let attempt = &of(kind, attempt);
        Acquire { keys: &keys, kind, attempt, wait, not_after_millis, deaf, terms }.call()
    };
    let leave = |kind, next: Option<&Attempt>| {
        let (ticket, next) = (tickets.next(), next.map(|next| of(kind, next)));
        let next = next.as_ref().map(|next| (next, not_after_millis));
        Leave { keys: &keys, kind, ticket, next, deaf, terms }.call()
    };
    let downgrade = |read| Downgrade { keys: &keys, write: tickets.next(), read, terms }.call();
    let hold = RenewHold { keys: keys.clone(), ticket: tickets.next(), lease_millis: 1_000 };
    let renew =
        |count| Renew { holds: &vec![hold.clone(); count], deadline_millis: terms.deadline_millis }.call();
    let force = ForceRelease { keys: &keys, token: 9, goes_on: false, terms }.call();
    let inspect = Inspect { keys: &keys }.call();
    let set = FencedSet { keys: &keys, token: 9, ticket: tickets.next(), value: "12" }.call();
    let get = FencedGet { keys: &keys }.call();
    BTreeMap::from([
        ("fair/acquire", (acquire(Kind::Fair, &full), acquire(Kind::Fair, &bare))),
        ("fair/leave", (leave(Kind::Fair, Some(&full)), leave(Kind::Fair, None))),
        ("read_write/acquire", (acquire(Kind::ReadWrite, &full), acquire(Kind::ReadWrite, &bare))),
        ("read_write/leave", (leave(Kind::ReadWrite, Some(&full)), leave(Kind::ReadWrite, None))),
        ("read_write/downgrade", (downgrade(&full), downgrade(&bare))),
        ("reentrant/acquire", (acquire(Kind::Reentrant, &full), acquire(Kind::Reentrant, &bare))),
        ("reentrant/leave", (leave(Kind::Reentrant, Some(&full)), leave(Kind::Reentrant, None))),
        ("common/renew", (renew(1), renew(100))),
        ("common/force_release", (force.clone(), force)),
        ("common/inspect", (inspect.clone(), inspect)),
        ("fenced/set", (set.clone(), set)),
        ("fenced/get", (get.clone(), get)),
    ])
}

#[test]
fn what_the_calls_send_is_what_the_headers_say() {
    let samples = sample_calls();
    let names: BTreeSet<&str> = ALL.iter().map(|script| script.name).collect();
    assert_eq!(samples.keys().copied().collect::<BTreeSet<_>>(), names);
    for script in ALL {
        let (header, name) = (Header::of(script), script.name);
        let (full, least) = &samples[name];
        for call in [full, least] {
            assert_eq!(call.script.name, name);
            for (at, key) in call.keys.iter().enumerate() {
                let slot = header.keys.iter().find(|slot| slot.is_at(at + 1)).expect(name);
                assert_eq!(key, slot.key().replacen('K', "lw:{sample}", 1), "{name}");
            }
            for (at, arg) in call.args.iter().enumerate() {
                let slot = header.args.iter().find(|slot| slot.is_at(at + 1)).expect(name);
                assert!(fits(arg, &slot.kind), "{name} ARGV[{}]: {arg:?} is no {}", at + 1, slot.kind);
            }
        }
        assert_eq!(full.keys.len(), header.keys.len(), "KEYS of {name}");
        assert_eq!(full.args.len(), header.args.len(), "ARGV of {name}");
        if !header.args.iter().any(|slot| slot.index.contains('n')) {
            let needed = header.args.iter().position(|slot| slot.text.contains("may be left out"));
            assert_eq!(least.args.len(), needed.unwrap_or(header.args.len()), "ARGV of {name}");
        }
    }
}

/// Whether an argument is of a type of the header.
fn fits(arg: &str, kind: &str) -> bool {
    match kind {
        "ms" | "count" | "token" => arg.parse::<u64>().is_ok_and(|number| number.to_string() == arg),
        "01" => ["0", "1"].contains(&arg),
        "012" => ["0", "1", "2"].contains(&arg),
        "terms" => {
            let terms: Vec<&str> = arg.split(' ').collect();
            let kinds = ["ms", "ms", "01", "01", "01"];
            terms.len() == kinds.len() && terms.iter().zip(kinds).all(|(term, kind)| fits(term, kind))
        }
        "ticket" => Ticket::parse(arg).is_some(),
        "request" => {
            let mut words = arg.splitn(5, ' ');
            let fit = |kind: &&str| words.next().is_some_and(|word| fits(word, kind));
            ["mode", "ms", "count", "owner"].iter().all(fit) && !arg.ends_with(' ')
        }
        "owner" => arg == "-" || arg.len() == 36,
        "mode" => Mode::parse(arg).is_some(),
        "text" => true,
        other => panic!("unknown type {other}"),
    }
}

/// A value of a type of the header.
fn sample(kind: &str) -> Value {
    let text = |text: &str| Value::Bulk(text.into());
    match kind {
        "ms" | "count" | "token" => Value::Int(1_785_000_000_000_123),
        "left" => Value::Int(-1),
        "01" => Value::Int(1),
        "ticket" => text("0f0e0d0c-0b0a-4908-8706-050403020100:7"),
        "kind" => text("fair"),
        "mode" => text("read"),
        "text" => text("any"),
        "array" => Value::Array(Vec::new()),
        word => match word.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
            Some(word) => text(word),
            None => panic!("unknown type {word}"),
        },
    }
}

/// The same reply as one text, as the usual cases give theirs.
fn as_text(items: &[Value]) -> Value {
    let word = |item: &Value| match item {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    Value::Bulk(items.iter().map(word).collect::<Vec<_>>().join(" ").into_bytes())
}

/// Which words the decoder of a script's replies knows, and whether it reads a value.
fn decoder(name: &str) -> (&'static [&'static str], fn(&Value) -> bool) {
    match name {
        "reentrant/acquire" | "fair/acquire" => {
            (AcquireReply::EXCLUSIVE_WORDS, |value| AcquireReply::decode(value).is_ok())
        }
        "read_write/acquire" => (AcquireReply::WORDS, |value| AcquireReply::decode(value).is_ok()),
        "reentrant/leave" | "fair/leave" | "read_write/leave" => {
            (LeaveReply::WORDS, |value| LeaveReply::decode(value).is_ok())
        }
        "read_write/downgrade" => (DowngradeReply::WORDS, |value| DowngradeReply::decode(value).is_ok()),
        "common/renew" => (RenewReply::WORDS, |value| RenewReply::decode(value).is_ok()),
        "common/force_release" => {
            (ForceReleaseReply::WORDS, |value| ForceReleaseReply::decode(value).is_ok())
        }
        "fenced/set" => (FencedSetReply::WORDS, |value| FencedSetReply::decode(value).is_ok()),
        "fenced/get" => (FencedGetReply::WORDS, |value| FencedGetReply::decode(value).is_ok()),
        "common/inspect" => (InspectReply::WORDS, |value| InspectReply::decode(value).is_ok()),
        other => panic!("no decoder for {other}"),
    }
}

#[test]
fn every_reply_of_a_header_is_decoded_and_no_other() {
    for script in ALL {
        let header = Header::of(script);
        let (words, reads) = decoder(script.name);
        let documented: BTreeSet<&str> = header.returns.iter().map(|reply| reply.word.as_str()).collect();
        assert_eq!(documented, words.iter().copied().collect(), "{}", script.name);
        for reply in &header.returns {
            for repeats in [0, 1, 3] {
                let items = |more: &[&str]| {
                    let mut items = vec![Value::Bulk(reply.word.clone().into_bytes())];
                    items.extend(reply.slots.iter().map(|slot| sample(slot)));
                    for _ in 0..repeats {
                        items.extend(reply.repeated.iter().map(|slot| sample(slot)));
                    }
                    items.extend(more.iter().map(|slot| sample(slot)));
                    items
                };
                // Somebody else's text has a place of its own, for it may have blanks.
                let has_texts = reply.slots.iter().chain(&reply.repeated).any(|slot| slot == "text");
                let text = as_text(&items(&[]));
                assert_eq!(reads(&text), !has_texts, "{text:?} of {}", script.name);
                if reply.repeated.is_empty() {
                    let mut short = items(&[]);
                    short.pop();
                    let (short, long) = (as_text(&short), as_text(&items(&["01"])));
                    assert!(!reads(&short) && !reads(&long), "{short:?} or {long:?} of {}", script.name);
                }
                if reply.slots.is_empty() {
                    continue;
                }
                assert!(reads(&Value::Array(items(&[]))), "{} of {}", reply.word, script.name);
                assert!(!reads(&Value::Array(items(&["array"]))), "{} with an item too many", reply.word);
                if reply.repeated.is_empty() {
                    let mut short = items(&[]);
                    short.pop();
                    assert!(!reads(&Value::Array(short)), "{} with an item too few", reply.word);
                }
            }
        }
    }
}

#[test]
fn every_reply_of_a_body_is_in_its_header() {
    for script in ALL {
        let (header, code) = (Header::of(script), code(script));
        let ends = ["', now", "', call.now"].into_iter().flat_map(|end| code.match_indices(end));
        let mut returned: BTreeSet<&str> =
            ends.filter_map(|(at, _)| code[..at].rsplit('\'').next()).collect();
        // The usual cases answer in one text.
        for (_, first) in script.parts.iter().filter(|(path, _)| path.starts_with("first/")) {
            let texts =
                ["return '", "return denied or '"].into_iter().flat_map(|open| between(first, open, '\''));
            returned.extend(texts.filter_map(|text| text.split(' ').next()));
        }
        let documented: BTreeSet<&str> = header.returns.iter().map(|reply| reply.word.as_str()).collect();
        assert_eq!(returned, documented, "{}", script.name);
        for literal in
            header.returns.iter().flat_map(|reply| &reply.slots).filter(|slot| slot.starts_with('\''))
        {
            assert!(code.contains(literal.as_str()), "{literal} in {}", script.name);
        }
    }
}

#[test]
fn the_usual_case_costs_what_the_header_says() {
    for script in ALL {
        let kind = script.name.split('/').next().and_then(Kind::parse).unwrap_or(Kind::Reentrant);
        let mut rig = Rig { kind, ..Rig::new() };
        let attempt = rig.client().attempt();
        let call = match script.name {
            "reentrant/acquire" | "fair/acquire" => {
                rig.granted(&attempt);
                rig.leave(&attempt);
                rig.acquire_call(&rig.client().attempt(), Wait::Join)
            }
            "read_write/acquire" | "read_write/leave" => {
                rig.granted(&rig.client().read());
                let read = rig.client().read();
                if script.name == "read_write/acquire" {
                    rig.acquire_call(&read, Wait::Join)
                } else {
                    rig.granted(&read);
                    rig.leave_call(read.ticket, None)
                }
            }
            "read_write/downgrade" => {
                let (write, read) = (rig.client().write(), rig.client().read());
                rig.granted(&write);
                rig.downgrade_call(&write, &read)
            }
            name => {
                let token = rig.granted(&attempt).token;
                let hold = RenewHold { keys: rig.keys.clone(), ticket: attempt.ticket, lease_millis: 1_000 };
                match name {
                    "reentrant/leave" | "fair/leave" => rig.leave_call(attempt.ticket, None),
                    "common/renew" => Renew { holds: &[hold], deadline_millis: 10_000 }.call(),
                    "common/force_release" => {
                        ForceRelease { keys: &rig.keys, token, goes_on: false, terms: rig.terms }.call()
                    }
                    "common/inspect" => Inspect { keys: &rig.keys }.call(),
                    "fenced/set" => {
                        FencedSet { keys: &rig.keys, token, ticket: attempt.ticket, value: "12" }.call()
                    }
                    "fenced/get" => FencedGet { keys: &rig.keys }.call(),
                    other => panic!("no usual case for {other}"),
                }
            }
        };
        assert_eq!(rig.cost(&call), Header::of(script).cost, "{}: {:?}", script.name, rig.commands());
    }
}

#[test]
fn a_server_compiles_them_all() {
    let mut rig = Rig::new();
    for script in every() {
        let sha = rig.wire.ok(&["SCRIPT", "LOAD", script.text]).text();
        assert_eq!(sha, digest(script.text));
    }
}

#[test]
fn an_error_of_a_server_is_found_in_our_files() {
    let mut rig = Rig::new();
    let attempt = rig.client().attempt();
    let mut call = rig.acquire_call(&attempt, Wait::No);
    set_arg(&mut call, 0, "soon 10000 0 1 0");
    let text = match rig.run(&call) {
        crate::support::resp::Reply::Error(text) => text,
        other => panic!("{other:?}"),
    };
    let line = between(&text, "user_script:", ':')[0].parse().expect(&text);
    let (path, line) = call.script.locate(line).expect("a line of ours");
    assert_eq!(path, "lib/bounded.lua");
    let file = std::fs::read_to_string(Path::new(FOLDER).join(path)).unwrap();
    assert!(file.lines().nth(line as usize - 1).unwrap().contains("tonumber(text)"));
}

fn digest(text: &str) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn what_is_shipped_is_listed() {
    let line =
        |script: &&Script| format!("{} {} {LAYOUT} {}\n", script.name, script.version, digest(script.text));
    let expected: String = every().map(|script| line(&script)).collect();
    let listed = std::fs::read_to_string(Path::new(FOLDER).join("shipped.txt")).unwrap();
    assert!(listed == expected, "lua/shipped.txt must be\n{expected}");
}

#[test]
fn every_file_is_part_of_a_script() {
    let used: BTreeSet<String> =
        every().flat_map(|script| script.parts).map(|(path, _)| (*path).to_owned()).collect();
    let mut there = BTreeSet::new();
    for folder in std::fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(files) = std::fs::read_dir(&folder) else { continue };
        for file in files.map(|entry| entry.unwrap().path()) {
            there.insert(file.strip_prefix(FOLDER).unwrap().to_str().unwrap().to_owned());
        }
    }
    assert_eq!(there, used);
    for script in every() {
        let last = script.parts.last().unwrap().0;
        assert_eq!(last, format!("{}.v{}.lua", script.name, script.version));
    }
}

#[test]
fn a_helper_is_one_function_that_its_file_is_named_after_and_explains() {
    for (path, content) in every().flat_map(|script| script.parts) {
        let Some(name) = path.strip_prefix("lib/").and_then(|file| file.strip_suffix(".lua")) else {
            continue;
        };
        assert!(content.starts_with(&format!("-- {name}(")), "{path} does not begin with what it does");
        let own: Vec<&str> = content.lines().filter(|line| line.starts_with("local ")).collect();
        assert_eq!(own.len(), 1, "{path}");
        assert!(own[0].starts_with(&format!("local function {name}(")), "{path}");
        assert!(content.ends_with("\nend\n"), "{path}");
    }
}

#[test]
fn luacheck_finds_nothing() {
    for script in every() {
        let mut luacheck = Command::new("luacheck")
            .args(["--no-config", "--no-cache", "--codes", "--no-color", "--std", "lua51"])
            .args(["--read-globals", "redis", "KEYS", "ARGV", "--", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("luacheck must be installed");
        luacheck.stdin.take().unwrap().write_all(script.text.as_bytes()).unwrap();
        let output = luacheck.wait_with_output().unwrap();
        assert!(output.status.success(), "{}:\n{}", script.name, String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn nothing_is_used_that_differs_between_servers_or_loses_digits() {
    for script in every() {
        let code = code(script);
        for word in
            ["cjson", "cmsgpack", "struct.", "bit.", "tostring", "setresp", "loadstring", "math.random", "#!"]
        {
            assert!(!code.contains(word), "{word} in {}", script.name);
        }
        let of_int =
            code.matches("string.format('%d', n)").count() + code.matches("string.format('%d%09d', ").count();
        assert_eq!(code.matches("string.format(").count(), of_int, "{}", script.name);
        let locals = code.lines().filter(|line| line.starts_with("local ")).count();
        assert!(locals < 150, "Lua allows 200 locals, {} has {locals}", script.name);
    }
}

/// `int` is the only way from numbers to texts.
#[test]
fn whole_numbers_keep_all_of_their_digits() {
    let server = Server::start();
    let text =
        include_str!("../lua/lib/int.lua").to_owned() + "return { int(tonumber(ARGV[1])), int(ARGV[1]) }";
    let largest = (1_u64 << 53) - 1;
    let around = |edge: u64| edge.saturating_sub(2)..=edge + 2;
    let edges =
        [0, 1_000_000_000, 1 << 31, 1 << 32, 1_764_542_000_000_000, largest - 2].into_iter().flat_map(around);
    for number in edges.chain((0..16).map(|power| 10_u64.pow(power))) {
        let number = number.to_string();
        let reply = server.connection().ok(&["EVAL", &text, "0", &number]);
        assert_eq!(reply.texts(), [number.clone(), number]);
    }
}

/// The rule that users are given, in docs/operating.md, has every command of every script. (`SPUBLISH` is for clusters.)
#[test]
fn the_least_rights_are_enough_for_every_script() {
    let page = include_str!("../docs/operating.md");
    let rule = between(page, "ACL SETUSER locks on", '`')[0];
    let granted: BTreeSet<String> =
        rule.split_whitespace().filter_map(|word| word.strip_prefix('+')).map(str::to_uppercase).collect();
    for script in ALL {
        for command in Header::of(script).needs.iter().filter(|command| *command != "SPUBLISH") {
            assert!(granted.contains(command), "{} needs {command}", script.name);
        }
    }
}

//! What is found out at connect, and the rights that are needed: D34, D35, D36.

use std::time::Duration;

use lockwright::{ConnectError, Lease, LockError};

use super::{assert_all_mortal, connect, impatient, leftovers, quick, user, works};
use crate::suite::{until_waiting, wait_for};
use crate::support::logs;
use crate::support::resp::Connection;
use crate::support::server::Server;
use crate::support::time::{eventually, soon};
use crate::wire::connecting::fake;

const OPERATING: &str = include_str!("../../docs/operating.md");

/// What a server may be told to do when its memory is full.
pub const POLICIES: [&str; 8] = [
    "noeviction",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// The words of the rule in docs/operating.md, from `on`.
fn least() -> Vec<&'static str> {
    let (_, rest) = OPERATING.split_once("```acl").expect("the rule is there");
    let (rule, _) = rest.split_once("```").expect("it ends");
    let words: Vec<_> = rule.split_whitespace().skip(3).collect();
    assert_eq!(words[..2], ["on", ">PASSWORD"]);
    words
}

/// A user with just these rules, and its URL.
fn only(server: &Server, rules: &[&str]) -> String {
    let words = [&["ACL", "SETUSER", "locks", "reset"], rules].concat();
    server.connection().ok(&words);
    format!("redis://locks:PASSWORD@127.0.0.1:{}", server.port())
}

/// The rules that are left without those that begin so.
fn without(rule: &str) -> Vec<&'static str> {
    least().into_iter().filter(|word| *word != rule).collect()
}

/// A life of a lock: taken, waited for, handed over, extended, looked at, taken by force, released.
async fn live(url: &str) -> Result<(), LockError> {
    let (a, b) = (quick(url).connect().await, quick(url).connect().await);
    let (a, b) = (a.expect("it lets us in"), b.expect("it lets us in"));
    let guard = a.lock("x").lock().await?;
    assert!(b.lock("x").try_lock().await?.is_none());
    let waiting = tokio::spawn(b.lock("x").lock());
    until_waiting(&a, "x", 1).await;
    guard.extend(std::time::Duration::from_secs(40)).await.expect("it is held");
    guard.unlock().await.expect("it is held");
    let guard = waiting.await.expect("no panic")?;
    assert!(a.force_release("x", guard.token()).await?);
    drop(guard);
    wait_for(&a, "x").await.unlock().await.expect("it is held");
    Ok(())
}

/// Fails where a command that a script runs is missing from the rule.
#[tokio::test]
async fn d34_the_least_rule_works() {
    let server = Server::start();
    let url = only(&server, &least());
    live(&url).await.expect("the rule is enough");
    let url = only(&server, &[&without("+evalsha")[..], &["+eval"]].concat());
    live(&url).await.expect("EVAL is as good");
    eventually("the end of the locks", || leftovers(&mut server.connection()).is_empty()).await;
    let denied = server.connection().ok(&["ACL", "LOG"]);
    let of_keys = denied.items().iter().filter(|entry| format!("{entry:?}").contains("key"));
    assert_eq!(of_keys.count(), 0, "{denied:?}");
}

/// Fails without `check_rights` in the supervisor: some commands are met by the first waiter only.
#[tokio::test]
async fn d34_every_right_that_is_missing_is_named_at_connect() {
    let server = Server::start();
    for rule in least().into_iter().filter(|word| word.starts_with(['+', '~', '&'])) {
        let url = only(&server, &[&without(rule)[..], &["+acl|whoami", "+acl|dryrun"]].concat());
        let outcome = quick(&url).connect().await;
        let Err(ConnectError::Unauthorized { missing }) = outcome else { panic!("{rule}: {outcome:?}") };
        let name = match rule {
            // Of the two ways to call scripts one must be there.
            "+evalsha" | "+script|load" => "right to EVAL scripts".to_owned(),
            _ if rule.starts_with('+') => format!("right to {}", rule[1..].to_uppercase()),
            _ => rule[1..].trim_end_matches('*').to_owned(),
        };
        assert!(missing.contains(&name), "{rule}: {missing}");
        let (_, list) = missing.split_once("right to ").expect("a list");
        let word = name.trim_start_matches("right to ");
        let others = list.split(", ").filter(|item| !item.contains(word)).count();
        assert!(others == 0 || rule == "~lw:*", "{rule}: {missing}");
    }
    assert_eq!(leftovers(&mut server.connection()), Vec::<String>::new());
}

/// How a life of a lock ends for a user without a right.
async fn denied(url: &str, outside: &mut Connection) -> Result<(), String> {
    let quick = || impatient(url).lease(Lease::renewed(Duration::from_secs(4)));
    let shown = |error: LockError| match error {
        LockError::Unauthorized { missing } => missing,
        error => panic!("{error:?}"),
    };
    let client = match quick().connect().await {
        Err(ConnectError::Unauthorized { missing }) => return Err(missing),
        client => client.expect("it lets us in"),
    };
    let guard = client.lock("x").lock().await.map_err(shown)?;
    let other = quick().connect().await.expect("it lets us in");
    // Whoever waits first and goes away leaves a dead entry.
    let _ = other.lock("x").try_lock_for(Duration::from_millis(20)).await.map_err(shown)?;
    let waiting = tokio::spawn(other.lock("x").lock());
    eventually("a waiter", || waiting.is_finished() || outside.ok(&["LLEN", "lw:{x}:queue"]).int() > 0).await;
    let unlocked = guard.unlock().await;
    let next = soon("the lock or an error", waiting).await.expect("no panic").map_err(shown)?;
    let _ = client.inspect("x").await.map_err(shown)?;
    next.unlock().await.and(unlocked).map_err(|error| error.to_string())
}

/// Fails where a script does not put right what is denied half-way, or takes a denied read for another's key.
#[tokio::test]
async fn d34_without_a_dry_run_the_first_denied_call_says_so() {
    let server = Server::start();
    let (mut told, mut went_on) = (0, Vec::new());
    for rule in least().into_iter().filter(|word| word.starts_with('+')) {
        let mut outside = server.connection();
        match denied(&only(&server, &without(rule)), &mut outside).await {
            // The first names the command of a line of a script, the last the file that reads for all scripts.
            Err(missing) => {
                let command = rule[1..].split('|').next().unwrap_or_default().to_uppercase();
                let named = [format!("{command}, denied "), format!("'{}", command.to_lowercase())];
                let by_text = missing.contains("'eval'") && matches!(rule, "+evalsha" | "+script|load");
                let known = named.iter().any(|name| missing.contains(name))
                    || by_text
                    || missing.contains("lib/peek.lua");
                assert!(known, "{rule}: {missing}");
                told += 1;
            }
            // No message, no dead entry, no read lock: all else works.
            Ok(()) => went_on.push(rule),
        }
        assert_all_mortal(&mut outside);
        // At the latest the lease ends what cannot be released.
        eventually("the release", || leftovers(&mut outside).is_empty()).await;
    }
    println!("{told} {went_on:?}");
    assert!(told > 15 && went_on.contains(&"+publish"), "{told} told, {went_on:?} not");
}

/// Fails without the prefix of the command in `fault::judge`, or without `check_server`.
#[tokio::test]
async fn d36_a_server_that_is_too_old_is_refused() {
    for (version, known) in [("5.0.14", false), ("6.0.16", false), ("6.2.0", true), ("unstable", true)] {
        let hello = format!("%2\r\n+server\r\n+redis\r\n+version\r\n+{version}\r\n");
        // Whatever else it is asked it answers with OK, which is no layout.
        let url = fake(vec![("HELLO".into(), hello)]);
        let outcome = impatient(&url).connect().await;
        match outcome {
            Err(ConnectError::Unsupported { detail }) => {
                assert!(!known && detail.contains(version), "{detail}")
            }
            outcome => assert!(known, "{version}: {outcome:?}"),
        }
    }
}

/// The servers that `LOCKWRIGHT_SERVERS` names live the whole life; scripts/nightly has an older one and Valkey.
#[tokio::test]
async fn d36_other_servers_live_the_same_life() {
    let programs = std::env::var("LOCKWRIGHT_SERVERS").unwrap_or_else(|_| "redis-server".into());
    for program in programs.split_whitespace() {
        let server = Server::start_program(program, &[]);
        live(&only(&server, &least())).await.unwrap_or_else(|error| panic!("{program}: {error}"));
        let short = denied(&only(&server, &without("+hset")), &mut server.connection()).await;
        assert!(short.as_ref().is_err_and(|missing| missing.contains("HSET")), "{program}: {short:?}");
        assert_all_mortal(&mut server.connection());
    }
}

/// Fails where `check_server` does not look at the role: reads and the layout key are there on a replica, too.
#[tokio::test]
async fn d18_a_replica_is_refused_at_connect() {
    let server = Server::start();
    works(&connect(&server).await, "x").await;
    let mut outside = server.connection();
    outside.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    for read_only in ["yes", "no"] {
        outside.ok(&["CONFIG", "SET", "replica-read-only", read_only]);
        for url in [server.url(), user(&server, &["-info", "-config"])] {
            let outcome = quick(&url).connect().await.map(drop);
            assert_eq!(outcome, Err(ConnectError::ReadOnly), "{read_only}");
        }
    }
    outside.ok(&["REPLICAOF", "NO", "ONE"]);
    works(&connect(&server).await, "x").await;
}

/// Fails without `check_eviction`, or where it needs `INFO` or `CONFIG`.
#[tokio::test]
async fn d9_a_policy_that_may_drop_locks_is_warned_of_once() {
    let _guard = logs::collect();
    let warnings = || logs::own().iter().filter(|line| line.contains("maxmemory-policy")).count();
    let server = Server::start();
    let mut outside = server.connection();
    let mut wanted = 0;
    for policy in POLICIES {
        outside.ok(&["CONFIG", "SET", "maxmemory-policy", policy]);
        for (hidden, told) in
            [(&[][..], true), (&["-info"], true), (&["-config"], true), (&["-info", "-config"], false)]
        {
            wanted += usize::from(told && policy != "noeviction");
            let client = quick(&user(&server, hidden)).connect().await.expect("it goes on");
            outside.ok(&["CLIENT", "KILL", "USER", "ann"]);
            soon("the next connection", async {
                while client.ping().await.is_err() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            assert_eq!(warnings(), wanted, "{policy}, {hidden:?}");
        }
    }
}

/// Fails where connecting needs a command that managed servers take away.
#[tokio::test]
async fn d35_renamed_and_disabled_commands_are_not_needed() {
    for gone in [
        &["CONFIG", "INFO", "CLIENT", "ACL"][..],
        &["SCRIPT", "PING"],
        &["EVALSHA"],
        &["COMMAND", "DEBUG", "KEYS"],
    ] {
        let renames: Vec<&str> = gone.iter().flat_map(|command| ["--rename-command", command, ""]).collect();
        let server = Server::start_with(&renames);
        live(&server.url()).await.unwrap_or_else(|error| panic!("{gone:?}: {error}"));
    }
    let server = Server::start_with(&["--rename-command", "EVALSHA", "", "--rename-command", "EVAL", ""]);
    let client = connect(&server).await;
    let outcome = client.lock("x").lock().await;
    assert!(matches!(&outcome, Err(LockError::Unsupported { .. })), "{outcome:?}");
}

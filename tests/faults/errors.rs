//! Every public error by what a live server says, and no secret in any of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use lockwright::{Client, ConnectError, Lease};

use super::inputs::Dice;
use super::{impatient, set, user};
use crate::suite::take;
use crate::support::logs;
use crate::support::server::{Server, free_port};
use crate::support::time::{eventually, soon};

/// The variants that were reached, by the name of their type.
#[derive(Default)]
struct Seen(BTreeMap<&'static str, BTreeSet<String>>);

impl Seen {
    /// Notes the outcome, which must be an error whose variant has this name.
    #[track_caller]
    fn note<T, E: Debug>(&mut self, of: &'static str, variant: &str, outcome: Result<T, E>) {
        let Err(error) = outcome else { panic!("{of}::{variant} is not reached") };
        let shown = format!("{error:?}");
        let name = shown.split([' ', '(', '{']).next().unwrap_or_default();
        assert_eq!(name, variant, "{of}: {shown}");
        self.0.entry(of).or_default().insert(name.to_owned());
    }
}

/// The variants of a public error, read from the text of `src/error.rs`.
fn written(name: &str) -> BTreeSet<String> {
    let text = include_str!("../../src/error.rs");
    let variants = |part: &str, indent: &str| -> BTreeSet<String> {
        let lines = part.lines().filter_map(|line| line.strip_prefix(indent));
        let names = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
        names.map(|line| line.split([' ', '(', ',', '{']).next().unwrap_or_default().to_owned()).collect()
    };
    let shared =
        text.split("macro_rules! operation_error").nth(1).and_then(|rest| rest.split("impl From").next());
    let mut found = variants(shared.expect("the shared variants"), "            ");
    let own = text.split(&format!("    {name} {{\n")).nth(1).and_then(|rest| rest.split("\n}\n").next());
    found.extend(variants(own.unwrap_or_default(), "        "));
    assert!(found.len() >= 7, "{name}: {found:?}");
    found
}

async fn connect(server: &Server) -> Client {
    impatient(&server.url()).connect().await.expect("the server is there")
}

async fn connect_errors(seen: &mut Seen) {
    const OF: &str = "ConnectError";
    let server = Server::start_with(&["--requirepass", "right"]);
    let mut outside = server.connection();
    outside.ok(&["AUTH", "right"]);
    let url = format!("redis://:right@127.0.0.1:{}", server.port());
    let connect = async |url: &str| impatient(url).connect().await;
    seen.note(OF, "InvalidUrl", connect("http://host").await);
    seen.note(OF, "InvalidNamespace", impatient(&url).namespace("{}").connect().await);
    seen.note(OF, "InvalidLease", impatient(&url).lease(Lease::fixed(Duration::ZERO)).connect().await);
    seen.note(OF, "InvalidSetting", impatient(&url).claim(Duration::ZERO).connect().await);
    seen.note(OF, "Unavailable", connect(&format!("redis://127.0.0.1:{}", free_port())).await);
    seen.note(OF, "Unauthorized", connect(&server.url()).await);
    seen.note(OF, "Rejected", connect(&format!("{url}/99")).await);
    set(&mut outside, "maxmemory", "1");
    seen.note(OF, "OutOfMemory", connect(&url).await);
    set(&mut outside, "maxmemory", "0");
    outside.ok(&["REPLICAOF", "127.0.0.1", "1"]);
    seen.note(OF, "ReadOnly", connect(&url).await);
    outside.ok(&["REPLICAOF", "NO", "ONE"]);
    outside.ok(&["SET", "lw:layout", "2"]);
    seen.note(OF, "LayoutMismatch", connect(&url).await);
    let bare = Server::start_with(&["--rename-command", "EVAL", "", "--rename-command", "TIME", ""]);
    seen.note(OF, "Unsupported", connect(&bare.url()).await);
}

async fn lock_errors(seen: &mut Seen) {
    const OF: &str = "LockError";
    let server = Server::start();
    let mut outside = server.connection();
    let client = connect(&server).await;
    let lock = || client.lock("x").lock();
    seen.note(OF, "InvalidName", client.lock("").lock().await);
    seen.note(OF, "InvalidLease", client.lock("x").with_lease(Lease::fixed(Duration::ZERO)).lock().await);
    seen.note(OF, "InvalidMaxHold", client.lock("x").with_max_hold(Duration::ZERO).lock().await);
    outside.ok(&["SET", "lw:{x}", "theirs"]);
    seen.note(OF, "ForeignKey", lock().await);
    outside.ok(&["DEL", "lw:{x}"]);
    let fair =
        ["HSET", "lw:{x}", "kind", "fair", "mode", "exclusive", "owner", "-", "token", "5", "block", "1"];
    let (now, ticket) = (outside.ok(&["TIME"]).texts()[0].clone(), "0f0e0d0c-0b0a-4908-8706-050403020100:1");
    outside.ok(&[&fair[..], &[ticket, &format!("{now}999999 -")]].concat());
    seen.note(OF, "KindMismatch", lock().await);
    outside.ok(&["DEL", "lw:{x}"]);
    set(&mut outside, "maxmemory", "1");
    seen.note(OF, "OutOfMemory", lock().await);
    set(&mut outside, "maxmemory", "0");
    set(&mut outside, "min-replicas-to-write", "1");
    seen.note(OF, "ReadOnly", lock().await);
    set(&mut outside, "min-replicas-to-write", "0");
    let denied = impatient(&user(&server, &["-hset", "-acl"])).connect().await.expect("it lets us in");
    seen.note(OF, "Unauthorized", denied.lock("x").lock().await);
    let bare = Server::start_with(&["--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""]);
    seen.note(OF, "Unsupported", connect(&bare).await.lock("x").lock().await);
    outside.ok(&["CONFIG", "SET", "lua-time-limit", "20"]);
    outside.send(&["EVAL", "while true do end", "0"]);
    let mut killer = server.connection();
    eventually("a busy server", || format!("{:?}", killer.call(&["GET", "k"])).contains("BUSY")).await;
    seen.note(OF, "Unavailable", lock().await);
    killer.ok(&["SCRIPT", "KILL"]);
    client.close().await;
    seen.note(OF, "Closed", lock().await);
}

async fn guard_errors(seen: &mut Seen) {
    let server = Server::start();
    let mut outside = server.connection();
    let client = impatient(&server.url()).lease(Lease::renewed(Duration::from_secs(9))).connect().await;
    let client = client.expect("the server is there");
    let second = Duration::from_secs(1);
    let guard = client.lock("x").with_max_hold(second * 5).lock().await.expect("it is free");
    seen.note("ExtendError", "InvalidLease", guard.extend(Duration::ZERO).await);
    seen.note("ExtendError", "MaxHold", guard.extend(second * 60).await);
    drop(guard);
    let guard = take(&client, "y").await;
    set(&mut outside, "min-replicas-to-write", "1");
    seen.note("ExtendError", "ReadOnly", guard.extend(second * 20).await);
    set(&mut outside, "min-replicas-to-write", "0");
    outside.ok(&["CLIENT", "PAUSE", "900", "ALL"]);
    seen.note("ExtendError", "Unavailable", guard.extend(second * 20).await);
    outside.ok(&["CLIENT", "UNPAUSE"]);
    outside.ok(&["DEL", "lw:{y}"]);
    seen.note(
        "ExtendError",
        "Lost",
        soon("an answer", async {
            loop {
                match guard.extend(second * 20).await {
                    Err(lockwright::ExtendError::Unavailable { .. }) => {}
                    outcome => return outcome,
                }
            }
        })
        .await,
    );
    seen.note("UnlockError", "Lost", guard.unlock().await);
    let guard = take(&client, "z").await;
    server.signal("STOP");
    seen.note("UnlockError", "Unanswered", guard.unlock().await);
    seen.note("PingError", "Unavailable", client.ping().await);
    server.signal("CONT");
    let denied = impatient(&user(&server, &["-ping"])).connect().await.expect("it lets us in");
    seen.note("PingError", "Unauthorized", denied.ping().await);
    client.close().await;
    seen.note("PingError", "Closed", client.ping().await);
}

/// Fails where a server's text is judged as something else; see `backend::fault`.
#[tokio::test]
async fn each_public_error_is_reached_by_a_live_server() {
    let mut seen = Seen::default();
    connect_errors(&mut seen).await;
    lock_errors(&mut seen).await;
    guard_errors(&mut seen).await;
    // Reached by no server that we know: `Closed` of a client that is not there yet, and a refusal of a lock in words
    // that are not known, which is what an unknown text is for.
    let unreached: [(&str, &[&str]); 2] =
        [("ConnectError", &["Closed"]), ("LockError", &["Rejected", "WouldDeadlock"])];
    for (of, but) in unreached {
        let missing: Vec<String> = written(of).difference(&seen.0[of]).cloned().collect();
        assert!(missing.iter().all(|name| but.contains(&name.as_str())), "{of}: {missing:?}");
    }
    assert!(
        seen.0["ExtendError"].len() >= 5
            && seen.0["UnlockError"].len() == 2
            && seen.0["PingError"].len() >= 3
    );
}

const LETTERS: &[u8] =
    b"abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789!$&'()*+,;=-._~ %{}\"<>\\^`|/?#[]@:";

fn password(dice: &mut Dice) -> String {
    let letters = (0..16).map(|_| char::from(LETTERS[dice.index(LETTERS.len())]));
    // A part that no log line has by chance.
    format!("{}{:x}", letters.collect::<String>(), dice.below(u64::MAX))
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// How a line may show the password: as it is, as a URL has it, or as `Debug` does.
fn forms(password: &str) -> [String; 3] {
    let escaped = format!("{password:?}");
    [password.to_owned(), encoded(password), escaped.trim_matches('"').to_owned()]
}

/// Fails where a URL is repeated in an error or in a log, the server's answer to `HELLO` too.
#[tokio::test]
async fn no_password_is_ever_shown() {
    let _guard = logs::collect();
    let mut dice = Dice::new("no_password_is_ever_shown");
    let server = Server::start();
    let mut outside = server.connection();
    let mut told = Vec::new();
    let mut passwords = Vec::new();
    for round in 0..5 {
        let (right, wrong) = (password(&mut dice), password(&mut dice));
        outside.ok(&["ACL", "SETUSER", "ann", "reset", "on", &format!(">{right}"), "~*", "&*", "+@all"]);
        let at = |password: &str, rest: &str| {
            format!("redis://ann:{}@127.0.0.1:{}{rest}", encoded(password), server.port())
        };
        let builder = impatient(&at(&right, ""));
        told.push(format!("{builder:?}"));
        let client = builder.connect().await.expect("it lets us in");
        let guard = take(&client, &format!("l{round}")).await;
        told.push(format!("{client:?} {guard:?}"));
        for url in [
            at(&wrong, ""),
            at(&right, "/99"),
            at(&right, "/x"),
            at(&right, "?x=y"),
            at(&wrong, "#x"),
            right.clone(),
            format!("redis://ann:{right}@"),
            format!("redis://{}:0", encoded(&right)),
            format!("rediss://:{}@127.0.0.1:{}", encoded(&right), server.port()),
        ] {
            told.push(match impatient(&url).unavailable_after(Duration::from_millis(200)).connect().await {
                Ok(client) => format!("{client:?}"),
                Err(error) => format!("{error} {error:?}"),
            });
        }
        let nobody = format!("redis://ann:{}@127.0.0.1:{}", encoded(&right), free_port());
        let outcome =
            Client::builder().url(nobody).unavailable_after(Duration::from_millis(50)).connect().await;
        told.push(format!("{:?}", outcome.expect_err("nobody is there")));
        let old = vec![("HELLO".into(), crate::wire::connecting::OLD.into())];
        let repeats = crate::wire::connecting::fake(old).replace("sesame", &encoded(&right));
        let outcome = impatient(&repeats).connect().await;
        assert!(matches!(&outcome, Err(ConnectError::Unsupported { .. })), "{outcome:?}");
        told.push(format!("{outcome:?}"));
        // The user is turned off while it is connected: each call, and each attempt to connect, is an error.
        outside.ok(&["ACL", "SETUSER", "ann", "off"]);
        outside.ok(&["CLIENT", "KILL", "USER", "ann"]);
        told.push(format!("{:?} {:?}", client.lock("y").lock().await, client.ping().await));
        told.push(format!("{:?}", guard.unlock().await));
        client.close().await;
        passwords.extend([right, wrong]);
    }
    let lines = logs::lines();
    assert!(lines.iter().any(|line| line.contains("TRACE fred")), "nothing was collected");
    for form in passwords.iter().flat_map(|password| forms(password)) {
        assert!(!told.iter().chain(&lines).any(|line| line.contains(&form)), "{form:?} is shown");
    }
}

//! Names, namespaces, spans and tokens that nobody should send: F1n to F10n.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lockwright::internals::chance::Chance;
use lockwright::{
    Client, ConnectError, ExtendError, InvalidLease, InvalidName, InvalidNamespace, Lease, LockError, Owner,
};

use super::{connect, quick};
use crate::suite::{info, take, timed, until_free, wait_for};
use crate::support::proxy::Proxy;
use crate::support::server::Server;
use crate::support::time::{soon, soon_granted};

/// Numbers that repeat from a seed, which a failure prints.
pub struct Dice(Chance);

impl Dice {
    /// From `LOCKWRIGHT_SEED` where that is set.
    pub fn new(test: &str) -> Self {
        let given = std::env::var("LOCKWRIGHT_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| Chance::from_system().next_u64());
        println!("{test}: LOCKWRIGHT_SEED={seed}");
        Self(Chance::from_seed(seed))
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("an index")
    }
}

/// Fails where a name is checked nowhere, or only by the server.
#[tokio::test]
async fn f1n_f2n_names_that_are_empty_or_too_long_are_told_without_a_call() {
    let server = Server::start();
    let client = connect(&server).await;
    let before = super::calls_of(&mut server.connection(), "evalsha");
    assert_eq!(client.lock("").lock().await.map(drop), Err(InvalidName::Empty.into()));
    for bytes in [513, 1_000_000, 16_000_000] {
        let name = "n".repeat(bytes);
        let told = LockError::from(InvalidName::TooLong { bytes });
        assert_eq!(client.lock(&name).try_lock().await.map(drop), Err(told.clone()));
        assert_eq!(client.inspect(&name).await.map(drop), Err(told.clone()));
        assert_eq!(client.force_release(&name, 1).await.map(drop), Err(told));
    }
    // 171 of three bytes each are too many.
    assert!(client.lock(&"\u{20ac}".repeat(171)).lock().await.is_err());
    assert_eq!(super::calls_of(&mut server.connection(), "evalsha"), before);
    take(&client, &"\u{20ac}".repeat(170)).await.unlock().await.expect("it is held");
    take(&client, &"{".repeat(512)).await.unlock().await.expect("it is held");
}

const PIECES: [&str; 22] = [
    "a",
    "b",
    "{",
    "}",
    "{}",
    "%",
    "%7B",
    "%7D",
    "%25",
    ":",
    " ",
    "\0",
    "\r\n",
    "*",
    "?",
    "[a-z]",
    "\\",
    "\u{1f512}",
    "\u{301}",
    "lw:",
    ":token",
    "'\"",
];

/// Fails where two names are escaped to one key, or a channel matches as a pattern.
#[tokio::test]
async fn f3n_different_names_are_different_locks() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let mut dice = Dice::new("f3n");
    let mut names = BTreeSet::new();
    while names.len() < 400 {
        names.insert((0..=dice.index(5)).map(|_| PIECES[dice.index(PIECES.len())]).collect::<String>());
    }
    let mut guards = Vec::new();
    for name in &names {
        let guard = client.lock(name).try_lock().await.expect("the server answers");
        guards.push(guard.unwrap_or_else(|| panic!("{name:?} is another lock, too")));
    }
    assert_eq!(server.connection().ok(&["EVAL", "return #redis.call('keys', '*}')", "0"]).int(), 400);
    for (name, guard) in names.iter().zip(guards).take(60) {
        let waiting = tokio::spawn(other.lock(name).lock());
        crate::suite::until_waiting(&client, name, 1).await;
        guard.unlock().await.expect("it is held");
        assert!(soon_granted("the hand-over", waiting).await.is_held(), "{name:?}");
    }
}

/// Fails where a span is not checked, or overflows on its way to the server.
#[tokio::test]
async fn f5n_leases_outside_their_bounds_are_told() {
    let server = Server::start();
    let client = connect(&server).await;
    let guard = take(&client, "held").await;
    let mut dice = Dice::new("f5n");
    let day = Duration::from_secs(24 * 3_600);
    let mut spans = vec![
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(1),
        Duration::from_micros(99_999),
        day + Duration::from_nanos(1),
        Duration::from_millis(u64::MAX),
        Duration::from_secs(i64::MAX as u64),
        Duration::MAX,
    ];
    spans.extend((0..200).map(|_| Duration::from_micros(dice.below(100_000))));
    spans.extend((0..200).map(|_| day + Duration::from_nanos(1 + dice.below(u64::MAX - 1))));
    for span in spans {
        let told = if span < day {
            InvalidLease::TooShort { length: span }
        } else {
            InvalidLease::TooLong { length: span }
        };
        for lease in [Lease::renewed(span), Lease::fixed(span)] {
            let outcome = client.lock("x").with_lease(lease).lock().await.map(drop);
            assert_eq!(outcome, Err(LockError::InvalidLease(told.clone())));
            let outcome = quick(&server.url()).lease(lease).connect().await.map(drop);
            assert_eq!(outcome, Err(ConnectError::InvalidLease(told.clone())));
        }
        assert_eq!(guard.extend(span).await, Err(ExtendError::InvalidLease(told)));
        assert!(guard.is_held());
    }
    for span in [Duration::from_millis(100), day] {
        let guard = client.lock("x").with_lease(Lease::renewed(span)).lock().await.expect("it is free");
        let left = info(&client, "x").await.holds[0].left_millis;
        assert!(u128::from(left) <= span.as_millis());
        drop(guard);
        until_free(&client, "x").await;
    }
    // However short, it ends the guard and not the lock of another.
    for span in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let outcome = soon("an answer", client.lock("y").with_max_hold(span).lock()).await;
        assert!(outcome.is_err() || outcome.is_ok_and(|guard| guard.remaining() <= Duration::from_secs(30)));
        until_free(&client, "y").await;
    }
}

/// Fails where validity counts from the reply: the lease is over when its grant is heard of.
#[tokio::test]
async fn f6n_a_lease_shorter_than_a_round_trip_is_never_a_guard() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = Client::builder().url(proxy.url()).unavailable_after(Duration::from_secs(3)).connect().await;
    let client = client.expect("the server is there");
    proxy.delay(Duration::from_millis(70));
    for lease in [Lease::renewed(Duration::from_millis(100)), Lease::fixed(Duration::from_millis(100))] {
        let outcome = soon("an error", client.lock("x").with_lease(lease).lock()).await;
        assert!(matches!(&outcome, Err(LockError::Unavailable { .. })), "{outcome:?}");
    }
    proxy.delay(Duration::ZERO);
    until_free(&client, "x").await;
    wait_for(&client, "x").await.unlock().await.expect("it is held");
}

/// Fails where a span is added to a moment without a check.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "users have no other clock")]
async fn f7n_waits_of_any_length_work() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let guard = take(&other, "x").await;
    for limit in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(20)] {
        let (took, outcome) = timed("no lock", client.lock("x").try_lock_for(limit)).await;
        // Shorter than a round trip: nothing is known then, and that is said.
        let is_unheard = !limit.is_zero() && matches!(outcome, Err(LockError::Unavailable { .. }));
        assert!(is_unheard || outcome.is_ok_and(|guard| guard.is_none()), "{limit:?}");
        assert!(took < limit + super::MARGIN, "{limit:?}: {took:?}");
    }
    let past = Instant::now().checked_sub(Duration::from_secs(5)).unwrap_or_else(Instant::now);
    assert!(soon("no lock", client.lock("x").try_lock_until(past)).await.is_ok_and(|guard| guard.is_none()));
    let mut waiting = Vec::new();
    for limit in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(i64::MAX as u64)] {
        waiting.push(tokio::spawn(client.lock("x").try_lock_for(limit)));
    }
    let far = Instant::now() + Duration::from_secs(1 << 32);
    waiting.push(tokio::spawn(client.lock("x").try_lock_until(far)));
    crate::suite::until_waiting(&other, "x", 1).await;
    guard.unlock().await.expect("it is held");
    for wait in waiting {
        assert!(soon_granted("the lock", wait).await.is_some());
    }
}

/// Fails where a counter is read as it stands: near the limit Lua's numbers skip some.
#[tokio::test]
async fn f8n_a_counter_near_the_limit_is_exact_and_beyond_it_not_ours() {
    let server = Server::start();
    let client = connect(&server).await;
    let mut outside = server.connection();
    let limit: u64 = 1 << 53;
    outside.ok(&["SET", "lw:{x}:token", &(limit - 2_000).to_string()]);
    let mut last = limit - 2_000;
    for _ in 0..10 {
        let guard = take(&client, "x").await;
        assert!(guard.token() > last && guard.token() < limit);
        last = guard.token();
        assert!(
            outside.ok(&["GET", "lw:{x}:token"]).text().parse::<u64>().is_ok_and(|stored| stored >= last)
        );
        guard.unlock().await.expect("it is held");
    }
    for stored in [
        limit.to_string(),
        i64::MAX.to_string(),
        u64::MAX.to_string(),
        "1e15".into(),
        "-1".into(),
        "0x9".into(),
    ] {
        outside.ok(&["SET", "lw:{x}:token", &stored]);
        let outcome = client.lock("x").lock().await.map(drop);
        assert_eq!(outcome, Err(LockError::ForeignKey { key: "lw:{x}:token".into() }), "{stored}");
        assert_eq!(outside.ok(&["GET", "lw:{x}:token"]).text(), stored);
    }
}

/// Fails where an identity has less than the 122 random bits of a UUID, or repeats with the process.
#[tokio::test]
async fn f9n_identities_do_not_collide() {
    let owners: BTreeSet<String> =
        (0..20_000).map(|_| serde_json::to_string(&Owner::new()).expect("an owner can be sent")).collect();
    assert_eq!(owners.len(), 20_000);
    let server = Server::start();
    let mut tickets = BTreeSet::new();
    for number in 0..20 {
        let client = connect(&server).await;
        let guard = take(&client, &format!("l{number}")).await;
        let ticket = info(&client, &format!("l{number}")).await.holds[0].ticket.clone();
        let id = ticket.split(':').next().expect("a client's id").to_owned();
        assert!(id.len() == 36 && id.as_bytes()[14] == b'4' && tickets.insert(id), "{ticket}");
        drop(guard);
    }
}

/// Fails where a character gets through that means something in a key, a slot or a pattern.
#[tokio::test]
async fn f10n_namespaces_are_of_harmless_characters() {
    let server = Server::start();
    for character in (0..=0x2ff).filter_map(char::from_u32) {
        let harmless = character.is_ascii_alphanumeric() || "._:-".contains(character);
        let outcome = quick(&server.url()).namespace(format!("a{character}b")).connect().await.map(drop);
        match outcome {
            Ok(()) => assert!(harmless, "{character:?}"),
            Err(ConnectError::InvalidNamespace(InvalidNamespace::Character { found })) => {
                assert!(!harmless && found == character);
            }
            Err(error) => panic!("{character:?}: {error:?}"),
        }
    }
    for (namespace, told) in
        [(String::new(), InvalidNamespace::Empty), ("n".repeat(65), InvalidNamespace::TooLong { bytes: 65 })]
    {
        let outcome = quick(&server.url()).namespace(namespace).connect().await.map(drop);
        assert_eq!(outcome, Err(ConnectError::InvalidNamespace(told)));
    }
}

//! D28 to D33: leases without an end, and clocks that are moved: the server's, and those of a client.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use lockwright::{LockError, LossReason};

use super::*;
use crate::suite::{info, take, timed, until_waiting, wait_for};
use crate::support::kinds::{self, KINDS};
use crate::support::time::soon_granted;
use crate::support::worker::{Scene, Worker};

const SECOND: i64 = 1_000_000_000;

/// A library that moves the clocks of the program that loads it, and by how much.
struct Shim {
    folder: tempfile::TempDir,
}

impl Shim {
    fn build() -> Self {
        let shim = Self { folder: tempfile::tempdir().expect("a folder for the library") };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chaos_faults/clock_shim.c");
        let mut build = Command::new("cc");
        build.args(["-shared", "-fPIC", "-O2", "-o"]).arg(shim.library()).arg(source);
        assert!(build.status().expect("cc is installed").success());
        fs::write(shim.offsets(), [0; 16]).expect("a file");
        shim
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("shim.so")
    }

    fn offsets(&self) -> PathBuf {
        self.folder.path().join("offsets")
    }

    fn set(&self, which: u64, nanos: i64) {
        let file = fs::OpenOptions::new().write(true).open(self.offsets()).expect("the file is there");
        file.write_at(&nanos.to_ne_bytes(), which * 8).expect("it is written");
    }

    fn move_wall(&self, seconds: i64) {
        self.set(0, seconds * SECOND);
    }

    /// The monotonic clock stands still for this long, as it does while the host sleeps.
    fn hold_monotonic(&self, span: Duration) {
        self.set(1, -i64::try_from(span.as_nanos()).expect("a short span"));
    }

    fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.library()).env("CLOCK_FILE", self.offsets());
    }

    /// A server on the moved clock.
    fn server(&self) -> Server {
        let program = self.folder.path().join("server");
        let text = format!(
            "#!/bin/sh\nLD_PRELOAD={} CLOCK_FILE={} exec redis-server \"$@\"\n",
            self.library().display(),
            self.offsets().display()
        );
        fs::write(&program, text).expect("a file");
        let done = Command::new("chmod").arg("+x").arg(&program).status();
        assert!(done.expect("chmod runs").success());
        Server::start_program(program, &[])
    }
}

// `lua/lib`: each hold carries the end of its lease, and does not rely on the key's expiry alone; and a key that is
// none of ours is never touched.
#[tokio::test]
async fn d28_a_key_without_an_expiry_blocks_nobody_beyond_the_lease() {
    for name in KINDS {
        let scene = Scene::new();
        let mut holder = scene.worker().await;
        let (token, _) = holder.take(name).await;
        let client = scene.client().await;
        let waiting = tokio::spawn(kinds::lock(&client, name));
        until_waiting(&client, name, 1).await;
        let (since, left) = (now(), lease_left(&scene.server, name));
        holder.kill();
        let mut outside = scene.server.connection();
        assert_eq!(outside.ok(&["PERSIST", &format!("lw:{{{name}}}")]).int(), 1);
        let guard = soon_granted("the lock", waiting).await;
        let took = now().since(since);
        assert!(guard.token() > token && took <= left + MARGIN, "{took:?} of {left:?}");
        drop(guard);

        let other = format!("{name} b");
        let key = format!("lw:{{{other}}}");
        outside.ok(&["HSET", &key, "2c4b1dd0-6b4b-4f7e-9b0a-5a3f1b1c9d7e:1", "1"]);
        let answer = kinds::try_lock(&client, &other).await;
        assert!(matches!(answer, Err(LockError::ForeignKey { .. })), "{answer:?}");
        assert_eq!(outside.ok(&["HLEN", &key]).int(), 1);
        outside.ok(&["DEL", &key]);
        drop(client);
        check_left(&scene.server).await;
    }
}

// `lua/lib`, the token: never below the last one plus one. `local/state/releases.rs`, `lose`: what the server lost is
// told.
#[tokio::test]
async fn d29_a_server_clock_that_jumps_ahead_breaks_the_promise_and_says_so() {
    let shim = Shim::build();
    let mut scene = Scene::on(shim.server());
    scene.pace.lease = 30_000;
    let (first, second) = (scene.client().await, scene.client().await);
    let held = take(&first, "a").await;
    shim.move_wall(40);
    // The server's clock has made a step, which the promise excludes: both hold it until the next renewal.
    let next = wait_for(&second, "a").await;
    assert!(next.token() > held.token());
    let mut fence = crate::support::fence::Writer::to(scene.fence.port());
    assert!(fence.write("a", next.token()));
    assert!(!fence.write("a", held.token()), "the resource takes a stale holder's write");
    let (took, reason) = timed("the loss", held.lost()).await;
    assert!(
        reason == LossReason::GoneAtServer && took < Duration::from_secs(11),
        "{reason:?} after {took:?}"
    );
    assert!(next.is_held());
}

// `lua/lib`, the token: `max(stored + 1, TIME)`, or tokens would fall with the clock.
#[tokio::test]
async fn d30_a_server_clock_that_jumps_back_keeps_tokens_rising_and_a_dead_hold_longer() {
    let shim = Shim::build();
    let scene = Scene::on(shim.server());
    let client = scene.client().await;
    let mut last = take(&client, "a").await.token();
    let mut holder = scene.worker().await;
    holder.take("dead").await;
    shim.move_wall(-100);
    eventually("the lock free", || lease_left(&scene.server, "a").is_zero()).await;
    for _ in 0..3 {
        let guard = wait_for(&client, "a").await;
        assert!(guard.token() > last, "{} after {last}", guard.token());
        last = guard.token();
        guard.unlock().await.expect("it is held");
    }
    // A living holder only sees its lease grow; a dead one is there for longer, until somebody uses force.
    holder.kill();
    assert!(lease_left(&scene.server, "dead") > Duration::from_secs(60));
    let token = info(&client, "dead").await.token.expect("it is held");
    assert!(client.force_release("dead", token).await.expect("the server answers"));
    assert!(wait_for(&client, "dead").await.token() > token);
}

// `clock.rs`: nothing reads the wall clock.
#[tokio::test]
async fn d32_steps_of_a_clients_wall_clock_change_nothing() {
    let shim = Shim::build();
    let scene = Scene::new();
    let setting = scene.setting(scene.server.url());
    let mut holder = Worker::start_as(&setting, |command| shim.apply(command)).await;
    let (token, _) = holder.take("a").await;
    let watcher = scene.client().await;
    for seconds in [3_600, -3_600, 100_000_000, 0] {
        shim.move_wall(seconds);
        // Longer than a lease is the subject: renewals go on.
        Clock::boot().sleep(scene.pace.lease() + millis(100)).await;
        assert_eq!(holder.ask("look a").await, "true", "{seconds}");
        assert_eq!(info(&watcher, "a").await.token, Some(token), "{seconds}");
    }
    assert_eq!(holder.ask("free a").await, "ok");
    check_left(&scene.server).await;
}

// `clock.rs`, `boot_time`: `CLOCK_BOOTTIME`, which runs while the host sleeps. A host cannot be put to sleep here;
// what it does to a program can: its monotonic clock stands still while the world goes on.
#[tokio::test]
async fn d33_a_holder_that_slept_with_its_host_knows_that_its_lease_is_over() {
    let shim = Shim::build();
    let scene = Scene::new();
    let setting = scene.setting(scene.server.url());
    let mut holder = Worker::start_as(&setting, |command| shim.apply(command)).await;
    let (token, _) = holder.take("a").await;
    let other = scene.client().await;
    let waiting = tokio::spawn(other.lock("a").lock());
    until_waiting(&other, "a", 1).await;
    let since = now();
    holder.signal("STOP");
    let next = soon_granted("the lock", waiting).await;
    assert!(next.token() > token);
    holder.order("look a");
    shim.hold_monotonic(now().since(since));
    holder.signal("CONT");
    assert_eq!(holder.hear("look a").await, "false", "two hold the lock");
    assert!(next.is_held());
    drop((next, holder, other));
    check_left(&scene.server).await;
}

//! A: processes that die, hang, starve and start again.

use std::process::{Child, Command, Stdio};

use super::*;
use crate::suite::{info, take, until_waiting};
use crate::support::kinds::{KINDS, READ_WRITE, lock_of};
use crate::support::proxy::Proxy;
use crate::support::time::soon;
use crate::support::worker::{Scene, Worker};

/// Who holds a lock, and who waits for it.
const PAIRS: [[&str; 2]; 3] = [["a", "a"], ["read x", "write x"], ["write x", "read x"]];

/// With polls that are so far between, 700 ms, that they would by themselves be too late for the end of a lease.
fn with_rare_polls() -> Scene {
    let mut scene = Scene::new();
    scene.pace.claim = 1_400;
    scene.pace.deadline = 3_000;
    scene
}

/// Holder and waiter in processes of their own, each with a write to the resource; a reader shows it its version.
struct Pair {
    scene: Scene,
    roles: [&'static str; 2],
    holder: Worker,
    waiter: Worker,
    token: u64,
}

impl Pair {
    async fn new() -> Self {
        Self::of(["a", "a"]).await
    }

    async fn of(roles: [&'static str; 2]) -> Self {
        let scene = with_rare_polls();
        let (mut holder, mut waiter) = (scene.worker().await, scene.worker().await);
        let (token, _) = holder.take(roles[0]).await;
        assert_eq!(holder.ask(&format!("write {}", roles[0])).await, "true");
        waiter.order(&format!("take {}", roles[1]));
        until_waiting(&scene.client().await, lock_of(roles[1]), 1).await;
        Self { scene, roles, holder, waiter, token }
    }

    /// Now, and what is left of the lease: of a holder that is dead or stopped, for before that a renewal might follow.
    fn left(&self) -> (Moment, Duration) {
        (now(), lease_left(&self.scene.server, self.roles[0]))
    }

    /// The waiter gets the lock within what was left of the lease at `since`, and holds it alone.
    async fn next_within(&mut self, left: Duration, since: Moment) {
        let role = self.roles[1];
        let (token, at) = self.waiter.granted(role).await;
        let took = at.since(since);
        assert!(took <= left + MARGIN, "{role}: granted after {took:?}, {left:?} of the lease were left");
        assert!(token > self.token);
        assert_eq!(self.waiter.ask(&format!("write {role}")).await, "true");
    }

    async fn end(self) {
        self.end_with_refused(0).await;
    }

    async fn end_with_refused(mut self, refused: u64) {
        assert_eq!(self.waiter.ask(&format!("free {}", self.roles[1])).await, "ok");
        assert_eq!(self.scene.fence.cell(lock_of(self.roles[1])).refused, refused);
        check_left(&self.scene.server).await;
    }
}

// `local/state/polls.rs`, `queued_with`: the poll at the end of the lease.
#[tokio::test]
async fn a1_a_killed_holder_is_followed_when_its_lease_ends() {
    for roles in PAIRS {
        let mut pair = Pair::of(roles).await;
        pair.holder.kill();
        let (since, left) = pair.left();
        pair.next_within(left, since).await;
        pair.end().await;
    }
}

// `guard.rs`, `is_held`: the clock is read at the call.
#[tokio::test]
async fn a2_a_holder_that_was_stopped_beyond_its_lease_knows_it_at_its_first_look() {
    for roles in PAIRS {
        let mut pair = Pair::of(roles).await;
        pair.holder.signal("STOP");
        let (since, left) = pair.left();
        pair.next_within(left, since).await;
        // How long it is stopped is the subject here.
        Clock::boot().sleep_until(since.plus(pair.scene.pace.lease() * 2)).await;
        let [look, write, free] = ["look", "write", "free"].map(|word| format!("{word} {}", roles[0]));
        pair.holder.order(&look);
        pair.holder.order(&write);
        pair.holder.signal("CONT");
        assert_eq!(pair.holder.hear(&look).await, "false", "{roles:?}");
        assert_eq!(pair.holder.hear(&write).await, "false", "a stale holder has written: {roles:?}");
        let answer = pair.holder.ask(&free).await;
        assert!(answer.starts_with("Lost"), "{answer}");
        let still = pair.waiter.ask(&format!("look {}", roles[1])).await;
        assert_eq!(still, "true", "a stale holder has released its successor: {roles:?}");
        pair.end_with_refused(1).await;
    }
}

// `local/state/grants.rs`, `granted` and `renewed`: `renew_at` is a third of the lease away, and counts from the send.
#[tokio::test]
async fn a3_a_holder_that_was_stopped_for_less_than_its_lease_goes_on() {
    for [role, _] in PAIRS {
        let mut scene = Scene::new();
        scene.pace.lease = 3_000;
        let mut holder = scene.worker().await;
        let (token, _) = holder.take(role).await;
        let lease = scene.pace.lease();
        eventually("a renewal", || lease_left(&scene.server, role) > lease * 97 / 100).await;
        holder.signal("STOP");
        // How long it is stopped is the subject here.
        Clock::boot().sleep(lease * 8 / 10).await;
        assert!(lease_left(&scene.server, role) < lease / 4);
        holder.signal("CONT");
        eventually("a renewal at once", || lease_left(&scene.server, role) > lease * 9 / 10).await;
        assert_eq!(holder.ask(&format!("look {role}")).await, "true");
        assert_eq!(info(&scene.client().await, lock_of(role)).await.token, Some(token));
        let freed = holder.ask(&format!("free {role}")).await;
        assert_eq!((freed.as_str(), holder.heard("lost")), ("ok", None));
        check_left(&scene.server).await;
    }
}

// `local/errands.rs`, `Sent::base`: a validity counts from the send (mutant `ValidityFromReply`).
#[tokio::test]
async fn a4_a_grant_whose_reply_was_read_after_its_end_is_none() {
    let mut scene = Scene::new();
    // So long that the late reply is read, and not given up before.
    scene.pace.timeout = 10_000;
    scene.pace.unavailable = 20_000;
    let proxy = Proxy::to(scene.server.port());
    let mut late = Worker::start(&scene.setting(proxy.url())).await;
    // The reply is under way for long enough to stop its reader before it.
    proxy.delay(millis(150));
    late.order("take a");
    eventually("the grant", || !lease_left(&scene.server, "a").is_zero()).await;
    late.signal("STOP");
    let first = info(&scene.client().await, "a").await.token.expect("it is held");
    let mut other = scene.worker().await;
    let (second, _) = other.take("a").await;
    proxy.delay(Duration::ZERO);
    late.signal("CONT");
    until_waiting(&scene.client().await, "a", 1).await;
    assert_eq!((other.ask("look a").await.as_str(), late.heard("granted a")), ("true", None));
    assert_eq!(other.ask("free a").await, "ok");
    let (third, _) = late.granted("a").await;
    assert!(first < second && second < third);
    assert_eq!((late.ask("look a").await.as_str(), late.ask("free a").await.as_str()), ("true", "ok"));
    check_left(&scene.server).await;
}

// `lua/lib`, `advance`: an unreachable client's ticket is skipped; without that each dead waiter costs a claim.
#[tokio::test]
async fn a7_dead_waiters_cost_the_living_nothing() {
    let mut servers = Vec::new();
    for [holds, name] in
        KINDS.map(|name| [name, name]).into_iter().chain(READ_WRITE.map(|role| ["write x", role]))
    {
        let (scene, mut holder, mut waiting) = waiters(holds, name, 6).await;
        let mut living = waiting.pop().expect("six of them");
        waiting.iter_mut().for_each(Worker::kill);
        eventually("the end of their connections", || scene.server.clients().len() == 4).await;
        let since = now();
        assert_eq!(holder.ask(&format!("free {holds}")).await, "ok");
        let (_, at) = living.granted(name).await;
        assert!(at.since(since) <= MARGIN, "{name}: {:?}", at.since(since));
        assert_eq!(living.ask(&format!("free {name}")).await, "ok");
        servers.push(scene.server);
    }
    // What is kept for the dead ends on all of them at the same time.
    for server in &servers {
        check_left(server).await;
    }
}

/// A process that holds the lock, and others that wait for it, one behind the other.
async fn waiters(holds: &str, waits: &str, count: u64) -> (Scene, Worker, Vec<Worker>) {
    let scene = Scene::new();
    let mut holder = scene.worker().await;
    holder.take(holds).await;
    let (watcher, mut waiting) = (scene.client().await, Vec::new());
    for count in 1..=count {
        let mut worker = scene.worker().await;
        worker.order(&format!("take {waits}"));
        until_waiting(&watcher, lock_of(waits), count).await;
        waiting.push(worker);
    }
    watcher.close().await;
    (scene, holder, waiting)
}

// `lua/lib`, `advance`: a hand-over is for a claim, and not for the lease of whoever gets it.
#[tokio::test]
async fn a9_a_waiter_that_dies_with_the_lock_on_its_way_costs_its_claim() {
    for name in KINDS {
        let (scene, mut holder, mut waiting) = waiters(name, name, 2).await;
        let mut living = waiting.pop().expect("two of them");
        // It has the lock, and cannot hear of it.
        waiting[0].signal("STOP");
        let since = now();
        assert_eq!(holder.ask(&format!("free {name}")).await, "ok");
        eventually("the hand-over", || !lease_left(&scene.server, name).is_zero()).await;
        waiting[0].kill();
        let (_, at) = living.granted(name).await;
        let (took, claim) = (at.since(since), scene.pace.claim());
        assert!(took <= claim + MARGIN && took >= claim - millis(50), "{took:?}");
        assert_eq!(living.ask(&format!("free {name}")).await, "ok");
        check_left(&scene.server).await;
    }
}

// `lua/common/renew`: a renewal lengthens its own hold and no other. `local/state/polls.rs`: the poll at the end of the
// lease.
#[tokio::test]
async fn a10_a_dead_reader_counts_until_its_own_lease_ends_and_no_longer() {
    // Whether the reader beside it reads on until after that.
    for outlives in [false, true] {
        let mut scene = with_rare_polls();
        // So long that a busy machine does not cost the living one its hold.
        scene.pace.lease = 3_000;
        let (mut dead, mut living, mut writer) =
            (scene.worker().await, scene.worker().await, scene.worker().await);
        let beside = scene.client().await;
        let (version, _) = dead.take("read x").await;
        let ticket = info(&beside, "x").await.holds[0].ticket.clone();
        living.take("read x").await;
        writer.order("take write x");
        until_waiting(&beside, "x", 1).await;
        dead.kill();
        let since = now();
        let holds = info(&beside, "x").await.holds;
        let hold = holds.iter().find(|hold| hold.ticket == ticket).expect("its lease is not over");
        let mut end = since.plus(millis(hold.left_millis));
        if outlives {
            // That others renew for longer than its lease is the subject here.
            Clock::boot().sleep_until(since.plus(scene.pace.lease() * 2)).await;
            assert_eq!((living.ask("look read x").await.as_str(), writer.heard("granted")), ("true", None));
            end = now();
        }
        assert_eq!(living.ask("free read x").await, "ok");
        let (token, at) = writer.granted("write x").await;
        assert!(at.plus(millis(50)) >= end, "{:?} too early", end.since(at));
        assert!(at <= end.plus(MARGIN), "{:?} after the last reader", at.since(end));
        assert!(token > version);
        assert_eq!(
            (writer.ask("write write x").await.as_str(), writer.ask("free write x").await.as_str()),
            ("true", "ok")
        );
        drop(beside);
        check_left(&scene.server).await;
    }
}

// The child of a true `fork` would share the parent's memory and epoll instance; no safe Rust can make one, and our
// code forbids the unsafe kind. What every program does, a child that runs another program, is tested: it gets none
// of the connections (`SOCK_CLOEXEC`), so the server hears of its parent's end at once, though the child lives on.
#[tokio::test]
async fn a11_a_child_of_the_holder_has_none_of_its_connections() {
    let mut pair = Pair::new().await;
    let child = pair.holder.ask("child").await;
    let open = std::fs::read_dir(format!("/proc/{child}/fd")).expect("the child lives");
    let targets: Vec<_> = open.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok()).collect();
    assert!(
        !targets.is_empty() && targets.iter().all(|target| !target.to_string_lossy().starts_with("socket:")),
        "{targets:?}"
    );
    let connections = pair.scene.server.clients().len();
    pair.holder.kill();
    let (since, left) = pair.left();
    eventually("the end of its connections", || pair.scene.server.clients().len() <= connections - 2).await;
    pair.next_within(left, since).await;
    crate::support::server::signal(child.parse().expect("a process id"), "KILL");
    pair.end().await;
}

// As A1: the library catches no signals. And `client.rs`, `close`: what is held is given back.
#[tokio::test]
async fn a12_a_terminated_holder_is_as_a_killed_one_and_a_graceful_end_frees_at_once() {
    let mut pair = Pair::new().await;
    pair.holder.signal("TERM");
    let (since, left) = pair.left();
    pair.next_within(left, since).await;
    let mut third = pair.scene.worker().await;
    third.order("take a");
    until_waiting(&pair.scene.client().await, "a", 1).await;
    let since = now();
    assert!(pair.waiter.finish());
    let (_, at) = third.granted("a").await;
    // The program needs a moment to end.
    assert!(at.since(since) < pair.scene.pace.lease() / 2, "{:?}", at.since(since));
    assert_eq!(third.ask("free a").await, "ok");
    check_left(&pair.scene.server).await;
}

/// Processes that do nothing but compute. Killed when dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Self {
        let loops = || Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
        Self((0..count).map(|_| loops().expect("sh runs")).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

// `lease.rs`, `trusted_until`: a holder trusts its hold for less than the server keeps it.
#[tokio::test]
async fn a13_starved_processes_exclude_each_other() {
    let scene = Scene::new();
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(scene.worker().await);
    }
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    let busy = Busy::start(4 * cpus);
    let nice = |worker: &Worker| {
        let arguments = ["-n", "10", "-p", &worker.pid().to_string()];
        Command::new("renice").args(arguments).stdout(Stdio::null()).status()
    };
    assert!(nice(&workers[0]).expect("renice runs").success());
    workers.iter_mut().for_each(|worker| worker.order("turns a 40"));
    for worker in &mut workers {
        let refused = worker.hear("turns a 40").await;
        // A guard that is trusted just before the write may end under it, where the process stands still then; the
        // resource keeps that write out, and nothing else would.
        assert!(
            refused.parse::<u64>().expect("a number") <= 1,
            "{refused} writes of trusted holders refused"
        );
    }
    drop(busy);
    let cell = scene.fence.cell("a");
    assert!(cell.accepted >= 110 && cell.repeated == 0, "{cell:?}");
    check_left(&scene.server).await;
}

/// How many descriptors the process of A14 may have.
const DESCRIPTORS: usize = 64;

/// Whether a process has all its descriptors in use, and none of them for a connection. Where it has, that is how it
/// stays: what was seen in use is a file that is kept open, or was there from the start.
fn has_nothing_left(worker: &Worker) -> bool {
    let of_process = |name: &str| format!("/proc/{}/{name}", worker.pid());
    let files = std::fs::read_dir(of_process("fd")).expect("the worker lives");
    let targets: Vec<_> = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok()).collect();
    // The runtime's own sockets, and those that were inherited, are of this kind.
    let unix = std::fs::read_to_string(of_process("net/unix")).expect("the worker lives");
    let is_unix = |inode: &str| unix.lines().any(|line| line.split_whitespace().nth(6) == Some(inode));
    let connected = |target: &std::path::PathBuf| {
        let inode = target.to_str().and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']'));
        inode.is_some_and(|inode| !is_unix(inode))
    };
    targets.len() >= DESCRIPTORS && !targets.iter().any(connected)
}

// `wire/fred.rs` and `link/supervisor.rs`: what cannot be opened is tried again, and is no panic.
#[tokio::test]
async fn a14_a_process_without_file_descriptors_gets_errors_and_recovers() {
    let scene = Scene::new();
    let proxy = Proxy::to(scene.server.port());
    let limited = |command: &mut Command| {
        let program = command.get_program().to_owned();
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let variable = (worker::VARIABLE, serde_json::to_string(&scene.setting(proxy.url())));
        *command = Command::new("sh");
        let limited = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\"");
        command.args(["-c", &limited]).arg(program).args(arguments);
        command.env(variable.0, variable.1.expect("plain data"));
    };
    let mut worker = Worker::start_as(&scene.setting(proxy.url()), limited).await;
    worker.take("held").await;
    proxy.refuse(true);
    proxy.cut();
    worker.order("exhaust");
    eventually("all descriptors in use", || has_nothing_left(&worker)).await;
    proxy.refuse(false);
    let since = now();
    worker.order("take another");
    let error = worker.hear("failed another").await;
    let took = now().since(since);
    assert!(error.starts_with("Unavailable"), "{error}");
    assert!(took <= millis(scene.pace.unavailable) + scene.pace.lease(), "{took:?}");
    assert_eq!(worker.hear("lost held").await, "Expired");
    worker.order("relax");
    // The next attempt to connect may be a second away, and on a busy machine more than one waits for it in vain.
    let recovered = async {
        worker.order("take another");
        loop {
            Clock::boot().sleep(millis(5)).await;
            if worker.heard("failed another").is_some() {
                worker.order("take another");
            }
            if worker.heard("granted another").is_some() {
                return;
            }
        }
    };
    soon("the lock, once there are descriptors again", recovered).await;
    assert_eq!(worker.ask("free another").await, "ok");
    drop(worker);
    check_left(&scene.server).await;
}

// `ticket.rs`, `ClientId::random`: nothing of host, process or name is in it.
#[tokio::test]
async fn a15_a_process_that_starts_again_is_another_client() {
    let scene = Scene::new();
    let mut first = scene.worker().await;
    let (token, _) = first.take("a").await;
    let watcher = scene.client().await;
    let old = info(&watcher, "a").await.holds[0].ticket.clone();
    let (since, left) = (now(), lease_left(&scene.server, "a"));
    first.kill();
    let mut again = scene.worker().await;
    again.order("take a");
    let (next, at) = again.granted("a").await;
    // It waits as anybody would: it is granted neither the old hold nor the lock before the lease ends.
    assert!(next > token);
    assert!(
        at.since(since) + millis(20) >= left && at.since(since) <= left + MARGIN,
        "{:?}",
        at.since(since)
    );
    let new = info(&watcher, "a").await.holds[0].ticket.clone();
    let client = |ticket: &str| ticket.rsplit_once(':').expect("a ticket").0.to_owned();
    assert_ne!(client(&old), client(&new));
    drop(again);
    let guard = soon("the lease's end", watcher.lock("a").lock()).await.expect("it is granted");
    drop(guard);
    assert!(take(&watcher, "b").await.is_held());
}

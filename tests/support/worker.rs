//! Real processes that hold locks, to be killed and stopped: this program once more, in another mode.
//!
//! A worker is told what to do by lines, and answers by lines that begin with `@`; what the test harness prints
//! beside them is no matter.
#![allow(clippy::disallowed_methods, reason = "the last line of a process is waited for on a thread")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use lockwright::internals::clock::{Clock, Moment};
use lockwright::{Client, ClientBuilder, Lease};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::fence::Writer;
use super::kinds::{self, AnyGuard};
use super::server::{Server, signal};
use super::time::soon;

/// The spans of a client, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Pace {
    pub lease: u64,
    pub claim: u64,
    pub deadline: u64,
    pub timeout: u64,
    pub unavailable: u64,
}

impl Pace {
    /// A tenth of the usual claim and deadline, and a lease that a test can wait for.
    pub const QUICK: Self =
        Self { lease: 1_500, claim: 300, deadline: 1_000, timeout: 400, unavailable: 2_000 };

    pub fn lease(self) -> Duration {
        Duration::from_millis(self.lease)
    }

    pub fn claim(self) -> Duration {
        Duration::from_millis(self.claim)
    }

    pub fn apply(self, builder: ClientBuilder) -> ClientBuilder {
        builder
            .lease(Lease::renewed(self.lease()))
            .claim(self.claim())
            .client_deadline(Duration::from_millis(self.deadline))
            .command_timeout(Duration::from_millis(self.timeout))
            .unavailable_after(Duration::from_millis(self.unavailable))
    }
}

/// What a worker is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setting {
    pub url: String,
    pub fence: u16,
    pub pace: Pace,
}

/// Where a worker finds its [`Setting`], or whatever its program understands.
pub const VARIABLE: &str = "LOCKWRIGHT_WORKER";

// ---- the process that gives orders ------------------------------------------------------------------------------

/// A worker, killed when dropped.
pub struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<String>,
    backlog: Vec<String>,
}

impl Worker {
    /// Starts one and waits until it is connected.
    pub async fn start(setting: &Setting) -> Self {
        Self::start_as(setting, |_| {}).await
    }

    /// The same as a process of another kind: with a variable more, or another program that runs this one.
    pub async fn start_as(setting: &Setting, change: impl FnOnce(&mut Command)) -> Self {
        let mut worker = Self::spawn(&serde_json::to_string(setting).expect("plain data"), change);
        worker.hear("connected").await;
        worker
    }

    /// Starts this program with `setting`: of a test binary, that is the test that does a worker's work.
    pub fn spawn(setting: &str, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "worker", "chaos_faults::worker", "--nocapture"]);
        command.env(VARIABLE, setting);
        change(&mut command);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("this program starts once more");
        let output = child.stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The harness may have begun the line with words of its own.
                if let Some((_, line)) = line.split_once('@')
                    && sender.send(line.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let orders = child.stdin.take();
        Self { child, orders, lines, backlog: Vec::new() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn order(&mut self, line: &str) {
        writeln!(self.orders.as_mut().expect("it still takes orders"), "{line}").expect("it reads");
    }

    /// The rest of the next line that begins with `words`; others are kept.
    pub async fn hear(&mut self, words: &str) -> String {
        soon(&format!("{words:?} of a worker"), async {
            loop {
                if let Some(line) = self.heard(words) {
                    return line;
                }
                let line = self.lines.recv().await;
                self.backlog.push(line.unwrap_or_else(|| panic!("a worker ended before {words:?}")));
            }
        })
        .await
    }

    /// The rest of a line that begins with `words`, if there was one.
    pub fn heard(&mut self, words: &str) -> Option<String> {
        while let Ok(line) = self.lines.try_recv() {
            self.backlog.push(line);
        }
        let at = self.backlog.iter().position(|line| line.starts_with(words))?;
        Some(self.backlog.remove(at)[words.len()..].trim().to_owned())
    }

    /// All lines so far that were not heard.
    pub fn news(&mut self) -> Vec<String> {
        while let Ok(line) = self.lines.try_recv() {
            self.backlog.push(line);
        }
        std::mem::take(&mut self.backlog)
    }

    /// The next line, whatever it is; `None` after the last one.
    pub async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    pub async fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.hear(order).await
    }

    /// Waits until it holds the lock it was told to `take`: its token, and when it was granted.
    pub async fn granted(&mut self, name: &str) -> (u64, Moment) {
        let text = self.hear(&format!("granted {name}")).await;
        let numbers: Vec<u64> = text.split(' ').map(|number| number.parse().expect("a number")).collect();
        (numbers[0], Moment::from_nanos(numbers[1]))
    }

    /// Takes a lock in a [role](kinds), whenever it comes free.
    pub async fn take(&mut self, name: &str) -> (u64, Moment) {
        self.order(&format!("take {name}"));
        self.granted(name).await
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// `kill -9`, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Takes no more orders, so that it ends; whether that was a good end.
    pub fn finish(&mut self) -> bool {
        self.orders = None;
        self.child.wait().is_ok_and(|status| status.success())
    }

    /// Takes no more orders, so that it ends in its own time.
    pub fn dismiss(&mut self) {
        self.orders = None;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

// ---- the worker ---------------------------------------------------------------------------------------------------

/// Says a line in one piece.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("\n@{line}\n").as_bytes()).and_then(|()| out.flush());
}

/// What was ordered, line by line, until there is no more.
pub fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
    });
    orders
}

type Guards = Arc<Mutex<BTreeMap<String, AnyGuard>>>;

/// Does what it is told, where this process is a worker.
pub fn work() {
    let Ok(setting) = std::env::var(VARIABLE) else { return };
    let setting: Setting = serde_json::from_str(&setting).expect("the setting is JSON");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = setting.pace.apply(Client::builder().url(&setting.url)).connect().await;
        let client = client.expect("the server is there");
        let mut orders = orders();
        let mut desk =
            Desk { client, guards: Guards::default(), fence: setting.fence, greed: Arc::default() };
        say("connected");
        while let Some(order) = orders.recv().await {
            let (word, name) = order.split_once(' ').unwrap_or((&order, ""));
            let answer = desk.carry_out(word, name).await;
            if let Some(answer) = answer {
                say(&format!("{order} {answer}"));
            }
        }
        desk.client.close().await;
    });
}

struct Desk {
    client: Client,
    guards: Guards,
    fence: u16,
    greed: Arc<AtomicBool>,
}

impl Desk {
    async fn carry_out(&mut self, word: &str, name: &str) -> Option<String> {
        match word {
            "take" => drop(tokio::spawn(take(self.client.clone(), self.guards.clone(), name.to_owned()))),
            "turns" => return Some(self.turns(name).await),
            "crowd" => self.crowd(name),
            "child" => return Some(self.child()),
            "exhaust" => self.exhaust(),
            "relax" => self.greed.store(false, Ordering::SeqCst),
            "free" => {
                let guard = self.guards.lock().unwrap().remove(name)?;
                return Some(match guard.unlock().await {
                    Ok(()) => "ok".to_owned(),
                    Err(error) => format!("{error:?}"),
                });
            }
            _ => {
                let guards = self.guards.lock().unwrap();
                let guard = guards.get(name)?;
                return match word {
                    "look" => Some(guard.is_held().to_string()),
                    "write" => {
                        let mut fence = Writer::to(self.fence);
                        Some(fence.write(kinds::lock_of(name), guard.token()).to_string())
                    }
                    other => panic!("no order: {other}"),
                };
            }
        }
        None
    }

    /// `<name> <count>`: so many turns of lock, write and unlock in eight tasks. How many writes were refused.
    async fn turns(&self, order: &str) -> String {
        let (name, count) = order.rsplit_once(' ').expect("a name and a count");
        let count: u64 = count.parse().expect("a count");
        let tasks = (0..8).map(|task| {
            let (client, name, fence) = (self.client.clone(), name.to_owned(), self.fence);
            tokio::spawn(async move {
                let (mut fence, mut refused) = (Writer::to(fence), 0);
                for _ in 0..count / 8 + u64::from(task < count % 8) {
                    let guard = kinds::lock(&client, &name).await.expect("it is granted");
                    refused += u64::from(guard.is_held() && !fence.write(&name, guard.token()));
                    drop(guard);
                }
                refused
            })
        });
        let mut refused = 0;
        for task in tasks.collect::<Vec<_>>() {
            refused += task.await.expect("no panic");
        }
        refused.to_string()
    }

    /// `<name> <count> <number>`: so many tasks that wait in this order, each for one turn, and say `served` with their
    /// numbers, which begin with the given one.
    fn crowd(&self, order: &str) {
        let words: Vec<&str> = order.rsplitn(3, ' ').collect();
        let [first, count, name] = words[..] else { panic!("no crowd: {order}") };
        let (first, count): (u64, u64) = (first.parse().expect("a number"), count.parse().expect("a count"));
        for number in first..first + count {
            let name = name.to_owned();
            // Enters the queue here, so that it is the order of the numbers.
            let mut waiting = kinds::lock(&self.client, &name);
            let granted = (&mut waiting).now_or_never();
            tokio::spawn(async move {
                let guard = match granted {
                    Some(granted) => granted,
                    None => waiting.await,
                };
                let guard = guard.expect("it is granted");
                say(&format!("served {name} {number} {} {}", guard.token(), Clock::boot().now().as_nanos()));
                drop(guard);
            });
        }
    }

    /// A child of this process that outlives it: its process id.
    fn child(&self) -> String {
        let child = Command::new("sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        child.expect("sleep starts").id().to_string()
    }

    /// Opens files until there are no more to be had, and whatever others close, until it is told to relax.
    fn exhaust(&self) {
        let greed = self.greed.clone();
        greed.store(true, Ordering::SeqCst);
        std::thread::spawn(move || {
            let mut files = Vec::new();
            while greed.load(Ordering::SeqCst) {
                files.extend(File::open("/dev/null"));
                std::thread::sleep(Duration::from_micros(200));
            }
        });
    }
}

async fn take(client: Client, guards: Guards, name: String) {
    match kinds::hold(&client, &name).await {
        Ok(guard) => {
            let (token, lost) = (guard.token(), guard.lost());
            guards.lock().unwrap().insert(name.clone(), guard);
            say(&format!("granted {name} {token} {}", Clock::boot().now().as_nanos()));
            let reason = lost.await;
            say(&format!("lost {name} {reason:?}"));
        }
        Err(error) => say(&format!("failed {name} {error:?}")),
    }
}

/// A server, a resource, and the pace of those who use them.
pub struct Scene {
    pub server: Server,
    pub fence: super::fence::Fence,
    pub pace: Pace,
}

impl Scene {
    pub fn new() -> Self {
        Self::on(Server::start())
    }

    pub fn on(server: Server) -> Self {
        Self { server, fence: super::fence::Fence::start(), pace: Pace::QUICK }
    }

    pub fn setting(&self, url: String) -> Setting {
        Setting { url, fence: self.fence.port(), pace: self.pace }
    }

    pub async fn worker(&self) -> Worker {
        Worker::start(&self.setting(self.server.url())).await
    }

    /// A client in this process.
    pub async fn client(&self) -> Client {
        self.client_at(self.server.url()).await
    }

    pub async fn client_at(&self, url: String) -> Client {
        self.pace.apply(Client::builder().url(url)).connect().await.expect("the server is there")
    }
}

//! Server, proxies and workers: one fault after the other, and the recovery after each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwright::internals::chance::Chance;
use lockwright::internals::clock::{Clock, wall_micros};
use serde_json::{Value, json};

use crate::history::{History, Loss, Trouble};
use crate::nemesis::{FAULTS, Fault, Target, now};
use crate::support::fence::Fence;
use crate::support::proxy::Proxy;
use crate::support::server::Server;
use crate::support::time::{eventually, soon};
use crate::support::worker::{Pace, Setting, Worker};
use crate::work::{LOCKS, name_of, stalls};

const WORKERS: usize = 4;
/// After the end of a fault every lock must be granted again within this: the lease of who died or hung meanwhile,
/// a claim for each client that was silent, a reconnection, and room for a busy machine.
const RECOVERY: Duration = Duration::from_secs(10);

pub struct Arena {
    server: Server,
    fence: Fence,
    proxies: Vec<Proxy>,
    /// With the number of the process, which is never used twice.
    workers: Vec<(usize, Worker)>,
    started: usize,
    dice: Chance,
    history: History,
    faults: BTreeMap<Fault, Vec<u64>>,
    /// When this process did not run: then neither did the machine, or nearly.
    stalls: Arc<Mutex<Vec<Trouble>>>,
}

/// What came of it.
pub struct Report {
    pub violations: Vec<String>,
    pub excused: usize,
    history: History,
    recoveries: BTreeMap<Fault, Vec<u64>>,
    writes: u64,
}

impl Arena {
    pub async fn open(seed: u64) -> Self {
        // Every write is in the log before its answer is sent; nothing is lost by `kill -9`.
        let server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "no"]);
        let proxies = (0..WORKERS).map(|_| Proxy::to(server.port())).collect();
        let mut arena = Self {
            server,
            fence: Fence::start(),
            proxies,
            workers: Vec::new(),
            started: 0,
            dice: Chance::from_seed(seed),
            history: History::default(),
            faults: BTreeMap::new(),
            stalls: Arc::default(),
        };
        let seen = arena.stalls.clone();
        tokio::spawn(async move {
            stalls(|began, ended| seen.lock().unwrap().push(Trouble { worker: None, began, ended })).await;
        });
        for slot in 0..WORKERS {
            let mut worker = arena.start_worker(slot);
            worker.1.hear("connected").await;
            arena.workers.push(worker);
        }
        arena
    }

    fn start_worker(&mut self, slot: usize) -> (usize, Worker) {
        let setting = Setting { url: self.proxies[slot].url(), fence: self.fence.port(), pace: Pace::QUICK };
        let setting = serde_json::to_string(&(self.dice.next_u64(), setting)).expect("plain data");
        self.started += 1;
        (self.started, Worker::spawn(&setting, |_| {}))
    }

    /// Every kind of fault in a random order, again and again, until the time is over.
    pub async fn fight(&mut self, span: Duration) {
        let end = now().plus(span);
        let mut order: Vec<Fault> = Vec::new();
        while now() < end {
            if order.is_empty() {
                order = FAULTS.to_vec();
                // Sorted by a throw each: a random order.
                let throws: Vec<u64> = order.iter().map(|_| self.dice.next_u64()).collect();
                order.sort_by_key(|&fault| {
                    throws[FAULTS.iter().position(|&one| one == fault).expect("listed")]
                });
            }
            let fault = order.pop().expect("filled above");
            self.round(fault).await;
        }
    }

    async fn round(&mut self, fault: Fault) {
        let slot = (self.dice.next_u64() % WORKERS as u64) as usize;
        let dice = self.dice.clone();
        let (began, first_token) = (now(), wall_micros());
        let worker = &mut self.workers[slot].1;
        let mut target = Target { server: &mut self.server, worker, proxy: &self.proxies[slot], dice: &dice };
        target.strike(fault).await;
        let ended = now();
        if fault != Fault::FlushScripts {
            let worker = (!fault.is_for_all()).then_some(self.workers[slot].0);
            let (began, ended) = (began.as_nanos(), ended.as_nanos());
            self.history.troubles.push(Trouble { worker, began, ended });
        }
        if fault.is_loss() {
            let (began, ended) = (began.as_nanos(), ended.as_nanos());
            // A block of tokens begins with the clock, and runs ahead of it by its length.
            let last_token = wall_micros() + 64;
            self.history.losses.push(Loss { began, ended, first_token, last_token });
        }
        if fault == Fault::KillWorker {
            self.replace(slot).await;
        }
        self.recover(fault, ended.as_nanos()).await;
        // A breath between faults, so that not every one meets the traces of the one before; they do at times.
        let breath = Duration::from_millis(self.dice.next_u64() % 600);
        Clock::boot().sleep(breath).await;
    }

    /// Takes the last words of a dead worker, and starts another.
    async fn replace(&mut self, slot: usize) {
        let new = self.start_worker(slot);
        let (name, mut old) = std::mem::replace(&mut self.workers[slot], new);
        self.last_words(name, &mut old).await;
    }

    async fn last_words(&mut self, name: usize, worker: &mut Worker) {
        for line in worker.news() {
            self.history.take(name, &line);
        }
        while let Some(line) = soon("the end of a worker", worker.line()).await {
            self.history.take(name, &line);
        }
    }

    /// Waits until every lock was granted after the fault (to a writer, if it has readers), and notes how long it took.
    async fn recover(&mut self, fault: Fault, ended: u64) {
        let mut first: BTreeMap<usize, u64> = BTreeMap::new();
        let deadline = now().plus(RECOVERY);
        while first.len() < LOCKS && now() < deadline {
            Clock::boot().sleep(Duration::from_millis(5)).await;
            self.listen();
            for (&lock, &granted) in self.history.last_grant.iter().filter(|(_, granted)| **granted > ended) {
                first.entry(lock).or_insert(granted);
            }
        }
        let latest = first.values().max().copied().unwrap_or(ended);
        self.faults.entry(fault).or_default().push((latest - ended) / 1_000_000);
        if first.len() < LOCKS {
            self.history.odd.push(format!("after {fault:?}: only {first:?} are granted within {RECOVERY:?}"));
        }
    }

    fn listen(&mut self) {
        for (name, worker) in &mut self.workers {
            for line in worker.news() {
                self.history.take(*name, &line);
            }
        }
    }

    /// Ends all work, looks at what is left, and judges.
    pub async fn close(mut self) -> Report {
        self.workers.iter_mut().for_each(|(_, worker)| worker.dismiss());
        for (name, mut worker) in std::mem::take(&mut self.workers) {
            self.last_words(name, &mut worker).await;
            if !worker.finish() {
                self.history.odd.push(format!("worker {name} ended badly"));
            }
        }
        eventually("the end of all connections", || self.server.clients().is_empty()).await;
        let server = &self.server;
        eventually("a server without locks", || {
            let keys = server.connection().ok(&["KEYS", "*"]).texts();
            keys.iter().all(|key| key.ends_with("}:token") || key.ends_with(":layout"))
        })
        .await;
        assert!(self.server.connection().ok(&["PUBSUB", "CHANNELS", "*"]).items().is_empty());
        self.history.troubles.extend(self.stalls.lock().unwrap().iter());
        let (violations, excused) = self.history.judge();
        let cells = (0..LOCKS).map(|lock| self.fence.cell(&name_of(lock)).accepted);
        let writes = cells.sum();
        Report { violations, excused, history: self.history, recoveries: self.faults, writes }
    }
}

impl Report {
    /// How many waits were served in turn, with nothing that would have excused another order.
    pub fn waits_in_order(&self) -> usize {
        self.history.waits_in_order()
    }

    /// How often a read was held against the write beside it.
    pub fn reads_beside_writes(&self) -> usize {
        self.history.reads_beside_writes()
    }

    pub fn json(&self, seed: u64, minutes: f64) -> Value {
        let faults: BTreeMap<String, usize> =
            self.recoveries.iter().map(|(fault, all)| (format!("{fault:?}"), all.len())).collect();
        let recoveries: BTreeMap<String, Value> = self
            .recoveries
            .iter()
            .map(|(fault, all)| {
                let mut all = all.clone();
                all.sort_unstable();
                let at = |percent: usize| all[(all.len() * percent).div_ceil(100).max(1) - 1];
                (format!("{fault:?}"), json!({ "p50": at(50), "p99": at(99), "max": at(100) }))
            })
            .collect();
        json!({
            "seed": seed,
            "minutes": minutes,
            "operations": self.history.operations,
            "unavailable": self.history.failures,
            "grants": self.history.grants(),
            "writes": self.writes,
            "faults": faults,
            "violations": self.violations.len(),
            "overlaps_after_loss": self.excused,
            "waits_in_order": self.history.waits_in_order(),
            "reads_beside_writes": self.history.reads_beside_writes(),
            "recovery_ms": recoveries,
        })
    }
}

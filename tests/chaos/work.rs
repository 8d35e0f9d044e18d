//! A worker process: tasks that take locks in every way, write to the resource, and report what they saw.
//!
//! | line | says |
//! |---|---|
//! | `grant <id> <lock> <token> <asked> <granted> <trusted> <queued>` | times in ns on the clock of the machine |
//! | `read` and the same | of a reader, with its version |
//! | `seen <id> <trusted>` | a renewal has moved the end of what can be trusted |
//! | `end <id> <end>` | from here on its holder does not trust it; said before it is given back |
//! | `refused <id> ...` | one that trusted its hold before and after was refused, or granted as if it had none |
//! | `stall 0 <from> <until>` | this process did not run |
//! | `odd ...` | an error that no fault explains, or a re-entry with another token |
//! | `done <operations> <failures>` | the last one |
//!
//! `queued` is when it was known to be in the queue, or 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockwright::internals::chance::Chance;
use lockwright::internals::clock::{Clock, Moment};
use lockwright::{Client, DowngradeError, Guard, LockError, Owner, RwLock, Step};

use crate::support::fence::Writer;
use crate::support::kinds::{self, AnyGuard};
use crate::support::worker::{Setting, VARIABLE, orders, say};

/// Three reentrant ones, two fair ones, and two that are read and written.
pub const LOCKS: usize = 7;
const TASKS: u64 = 6;
/// Whoever does not run for so long may miss a claim.
pub const STALL: Duration = Duration::from_millis(100);

pub fn name_of(lock: usize) -> String {
    let kind = match lock {
        0..3 => "lock",
        3..5 => "fair",
        _ => "table",
    };
    format!("{kind} {lock}")
}

pub fn is_read_and_written(lock: usize) -> bool {
    lock >= 5
}

pub fn work() {
    let Ok(setting) = std::env::var(VARIABLE) else { return };
    let (seed, setting): (u64, Setting) = serde_json::from_str(&setting).expect("the setting is JSON");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let shift = Shift::begin(&setting).await;
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (shift, fence) = (shift.clone(), Writer::to(setting.fence));
                let dice = Chance::from_seed(seed.wrapping_add(task));
                tokio::spawn(async move { Task { shift, dice, fence, task, turn: 0 }.run().await })
            })
            .collect();
        let watch = tokio::spawn(async {
            stalls(|from, until| say(&format!("stall 0 {from} {until}"))).await;
        });
        while orders().recv().await.is_some() {}
        shift.over.store(true, Ordering::SeqCst);
        for task in tasks {
            if let Err(error) = task.await {
                say(&format!("odd a task ended by {error}"));
            }
        }
        watch.abort();
        shift.client.close().await;
        let count = |number: &AtomicU64| number.load(Ordering::SeqCst);
        say(&format!("done {} {}", count(&shift.operations), count(&shift.failures)));
    });
}

/// Tells of each time in which this task did not run, on and on.
pub async fn stalls(tell: impl Fn(u64, u64)) {
    let mut before = now();
    loop {
        Clock::boot().sleep(STALL / 10).await;
        let after = now();
        if after.since(before) > STALL {
            tell(before.as_nanos(), after.as_nanos());
        }
        before = after;
    }
}

struct Shift {
    client: Client,
    /// Reads of this process that are kept: one handle for all tasks.
    cached: Vec<RwLock>,
    over: AtomicBool,
    operations: AtomicU64,
    failures: AtomicU64,
}

impl Shift {
    async fn begin(setting: &Setting) -> Arc<Self> {
        let builder = setting.pace.apply(Client::builder().url(&setting.url));
        // A worker may be started into an outage.
        let client = builder.connect().await;
        let Ok(client) = client else {
            say("done 0 1");
            std::process::exit(0)
        };
        say("connected");
        let (over, operations, failures) = Default::default();
        let cached = (0..LOCKS).map(|lock| client.rw_lock(&name_of(lock)).cached()).collect();
        Arc::new(Self { client, cached, over, operations, failures })
    }
}

struct Task {
    shift: Arc<Shift>,
    dice: Chance,
    fence: Writer,
    task: u64,
    turn: u64,
}

fn now() -> Moment {
    Clock::boot().now()
}

async fn in_owner<T>(owner: Option<&Owner>, asking: impl Future<Output = T>) -> T {
    match owner {
        Some(owner) => owner.scope(asking).await,
        None => asking.await,
    }
}

impl Task {
    fn below(&self, limit: u64) -> u64 {
        self.dice.next_u64() % limit
    }

    async fn run(mut self) {
        while !self.shift.over.load(Ordering::SeqCst) {
            self.turn += 1;
            let lock = self.below(LOCKS as u64);
            self.attempt(lock).await;
            self.pause(10).await;
        }
    }

    async fn pause(&self, millis: u64) {
        Clock::boot().sleep(Duration::from_micros(self.below(millis * 1_000))).await;
    }

    async fn attempt(&mut self, lock: u64) {
        if is_read_and_written(lock as usize) {
            return self.attempt_table(lock).await;
        }
        let (owner, asked) = ((self.below(5) == 0).then(Owner::new), now());
        let name = name_of(lock as usize);
        let queues = kinds::is_fair(&name) && self.below(3) > 0;
        let (queued, answer) = match queues {
            true => self.queue(&name).await,
            false => (0, in_owner(owner.as_ref(), self.take(&name)).await),
        };
        self.shift.operations.fetch_add(1, Ordering::SeqCst);
        match answer.map(|guard| guard.map(AnyGuard::One)) {
            Ok(Some(guard)) => {
                let id = self.id();
                self.section(&id, lock, asked, queued, &guard).await;
                if owner.is_some() && !queues {
                    let inner =
                        in_owner(owner.as_ref(), async { kinds::try_lock(&self.shift.client, &name).await });
                    let inner = inner.await.map(|inner| inner.map(AnyGuard::One));
                    self.enter_again(&id, &guard, inner);
                }
                self.end(&id, guard).await;
            }
            Ok(None) => {}
            Err(error) => self.failed(&error),
        }
    }

    fn id(&self) -> String {
        format!("{}.{}", self.task, self.turn)
    }

    fn failed(&self, error: &LockError) {
        match error {
            LockError::Unavailable { .. } => drop(self.shift.failures.fetch_add(1, Ordering::SeqCst)),
            error => say(&format!("odd {error}")),
        }
    }

    /// Reads or writes, alone or for an owner, who may enter again; a writer may go on as a reader.
    async fn attempt_table(&mut self, lock: u64) {
        let owner = (self.below(5) == 0).then(Owner::new);
        let cached = self.shift.cached[lock as usize].clone();
        let table = match owner.as_ref() {
            Some(owner) => cached.with_owner(owner),
            None if self.below(2) == 0 => cached,
            None => self.shift.client.rw_lock(&name_of(lock as usize)),
        };
        let (writes, asked) = (self.below(2) == 0, now());
        let answer = self.take_table(&table, writes).await;
        self.shift.operations.fetch_add(1, Ordering::SeqCst);
        let guard = match answer {
            Ok(Some(guard)) => guard,
            Ok(None) => return,
            Err(error) => return self.failed(&error),
        };
        let id = self.id();
        self.section(&id, lock, asked, 0, &guard).await;
        if owner.is_some() {
            let inner = self.take_table(&table, false).await;
            self.enter_again(&id, &guard, inner);
            self.enter_again(&id, &guard, table.try_write().await.map(|inner| inner.map(AnyGuard::Write)));
        }
        match guard {
            AnyGuard::Write(writer) if self.below(4) == 0 => {
                if writer.is_held() {
                    say(&format!("end {id} {}", now().as_nanos()));
                }
                let asked = now();
                match writer.downgrade().await {
                    Ok(reader) => {
                        self.turn += 1;
                        let (id, guard) = (self.id(), AnyGuard::Read(reader));
                        self.section(&id, lock, asked, 0, &guard).await;
                        self.end(&id, guard).await;
                    }
                    Err(DowngradeError::Failed(error)) => self.failed(&error),
                    // The write was lost.
                    Err(_) => {}
                }
            }
            guard => self.end(&id, guard).await,
        }
    }

    async fn take_table(&self, table: &RwLock, writes: bool) -> Result<Option<AnyGuard>, LockError> {
        let limit = Duration::from_millis(100 + self.below(3_000));
        let way = self.below(8);
        if writes {
            let writer = match way {
                0 => table.try_write().await?,
                1 => Some(table.write().await?),
                _ => table.try_write_for(limit).await?,
            };
            return Ok(writer.map(AnyGuard::Write));
        }
        let reader = match way {
            0 => table.try_read().await?,
            1 => Some(table.read().await?),
            2 => table.try_read_cached(),
            _ => table.try_read_for(limit).await?,
        };
        Ok(reader.map(AnyGuard::Read))
    }

    /// Asks in one of the ways that both kinds have.
    async fn take(&self, name: &str) -> Result<Option<Guard>, LockError> {
        let client = &self.shift.client;
        match self.below(8) {
            0 => kinds::try_lock(client, name).await,
            1 => kinds::lock(client, name).await.map(Some),
            _ => kinds::try_lock_for(client, name, Duration::from_millis(100 + self.below(3_000))).await,
        }
    }

    /// Joins the queue, and waits for the lock or for so long: when it was in the queue, and what it got.
    async fn queue(&self, name: &str) -> (u64, Result<Option<Guard>, LockError>) {
        let limit = now().plus(Duration::from_millis(500 + self.below(4_000)));
        let mut place = match self.shift.client.fair_lock(name).queue().await {
            Ok(place) => place,
            Err(error) => return (0, Err(error)),
        };
        let (queued, clock) = (now().as_nanos(), Clock::boot());
        loop {
            tokio::select! {
                biased;
                step = place.next() => match step {
                    Ok(Step::Granted(guard)) => return (queued, Ok(Some(guard))),
                    Ok(Step::Moved(_)) => {}
                    Err(error) => return (queued, Err(error)),
                },
                () = clock.sleep_until(limit) => return (queued, Ok(None)),
            }
        }
    }

    /// Writes to the resource now and then, for some milliseconds or for about a second.
    async fn section(&mut self, id: &str, lock: u64, asked: Moment, queued: u64, guard: &AnyGuard) {
        let granted = now();
        let trusted = granted.plus(guard.remaining());
        let (token, times) = (guard.token(), [asked, granted, trusted].map(Moment::as_nanos));
        let kind = if matches!(guard, AnyGuard::Read(_)) { "read" } else { "grant" };
        say(&format!("{kind} {id} {lock} {token} {} {} {} {queued}", times[0], times[1], times[2]));
        let long = self.below(200) == 0;
        for _ in 0..if long { 20 } else { 1 + self.below(3) } {
            let careless = self.below(10) == 0;
            let before = guard.is_held();
            if before || careless {
                let accepted = self.fence.write(&name_of(lock as usize), token);
                if !accepted && before && guard.is_held() {
                    say(&format!("refused {id} {} {token}", now().as_nanos()));
                }
            }
            self.pause(if long { 100 } else { 6 }).await;
            if long {
                self.look(id, guard);
            }
        }
    }

    fn look(&self, id: &str, guard: &AnyGuard) {
        let (at, left) = (now(), guard.remaining());
        if !left.is_zero() {
            say(&format!("seen {id} {}", at.plus(left).as_nanos()));
        }
    }

    /// Who holds enters again by the same token; who reads may not write. A read and a write of one owner are two
    /// holds, so the server is asked, which may have lost the first one.
    fn enter_again(&self, id: &str, outer: &AnyGuard, inner: Result<Option<AnyGuard>, LockError>) {
        let Ok(inner) = inner else { return };
        let what = match (outer, inner) {
            (AnyGuard::Read(_), Some(AnyGuard::Write(inner))) => format!("could write by {}", inner.token()),
            (_, Some(inner)) if inner.token() != outer.token() => format!("re-entered by {}", inner.token()),
            _ => return,
        };
        let (at, token) = (now().as_nanos(), outer.token());
        if !outer.is_held() {
            return;
        }
        match outer {
            AnyGuard::One(_) => say(&format!("odd {id} {token} {what}")),
            _ => say(&format!("refused {id} {at} {token} by its own lock: {what}")),
        }
    }

    async fn end(&self, id: &str, guard: AnyGuard) {
        let (at, held) = (now(), guard.is_held());
        if held {
            say(&format!("end {id} {}", at.as_nanos()));
        }
        self.shift.operations.fetch_add(1, Ordering::SeqCst);
        match self.below(3) {
            0 => drop(guard),
            _ => drop(guard.unlock().await),
        }
    }
}

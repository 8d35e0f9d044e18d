//! A worker process: tasks that take locks in every way, write to the resource, and report what they saw.
//!
//! | line | says |
//! |---|---|
//! | `grant <id> <lock> <token> <asked> <granted> <trusted> <queued>` | times in ns on the clock of the machine |
//! | `seen <id> <trusted>` | a renewal has moved the end of what can be trusted |
//! | `end <id> <end>` | from here on its holder does not trust it; said before it is given back |
//! | `refused <id> ...` | the resource refused a holder that trusted its hold before and after |
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
use lockwright::{Client, Guard, LockError, Owner, Step};

use crate::support::fence::Writer;
use crate::support::kinds;
use crate::support::worker::{Setting, VARIABLE, orders, say};

/// The last two of them are fair ones.
pub const LOCKS: usize = 5;
const TASKS: u64 = 5;
/// Whoever does not run for so long may miss a claim.
pub const STALL: Duration = Duration::from_millis(100);

pub fn name_of(lock: usize) -> String {
    format!("{} {lock}", if lock < 3 { "lock" } else { "fair" })
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
        Arc::new(Self { client, over, operations, failures })
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
        let (owner, asked) = ((self.below(5) == 0).then(Owner::new), now());
        let name = name_of(lock as usize);
        let queues = kinds::is_fair(&name) && self.below(3) > 0;
        let (queued, answer) = match queues {
            true => self.queue(&name).await,
            false => (0, in_owner(owner.as_ref(), self.take(&name)).await),
        };
        self.shift.operations.fetch_add(1, Ordering::SeqCst);
        match answer {
            Ok(Some(guard)) => {
                let id = format!("{}.{}", self.task, self.turn);
                self.section(&id, lock, asked, queued, &guard).await;
                if owner.is_some() && !queues {
                    let inner =
                        in_owner(owner.as_ref(), async { kinds::try_lock(&self.shift.client, &name).await });
                    self.enter_again(&id, &guard, inner.await);
                }
                self.end(&id, guard).await;
            }
            Ok(None) => {}
            Err(LockError::Unavailable { .. }) => drop(self.shift.failures.fetch_add(1, Ordering::SeqCst)),
            Err(error) => say(&format!("odd {error}")),
        }
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
    async fn section(&mut self, id: &str, lock: u64, asked: Moment, queued: u64, guard: &Guard) {
        let granted = now();
        let trusted = granted.plus(guard.remaining());
        let (token, times) = (guard.token(), [asked, granted, trusted].map(Moment::as_nanos));
        say(&format!("grant {id} {lock} {token} {} {} {} {queued}", times[0], times[1], times[2]));
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

    fn look(&self, id: &str, guard: &Guard) {
        let (at, left) = (now(), guard.remaining());
        if !left.is_zero() {
            say(&format!("seen {id} {}", at.plus(left).as_nanos()));
        }
    }

    fn enter_again(&self, id: &str, outer: &Guard, inner: Result<Option<Guard>, LockError>) {
        if let Ok(Some(inner)) = inner {
            let held = outer.is_held();
            if held && inner.token() != outer.token() {
                say(&format!("odd {id} re-entered {} by {}", outer.token(), inner.token()));
            }
        }
    }

    async fn end(&self, id: &str, guard: Guard) {
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

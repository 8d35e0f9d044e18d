//! A worker process: tasks that take locks in every way, write to the resource, and report what they saw.
//!
//! | line | says |
//! |---|---|
//! | `grant <id> <lock> <token> <asked> <granted> <trusted>` | times in ns on the clock of the machine |
//! | `seen <id> <trusted>` | a renewal has moved the end of what can be trusted |
//! | `end <id> <end>` | from here on its holder does not trust it; said before it is given back |
//! | `refused <id> ...` | the resource refused a holder that trusted its hold before and after |
//! | `odd ...` | an error that no fault explains, or a re-entry with another token |
//! | `done <operations> <failures>` | the last one |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockwright::internals::chance::Chance;
use lockwright::internals::clock::{Clock, Moment};
use lockwright::{Client, Guard, LockError, Owner};

use crate::support::fence::Writer;
use crate::support::worker::{Setting, VARIABLE, orders, say};

pub const LOCKS: usize = 3;
const TASKS: u64 = 4;

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
        while orders().recv().await.is_some() {}
        shift.over.store(true, Ordering::SeqCst);
        for task in tasks {
            if let Err(error) = task.await {
                say(&format!("odd a task ended by {error}"));
            }
        }
        shift.client.close().await;
        let count = |number: &AtomicU64| number.load(Ordering::SeqCst);
        say(&format!("done {} {}", count(&shift.operations), count(&shift.failures)));
    });
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
        let handle = self.shift.client.lock(&format!("lock {lock}"));
        let handle = owner.iter().fold(handle, |handle, owner| handle.with_owner(owner));
        let answer = match self.below(8) {
            0 => handle.try_lock().await,
            1 => handle.lock().await.map(Some),
            _ => handle.try_lock_for(Duration::from_millis(100 + self.below(3_000))).await,
        };
        self.shift.operations.fetch_add(1, Ordering::SeqCst);
        match answer {
            Ok(Some(guard)) => {
                let id = format!("{}.{}", self.task, self.turn);
                self.section(&id, lock, asked, &guard).await;
                if owner.is_some() {
                    self.enter_again(&id, &guard, handle.try_lock().await);
                }
                self.end(&id, guard).await;
            }
            Ok(None) => {}
            Err(LockError::Unavailable { .. }) => drop(self.shift.failures.fetch_add(1, Ordering::SeqCst)),
            Err(error) => say(&format!("odd {error}")),
        }
    }

    /// Writes to the resource now and then, for some milliseconds or for about a second.
    async fn section(&mut self, id: &str, lock: u64, asked: Moment, guard: &Guard) {
        let granted = now();
        let trusted = granted.plus(guard.remaining());
        let (token, times) = (guard.token(), [asked, granted, trusted].map(Moment::as_nanos));
        say(&format!("grant {id} {lock} {token} {} {} {}", times[0], times[1], times[2]));
        let long = self.below(200) == 0;
        for _ in 0..if long { 20 } else { 1 + self.below(3) } {
            let careless = self.below(10) == 0;
            let before = guard.is_held();
            if before || careless {
                let accepted = self.fence.write(&format!("lock {lock}"), token);
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

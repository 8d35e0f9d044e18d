//! What the tasks of a simulated client do: they take and give back locks in every way that the library has.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lockwright::Step::{Granted, Moved};
use lockwright::internals::clock::Clock;
use lockwright::{Client, FairLock, Guard, Kind, LockError, Mode, Owner, Place, ReentrantLock, RunError};

use crate::dice::Dice;
use crate::history::{Kept, Scribe};
use crate::mix::{Mix, Named, Terms};
use crate::sharing::Grasp;

/// One thing that a task does with a lock.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Lock,
    Try,
    TryFor,
    /// A loop of short attempts, which fills the queue with dead entries.
    Tries,
    Run,
    RunFor,
    RunOrElse,
    /// Again and again by the same owner.
    Reenter,
    /// A place in the queue of a fair lock that is watched, and sometimes given up.
    Place,
    // What follows is for a read/write lock.
    Read,
    Write,
    /// A write that becomes a read.
    Lower,
    /// Write, read, write, by one owner.
    Nest,
    /// Read, and read again while inside; and ask to write, which cannot be.
    ReadTwice,
    /// Read by what is there, without asking.
    Peek,
}

/// What the tasks of all clients share.
pub struct Setting {
    pub mix: &'static Mix,
    pub locks: &'static [Named],
    /// Owners that every client has, as if they were sent along with a request.
    pub owners: Vec<Owner>,
    /// How long a section lasts at most, in milliseconds.
    pub section: u64,
    /// The usual way between client and server.
    pub hop: Duration,
}

pub struct Worker {
    pub client: Client,
    pub clock: Clock,
    pub dice: Dice,
    pub scribe: Scribe,
    pub setting: Arc<Setting>,
}

/// A handle, and how its attempts are recorded.
struct Target {
    lock: usize,
    handle: Handle,
    kept: Kept,
}

/// What an acquisition is asked with.
pub struct Asked {
    pub terms: Terms,
    pub owner: Option<(u64, Owner)>,
    pub kept: Kept,
}

/// The handle that asks so.
macro_rules! on_terms {
    ($lock:expr, $asked:expr) => {{
        let mut lock = $lock.with_lease($asked.terms.lease());
        if let Terms::MaxHold(limit) = $asked.terms {
            lock = lock.with_max_hold(Duration::from_millis(limit));
        }
        match &$asked.owner {
            Some((_, owner)) => lock.with_owner(owner),
            None => lock,
        }
    }};
}
pub(crate) use on_terms;

enum Handle {
    Reentrant(ReentrantLock),
    Fair(FairLock),
}

/// The same with a lock of either kind.
macro_rules! with {
    ($handle:expr, $lock:ident => $act:expr) => {
        match $handle {
            Handle::Reentrant($lock) => $act,
            Handle::Fair($lock) => $act,
        }
    };
}

impl Worker {
    pub async fn work(self) {
        // The first moments belong to connecting.
        self.pause(60).await;
        while !self.scribe.is_done() {
            let step = self.dice.weighted(self.setting.mix.steps);
            self.step(step).await;
            self.pause(120).await;
        }
        self.scribe.finished();
    }

    async fn pause(&self, most: u64) {
        if !self.dice.percent(30.0) {
            self.clock.sleep(self.dice.millis(0, most)).await;
        }
    }

    async fn step(&self, step: Step) {
        let lock = self.dice.few(self.setting.locks.len() as u64) as usize;
        if self.setting.locks[lock].kind == Kind::ReadWrite {
            return self.share(lock, step).await;
        }
        let target = self.target(lock, matches!(step, Step::Reenter));
        match step {
            Step::Lock => self.take(&target, None).await,
            Step::Try => self.take(&target, Some(Duration::ZERO)).await,
            Step::TryFor => self.take(&target, Some(self.dice.millis(1, 2_500))).await,
            Step::Tries => self.tries(&target).await,
            Step::Run => self.run(&target).await,
            Step::RunFor => self.run_for(&target).await,
            Step::RunOrElse => self.run_or_else(&target).await,
            Step::Reenter => self.reenter(&target).await,
            Step::Place => self.place(&target).await,
            _ => unreachable!("{step:?} is for a read/write lock"),
        }
    }

    /// What the next acquisition is asked with.
    pub fn asks(&self, mode: Mode, owned: bool) -> Asked {
        let terms = self.terms();
        let owner = (owned || self.dice.percent(self.setting.mix.owned)).then(|| self.owner());
        let number = owner.as_ref().map(|(number, _)| *number);
        // Who re-enters gets the terms of the first acquisition.
        let alike = owner.is_none() || self.setting.mix.leases.iter().all(|terms| terms.is_endless());
        let endless = alike && terms.is_endless();
        let capped = matches!(terms, Terms::MaxHold(_));
        Asked { terms, owner, kept: Kept { mode, owner: number, endless, capped } }
    }

    fn target(&self, lock: usize, owned: bool) -> Target {
        let asked = self.asks(Mode::Exclusive, owned);
        let Named { name, kind } = self.setting.locks[lock];
        let handle = match kind {
            Kind::Fair => Handle::Fair(on_terms!(self.client.fair_lock(name), asked)),
            _ => Handle::Reentrant(on_terms!(self.client.lock(name), asked)),
        };
        Target { lock, handle, kept: asked.kept }
    }

    /// A lease that is worth the way to the server.
    fn terms(&self) -> Terms {
        loop {
            let terms = *self.dice.pick(self.setting.mix.leases);
            if terms.lease().length() >= self.setting.hop * 20 {
                return terms;
            }
        }
    }

    /// One that others have too, or a new one.
    fn owner(&self) -> (u64, Owner) {
        if self.dice.percent(60.0) {
            let at = self.dice.below(self.setting.owners.len() as u64);
            return (at, self.setting.owners[at as usize].clone());
        }
        (self.dice.next() | 1 << 63, Owner::new())
    }

    // ---- ways in ----------------------------------------------------------------------------------------------

    /// An attempt with a limit, or without end, and a section.
    async fn take(&self, target: &Target, limit: Option<Duration>) {
        if let Some((guard, hold)) = self.obtain(target, limit).await {
            self.section(&guard, hold).await;
            self.give_back(guard, hold).await;
        }
    }

    async fn obtain(&self, target: &Target, limit: Option<Duration>) -> Option<(Guard, usize)> {
        self.scribe.operation(|| format!("asks for lock {}, {limit:?}", target.lock));
        let wait = self.scribe.asked(target.lock, limit, target.kept);
        let attempt = async {
            match limit {
                None => with!(&target.handle, lock => lock.lock().await.map(Some)),
                Some(Duration::ZERO) => with!(&target.handle, lock => lock.try_lock().await),
                Some(limit) => with!(&target.handle, lock => lock.try_lock_for(limit).await),
            }
        };
        match self.maybe_cut(attempt).await {
            Some(Ok(Some(guard))) => {
                let hold = self.granted(target, wait, &guard);
                Some((guard, hold))
            }
            Some(Ok(None)) => self.without(wait, || "was refused".into()),
            Some(Err(error)) => self.failed(wait, &error, limit.is_some_and(|limit| !limit.is_zero())),
            None => self.without(wait, || "dropped its attempt".into()),
        }
    }

    fn granted(&self, target: &Target, wait: usize, guard: &Guard) -> usize {
        self.scribe.granted(wait, target.kept, guard.number(), guard.remaining())
    }

    pub fn without<T>(&self, wait: usize, line: impl FnOnce() -> String) -> Option<T> {
        self.scribe.ended(wait, line);
        None
    }

    pub fn failed<T>(&self, wait: usize, error: &LockError, limited: bool) -> Option<T> {
        self.scribe.failed(wait, error, limited);
        self.without(wait, || format!("failed: {error}"))
    }

    async fn tries(&self, target: &Target) {
        for _ in 0..self.dice.within(5, 40) {
            self.take(target, Some(self.dice.millis(1, 30))).await;
            if self.scribe.is_done() {
                return;
            }
        }
    }

    async fn run(&self, target: &Target) {
        self.scribe.operation(|| format!("runs under lock {}", target.lock));
        let wait = self.scribe.asked(target.lock, None, target.kept);
        let inside = async |guard: &Guard| self.inside(target, wait, guard).await;
        let ended = with!(&target.handle, lock => self.maybe_cut(lock.run(inside)).await);
        self.after_run(wait, false, ended.map(|ended| ended.map(|()| true)));
    }

    async fn run_for(&self, target: &Target) {
        let limit = self.dice.millis(1, 2_000);
        self.scribe.operation(|| format!("runs under lock {}, {limit:?}", target.lock));
        let wait = self.scribe.asked(target.lock, Some(limit), target.kept);
        let inside = async |guard: &Guard| self.inside(target, wait, guard).await;
        let ended = with!(&target.handle, lock => self.maybe_cut(lock.run_for(limit, inside)).await);
        self.after_run(wait, true, ended.map(|ended| ended.map(|ran| ran.is_some())));
    }

    async fn run_or_else(&self, target: &Target) {
        self.scribe.operation(|| format!("runs under lock {}, or else", target.lock));
        let wait = self.scribe.asked(target.lock, Some(Duration::ZERO), target.kept);
        let inside = async |guard: &Guard| {
            self.inside(target, wait, guard).await;
            true
        };
        let run = async { with!(&target.handle, lock => lock.run_or_else(inside, async |_| false).await) };
        let ended = self.maybe_cut(run).await;
        self.after_run(wait, false, ended);
    }

    /// A section of a `run`, which the library may drop at any await.
    async fn inside(&self, target: &Target, wait: usize, guard: &Guard) {
        let hold = self.granted(target, wait, guard);
        let mut left = Left { scribe: &self.scribe, hold, how: "is thrown out of" };
        self.section(guard, hold).await;
        left.how = "comes to the end of";
    }

    fn after_run(&self, wait: usize, limited: bool, ended: Option<Result<bool, RunError>>) {
        match ended {
            Some(Ok(true)) => {}
            Some(Ok(false)) => self.scribe.ended(wait, || "was refused".into()),
            Some(Err(RunError::Lock(error))) => {
                self.failed::<()>(wait, &error, limited);
            }
            Some(Err(RunError::Lost(reason))) => self.scribe.lost_in_run(wait, reason),
            Some(Err(error)) => self.scribe.ended(wait, || format!("{error}")),
            None => self.scribe.ended(wait, || "dropped its run".into()),
        }
    }

    async fn reenter(&self, target: &Target) {
        let Some((outer, hold)) = self.obtain(target, None).await else { return };
        self.section(&outer, hold).await;
        for _ in 0..self.dice.within(1, 2) {
            let Some((inner, hold)) = self.obtain(target, None).await else { break };
            self.section(&inner, hold).await;
            self.give_back(inner, hold).await;
        }
        self.section(&outer, hold).await;
        self.give_back(outer, hold).await;
    }

    // ---- places -----------------------------------------------------------------------------------------------

    async fn place(&self, target: &Target) {
        let Handle::Fair(lock) = &target.handle else { return self.take(target, None).await };
        self.scribe.operation(|| format!("joins the queue of lock {}", target.lock));
        let wait = self.scribe.asked(target.lock, None, target.kept);
        match self.maybe_cut(lock.queue()).await {
            Some(Ok(place)) => self.stand(target, wait, place).await,
            Some(Err(error)) => self.failed(wait, &error, false).unwrap_or_default(),
            None => self.scribe.ended(wait, || "dropped its joining".into()),
        }
    }

    /// Moves forward to the grant, with steps that are cut off, unless it has enough before.
    async fn stand(&self, target: &Target, wait: usize, mut place: Place) {
        self.scribe.placed(wait, place.position());
        let patience = if self.dice.percent(25.0) { self.dice.below(6) } else { u64::MAX };
        for _ in 0..patience {
            let before = place.position();
            match self.maybe_cut(place.next()).await {
                Some(Ok(Moved(position))) => self.scribe.moved(before, position),
                Some(Ok(Granted(guard))) => {
                    let hold = self.granted(target, wait, &guard);
                    self.section(&guard, hold).await;
                    return self.give_back(guard, hold).await;
                }
                Some(Err(error)) => return self.failed(wait, &error, false).unwrap_or_default(),
                // The place stays, and the lock may come meanwhile.
                None => self.pause(40).await,
            }
        }
        drop(place);
        self.scribe.ended(wait, || "gives up its place".into());
    }

    // ---- inside -----------------------------------------------------------------------------------------------

    pub async fn section(&self, guard: &impl Grasp, hold: usize) {
        for _ in 0..self.dice.below(3) {
            self.write(guard, hold);
            let longest = if self.dice.percent(4.0) { 12 } else { 1 } * self.setting.section;
            let pause = self.dice.millis(0, longest);
            if self.dice.percent(50.0) {
                tokio::select! {
                    biased;
                    reason = guard.lost() => return self.scribe.lost(hold, reason),
                    () = self.clock.sleep(pause) => {}
                }
            } else {
                self.clock.sleep(pause).await;
            }
            if self.dice.percent(8.0) {
                self.extend(guard).await;
            }
        }
        self.write(guard, hold);
    }

    /// Looks at the guard, and writes whether or not it is held still: the resource must know better.
    fn write(&self, guard: &impl Grasp, hold: usize) {
        let left = guard.remaining();
        self.scribe.seen(hold, left);
        self.scribe.write(hold, guard.is_held());
    }

    async fn extend(&self, guard: &impl Grasp) {
        let length = self.dice.millis(200, 4_000);
        self.scribe.operation(|| format!("extends token {} by {length:?}", guard.number()));
        let _ = self.maybe_cut(guard.extend(length)).await;
    }

    // ---- ways out ---------------------------------------------------------------------------------------------

    pub async fn give_back(&self, guard: impl Grasp, hold: usize) {
        self.scribe.seen(hold, guard.remaining());
        if self.dice.percent(35.0) {
            self.scribe.released(hold, "drops");
            return drop(guard);
        }
        self.scribe.released(hold, "unlocks");
        let _ = self.maybe_cut(guard.unlock()).await;
    }

    /// Runs the future to its end, or, as often as the mix says, only up to a random poll or moment.
    pub async fn maybe_cut<F: Future>(&self, future: F) -> Option<F::Output> {
        if !self.dice.percent(self.setting.mix.cancelled) {
            return Some(future.await);
        }
        if self.dice.percent(50.0) {
            return Cut { future: Some(Box::pin(future)), polls: self.dice.within(1, 3) }.await;
        }
        tokio::select! {
            biased;
            () = self.clock.sleep(self.dice.millis(0, 600)) => None,
            output = future => Some(output),
        }
    }
}

/// Drops a future when it has been polled a number of times.
struct Cut<F> {
    future: Option<Pin<Box<F>>>,
    polls: u64,
}

impl<F: Future> Future for Cut<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.future else { return Poll::Ready(None) };
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        self.polls -= 1;
        if self.polls == 0 {
            self.future = None;
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

/// Records that a section was left, at its end or because its future was dropped.
pub struct Left<'a> {
    pub scribe: &'a Scribe,
    pub hold: usize,
    pub how: &'static str,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.scribe.released(self.hold, self.how);
    }
}

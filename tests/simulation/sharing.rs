//! What the tasks do with a read/write lock.

use std::future::Future;
use std::time::Duration;

use lockwright::{
    ExtendError, Guard, LockError, Lost, Mode, ReadGuard, RunError, RwLock, UnlockError, WriteGuard,
};

use crate::history::Kept;
use crate::mix::Terms;
use crate::workload::{Left, Step, Worker, on_terms};

/// What the guards of all locks have.
pub trait Grasp {
    /// The token, or the version.
    fn number(&self) -> u64;
    fn remaining(&self) -> Duration;
    fn is_held(&self) -> bool;
    fn lost(&self) -> Lost;
    fn extend(&self, length: Duration) -> impl Future<Output = Result<(), ExtendError>>;
    fn unlock(self) -> impl Future<Output = Result<(), UnlockError>>;
}

macro_rules! grasp {
    ($($guard:ident $number:ident),*) => {$(
        impl Grasp for $guard {
            fn number(&self) -> u64 {
                self.$number()
            }

            fn remaining(&self) -> Duration {
                self.remaining()
            }

            fn is_held(&self) -> bool {
                self.is_held()
            }

            fn lost(&self) -> Lost {
                self.lost()
            }

            fn extend(&self, length: Duration) -> impl Future<Output = Result<(), ExtendError>> {
                self.extend(length)
            }

            fn unlock(self) -> impl Future<Output = Result<(), UnlockError>> {
                self.unlock()
            }
        }
    )*};
}

grasp!(Guard token, ReadGuard version, WriteGuard token);

/// A read/write lock, and how attempts on it are recorded.
struct Shelf {
    lock: usize,
    handle: RwLock,
    kept: Kept,
}

impl Shelf {
    fn kept(&self, mode: Mode) -> Kept {
        Kept { mode, ..self.kept }
    }
}

impl Worker {
    pub async fn share(&self, lock: usize, step: Step) {
        let asked = self.asks(Mode::Read, matches!(step, Step::Nest | Step::ReadTwice));
        let name = self.setting.locks[lock].name;
        let mut handle = on_terms!(self.client.rw_lock(name), asked);
        if self.dice.percent(40.0) {
            handle = handle.cached();
        }
        let shelf = Shelf { lock, handle, kept: asked.kept };
        match step {
            Step::Write if self.dice.percent(15.0) => self.run_write(&shelf).await,
            Step::Write => self.write_for(&shelf).await,
            Step::Lower => self.lower(&shelf).await,
            Step::Nest => self.nest(&shelf).await,
            Step::ReadTwice => self.read_twice(&shelf).await,
            Step::Peek => self.peek(&shelf).await,
            _ if self.dice.percent(15.0) => self.run_read(&shelf).await,
            _ => self.read_for(&shelf).await,
        }
    }

    /// Mostly without end, sometimes with a limit, sometimes not at all.
    fn patience(&self) -> Option<Duration> {
        match self.dice.below(10) {
            0..7 => None,
            7 => Some(Duration::ZERO),
            _ => Some(self.dice.millis(1, 2_500)),
        }
    }

    async fn read_for(&self, shelf: &Shelf) {
        if let Some((guard, hold)) = self.reads(shelf, self.patience()).await {
            self.section(&guard, hold).await;
            self.give_back(guard, hold).await;
        }
    }

    async fn write_for(&self, shelf: &Shelf) {
        if let Some((guard, hold)) = self.writes(shelf, self.patience()).await {
            self.section(&guard, hold).await;
            self.give_back(guard, hold).await;
        }
    }

    async fn reads(&self, shelf: &Shelf, limit: Option<Duration>) -> Option<(ReadGuard, usize)> {
        let lock = &shelf.handle;
        let attempt = async {
            match limit {
                None => lock.read().await.map(Some),
                Some(Duration::ZERO) => lock.try_read().await,
                Some(limit) => lock.try_read_for(limit).await,
            }
        };
        self.attempt(shelf, Mode::Read, limit, attempt).await
    }

    async fn writes(&self, shelf: &Shelf, limit: Option<Duration>) -> Option<(WriteGuard, usize)> {
        let lock = &shelf.handle;
        let attempt = async {
            match limit {
                None => lock.write().await.map(Some),
                Some(Duration::ZERO) => lock.try_write().await,
                Some(limit) => lock.try_write_for(limit).await,
            }
        };
        self.attempt(shelf, Mode::Write, limit, attempt).await
    }

    async fn attempt<G: Grasp>(
        &self,
        shelf: &Shelf,
        mode: Mode,
        limit: Option<Duration>,
        attempt: impl Future<Output = Result<Option<G>, LockError>>,
    ) -> Option<(G, usize)> {
        self.scribe.operation(|| format!("asks to {mode} lock {}, {limit:?}", shelf.lock));
        let wait = self.scribe.asked(shelf.lock, limit, shelf.kept(mode));
        match self.maybe_cut(attempt).await {
            Some(Ok(Some(guard))) => {
                let hold = self.grasped(shelf, mode, wait, &guard);
                Some((guard, hold))
            }
            Some(Ok(None)) => self.without(wait, || "was refused".into()),
            Some(Err(error)) => self.failed(wait, &error, limit.is_some_and(|limit| !limit.is_zero())),
            None => self.without(wait, || "dropped its attempt".into()),
        }
    }

    fn grasped(&self, shelf: &Shelf, mode: Mode, wait: usize, guard: &impl Grasp) -> usize {
        self.scribe.granted(wait, shelf.kept(mode), guard.number(), guard.remaining())
    }

    async fn run_read(&self, shelf: &Shelf) {
        self.scribe.operation(|| format!("runs while reading lock {}", shelf.lock));
        let wait = self.scribe.asked(shelf.lock, None, shelf.kept(Mode::Read));
        let inside = async |guard: &ReadGuard| self.inside_of(shelf, Mode::Read, wait, guard).await;
        self.ran(wait, self.maybe_cut(shelf.handle.run_read(inside)).await);
    }

    async fn run_write(&self, shelf: &Shelf) {
        self.scribe.operation(|| format!("runs while writing lock {}", shelf.lock));
        let wait = self.scribe.asked(shelf.lock, None, shelf.kept(Mode::Write));
        let inside = async |guard: &WriteGuard| self.inside_of(shelf, Mode::Write, wait, guard).await;
        self.ran(wait, self.maybe_cut(shelf.handle.run_write(inside)).await);
    }

    async fn inside_of(&self, shelf: &Shelf, mode: Mode, wait: usize, guard: &impl Grasp) {
        let hold = self.grasped(shelf, mode, wait, guard);
        let mut left = Left { scribe: &self.scribe, hold, how: "is thrown out of" };
        self.section(guard, hold).await;
        left.how = "comes to the end of";
    }

    fn ran(&self, wait: usize, ended: Option<Result<(), RunError>>) {
        match ended {
            Some(Ok(())) => {}
            Some(Err(RunError::Lock(error))) => self.failed::<()>(wait, &error, false).unwrap_or_default(),
            Some(Err(RunError::Lost(reason))) => self.scribe.lost_in_run(wait, reason),
            Some(Err(error)) => self.scribe.ended(wait, || format!("{error}")),
            None => self.scribe.ended(wait, || "dropped its run".into()),
        }
    }

    /// Writes, and goes on as a reader of what it wrote.
    async fn lower(&self, shelf: &Shelf) {
        let Some((guard, hold)) = self.writes(shelf, None).await else { return };
        self.section(&guard, hold).await;
        self.scribe.seen(hold, guard.remaining());
        self.scribe.operation(|| format!("downgrades token {}", guard.token()));
        let wait = self.scribe.asked(shelf.lock, None, shelf.kept(Mode::Read));
        self.scribe.released(hold, "downgrades");
        match self.maybe_cut(guard.downgrade()).await {
            Some(Ok(guard)) => {
                let lowered = self.grasped(shelf, Mode::Read, wait, &guard);
                self.scribe.continues(hold, lowered);
                self.section(&guard, lowered).await;
                self.give_back(guard, lowered).await;
            }
            Some(Err(error)) => self.scribe.ended(wait, || format!("could not downgrade: {error}")),
            None => self.scribe.ended(wait, || "dropped its downgrade".into()),
        }
    }

    /// Write, read, write: the inner ones must not wait for the outer ones, whichever is given back first.
    async fn nest(&self, shelf: &Shelf) {
        let Some((outer, outer_hold)) = self.writes(shelf, None).await else { return };
        self.section(&outer, outer_hold).await;
        let read = self.reads(shelf, None).await;
        if let Some((guard, hold)) = &read {
            self.section(guard, *hold).await;
        }
        if self.dice.percent(50.0)
            && let Some((inner, hold)) = self.writes(shelf, None).await
        {
            self.section(&inner, hold).await;
            self.give_back(inner, hold).await;
        }
        if self.dice.percent(50.0) {
            self.give_back(outer, outer_hold).await;
            let Some((guard, hold)) = read else { return };
            self.section(&guard, hold).await;
            return self.give_back(guard, hold).await;
        }
        if let Some((guard, hold)) = read {
            self.give_back(guard, hold).await;
        }
        self.section(&outer, outer_hold).await;
        self.give_back(outer, outer_hold).await;
    }

    async fn read_twice(&self, shelf: &Shelf) {
        let Some((outer, outer_hold)) = self.reads(shelf, None).await else { return };
        self.section(&outer, outer_hold).await;
        if let Some((inner, hold)) = self.reads(shelf, None).await {
            self.section(&inner, hold).await;
            self.give_back(inner, hold).await;
        }
        if self.dice.percent(30.0)
            && outer.is_held()
            && let Some((guard, hold)) = self.writes(shelf, None).await
        {
            // Only where the read was lost meanwhile, or stands under a write of its owner.
            self.section(&guard, hold).await;
            self.give_back(guard, hold).await;
        }
        self.section(&outer, outer_hold).await;
        self.give_back(outer, outer_hold).await;
    }

    async fn peek(&self, shelf: &Shelf) {
        self.scribe.operation(|| format!("looks whether it can read lock {}", shelf.lock));
        let wait = self.scribe.asked(shelf.lock, Some(Duration::ZERO), shelf.kept(Mode::Read));
        let Some(guard) = shelf.handle.try_read_cached() else {
            return self.scribe.ended(wait, || "cannot".into());
        };
        let hold = self.grasped(shelf, Mode::Read, wait, &guard);
        self.section(&guard, hold).await;
        self.give_back(guard, hold).await;
    }
}

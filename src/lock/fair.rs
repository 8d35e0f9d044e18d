//! The fair lock, and a visible place in its queue.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{LockError, NotObtained, RunError};
use crate::guard::{Grip, Gripped, Guard};
use crate::handle::{Handle, Patience, lock_methods, setting_methods, taking_methods};
use crate::lease::Lease;
use crate::local::{Entered, Outcome, Standing, Stepped, Tether, WaiterRef};
use crate::owner::Owner;
use crate::scripts::Mode;

/// A lock that is given strictly in the order of asking, across all processes.
///
/// A handle: cheap to clone, and making one does no I/O; a name or a lease that no lock can have is reported by the
/// first operation. Handles of one name are one lock, in all processes that use the same server and namespace.
///
/// **Order.** Each waiter has a place of its own in the queue at the server, and the release hands the lock to the
/// first one that can be reached: first come, first served, whatever process it is in. A waiter whose connection is
/// down keeps its place for as long as the server knows of its client (`client_deadline`), and is served before later
/// ones when it is back. The order has one limit: a release looks at no more than 256 entries of the queue, and passes
/// over no more than 127 clients whose connections are down. Behind more than that, whoever polls next is served.
///
/// It is slower than the [`ReentrantLock`](crate::ReentrantLock) where one process has many waiters: that one passes
/// the lock from task to task without asking the server.
///
/// **Re-entry** is that of the [`ReentrantLock`](crate::ReentrantLock).
#[derive(Clone)]
pub struct FairLock(Handle);

lock_methods!(FairLock, "fair_lock(\"order:42\")");

impl FairLock {
    /// Joins the queue, and returns the place in it.
    ///
    /// # Errors
    /// See [`LockError`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::{Client, Step};
    ///
    /// let client = Client::embedded();
    /// let jobs = client.fair_lock("jobs");
    /// let mut place = jobs.queue().await?;
    /// let guard = loop {
    ///     match place.next().await? {
    ///         Step::Moved(position) => println!("at most {} before us", position.ahead()),
    ///         Step::Granted(guard) => break guard,
    ///     }
    /// };
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    pub fn queue(&self) -> impl Future<Output = Result<Place, LockError>> + Send + use<> {
        let request = self.0.request(Mode::Exclusive, self.0.present_owner(), Patience::Endless);
        let tether = self.0.tether.clone();
        async move {
            let mut place = match tether.local().enter(request?) {
                Entered::Now(outcome) => Place::settled(tether, outcome)?,
                Entered::Wait(waiter) => Place { tether, waiter: Some(waiter), standing: None, guard: None },
            };
            // The server's first answer tells the position, or that there is nobody to wait for.
            if let Some(guard) = place.step().await? {
                place.guard = Some(guard);
            }
            Ok(place)
        }
    }
}

/// How many are in front, at most: tickets that have left, or whose process is gone, are counted until the server
/// has met them. Whoever holds the lock is not counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position(u64);

impl Position {
    /// At most this many hold the lock's next turns before this place does; zero at the head of the queue.
    #[must_use]
    pub fn ahead(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What became of a place in the queue.
#[derive(Debug)]
#[must_use]
pub enum Step {
    /// It moved forward; or it was lost, and this is the new one. A place is lost where the server has heard nothing of
    /// its client for longer than `client_deadline`, or has lost its data: then it is the last of the queue again.
    Moved(Position),
    /// The lock is its own.
    Granted(Guard),
}

/// A place in the queue of a [`FairLock`]. Dropping it leaves the queue.
///
/// Positions stay fresh by the polls that a client makes anyway, one for each lock in half a claim (1.5 s by
/// default), whatever the number of its places: a place costs no message and no call of its own. So a position may be
/// old by that much; the grant itself is told at once.
#[must_use = "a place that is dropped is given up"]
pub struct Place {
    tether: Arc<Tether>,
    /// `None` once the wait is over.
    waiter: Option<WaiterRef>,
    /// What was last heard of it while it waited.
    standing: Option<Standing>,
    guard: Option<Guard>,
}

impl Place {
    fn settled(tether: Arc<Tether>, outcome: Outcome) -> Result<Self, LockError> {
        let guard = outcome?.map(|held| Guard::of(Grip::new(tether.clone(), held)));
        Ok(Self { tether, waiter: None, standing: None, guard })
    }

    /// The last position that was heard of.
    #[must_use]
    pub fn position(&self) -> Position {
        Position(self.standing.map_or(0, |standing| standing.ahead))
    }

    /// Waits until the place has moved, or the lock is granted.
    ///
    /// # Errors
    /// See [`LockError`]. The place is given up then.
    ///
    /// # Panics
    /// After it has returned [`Step::Granted`] or an error.
    ///
    /// # Cancel safety
    /// Cancel safe: the place stays, and nothing that it would have returned is lost.
    pub async fn next(&mut self) -> Result<Step, LockError> {
        if let Some(guard) = self.guard.take() {
            return Ok(Step::Granted(guard));
        }
        match self.step().await? {
            Some(guard) => Ok(Step::Granted(guard)),
            None => Ok(Step::Moved(self.position())),
        }
    }

    /// Waits for the grant, or for another standing.
    async fn step(&mut self) -> Result<Option<Guard>, LockError> {
        if self.guard.is_some() {
            return Ok(None);
        }
        let waiter = self.waiter.expect("this place has come to its end");
        match poll_fn(|cx| self.tether.local().step(waiter, self.standing, cx.waker())).await {
            Stepped::At(standing) => {
                self.standing = Some(standing);
                Ok(None)
            }
            Stepped::Settled(outcome) => {
                self.waiter = None;
                self.standing = None;
                let held = outcome?.ok_or(LockError::Closed)?;
                Ok(Some(Guard::of(Grip::new(self.tether.clone(), held))))
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.tether.local().abandon(waiter);
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("ahead", &self.position().0).finish_non_exhaustive()
    }
}

impl fmt::Debug for FairLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe("FairLock", f)
    }
}

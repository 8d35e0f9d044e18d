//! The one hold: what a user has of a lock that is granted.

mod methods;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::acquire::acquire;
use crate::clock::Moment;
use crate::error::{DowngradeError, ExtendError, LockError, LossReason, UnlockError};
use crate::local::{Downgraded, HoldRef, Tether};
use crate::mutant::{self, Mutant};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};

pub(crate) use methods::guard_methods;

/// What a guard and its client's books know of one hold.
///
/// | `trusted` | `reason` | meaning |
/// |---|---|---|
/// | later than now | none | held |
/// | past | none | lost, and the watchdog will say so as soon as it runs |
/// | zero | some | lost: never held again |
pub struct Hold {
    token: u64,
    trusted: AtomicU64,
    failing: AtomicBool,
    ended: Mutex<Ended>,
}

#[derive(Default)]
struct Ended {
    reason: Option<LossReason>,
    watchers: BTreeMap<u64, Waker>,
    next_watcher: u64,
}

impl Hold {
    pub fn new(token: u64, trusted: Moment) -> Self {
        Self {
            token,
            trusted: AtomicU64::new(trusted.as_nanos()),
            failing: AtomicBool::new(false),
            ended: Mutex::new(Ended::default()),
        }
    }

    pub fn token(&self) -> u64 {
        self.token
    }

    /// How long this hold can be trusted from `now` on; zero once it is lost.
    pub fn remaining(&self, now: Moment) -> Duration {
        Moment::from_nanos(self.trusted.load(Ordering::Acquire)).since(now)
    }

    pub fn reason(&self) -> Option<LossReason> {
        lock(&self.ended).reason
    }

    /// The hold is good until `trusted`; whether its last renewal went unanswered.
    pub fn trust(&self, trusted: Moment, failing: bool) {
        // Under the lock, so that a loss is final: a renewal's answer that is late must not revive the hold.
        let ended = lock(&self.ended);
        let is_over = ended.reason.is_some();
        let _ended = mutant::apart(&self.ended, ended, Mutant::TrustedApart);
        if !is_over {
            self.trusted.store(trusted.as_nanos(), Ordering::Release);
            self.failing.store(failing, Ordering::Release);
        }
    }

    /// The last renewal went unanswered.
    pub fn doubt(&self) {
        self.failing.store(true, Ordering::Release);
    }

    /// Whether its last renewal went unanswered.
    pub fn is_in_doubt(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    /// Ends the hold, and returns who wants to be woken. The first reason stands.
    pub fn lose(&self, reason: LossReason) -> Vec<Waker> {
        let mut ended = lock(&self.ended);
        if ended.reason.is_none() {
            ended.reason = Some(reason);
            self.trusted.store(0, Ordering::Release);
        }
        std::mem::take(&mut ended.watchers).into_values().collect()
    }

    /// Why the hold ended; else `waker` is woken when it does. `watcher` is this watcher's place.
    pub fn poll_lost(&self, watcher: &mut Option<u64>, waker: &Waker) -> Poll<LossReason> {
        // A waker is the user's code: cloned before the critical section, and the one before it dropped behind it.
        let waker = waker.clone();
        let ended = lock(&self.ended);
        if let Some(reason) = ended.reason {
            drop(ended);
            return Poll::Ready(reason);
        }
        let mut ended = mutant::apart(&self.ended, ended, Mutant::WatchedApart);
        let id = *watcher.get_or_insert_with(|| {
            ended.next_watcher += 1;
            ended.next_watcher
        });
        let unwanted = ended.watchers.insert(id, waker);
        drop(ended);
        drop(unwanted);
        Poll::Pending
    }

    fn forget_watcher(&self, watcher: Option<u64>) {
        if let Some(id) = watcher {
            let waker = lock(&self.ended).watchers.remove(&id);
            // Dropped out here: a waker is the user's code.
            drop(waker);
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("token", &self.token)
            .field("lost", &self.reason())
            .finish_non_exhaustive()
    }
}

/// What every guard has of its hold, and gives back when it is dropped.
#[must_use = "a hold that is dropped at once is given back at once"]
pub struct Grip {
    tether: Arc<Tether>,
    held: Arc<HoldRef>,
    released: bool,
}

impl Grip {
    pub fn new(tether: Arc<Tether>, held: Arc<HoldRef>) -> Self {
        Self { tether, held, released: false }
    }

    pub fn held(&self) -> &Arc<HoldRef> {
        &self.held
    }

    pub fn token(&self) -> u64 {
        self.held.hold.token()
    }

    pub fn remaining(&self) -> Duration {
        self.held.hold.remaining(self.tether.now())
    }

    pub fn renewal(&self) -> Renewal {
        if self.held.hold.failing.load(Ordering::Acquire) {
            Renewal::Failing { left: self.remaining() }
        } else {
            Renewal::Fresh
        }
    }

    pub fn lost(&self) -> Lost {
        Lost { held: self.held.clone(), watcher: None }
    }

    pub fn extend(&self, length: Duration) -> impl Future<Output = Result<(), ExtendError>> + Send + use<> {
        let (tether, held) = (self.tether.clone(), self.held.clone());
        async move { tether.extend(&held, length).await }
    }

    pub async fn unlock(mut self) -> Result<(), UnlockError> {
        self.released = true;
        let tether = self.tether.clone();
        tether.unlock(&self.held).await
    }

    /// Goes on as a read, or holds nothing any more.
    pub async fn downgrade(mut self) -> Result<Self, DowngradeError> {
        let tether = self.tether.clone();
        match tether.downgrade(&self.held) {
            Ok(Downgraded::Sent(answer)) => {
                self.released = true;
                answer.await.unwrap_or(Err(DowngradeError::Failed(LockError::Closed)))
            }
            // Cancelled or not, this guard's share of the write ends here.
            Ok(Downgraded::Within(request)) => {
                let read = tokio::select! {
                    biased;
                    read = acquire(tether, request, Moment::NEVER) => read.map_err(DowngradeError::Failed)?,
                    // Else it would wait for whoever writes now, and read what that one wrote.
                    reason = self.lost() => return Err(DowngradeError::Lost(reason)),
                };
                let read = read.ok_or(DowngradeError::Failed(LockError::Closed))?;
                if read.token() != self.token() {
                    // It was not let in under this write, which was lost without a word.
                    let reason = self.held.hold.reason().unwrap_or(LossReason::GoneAtServer);
                    return Err(DowngradeError::Lost(reason));
                }
                Ok(read)
            }
            Err(reason) => {
                self.released = true;
                Err(DowngradeError::Lost(reason))
            }
        }
    }

    pub fn describe(&self, name: &str, number: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field(number, &self.token())
            .field("held", &!self.remaining().is_zero())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Grip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe("Grip", "token", f)
    }
}

impl Drop for Grip {
    fn drop(&mut self) {
        if !self.released {
            self.tether.release(&self.held);
        }
    }
}

/// A guard: what is made of a grip.
pub trait Gripped: Sized + Send {
    fn of(grip: Grip) -> Self;
    fn grip(&self) -> &Grip;
    fn into_grip(self) -> Grip;
}

/// A lock that is held. Dropping it releases the lock in the background.
///
/// The hold is renewed in the background for as long as the guard lives (unless its lease is
/// [fixed](crate::Lease::fixed)), but no lock service can promise that it is never lost: the process may be stopped
/// for longer than the lease, the server may lose its data. So a guard tells: [`is_held`](Guard::is_held) compares
/// clocks at the call, [`lost`](Guard::lost) resolves when the hold is lost, and [`token`](Guard::token) lets the
/// guarded resource refuse whoever comes late.
///
/// Release is not immediate on drop: it is on its way then, or about to be sent by the client's task. To know that it
/// has arrived, use [`unlock`](Guard::unlock). Where the process or the runtime ends right after a drop, it may never
/// arrive, and the others wait for the end of the lease: let it `unlock`, or [`close`](crate::Client::close) its client,
/// before. A guard that is [forgotten](std::mem::forget) is renewed until its client is closed; `with_max_hold` bounds
/// that.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use lockwright::Client;
///
/// let guard = Client::embedded().lock("order:42").lock().await?;
/// tokio::select! {
///     reason = guard.lost() => eprintln!("stop: {reason}"),
///     () = async { /* the work */ } => guard.unlock().await?,
/// }
/// # Ok(()) }
/// ```
#[must_use = "a guard that is dropped at once releases the lock at once"]
pub struct Guard(Grip);

guard_methods!(Guard, "lock(\"a\")", "lock()");

impl Guard {
    /// The fencing token of this hold: strictly larger with each new grant of this lock, and the same again where
    /// an owner re-enters.
    ///
    /// Give it to the guarded resource along with each write, and have the resource refuse a token smaller than the
    /// largest that it has seen: then a holder that lost the lock without knowing it cannot do harm. Always below
    /// 2^53.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// # let guard = lock.lock().await?;
    /// let first = guard.token();
    /// guard.unlock().await?;
    /// assert!(lock.lock().await?.token() > first);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn token(&self) -> u64 {
        self.0.token()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe("Guard", "token", f)
    }
}

/// How the renewals of a hold fare.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use lockwright::{Client, Renewal};
///
/// let guard = Client::embedded().lock("a").lock().await?;
/// assert_eq!(guard.renewal(), Renewal::Fresh);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// The last renewal was answered, or is still waited for (`command_timeout` at most), or none was due yet.
    Fresh,
    /// The last renewal was not answered. It is tried again until `left` is over; then the hold is lost.
    Failing {
        /// For how long the hold can still be trusted.
        left: Duration,
    },
}

/// Resolves when a hold is lost; from [`Guard::lost`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = lockwright::Client::embedded();
/// # let lock = client.lock("a");
/// # let guard = lock.lock().await?;
/// let lost = guard.lost();
/// let also = lost.clone();
/// drop(client.force_release("a", guard.token()).await?);
/// assert_eq!(lost.await, also.await);
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless they are polled"]
pub struct Lost {
    held: Arc<HoldRef>,
    watcher: Option<u64>,
}

impl Future for Lost {
    type Output = LossReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LossReason> {
        let this = &mut *self;
        this.held.hold.poll_lost(&mut this.watcher, cx.waker())
    }
}

impl Clone for Lost {
    fn clone(&self) -> Self {
        Self { held: self.held.clone(), watcher: None }
    }
}

impl Drop for Lost {
    fn drop(&mut self) {
        self.held.hold.forget_watcher(self.watcher);
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").field("reason", &self.held.hold.reason()).finish_non_exhaustive()
    }
}

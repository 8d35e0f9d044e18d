//! The one hold: what a user has of a lock that is granted.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::Moment;
use crate::error::{ExtendError, LossReason, UnlockError};
use crate::local::{HoldRef, Tether};
use crate::mutant::{self, Mutant};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};

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

/// A lock that is held. Dropping it releases the lock in the background.
///
/// The hold is renewed in the background for as long as the guard lives (unless its lease is
/// [fixed](crate::Lease::fixed)), but no lock service can promise that it is never lost: the process may be stopped
/// for longer than the lease, the server may lose its data. So a guard tells: [`is_held`](Guard::is_held) compares
/// clocks at the call, [`lost`](Guard::lost) resolves when the hold is lost, and [`token`](Guard::token) lets the
/// guarded resource refuse whoever comes late.
///
/// Release is not immediate on drop: the release is sent by the client's task. To know that it has arrived, use
/// [`unlock`](Guard::unlock). A process or runtime that ends right after a drop sends nothing any more, and the others
/// wait for the end of the lease: let it `unlock`, or [`close`](crate::Client::close) its client, before. A guard that is [forgotten](std::mem::forget) is renewed until its client is closed;
/// `with_max_hold` bounds that.
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
pub struct Guard {
    tether: Arc<Tether>,
    held: HoldRef,
    released: bool,
}

impl Guard {
    pub(crate) fn new(tether: Arc<Tether>, held: HoldRef) -> Self {
        Self { tether, held, released: false }
    }

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
        self.held.hold.token()
    }

    /// Whether this hold can be trusted at this moment, by the local clock, which also runs while the host sleeps.
    /// Sends nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// # let guard = lock.lock().await?;
    /// if guard.is_held() {
    ///     // Now it is. Whatever must be true when it arrives elsewhere goes with the token.
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// For how long this hold can be trusted if no further renewal succeeds; zero once it is lost. Shorter than the
    /// lease at the server: it counts from the sending of the last renewal, less 1 % and 10 ms.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// # let guard = lock.lock().await?;
    /// use std::time::Duration;
    ///
    /// // The default lease of 30 s, less the margin.
    /// assert!(guard.remaining() < Duration::from_secs(30) && guard.remaining() > Duration::from_secs(29));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.hold.remaining(self.tether.now())
    }

    /// How the renewals of this hold fare.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// # let guard = lock.lock().await?;
    /// use lockwright::Renewal;
    ///
    /// if let Renewal::Failing { left } = guard.renewal() {
    ///     eprintln!("the server does not answer; the lock is lost in {left:?}");
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn renewal(&self) -> Renewal {
        if self.held.hold.failing.load(Ordering::Acquire) {
            Renewal::Failing { left: self.remaining() }
        } else {
            Renewal::Fresh
        }
    }

    /// A future that resolves when this hold is lost, and never if it is released first. (The guards of an owner that has
    /// re-entered share one hold: it is released with the last of them.) It is owned and can be
    /// cloned and sent to other tasks; it does not keep the lock.
    ///
    /// # Cancel safety
    /// Cancel safe: it only watches.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// # let guard = lock.lock().await?;
    /// let lost = guard.lost();
    /// let watcher = tokio::spawn(async move { println!("lost: {}", lost.await) });
    /// guard.unlock().await?;
    /// watcher.abort();
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> Lost {
        Lost { hold: self.held.hold.clone(), watcher: None }
    }

    /// Makes the hold last at least `length` from now, never shorter than it does already. Later renewals do not
    /// shorten it either. A fixed lease then ends `length` after this call, if that is later than its end.
    ///
    /// # Errors
    /// [`ExtendError::Lost`] where the hold is gone; [`ExtendError::InvalidLease`] unless `length` is from 100 ms
    /// to 24 h; [`ExtendError::MaxHold`] where `with_max_hold` ends the guard sooner; otherwise the server could
    /// not be asked, and the hold may or may not have been made longer: the guard counts on the shorter.
    ///
    /// # Cancel safety
    /// Once polled, the request is carried through.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// # let guard = lock.lock().await?;
    /// use std::time::Duration;
    ///
    /// guard.extend(Duration::from_secs(120)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(100));
    /// # Ok(()) }
    /// ```
    pub fn extend(&self, length: Duration) -> impl Future<Output = Result<(), ExtendError>> + Send + use<> {
        let (tether, held) = (self.tether.clone(), self.held.clone());
        async move { tether.extend(&held, length).await }
    }

    /// Releases the lock and waits until the server has answered; where the hold is passed on inside the process,
    /// or re-entered by an outer call, nothing needs to be sent and it returns at once.
    ///
    /// # Errors
    /// [`UnlockError::Lost`] where the hold was lost before. [`UnlockError::Unanswered`] where no answer came
    /// within `unavailable_after`: the release goes on in the background, and at the latest the lease ends the hold.
    ///
    /// # Cancel safety
    /// The lock is released in the background however early the future is dropped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// # let lock = client.lock("a");
    /// # let guard = lock.lock().await?;
    /// guard.unlock().await?;
    /// // Whoever asks now, in whatever process, finds it free.
    /// assert!(lock.try_lock().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn unlock(mut self) -> Result<(), UnlockError> {
        self.released = true;
        let tether = self.tether.clone();
        tether.unlock(&self.held).await
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released {
            self.tether.release(&self.held);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("token", &self.token())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
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
    /// The last renewal was answered, or none was due yet.
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
    hold: Arc<Hold>,
    watcher: Option<u64>,
}

impl Future for Lost {
    type Output = LossReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LossReason> {
        let this = &mut *self;
        this.hold.poll_lost(&mut this.watcher, cx.waker())
    }
}

impl Clone for Lost {
    fn clone(&self) -> Self {
        Self { hold: self.hold.clone(), watcher: None }
    }
}

impl Drop for Lost {
    fn drop(&mut self) {
        self.hold.forget_watcher(self.watcher);
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").field("reason", &self.hold.reason()).finish_non_exhaustive()
    }
}

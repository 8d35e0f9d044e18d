//! The only source of time. Everything else asks a [`Clock`], so that a simulation can drive it.
//!
//! Holders' validity must keep running while the host sleeps, or a laptop that wakes up would trust a hold that
//! ended hours ago; `CLOCK_MONOTONIC`, which `std` and tokio read on Linux, stops during suspend. So a real clock
//! reads `CLOCK_BOOTTIME` there.
#![allow(clippy::disallowed_methods, reason = "this is the module that the others must use")]

use std::fmt;
use std::time::Duration;

use crate::sync::{Mutex, lock};
use std::sync::Arc;

/// A reading of a client's local clock: the time since that clock's origin. Readings of two clocks do not compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(Duration);

impl Moment {
    /// The clock's origin, earlier than every reading.
    pub const ORIGIN: Self = Self(Duration::ZERO);
    /// Later than every reading.
    pub const NEVER: Self = Self(Duration::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// Nanoseconds since the origin; [`u64::MAX`] for moments that do not fit (584 years, and [`Moment::NEVER`]).
    pub fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The time from `earlier` to here, zero where `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment moved back by `span`, not before the origin.
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }

    /// This moment moved on by `span`; [`Moment::NEVER`] on overflow.
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A client's clock.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    Boot,
    Tokio { origin: tokio::time::Instant, deadlines: Option<Deadlines> },
}

/// No sleep on the real clock is longer: tokio's timers stop while the host sleeps, so a sleeper looks at the
/// clock again this soon after the host woke up.
const LONGEST_NAP: Duration = Duration::from_secs(1);

impl Clock {
    /// The machine's clock that also runs during suspend (`CLOCK_BOOTTIME` on Linux and Android; elsewhere the
    /// monotonic clock, whatever it does there).
    pub fn boot() -> Self {
        Self(Source::Boot)
    }

    /// tokio's clock, which a test can pause. Its origin is now.
    pub fn tokio() -> Self {
        Self(Source::Tokio { origin: tokio::time::Instant::now(), deadlines: None })
    }

    /// tokio's clock, which also tells `deadlines` what is slept for.
    pub fn observed(deadlines: Deadlines) -> Self {
        Self(Source::Tokio { origin: tokio::time::Instant::now(), deadlines: Some(deadlines) })
    }

    /// The time now.
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::Boot => boot_time(),
            Source::Tokio { origin, .. } => Moment(origin.elapsed()),
        }
    }

    /// Completes at `moment`, at once where that is past.
    pub async fn sleep_until(&self, moment: Moment) {
        let _registered = match &self.0 {
            Source::Tokio { deadlines: Some(deadlines), .. } => Some(deadlines.register(moment)),
            _ => None,
        };
        loop {
            let left = moment.since(self.now());
            if left.is_zero() {
                return;
            }
            match self.0 {
                Source::Boot => tokio::time::sleep(left.min(LONGEST_NAP)).await,
                Source::Tokio { .. } => tokio::time::sleep(left).await,
            }
        }
    }

    /// Completes after `span`.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now().plus(span)).await;
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Boot => "Clock::Boot",
            Source::Tokio { .. } => "Clock::Tokio",
        })
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_time() -> Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Moment(Duration::new(seconds, nanos))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_time() -> Moment {
    static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    Moment(ORIGIN.get_or_init(std::time::Instant::now).elapsed())
}

/// How long it is until `deadline`, zero where it is past.
pub fn until(deadline: std::time::Instant) -> Duration {
    deadline.saturating_duration_since(std::time::Instant::now())
}

/// The wall clock in microseconds since 1970. For an engine's first `TIME`; a lock's life never depends on it.
pub fn wall_micros() -> u64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}

/// What the sleepers of one simulated client wait for, so that its driver knows the next moment at which the
/// client does anything by itself.
#[derive(Clone, Debug, Default)]
pub struct Deadlines(Arc<Mutex<Registered>>);

#[derive(Debug, Default)]
struct Registered {
    next_id: u64,
    by_moment: std::collections::BTreeSet<(Moment, u64)>,
}

impl Deadlines {
    /// The earliest moment that anybody sleeps for.
    pub fn earliest(&self) -> Option<Moment> {
        lock(&self.0).by_moment.first().map(|&(moment, _)| moment)
    }

    fn register(&self, moment: Moment) -> Deadline {
        let mut registered = lock(&self.0);
        let id = registered.next_id;
        registered.next_id += 1;
        registered.by_moment.insert((moment, id));
        Deadline { deadlines: self.clone(), key: (moment, id) }
    }
}

struct Deadline {
    deadlines: Deadlines,
    key: (Moment, u64),
}

impl Drop for Deadline {
    fn drop(&mut self) {
        lock(&self.deadlines.0).by_moment.remove(&self.key);
    }
}

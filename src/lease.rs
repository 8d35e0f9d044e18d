//! How long a hold lives, and how long a guard may trust it.

use std::time::Duration;

use crate::clock::Moment;
use crate::error::InvalidLease;

/// How long the server keeps a hold without word from its holder.
///
/// ```
/// use lockwright::Lease;
/// use std::time::Duration;
///
/// // Renewed in the background for as long as the guard lives (30 s is the default).
/// let renewed = Lease::renewed(Duration::from_secs(10));
/// // Ends 10 s after the grant, whatever happens.
/// let fixed = Lease::fixed(Duration::from_secs(10));
/// assert_ne!(renewed, fixed);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lease {
    length: Duration,
    renewed: bool,
}

impl Lease {
    /// The shortest lease.
    pub const SHORTEST: Duration = Duration::from_millis(100);
    /// The longest lease.
    pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

    /// A lease that is renewed in the background, at a third of its length, until the guard is released or lost.
    ///
    /// `length` must be from 100 ms to 24 h and is cut to whole milliseconds; anything else is reported as
    /// `InvalidLease` by the first operation that uses it.
    pub const fn renewed(length: Duration) -> Self {
        Self { length, renewed: true }
    }

    /// A lease that ends `length` after the grant, never later. It is renewed once at most, to confirm a hold that
    /// was handed over with a short claim.
    ///
    /// `length` is bounded as in [`Lease::renewed`].
    pub const fn fixed(length: Duration) -> Self {
        Self { length, renewed: false }
    }

    /// The length of the lease.
    pub const fn length(self) -> Duration {
        self.length
    }

    /// Whether the lease is renewed in the background.
    pub const fn is_renewed(self) -> bool {
        self.renewed
    }

    /// The lease's length in the server's unit.
    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn check(self) -> Result<Self, InvalidLease> {
        match self.length {
            length if length < Self::SHORTEST => Err(InvalidLease::TooShort { length }),
            length if length > Self::LONGEST => Err(InvalidLease::TooLong { length }),
            _ => Ok(self),
        }
    }
}

impl Default for Lease {
    /// Thirty seconds, renewed.
    fn default() -> Self {
        Self::renewed(Duration::from_secs(30))
    }
}

/// What two clocks may differ by over a span: 1 % of the span, and 10 ms for the server's whole milliseconds and
/// its lazy expiry.
const FIXED_MARGIN: Duration = Duration::from_millis(10);

/// `span` as it may have passed on a clock that runs 1 % slower: what is certain of a span told by another clock.
pub(crate) fn certain(span: Duration) -> Duration {
    span - span / 100
}

/// Until when a holder may trust a hold of which the server said, to a question sent at `sent`, that `left` is
/// left of it. Counted from the sending and not from the reply: the server may have answered at once, and the
/// answer may have been on its way for as long as the hold lasted.
pub(crate) fn trusted_until(sent: Moment, left: Duration) -> Moment {
    sent.plus(certain(left).saturating_sub(FIXED_MARGIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        let millis = Duration::from_millis;
        assert!(Lease::renewed(millis(100)).check().is_ok());
        assert!(Lease::fixed(Lease::LONGEST).check().is_ok());
        let short = Duration::from_nanos(99_999_999);
        assert_eq!(Lease::renewed(short).check(), Err(InvalidLease::TooShort { length: short }));
        assert_eq!(Lease::fixed(Duration::MAX).check(), Err(InvalidLease::TooLong { length: Duration::MAX }));
    }

    #[test]
    fn a_hold_is_trusted_for_less_than_its_lease_counted_from_the_sending() {
        let sent = Moment::from_nanos(5_000_000_000);
        assert_eq!(trusted_until(sent, Duration::from_secs(1)), sent.plus(Duration::from_millis(980)));
        assert_eq!(trusted_until(sent, Duration::from_millis(10)), sent);
        assert_eq!(trusted_until(sent, Duration::ZERO), sent);
    }
}

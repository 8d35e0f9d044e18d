//! Random decisions of one history, all from its seed.

use std::time::Duration;

use lockwright::internals::chance::Chance;

/// Time since the history began, in nanoseconds, on the clock that no client can see.
pub type Nanos = u64;

pub const MILLI: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000 * MILLI;

pub fn nanos(span: Duration) -> Nanos {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Clone, Debug)]
pub struct Dice(Chance);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Chance::from_seed(seed))
    }

    /// Dice for another part of the history, so that one part's throws do not shift the other's.
    pub fn fork(&self) -> Self {
        Self::new(self.0.next_u64())
    }

    pub fn next(&self) -> u64 {
        self.0.next_u64()
    }

    /// From zero up to, but not including, `limit`.
    pub fn below(&self, limit: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// From `least` to `most`, both included.
    pub fn within(&self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True in `percent` of a hundred throws.
    pub fn percent(&self, percent: f64) -> bool {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * 100.0 < percent
    }

    pub fn pick<'a, T>(&self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// One of `choices`, each as likely as its weight says.
    pub fn weighted<T: Copy>(&self, choices: &[(T, u64)]) -> T {
        let total = choices.iter().map(|&(_, weight)| weight).sum();
        let mut left = self.below(total);
        for &(choice, weight) in choices {
            if left < weight {
                return choice;
            }
            left -= weight;
        }
        unreachable!("the weights add up to the total")
    }

    /// An index below `length`, small ones far more often: each step further is half as likely.
    pub fn few(&self, length: u64) -> u64 {
        u64::from(self.0.next_u64().trailing_zeros()).min(length - 1)
    }

    pub fn span(&self, least: Duration, most: Duration) -> Duration {
        Duration::from_nanos(self.within(nanos(least), nanos(most)))
    }

    pub fn millis(&self, least: u64, most: u64) -> Duration {
        self.span(Duration::from_millis(least), Duration::from_millis(most))
    }
}

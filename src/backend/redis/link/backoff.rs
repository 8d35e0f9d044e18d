//! How long to wait before the next attempt to connect.

use std::time::Duration;

use crate::chance::Chance;
use crate::clock::Clock;

/// The most that the wait before the first attempt is. It is not zero, or all clients of a server that restarts
/// would come at the same instant.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);
/// Between attempts at a server that refuses us: each is a line in its log, and somebody must act first.
const SLOW: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Backoff {
    clock: Clock,
    chance: Chance,
    limit: Duration,
    slow: bool,
}

impl Backoff {
    pub fn new(clock: Clock, chance: Chance) -> Self {
        Self { clock, chance, limit: FIRST, slow: false }
    }

    /// Waits for a random time, which doubles with each call since the last [`Backoff::reset`].
    pub async fn wait(&mut self) {
        let span = if self.slow {
            self.chance.jitter(SLOW, 25)
        } else {
            // Half of it is certain, so that a run of small numbers is not a tight loop.
            let certain = if self.limit == FIRST { Duration::ZERO } else { self.limit / 2 };
            certain + self.chance.span_below(self.limit - certain)
        };
        self.slow = false;
        self.limit = (self.limit * 2).min(LONGEST);
        self.clock.sleep(span).await;
    }

    /// The next wait is the long one.
    pub fn slow(&mut self) {
        self.slow = true;
    }

    /// The connection was good: begin with short waits again. A connection that breaks at once was not.
    pub fn reset(&mut self) {
        self.limit = FIRST;
    }
}

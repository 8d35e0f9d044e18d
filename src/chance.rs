//! The only source of random numbers: identities and jitter. A simulation seeds it, so that a history replays.
#![allow(clippy::disallowed_methods, reason = "this is the module that the others must use")]

use std::cell::Cell;
use std::time::Duration;

use uuid::Uuid;

use crate::sync::{Mutex, lock};
use std::sync::Arc;

/// A client's random numbers. Not for secrets.
#[derive(Clone, Debug)]
pub struct Chance(Arc<Mutex<u64>>);

impl Chance {
    /// Seeded by the operating system.
    pub fn from_system() -> Self {
        Self::from_seed(Uuid::new_v4().as_u64_pair().0)
    }

    /// The same numbers for the same seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    /// The next number.
    pub fn next_u64(&self) -> u64 {
        split_mix(&mut lock(&self.0))
    }

    /// A span from zero up to, but not including, `limit`.
    pub fn span_below(&self, limit: Duration) -> Duration {
        // 53 bits: what a double holds exactly.
        let share = (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        limit.mul_f64(share)
    }

    /// `span` within `percent` per cent either way, so that many clients do not act in step.
    pub fn jitter(&self, span: Duration, percent: u32) -> Duration {
        let reach = span * percent / 100;
        span - reach + self.span_below(reach * 2)
    }
}

thread_local! {
    static SEEDED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A new random identity (UUID version 4).
pub fn identity() -> Uuid {
    match SEEDED.get() {
        None => Uuid::new_v4(),
        Some(mut state) => {
            let halves = (split_mix(&mut state), split_mix(&mut state));
            SEEDED.set(Some(state));
            uuid::Builder::from_random_bytes(Uuid::from_u64_pair(halves.0, halves.1).into_bytes()).into_uuid()
        }
    }
}

/// Makes [`identity`] on this thread a function of `seed`, for a simulation; `None` undoes it.
pub fn seed_identities(seed: Option<u64>) {
    SEEDED.set(seed);
}

/// SplitMix64, the generator that Steele, Lea and Flood give in "Fast splittable pseudorandom number generators"
/// (OOPSLA 2014): small, and good enough for jitter and simulation.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

//! Who is inside a shared hold, and whether others may enter: the part of a read that is done without the books.

use crate::clock::Moment;
use crate::mutant::{self, Mutant};
use crate::sync::{AtomicU64, Ordering};

/// The readers of one process that share one hold.
///
/// | word | meaning |
/// |---|---|
/// | the lower bits | how many readers are inside |
/// | `CLOSED` | nobody enters any more; never taken back |
/// | `KEPT` | the hold stays when nobody is inside |
///
/// Whoever finds that nobody is inside a gate that is closed, or not kept, tells the books, which give the hold back:
/// a reader by [`leave`](Gate::leave), the books themselves by [`close`](Gate::close). One word has both the count and
/// the flags, so that of a reader that leaves and a closing at the same time at least one finds it. (With two words
/// each may see the other's old value, and the hold stays until its client ends.) Both may: giving back is the books'
/// own step, under their mutex, and happens once.
#[derive(Debug)]
pub struct Gate {
    word: AtomicU64,
    /// When somebody left last, on the client's clock; only told of a hold that is kept.
    left: AtomicU64,
}

const CLOSED: u64 = 1 << 63;
const KEPT: u64 = 1 << 62;
const FLAGS: u64 = CLOSED | KEPT;

impl Gate {
    /// A gate that is open, with nobody inside.
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0), left: AtomicU64::new(0) }
    }

    /// Lets one reader in, unless the gate is closed. With `kept` only where the hold stays when nobody is inside: to
    /// make it stay is up to the books.
    pub fn enter(&self, kept: bool) -> bool {
        let refused = if kept { CLOSED | KEPT } else { CLOSED };
        let wanted = if kept { KEPT } else { 0 };
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & refused != wanted {
                return false;
            }
            // What the books have written under this hold is visible to whoever enters.
            match self.word.compare_exchange_weak(word, word + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
    }

    /// Lets one reader out, at the time that `now` tells. Returns whether the books must be told: nobody is inside, and
    /// the hold is not to stay.
    pub fn leave(&self, now: impl FnOnce() -> Moment) -> bool {
        if self.word.load(Ordering::Relaxed) & KEPT != 0 {
            // Noted before it is out: who finds nobody inside counts from here.
            self.left.store(now().as_nanos(), Ordering::Relaxed);
        }
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        before & !FLAGS == 1 && before & FLAGS != KEPT
    }

    /// Closes the gate. Returns whether nobody is inside.
    pub fn close(&self) -> bool {
        if mutant::is(Mutant::ClosedApart) {
            let is_empty = self.inside() == 0;
            self.word.fetch_or(CLOSED, Ordering::AcqRel);
            return is_empty;
        }
        self.word.fetch_or(CLOSED, Ordering::AcqRel) & !FLAGS == 0
    }

    /// Closes the gate if nobody is inside. Returns whether it is closed, with nobody inside.
    pub fn close_if_empty(&self) -> bool {
        if mutant::is(Mutant::EmptiedApart) {
            let is_empty = self.inside() == 0;
            if is_empty {
                self.word.fetch_or(CLOSED, Ordering::AcqRel);
            }
            return is_empty;
        }
        let mut word = self.word.load(Ordering::Relaxed);
        while word & !FLAGS == 0 {
            match self.word.compare_exchange_weak(word, word | CLOSED, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
        false
    }

    /// From now on the hold stays when nobody is inside.
    pub fn keep(&self, now: Moment) {
        self.left.store(now.as_nanos(), Ordering::Relaxed);
        self.word.fetch_or(KEPT, Ordering::AcqRel);
    }

    /// Since when nobody has been inside; `now` while somebody is.
    pub fn idle_since(&self, now: Moment) -> Moment {
        match self.inside() {
            0 => Moment::from_nanos(self.left.load(Ordering::Relaxed)),
            _ => now,
        }
    }

    /// How many readers are inside.
    pub fn inside(&self) -> u64 {
        self.word.load(Ordering::Acquire) & !FLAGS
    }
}

#[cfg(all(test, not(lockwright_loom)))]
mod tests {
    use super::*;

    fn at(nanos: u64) -> impl Fn() -> Moment {
        move || Moment::from_nanos(nanos)
    }

    #[test]
    fn the_last_one_out_of_a_hold_that_does_not_stay_tells() {
        let gate = Gate::new();
        assert!(gate.enter(false) && gate.enter(false));
        assert!(!gate.leave(at(5)) && gate.leave(at(5)));
        // Somebody came between the leaving and the books: it is not given back under them.
        assert!(gate.enter(false) && !gate.close_if_empty());
        assert!(gate.leave(at(5)) && gate.close_if_empty() && !gate.enter(false));
    }

    #[test]
    fn a_kept_hold_stays_until_it_is_closed() {
        let gate = Gate::new();
        assert!(!gate.enter(true), "nobody has made it stay yet");
        gate.keep(Moment::ORIGIN);
        assert!(gate.enter(true) && gate.enter(false));
        assert!(!gate.leave(at(5)));
        assert_eq!(gate.idle_since(Moment::NEVER), Moment::NEVER);
        // Idle from the last one out, not from the last one in.
        assert!(!gate.leave(at(7)));
        assert_eq!(gate.idle_since(Moment::NEVER), Moment::from_nanos(7));
        assert!(gate.enter(true) && !gate.close() && !gate.enter(true));
        assert!(gate.leave(at(9)) && gate.close());
    }
}

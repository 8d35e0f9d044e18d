//! Models: small programs of a few threads over the client's own state machines, run by loom under every order in
//! which the threads can take their steps (and every value that an atomic may show). Each has a mutant of
//! `src/mutant.rs`, and a test that loom refutes it. Run them with `scripts/loom`.
#![cfg(lockwright_loom)]

mod courier;
mod gate;
mod hold;
mod waits;
mod watchdog;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Wake, Waker};

use lockwright::internals::mutant::{self, Mutant};

/// Runs a model under all orders, up to a bound; with `broken`, with that rule broken.
fn check(broken: Option<Mutant>, model: impl Fn() + Send + Sync + 'static) {
    // loom's threads are coroutines of this one, so it is active in all of them.
    mutant::activate(broken);
    let mut builder = loom::model::Builder::new();
    // How often a thread is taken off in the middle of its steps; LOOM_MAX_PREEMPTIONS for more.
    builder.preemption_bound = builder.preemption_bound.or(Some(4));
    builder.check(model);
}

/// A waker that notes its call. Of the standard library: it is no part of what is checked.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls, while `meanwhile` runs in another thread; panics where what it brings is not there and nobody was woken.
fn poll_while<T>(meanwhile: impl FnOnce() + 'static, mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    let flag = Arc::<Flag>::default();
    let other = loom::thread::spawn(meanwhile);
    let found = poll(&Waker::from(flag.clone()));
    other.join().expect("no panic");
    match found {
        Poll::Ready(found) => found,
        Poll::Pending => {
            assert!(flag.0.load(Ordering::Relaxed), "a wake-up is missed");
            match poll(Waker::noop()) {
                Poll::Ready(found) => found,
                Poll::Pending => panic!("woken for nothing"),
            }
        }
    }
}

/// Tests that the model holds, and that it does not with the mutant: the message says at which assertion.
macro_rules! models {
    ($($model:ident, $mutant:ident, $refuted:literal;)*) => { $(
        mod $model {
            use lockwright::internals::mutant::Mutant;

            #[test]
            fn holds() {
                crate::check(None, super::$model);
            }

            #[test]
            #[should_panic(expected = $refuted)]
            fn is_refuted_with_its_mutant() {
                crate::check(Some(Mutant::$mutant), super::$model);
            }
        }
    )* };
}
pub(crate) use models;

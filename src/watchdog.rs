//! The one task of a client that renews its holds and ends those whose validity has run out.
//!
//! The task only keeps the time. What is due, and what follows, is decided where the holds are
//! ([`Renewing::renew_due`]), in one critical section with every grant and every leaving: a hold is there before
//! its request is sent and gone before its leaving is sent, so no renewal outlives a hold. (A watchdog with books
//! of its own renews for ever what was released between its look and its call.)

use tokio::sync::{Notify, watch};

use crate::clock::{Clock, Moment};
use std::sync::Arc;

/// What the watchdog watches over.
pub trait Renewing: Send + Sync + 'static {
    /// Renews what is due and ends what has run out. Returns when to be called next.
    fn renew_due(&self) -> Moment;
}

/// Runs until `stop` says so.
pub async fn run(holds: impl Renewing, sooner: Arc<Notify>, clock: Clock, stop: watch::Receiver<bool>) {
    keep_time(|| holds.renew_due(), sooner, clock, stop).await;
}

/// Calls `due` whenever the moment has come that its last call returned, or `sooner` is notified.
pub async fn keep_time(
    mut due: impl FnMut() -> Moment,
    sooner: Arc<Notify>,
    clock: Clock,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let next = due();
        tokio::select! {
            biased;
            _ = stop.wait_for(|&stopped| stopped) => return,
            () = sooner.notified() => {}
            () = clock.sleep_until(next) => {}
        }
    }
}

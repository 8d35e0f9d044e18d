//! The one task of a client that hears what the server tells: it routes messages, and has waiters poll.
//!
//! Messages are for speed. Every wait also ends by polls, so a message that is lost, late or forged costs time and
//! nothing else.

use tokio::sync::{Notify, watch};

use crate::backend::{Event, EventReceiver};
use crate::clock::{Clock, Moment};
use crate::watchdog::keep_time;
use std::sync::Arc;

/// Who waits, and hears.
pub trait Waiting: Send + Sync + 'static {
    /// Takes what the back end tells.
    fn told(&self, event: Event);

    /// Polls for whoever is due. Returns when to be called next.
    fn poll_due(&self) -> Moment;
}

/// Runs until `stop` says so, or the back end is gone.
pub async fn run(
    waiting: impl Waiting,
    mut events: EventReceiver,
    sooner: Arc<Notify>,
    clock: Clock,
    stop: watch::Receiver<bool>,
) {
    let hear = async {
        while let Some(event) = events.next().await {
            waiting.told(event);
        }
    };
    tokio::select! {
        biased;
        () = keep_time(|| waiting.poll_due(), sooner, clock, stop) => {}
        () = hear => {}
    }
}

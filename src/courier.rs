//! The one task of a client that sends: whatever is handed to it is carried through, though its caller is gone.
//!
//! A user's future never owns a command in flight. Dropping such a future would neither recall the command nor
//! hear its answer, and a hold would be left that nobody knows of.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};

use crate::backend::Pending;
use crate::chance::Chance;
use crate::clock::Clock;

/// Where parcels are handed in.
#[derive(Clone, Debug)]
pub struct Courier(mpsc::UnboundedSender<Pending<()>>);

/// Where the courier's task takes them.
pub type Parcels = mpsc::UnboundedReceiver<Pending<()>>;

impl Courier {
    pub fn new() -> (Self, Parcels) {
        let (sender, parcels) = mpsc::unbounded_channel();
        (Self(sender), parcels)
    }

    /// Hands over what must be carried through. Never blocks, needs no runtime, keeps the order. Where the task is
    /// gone, with its runtime, the parcel is dropped.
    pub fn post(&self, parcel: Pending<()>) {
        let _ = self.0.send(parcel);
    }
}

/// Runs until `stop` says so and everything that was posted before is carried through, for at most `patience` from
/// then on: whoever closes a client waits no longer for a silent server than others do.
pub async fn run(mut parcels: Parcels, stop: watch::Receiver<bool>, clock: Clock, patience: Duration) {
    let mut late = stop.clone();
    let late = async {
        let _ = late.wait_for(|&stopped| stopped).await;
        clock.sleep(patience).await;
    };
    tokio::select! {
        biased;
        () = carry(&mut parcels, stop) => {}
        () = late => {}
    }
}

async fn carry(parcels: &mut Parcels, mut stop: watch::Receiver<bool>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            parcel = parcels.recv() => match parcel {
                Some(parcel) => under_way.push(parcel),
                None => break,
            },
            Some(()) = under_way.next() => {}
            _ = stop.wait_for(|&stopped| stopped), if under_way.is_empty() => break,
        }
    }
    // What was posted between the last look and the end is there by now.
    while let Ok(parcel) = parcels.try_recv() {
        under_way.push(parcel);
    }
    while under_way.next().await.is_some() {}
}

/// How long to wait before the next attempt: doubled each time, with jitter, so that the clients of a server that
/// comes back do not all call in the same instant.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_millis(200);

    pub fn new() -> Self {
        Self { next: Self::FIRST }
    }

    pub fn next(&mut self, chance: &Chance) -> Duration {
        let pause = chance.jitter(self.next, 25);
        self.next = (self.next * 2).min(Self::LONGEST);
        pause
    }
}

#[cfg(all(test, not(lockwright_loom)))]
mod tests {
    use super::*;
    use crate::sync::{AtomicU64, Ordering};
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    /// Fails where the end is seen before what was posted ahead of it: they come between two looks of one poll.
    #[test]
    fn what_is_posted_before_the_end_is_carried_through() {
        let rounds = 20_000;
        let carried = Arc::new(AtomicU64::new(0));
        let (hand_over, handed_over) = std::sync::mpsc::channel::<(Courier, watch::Sender<bool>)>();
        let poster = std::thread::spawn({
            let carried = carried.clone();
            move || {
                for (courier, stop) in handed_over {
                    let carried = carried.clone();
                    let parcel = async move { _ = carried.fetch_add(1, Ordering::Relaxed) };
                    courier.post(Box::pin(parcel));
                    stop.send_replace(true);
                }
            }
        });
        for _ in 0..rounds {
            let (courier, mut parcels) = Courier::new();
            let (stop, stopped) = watch::channel(false);
            hand_over.send((courier.clone(), stop)).expect("the poster is there");
            let mut carrying = pin!(carry(&mut parcels, stopped));
            while carrying.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
        }
        drop(hand_over);
        poster.join().expect("no panic");
        assert_eq!(carried.load(Ordering::Relaxed), rounds);
    }
}

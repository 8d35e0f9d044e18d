//! One simulated process: a real client on a paused runtime of its own, which the driver moves through time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lockwright::Client;
use lockwright::internals;
use lockwright::internals::backend::{Event, EventSender, events};
use lockwright::internals::chance::Chance;
use lockwright::internals::clock::{Clock, Deadlines};
use lockwright::internals::config::Config;
use lockwright::internals::ticket::ClientId;
use tokio::runtime::{Builder, Runtime};

use crate::dice::{MILLI, Nanos};
use crate::wire::{BackEnd, Wire, reading};

/// How a client's clock runs: so many parts in a million faster than the history's.
#[derive(Clone, Copy, Debug)]
pub struct Pace(pub i64);

const MILLION: i128 = 1_000_000;

impl Pace {
    /// The client's reading at `time`.
    pub fn local(self, time: Nanos) -> u64 {
        (i128::from(time) * (MILLION + i128::from(self.0)) / MILLION) as u64
    }

    /// The first time at which the client reads `local`.
    pub fn global(self, local: u64) -> Nanos {
        let pace = MILLION + i128::from(self.0);
        let time = (i128::from(local) * MILLION + pace - 1) / pace;
        u64::try_from(time).unwrap_or(Nanos::MAX)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    Running,
    /// As by `SIGSTOP`: its clock goes on, and what is sent to it waits.
    Stopped,
    Dead,
}

pub struct Process {
    pub id: ClientId,
    pub pace: Pace,
    pub life: Life,
    pub wire: Arc<Wire>,
    pub events: EventSender,
    pub client: Option<Client>,
    /// When it does something by itself next.
    pub wake: Nanos,
    deadlines: Deadlines,
    runtime: Option<Runtime>,
    reached: u64,
    driven: Nanos,
}

impl Process {
    /// Starts the process at the history's beginning; `work` is given its client and clock.
    pub fn start(
        id: ClientId,
        pace: Pace,
        config: Config,
        chance: Chance,
        work: impl FnOnce(&Client, &Clock),
    ) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without I/O needs nothing of the system");
        let deadlines = Deadlines::default();
        let (sender, receiver) = events();
        let (client, wire) = runtime.block_on(async {
            let clock = Clock::observed(deadlines.clone());
            let wire = Wire::new(clock.clone());
            let back_end = (Arc::new(BackEnd(wire.clone())) as Arc<_>, receiver);
            let client = internals::client(back_end, config, id, clock.clone(), chance);
            work(&client, &clock);
            (client, wire)
        });
        Self {
            id,
            pace,
            life: Life::Running,
            wire,
            events: sender,
            client: Some(client),
            wake: 0,
            deadlines,
            runtime: Some(runtime),
            reached: 0,
            driven: 0,
        }
    }

    /// Runs everything that is ready, with the process's clock at `time`.
    pub fn drive(&mut self, time: Nanos) {
        let Some(runtime) = self.runtime.as_ref().filter(|_| self.life == Life::Running) else { return };
        let local = self.pace.local(time);
        let step = Duration::from_nanos(local - self.reached);
        runtime.block_on(async {
            // The main future never waits for anything but its turn, so the paused clock never advances by itself.
            tokio::time::advance(step).await;
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
        (self.reached, self.driven) = (local, time);
        self.wake = self.next_wake();
    }

    fn next_wake(&self) -> Nanos {
        let Some(earliest) = self.deadlines.earliest() else { return Nanos::MAX };
        let Some(tick) = reading(earliest).checked_next_multiple_of(MILLI) else { return Nanos::MAX };
        if tick == Nanos::MAX || reading(earliest) >= u64::MAX / 2 {
            return Nanos::MAX;
        }
        // Whoever is past due and did not run is looked at again a little later.
        self.pace.global(tick).max(self.driven + 1_000)
    }

    /// Whether the client waits for nothing but others.
    pub fn is_idle(&self) -> bool {
        self.wake == Nanos::MAX
    }

    pub fn tell(&self, event: Event) {
        // There is room for thousands; a process that is stopped for so long misses nothing it could use.
        let _ = self.events.state(event).now_or_never();
    }

    /// Ends the process at once: nothing that it still does is heard.
    pub fn kill(&mut self) {
        self.life = Life::Dead;
        self.wake = Nanos::MAX;
        self.client = None;
        self.runtime = None;
    }

    /// Gives the process something more to do.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(&self, work: impl FnOnce(Client) -> F) {
        if let (Some(runtime), Some(client)) = (&self.runtime, self.client.clone()) {
            runtime.spawn(work(client));
        }
    }

    pub fn tasks(&self) -> usize {
        self.runtime.as_ref().map_or(0, |runtime| runtime.metrics().num_alive_tasks())
    }
}

//! The faults, and how each is done and undone.

use std::time::Duration;

use lockwright::internals::chance::Chance;
use lockwright::internals::clock::{Clock, Moment};

use crate::support::proxy::{Proxy, Way};
use crate::support::server::Server;
use crate::support::worker::Worker;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    KillWorker,
    StopWorker,
    StopServer,
    RestartWithData,
    RestartWithoutData,
    FlushAll,
    FlushScripts,
    KillCommands,
    KillSubscriptions,
    PauseServer,
    Cut,
    LoseRequests,
    LoseReplies,
    HalfOpen,
    Refuse,
    Delay,
}

pub const FAULTS: &[Fault] = &[
    Fault::KillWorker,
    Fault::StopWorker,
    Fault::StopServer,
    Fault::RestartWithData,
    Fault::RestartWithoutData,
    Fault::FlushAll,
    Fault::FlushScripts,
    Fault::KillCommands,
    Fault::KillSubscriptions,
    Fault::PauseServer,
    Fault::Cut,
    Fault::LoseRequests,
    Fault::LoseReplies,
    Fault::HalfOpen,
    Fault::Refuse,
    Fault::Delay,
];

impl Fault {
    /// Whether the server loses data by it, so that two may hold until the next renewal.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::RestartWithoutData | Self::FlushAll)
    }

    /// Whether clients other than the worker's may lose their connections by it, or their places.
    pub fn is_for_all(self) -> bool {
        use Fault::*;
        let of_server =
            matches!(self, StopServer | RestartWithData | PauseServer | KillCommands | KillSubscriptions);
        of_server || self.is_loss()
    }
}

/// What the faults fall upon: the server, and one worker with its way to the server.
pub struct Target<'a> {
    pub server: &'a mut Server,
    pub worker: &'a mut Worker,
    pub proxy: &'a Proxy,
    pub dice: &'a Chance,
}

impl Target<'_> {
    /// Does and undoes it. A killed worker stays dead.
    pub async fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::KillWorker => self.worker.kill(),
            Fault::StopWorker => {
                self.worker.signal("STOP");
                self.pass(200, 3_000).await;
                self.worker.signal("CONT");
            }
            Fault::StopServer => {
                self.server.signal("STOP");
                self.pass(200, 2_500).await;
                self.server.signal("CONT");
            }
            Fault::RestartWithData => self.restart(false).await,
            Fault::RestartWithoutData => self.restart(true).await,
            Fault::FlushAll => self.command("FLUSHALL"),
            Fault::FlushScripts => self.command("SCRIPT FLUSH"),
            Fault::KillCommands => self.command("CLIENT KILL TYPE normal SKIPME yes"),
            Fault::KillSubscriptions => self.command("CLIENT KILL TYPE pubsub"),
            Fault::PauseServer => self.pause().await,
            _ => self.disturb(fault).await,
        }
    }

    /// Faults of one worker's network.
    async fn disturb(&mut self, fault: Fault) {
        match fault {
            Fault::Cut => self.proxy.cut(),
            Fault::LoseRequests => self.proxy.black_hole(Way::ToServer),
            Fault::LoseReplies => self.proxy.black_hole(Way::ToClient),
            Fault::HalfOpen => {
                // New connections are good.
                self.proxy.swallow(Way::ToServer);
                self.proxy.swallow(Way::ToClient);
            }
            Fault::Refuse => {
                self.proxy.refuse(true);
                self.proxy.cut();
            }
            _ => self.proxy.delay_between(Duration::from_millis(20), Duration::from_millis(150)),
        }
        if fault != Fault::Cut {
            self.pass(200, 2_500).await;
            self.proxy.heal();
        }
    }

    /// The length of a fault is its subject.
    async fn pass(&self, least: u64, most: u64) {
        let span = least + self.dice.next_u64() % (most - least);
        Clock::boot().sleep(Duration::from_millis(span)).await;
    }

    async fn restart(&mut self, empty: bool) {
        self.server.kill();
        self.pass(1, 1_000).await;
        if empty {
            std::fs::remove_dir_all(self.server.folder().join("appendonlydir")).expect("its log is there");
        }
        self.server.restart();
    }

    fn command(&self, line: &str) {
        self.server.connection().ok(&line.split(' ').collect::<Vec<_>>());
    }

    async fn pause(&mut self) {
        let span = 200 + self.dice.next_u64() % 1_800;
        let what = if self.dice.next_u64().is_multiple_of(2) { "WRITE" } else { "ALL" };
        self.command(&format!("CLIENT PAUSE {span} {what}"));
        Clock::boot().sleep(Duration::from_millis(span)).await;
    }
}

pub fn now() -> Moment {
    Clock::boot().now()
}

//! How each fault is brought about.

use lockwright::internals::embedded::Instruments;

use crate::client::Life;
use crate::dice::{MILLI, Nanos, SECOND};
use crate::faults::Fault;
use crate::link::Step;
use crate::world::{Event, World};

impl World {
    /// One fault of the mix, at random.
    pub fn strike(&mut self) {
        if self.calm {
            return;
        }
        let fault = self.chance.weighted(self.mix.faults);
        match fault {
            Fault::Stop => self.stop(),
            Fault::Die => self.die(),
            Fault::Quit => self.quit(),
            Fault::Stall => self.stall(),
            Fault::Close | Fault::HalfOpen | Fault::Down => self.cut(fault),
            Fault::Lag => self.lag(),
            Fault::Force => self.force(),
            Fault::Failover => self.prepare_failover(),
            _ => self.strike_server(fault),
        }
    }

    /// A running process whose connections are whole.
    fn victim(&self) -> Option<usize> {
        let victims: Vec<usize> = (0..self.processes.len())
            .filter(|&client| self.processes[client].life == Life::Running)
            .filter(|&client| !self.book.with(|history| history.closed.contains(&client)))
            .filter(|&client| {
                self.links[client].generation.is_some() && self.links[client].incident.is_none()
            })
            .collect();
        (!victims.is_empty()).then(|| *self.chance.pick(&victims))
    }

    fn stop(&mut self) {
        let Some(client) = self.victim() else { return };
        let longest = if self.chance.percent(50.0) { 2_000 } else { 16_000 };
        let span = self.chance.within(50, longest) * MILLI;
        self.incident(Fault::Stop, Some(client), self.now + span);
        self.processes[client].life = Life::Stopped;
        self.after(span, Event::Continue { client });
    }

    pub fn resume(&mut self, client: usize) {
        if self.processes[client].life != Life::Stopped {
            return;
        }
        self.note(|| format!("client {client} goes on"));
        self.processes[client].life = Life::Running;
        self.drive(client);
        for (attempt, step) in std::mem::take(&mut self.links[client].deferred) {
            self.step_link(client, attempt, step);
        }
    }

    /// How many clients have not left.
    fn workers(&self) -> usize {
        let closed = self.book.with(|history| history.closed.clone());
        self.living().filter(|client| !closed.contains(client)).count()
    }

    fn die(&mut self) {
        let Some(client) = self.victim() else { return };
        if self.workers() <= 2 {
            return;
        }
        self.incident(Fault::Die, Some(client), Nanos::MAX);
        self.book.with(|history| history.bury(client));
        self.processes[client].kill();
        let linger = if self.chance.percent(50.0) { 0 } else { self.chance.below(6 * SECOND) };
        if let Some(generation) = self.links[client].generation.take() {
            self.after(linger, Event::Unsubscribe { client, generation });
        }
    }

    fn quit(&mut self) {
        let Some(client) = self.victim() else { return };
        if self.workers() <= 2 {
            return;
        }
        self.incident(Fault::Quit, Some(client), Nanos::MAX);
        self.book.with(|history| history.closes(client));
        self.processes[client].spawn(|client| async move { client.close().await });
        self.drive(client);
    }

    fn stall(&mut self) {
        let span = self.chance.within(50, if self.chance.percent(50.0) { 600 } else { 8_000 }) * MILLI;
        let until = self.now + span;
        self.incident(Fault::Stall, None, until);
        self.server.stands_until = self.server.stands_until.max(until);
    }

    /// A connection of a client is lost, without its knowing it yet.
    fn cut(&mut self, fault: Fault) {
        let Some(client) = self.victim() else { return };
        let incident = self.incident(fault, Some(client), Nanos::MAX);
        let link = &mut self.links[client];
        link.incident = Some(incident);
        link.attempt += 1;
        let generation = link.generation.expect("a victim is subscribed");
        let (step, noticed) = match fault {
            Fault::Close => {
                self.server.unsubscribe(client, generation);
                (Step::Deaf, 1_600)
            }
            Fault::HalfOpen => {
                link.half_open = true;
                (Step::Deaf, 6_000)
            }
            _ => {
                link.severed = true;
                (Step::Down, 1_600)
            }
        };
        let span = self.chance.below(noticed) * MILLI;
        self.link_after(span, client, step);
    }

    fn lag(&mut self) {
        let Some(client) = self.victim() else { return };
        let span = self.chance.within(10, 400) * MILLI;
        self.incident(Fault::Lag, Some(client), self.now + span);
        self.links[client].lagging = true;
        self.after(span, Event::EndOfLag { client });
    }

    /// Looks who holds a lock, and ends it.
    fn force(&mut self) {
        let Some(client) = self.victim() else { return };
        let name = self.chance.pick(self.locks).name;
        self.processes[client].spawn(|client| async move {
            if let Ok(info) = client.inspect(name).await
                && let Some(token) = info.token
            {
                let _ = client.force_release(name, token).await;
            }
        });
        self.drive(client);
    }

    fn strike_server(&mut self, fault: Fault) {
        let lock = self.chance.pick(self.locks).key();
        let struck = match fault {
            Fault::DropLock => self.server.delete(&lock),
            Fault::DropQueue => self.server.delete(&format!("{lock}:queue")),
            Fault::DropWaiting => self.server.delete(&format!("{lock}:waiting")),
            Fault::DropToken => self.server.delete(&format!("{lock}:token")),
            Fault::DropReaders => self.server.delete(&format!("{lock}:readers")),
            Fault::FlushScripts => {
                self.server.engine.flush_scripts();
                true
            }
            Fault::FlushAll => {
                self.server.flush_all();
                true
            }
            _ => self.step_clock(),
        };
        if struck {
            self.incident(fault, None, self.now);
            if !matches!(fault, Fault::FlushScripts | Fault::DropToken) {
                self.audit.forgotten = self.now;
            }
        }
    }

    fn step_clock(&mut self) -> bool {
        let longest = if self.chance.percent(50.0) { 300_000 } else { 12_000_000 };
        let micros = self.chance.within(20_000, longest) as i64;
        self.server.ahead += if self.chance.percent(50.0) { micros } else { -micros };
        self.server.set_now(self.now);
        self.audit.clock_moved = true;
        true
    }

    /// What is written from now on, by so many calls, the next server will not have.
    fn prepare_failover(&mut self) {
        let calls = if self.chance.percent(30.0) { 0 } else { self.chance.within(1, 25) };
        self.failing = Some((self.server.engine.snapshot(), calls));
        self.count_down_to_failover();
    }

    pub fn count_down_to_failover(&mut self) {
        match &mut self.failing {
            Some((_, 0)) if !self.calm => self.fail_over(),
            Some((_, calls)) => *calls = calls.saturating_sub(1),
            None => {}
        }
    }

    fn fail_over(&mut self) {
        let Some((snapshot, _)) = self.failing.take() else { return };
        let skew = self.chance.below(4_000_000) as i64 - 2_000_000;
        self.server.fail_over(&snapshot, self.server.ahead + skew, self.now);
        self.audit.forgotten = self.now;
        self.incident(Fault::Failover, None, self.now);
        for client in 0..self.processes.len() {
            if self.processes[client].life == Life::Dead {
                continue;
            }
            let link = &mut self.links[client];
            link.severed = true;
            link.attempt += 1;
            let incident = link.incident.take();
            let now = self.now;
            if let Some(incident) = incident {
                self.book.with(|history| history.incidents[incident].ended = now);
            }
            let incident = self.incident(Fault::Down, Some(client), Nanos::MAX);
            self.links[client].incident = Some(incident);
            let span = self.chance.below(1_000) * MILLI;
            self.link_after(span, client, Step::Down);
        }
    }

    /// Ends all faults: what follows must come to its end.
    pub fn heal(&mut self) {
        self.note(|| "no more faults".into());
        self.calm = true;
        self.failing = None;
        self.weather = crate::mix::Weather::default();
        self.server.stands_until = 0;
        for client in 0..self.processes.len() {
            self.resume(client);
        }
    }
}

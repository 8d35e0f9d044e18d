//! Plays one history to its end, has it judged, and sums up many.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::checker::Judge;
use crate::dice::{MILLI, Nanos, SECOND, nanos};
use crate::faults::{FAULTS, Fault, Incident};
use crate::history::{Hold, Violation};
use crate::liveness::{self, Far};
use lockwright::internals::mutant;
use lockwright::{Kind, Mode};

use crate::mix::{Terms, config};
use crate::mutants::Mutation;
use crate::phases;
use crate::world::{ALL_OVER, Recipe, World};

/// What became of a history.
#[derive(Debug)]
pub struct Outcome {
    pub seed: u64,
    pub mix: &'static str,
    pub operations: u64,
    pub grants: u64,
    pub contended: u64,
    /// The same of fair locks.
    pub fair_grants: u64,
    pub fair_contended: u64,
    /// Of read/write locks.
    pub reads: u64,
    pub writes: u64,
    pub faults: BTreeMap<&'static str, u64>,
    pub violations: Vec<Violation>,
    pub trace: Vec<String>,
}

impl Outcome {
    /// The violations that nothing excuses.
    pub fn failures(&self) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(|violation| !violation.excused)
    }
}

/// How long the work of a history lasts at most.
const LONGEST: Nanos = 240 * SECOND;

pub fn play(recipe: Recipe) -> Outcome {
    let mut world = World::new(recipe);
    mutant::activate(recipe.mutant.and_then(Mutation::in_client));
    world.run(LONGEST, |world| world.book.with(|history| history.is_enough()));
    world.heal();
    world.come_to_an_end();
    let outcome = world.outcome(recipe.seed);
    mutant::activate(None);
    outcome
}

impl World {
    /// Without faults everything must come to its end, and nothing be left.
    fn come_to_an_end(&mut self) {
        let limit = self.now + ALL_OVER;
        let done =
            |world: &Self| world.book.with(|history| history.working.values().all(|&tasks| tasks == 0));
        self.run(limit, done);
        if !done(self) {
            let working = self.book.with(|history| history.working.clone());
            return self.book.violation("ends", format!("tasks still wait, by client: {working:?}"));
        }
        // A watchdog may sleep until a renewal that is no longer due.
        let idle =
            |world: &Self| world.is_quiet() && world.living().all(|client| world.processes[client].is_idle());
        self.run(self.now + 20 * SECOND, idle);
        self.look_for_entries();
        self.close();
        self.look_for_keys();
    }

    fn look_for_entries(&mut self) {
        for client in self.living().collect::<Vec<_>>() {
            let process = &self.processes[client];
            let entries = process.client.as_ref().map_or(0, lockwright::internals::entries);
            // Whoever was closed while the server was silent has not waited for it for ever.
            let is_let_off = self.book.with(|history| {
                let silent = |incident: &Incident| {
                    use Fault::{Down, HalfOpen, Stall};
                    let touches = incident.client.is_none_or(|touched| touched == client);
                    touches && matches!(incident.fault, Down | HalfOpen | Stall)
                };
                history.closed.contains(&client) && history.incidents.iter().any(silent)
            });
            if entries > 0 && !is_let_off || !process.is_idle() {
                let what = format!("client {client} has {entries} entries, wakes at {}", process.wake);
                self.book.violation("leaks", what);
            }
        }
    }

    fn close(&mut self) {
        for client in self.living().collect::<Vec<_>>() {
            self.processes[client].spawn(|client| async move { client.close().await });
            self.drive(client);
        }
        self.run(self.now + SECOND, |_| false);
        for client in self.living().collect::<Vec<_>>() {
            let tasks = self.processes[client].tasks();
            if tasks > 0 {
                self.book.violation("leaks", format!("client {client} is closed and has {tasks} tasks"));
            }
        }
    }

    fn look_for_keys(&mut self) {
        // What is left of the dead, the silent and the late ends by itself.
        if !self.fifo || self.book.with(|history| history.incidents.iter().any(outlives_its_client)) {
            self.run(self.now + ALL_OVER, |_| false);
        }
        let keys = self.server.leftovers();
        if !keys.is_empty() {
            self.book.violation("leaks", format!("keys are left: {keys:?}"));
        }
    }

    fn outcome(&mut self, seed: u64) -> Outcome {
        let (end, far) = (self.now, Far { lease: self.longest_lease(), hop: self.hop(), ghosts: !self.fifo });
        self.book.with(|history| {
            let mut violations = std::mem::take(&mut history.violations);
            for hold in &mut history.holds {
                let (lock, client) = (self.locks[hold.lock].key(), self.processes[hold.client].id);
                for grant in self.audit.grants_of(&lock, client, hold.token) {
                    hold.promised = hold.promised.max(grant.ends);
                    hold.joins |= grant.joins;
                }
            }
            for wait in history.waits.iter_mut().filter(|wait| wait.refused) {
                let (lock, client) = (self.locks[wait.lock].key(), self.processes[wait.client].id);
                let said = |heard| self.audit.refused(&lock, client, wait.asked, heard).unwrap_or(heard);
                wait.ended = wait.ended.map(said);
            }
            let (grants, locks) = (self.audit.grants.as_slice(), self.locks);
            violations.extend(Judge { history, grants, locks, found: Vec::new() }.judge());
            for lock in 0..self.locks.len() {
                violations.extend(liveness::held_up(history, lock, end, far));
                if self.locks[lock].kind == Kind::ReadWrite {
                    violations.extend(phases::passed_over(history, lock, end, far));
                }
            }
            let mut faults = BTreeMap::new();
            for incident in &history.incidents {
                *faults.entry(incident.fault.name()).or_default() += 1;
            }
            let kind = |lock: usize| self.locks[lock].kind;
            let fair = |lock| kind(lock) == Kind::Fair;
            let shared = |hold: &&Hold, mode| kind(hold.lock) == Kind::ReadWrite && hold.mode == mode;
            let granted = history.waits.iter().filter(|wait| fair(wait.lock) && wait.hold.is_some());
            Outcome {
                fair_grants: history.holds.iter().filter(|hold| fair(hold.lock)).count() as u64,
                fair_contended: granted.filter(|wait| wait.contended).count() as u64,
                reads: history.holds.iter().filter(|hold| shared(hold, Mode::Read)).count() as u64,
                writes: history.holds.iter().filter(|hold| shared(hold, Mode::Write)).count() as u64,
                seed,
                mix: self.mix.name,
                operations: history.operations,
                grants: history.holds.len() as u64,
                contended: history.contended,
                faults,
                violations,
                trace: history.take_trace(),
            }
        })
    }

    fn longest_lease(&self) -> Nanos {
        let leases = self.mix.leases.iter().map(|terms| nanos(Terms::lease(*terms).length()));
        leases.max().unwrap_or(0).max(nanos(config().lease.length())) + MILLI
    }
}

/// Whether a fault may leave something at the server that no client knows of.
fn outlives_its_client(incident: &Incident) -> bool {
    use Fault::*;
    !matches!(incident.fault, MessageLost | ReplyLost | Slow | Lag | Close | HalfOpen | DropToken)
}

/// The sum of many histories.
#[derive(Debug, Default)]
pub struct Summary {
    pub histories: u64,
    pub operations: u64,
    pub fewest: Option<u64>,
    pub grants: u64,
    pub contended: u64,
    pub fair_grants: u64,
    pub fair_contended: u64,
    /// Of read/write locks.
    pub reads: u64,
    pub writes: u64,
    pub faults: BTreeMap<&'static str, u64>,
    pub violations: u64,
    pub after_loss: u64,
    /// The first failures, each with its seed.
    pub failures: Vec<(u64, &'static str, Violation)>,
}

impl Summary {
    pub fn add(&mut self, outcome: &Outcome) {
        self.histories += 1;
        self.operations += outcome.operations;
        self.fewest = Some(self.fewest.map_or(outcome.operations, |least| least.min(outcome.operations)));
        self.grants += outcome.grants;
        self.contended += outcome.contended;
        self.fair_grants += outcome.fair_grants;
        self.fair_contended += outcome.fair_contended;
        self.reads += outcome.reads;
        self.writes += outcome.writes;
        for (&fault, times) in &outcome.faults {
            *self.faults.entry(fault).or_default() += times;
        }
        let failures = outcome.failures().count() as u64;
        self.violations += failures;
        self.after_loss += outcome.violations.len() as u64 - failures;
        if let Some(first) = outcome.failures().next() {
            self.failures.push((outcome.seed, outcome.mix, first.clone()));
        }
    }

    pub fn merge(&mut self, other: Self) {
        self.histories += other.histories;
        self.operations += other.operations;
        self.fewest = [self.fewest, other.fewest].into_iter().flatten().min();
        self.grants += other.grants;
        self.contended += other.contended;
        self.fair_grants += other.fair_grants;
        self.fair_contended += other.fair_contended;
        self.reads += other.reads;
        self.writes += other.writes;
        for (fault, times) in other.faults {
            *self.faults.entry(fault).or_default() += times;
        }
        self.violations += other.violations;
        self.after_loss += other.after_loss;
        self.failures.extend(other.failures);
        self.failures.sort_by_key(|&(seed, ..)| seed);
    }

    /// What there was too little of for the run to mean anything. Short runs are let off: they need not meet every
    /// kind of fault.
    pub fn shortfalls(&self) -> Vec<String> {
        if self.histories < 500 {
            return Vec::new();
        }
        let per_history = |total: u64, least: f64| (total as f64) < least * self.histories as f64;
        let mut found = Vec::new();
        for (what, total, least) in [
            ("operations", self.operations, 100.0),
            ("grants", self.grants, 35.0),
            ("contended grants", self.contended, 12.0),
            ("fair grants", self.fair_grants, 5.0),
            ("contended fair grants", self.fair_contended, 2.0),
            ("reads", self.reads, 10.0),
            ("writes", self.writes, 3.0),
        ] {
            found.extend(per_history(total, least).then(|| format!("{what}: {total}")));
        }
        for fault in FAULTS {
            let times = self.faults.get(fault.name()).copied().unwrap_or(0);
            found.extend(per_history(times, 0.01).then(|| format!("{}: {times}", fault.name())));
        }
        found
            .extend(self.fewest.filter(|&least| least < 100).map(|least| format!("one history has {least}")));
        found
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        let mut faults = String::new();
        for (fault, times) in &self.faults {
            let _ = write!(faults, "{}\"{fault}\":{times}", if faults.is_empty() { "" } else { "," });
        }
        let Self { histories, operations, grants, contended, fair_grants, fair_contended, .. } = self;
        let Self { reads, writes, violations, after_loss, .. } = self;
        format!(
            "{{\"histories\":{histories},\"operations\":{operations},\"grants\":{grants},\
             \"contended\":{contended},\"fair_grants\":{fair_grants},\"fair_contended\":{fair_contended},\"reads\":{reads},\"writes\":{writes},\
             \"faults\":{{{faults}}},\"violations\":{violations},\"after_loss\":{after_loss}}}"
        )
    }
}

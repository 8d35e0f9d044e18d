//! A history: clients, network and server on one clock, moved from event to event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockwright::Owner;
use lockwright::internals::backend::{Failure, Value};
use lockwright::internals::chance::{Chance, seed_identities};
use lockwright::internals::clock::Moment;
use lockwright::internals::embedded::Snapshot;
use lockwright::internals::ticket::ClientId;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Serialize};

use crate::audit::Audit;
use crate::client::{Life, Pace, Process};
use crate::debts::Debt;
use crate::dice::{Dice, MILLI, Nanos, SECOND};
use crate::faults::{Fault, Incident};
use crate::history::{Book, Scribe};
use crate::link::{Link, Step};
use crate::mix::{MIXES, Mix, Named, Weather, config};
use crate::mutants::{Mutation, SHORT_LIMIT, SHORT_QUEUE};
use crate::order::LIMIT;
use crate::server::{Posted, Server};
use crate::wire::Request;
use crate::workload::{Setting, Worker};

/// What happens at a moment.
pub enum Event {
    Request(Travelling),
    Reply {
        client: usize,
        id: u64,
        outcome: Result<Value, Failure>,
    },
    Message(Posted),
    Link {
        client: usize,
        attempt: u64,
        step: Step,
    },
    Unsubscribe {
        client: usize,
        generation: u64,
    },
    /// A client should have done something by now.
    Owed(Debt),
    EndOfLag {
        client: usize,
    },
    Continue {
        client: usize,
    },
    Fault,
}

/// A request on its way.
pub struct Travelling {
    pub client: usize,
    pub incarnation: u32,
    pub sent: Nanos,
    pub request: Request,
    /// Its script has been loaded on the way, after `NOSCRIPT`.
    pub loaded: bool,
    /// Its reply goes nowhere.
    pub deaf: bool,
}

/// What a history is made from.
#[derive(Clone, Copy)]
pub struct Recipe {
    pub seed: u64,
    /// The kind of history; by the seed where none is named.
    pub mix: Option<&'static str>,
    pub traced: bool,
    /// The rule that is broken on purpose.
    pub mutant: Option<&'static Mutation>,
}

pub struct World {
    pub mix: &'static Mix,
    pub weather: Weather,
    pub fifo: bool,
    /// How many times as far apart client and server are as usual.
    pub distance: u64,
    pub now: Nanos,
    pub book: Book,
    pub audit: Audit,
    pub server: Server,
    pub processes: Vec<Process>,
    pub links: Vec<Link>,
    pub locks: &'static [Named],
    pub net: Dice,
    pub chance: Dice,
    /// The mean time between two faults, in milliseconds: shorter where sections are.
    every: u64,
    /// The work is done: no more faults.
    pub calm: bool,
    pub failing: Option<(Snapshot, u64)>,
    queue: BTreeMap<(Nanos, u64), Event>,
    last: u64,
    drives: u64,
}

/// A history that is busier than this without an end in sight spins.
const MOST_DRIVES: u64 = 3_000_000;

impl World {
    pub fn new(recipe: Recipe) -> Self {
        let dice = Dice::new(recipe.seed);
        seed_identities(Some(dice.next()));
        let mix = match recipe.mix {
            Some(name) => MIXES.iter().find(|mix| mix.name == name).expect("the name of a mix"),
            None => {
                let weights: Vec<(usize, u64)> = MIXES.iter().map(|mix| mix.weight).enumerate().collect();
                &MIXES[dice.weighted(&weights)]
            }
        };
        let book = Book::new(mix.operations, recipe.traced);
        let (net, chance) = (dice.fork(), dice.fork());
        let locks = if dice.percent(mix.all_locks) { mix.locks } else { &mix.locks[..1] };
        let short = mix.short_queue.then_some(&SHORT_QUEUE);
        let rewrite = recipe.mutant.and_then(Mutation::rewrite).or(short);
        let distance = dice.weighted(&[(1, 80), (8, 12), (25, 8)]);
        let mut world = Self {
            mix,
            weather: mix.weather,
            // On one connection nothing overtakes; where a connection was made anew, it may. Over long ways it would be
            // the rule, and nearly every short attempt would leave a ghost in the queue.
            fifo: mix.name == "none" || distance > 1 || dice.percent(40.0),
            distance,
            now: 0,
            book,
            audit: Audit::new(if mix.short_queue { SHORT_LIMIT } else { LIMIT }),
            server: Server::new(rewrite),
            processes: Vec::new(),
            links: Vec::new(),
            locks,
            net,
            chance,
            every: mix.every,
            calm: false,
            failing: None,
            queue: BTreeMap::new(),
            last: 0,
            drives: 0,
        };
        world.populate(&dice);
        world
    }

    fn populate(&mut self, dice: &Dice) {
        self.server.set_now(0);
        let owners = (0..dice.within(1, 2)).map(|_| sent_along(&Owner::new())).collect();
        let section = *dice.pick(&[1, 20, 100, 400]);
        self.every = (self.mix.every * (section + 40) / 440).max(40);
        let setting = Arc::new(Setting {
            mix: self.mix,
            locks: self.locks,
            owners,
            section,
            hop: Duration::from_nanos(self.hop()),
        });
        let clients = dice.within(3, 8) as usize;
        for client in 0..clients {
            let pace = Pace(dice.within(0, 20_000) as i64 - 10_000);
            let scribe = Scribe { book: self.book.clone(), client, pace };
            let process = self.start(pace, dice, &scribe, &setting);
            self.processes.push(process);
            self.links.push(Link::default());
            let soon = self.now + dice.below(20 * MILLI);
            self.at(soon, Event::Link { client, attempt: 0, step: Step::Retry });
        }
        self.next_fault();
    }

    fn start(&self, pace: Pace, dice: &Dice, scribe: &Scribe, setting: &Arc<Setting>) -> Process {
        let tasks = dice.within(1, 4);
        let chance = Chance::from_seed(dice.next());
        Process::start(ClientId::random(), pace, config(), chance, |client, clock| {
            for _ in 0..tasks {
                scribe.began();
                let worker = Worker {
                    client: client.clone(),
                    clock: clock.clone(),
                    dice: dice.fork(),
                    scribe: scribe.clone(),
                    setting: setting.clone(),
                };
                tokio::spawn(worker.work());
            }
        })
    }

    /// How long the way between client and server is at most, where nothing holds it up.
    pub fn hop(&self) -> Nanos {
        5 * MILLI * self.distance
    }

    pub fn at(&mut self, time: Nanos, event: Event) {
        self.last += 1;
        self.queue.insert((time, self.last), event);
    }

    pub fn after(&mut self, span: Nanos, event: Event) {
        self.at(self.now + span, event);
    }

    pub fn note(&self, line: impl FnOnce() -> String) {
        self.book.note(line);
    }

    // ---- time -------------------------------------------------------------------------------------------------

    /// Moves on until `until`, or until `done` says so after an event.
    pub fn run(&mut self, until: Nanos, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            let waking = self.processes.iter().enumerate();
            let waking = waking.filter(|(_, process)| process.life == Life::Running);
            let waking = waking.map(|(at, process)| (process.wake, at)).min();
            let event = self.queue.first_key_value().map(|(&(time, _), _)| time);
            let next = event.unwrap_or(Nanos::MAX).min(waking.map_or(Nanos::MAX, |(time, _)| time));
            if next > until {
                self.set_now(until);
                return;
            }
            self.set_now(next.max(self.now));
            if event == Some(next) {
                let (_, event) = self.queue.pop_first().expect("it was looked at above");
                self.happen(event);
            } else if let Some((_, client)) = waking {
                self.drive(client);
            }
            if self.drives > MOST_DRIVES {
                self.book.violation("ends", "the history spins".into());
                return;
            }
        }
    }

    fn set_now(&mut self, now: Nanos) {
        self.now = now;
        self.book.set_now(now);
        self.server.set_now(now);
    }

    /// Lets a client do what it can, and takes what it sends.
    pub fn drive(&mut self, client: usize) {
        self.drives += 1;
        self.processes[client].drive(self.now);
        for request in self.processes[client].wire.take() {
            self.send(client, request);
        }
        if self.processes[client].wire.is_closed() {
            self.server.unsubscribe_all(client);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Request(travelling) => self.execute(travelling),
            Event::Reply { client, id, outcome } => {
                if self.processes[client].life != Life::Dead {
                    self.audit.answered(client, id);
                    self.processes[client].wire.answer(id, outcome);
                    self.drive(client);
                }
            }
            Event::Message(message) => self.deliver(message),
            Event::Link { client, attempt, step } => self.step_link(client, attempt, step),
            Event::Unsubscribe { client, generation } => self.server.unsubscribe(client, generation),
            Event::Owed(debt) => self.collect(&debt),
            Event::EndOfLag { client } => self.end_lag(client),
            Event::Continue { client } => self.resume(client),
            Event::Fault => {
                self.strike();
                self.next_fault();
            }
        }
    }

    fn next_fault(&mut self) {
        if !self.calm && !self.mix.faults.is_empty() {
            let span = self.chance.below(2 * self.every) * MILLI;
            self.after(span, Event::Fault);
        }
    }

    pub fn incident(&self, fault: Fault, client: Option<usize>, ended: Nanos) -> usize {
        let began = self.now;
        self.book.with(|history| {
            history.note(|| format!("fault: {} {client:?}", fault.name()));
            history.incidents.push(Incident { fault, client, began, ended });
            history.incidents.len() - 1
        })
    }

    pub fn now_of(&self, client: usize) -> Moment {
        Moment::from_nanos(self.processes[client].pace.local(self.now))
    }

    /// Whether anything is under way between clients and server.
    pub fn is_quiet(&self) -> bool {
        !self.queue.values().any(|event| {
            matches!(event, Event::Request(_) | Event::Reply { .. } | Event::Message(_) | Event::Link { .. })
        })
    }

    pub fn living(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.processes.len()).filter(|&client| self.processes[client].life != Life::Dead)
    }
}

/// An owner as another process receives it.
fn sent_along(owner: &Owner) -> Owner {
    struct Sent<'a>(&'a Owner);
    impl std::fmt::Display for Sent<'_> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.serialize(f)
        }
    }
    let text = Sent(owner).to_string();
    let text: StrDeserializer<'_, Error> = text.as_str().into_deserializer();
    Owner::deserialize(text).expect("an owner reads back")
}

/// Longer than any lease, deadline or clock step of a history.
pub const ALL_OVER: Nanos = 90 * SECOND;

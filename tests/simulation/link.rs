//! The connections between clients and server: what travels, how long it takes, and how connections are lost and
//! made anew, in the steps that the real supervisor takes.

use lockwright::internals::backend::{Event as Told, Failure, Up, Value};
use lockwright::internals::clock::Moment;
use lockwright::internals::scripts::Call;

use crate::audit::Run;
use crate::client::Life;
use crate::dice::{MILLI, Nanos, SECOND, nanos};
use crate::faults::Fault;
use crate::order::{self, Before, Queue};
use crate::server::Posted;
use crate::wire::Request;
use crate::world::{Event, Travelling, World};

/// One client's connections.
#[derive(Debug, Default)]
pub struct Link {
    /// Which connecting the steps under way belong to.
    pub attempt: u64,
    pub epoch: u64,
    /// The subscription that the client listens to.
    pub generation: Option<u64>,
    pub last_generation: u64,
    /// The server that it is connected to: a later one gets nothing from this connection.
    incarnation: u32,
    /// The subscription that is being made, and what was sent to it already.
    coming: Option<(u64, Vec<Vec<u8>>)>,
    /// Messages are lost.
    pub half_open: bool,
    pub lagging: bool,
    /// Nothing that is sent arrives, and no answer comes.
    pub severed: bool,
    /// The fault that is under way.
    pub incident: Option<usize>,
    last_request: Nanos,
    last_message: Nanos,
    pub last_asked: Nanos,
    /// What a stopped process has yet to notice.
    pub deferred: Vec<(u64, Step)>,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// The client notices that its subscription, or everything, is lost.
    Deaf,
    Down,
    /// It connects anew.
    Retry,
    Subscribe {
        sent: Moment,
    },
    Connect {
        generation: u64,
        sent: Moment,
        server_millis: u64,
    },
}

impl World {
    fn delay(&mut self, client: usize) -> Nanos {
        if self.net.percent(self.weather.slow) {
            let span = self.net.within(5, 200) * MILLI;
            self.incident(Fault::Slow, Some(client), self.now + span);
            return span;
        }
        // A hop within one data centre, or far across the world.
        let usual = self.net.within(MILLI / 10, if self.net.percent(50.0) { MILLI } else { 5 * MILLI });
        usual * self.distance
    }

    fn in_order(&self, last: Nanos, arrival: Nanos) -> Nanos {
        if self.fifo { arrival.max(last + 1) } else { arrival }
    }

    // ---- requests ---------------------------------------------------------------------------------------------

    pub fn send(&mut self, client: usize, request: Request) {
        if request.call.script.name.ends_with("/acquire") {
            self.links[client].last_asked = self.now;
        }
        self.audit.sent(client, request.id, &request.call);
        self.note(|| format!("client {client} -> {}", shown(&request)));
        let severed = self.links[client].severed;
        let lost = if severed { 50.0 } else { self.weather.requests_lost };
        if self.net.percent(lost) {
            if !severed {
                self.incident(Fault::RequestLost, Some(client), self.now + nanos(request.timeout));
            }
            return;
        }
        let arrival = if self.net.percent(self.weather.requests_late) {
            let lateness = nanos(request.timeout) + self.net.below(8 * SECOND);
            // Some just miss the deadline, or just keep it.
            let lateness = if self.net.percent(40.0) { self.net.below(700 * MILLI) } else { lateness };
            self.incident(Fault::RequestLate, Some(client), self.now + lateness);
            self.now + lateness
        } else {
            let arrival = self.now + self.delay(client);
            let arrival = self.in_order(self.links[client].last_request, arrival);
            self.links[client].last_request = arrival;
            arrival
        };
        let (sent, incarnation) = (self.now, self.links[client].incarnation);
        let travelling = Travelling { client, incarnation, sent, request, loaded: false, deaf: severed };
        self.at(arrival, Event::Request(travelling));
    }

    pub fn execute(&mut self, mut travelling: Travelling) {
        if travelling.incarnation != self.server.incarnation {
            return;
        }
        if self.now < self.server.stands_until {
            return self.at(self.server.stands_until, Event::Request(travelling));
        }
        let client = travelling.client;
        let before = self.before(&travelling.request.call);
        let outcome = self.server.run(&travelling.request.call);
        if let Err(Failure::Server(error)) = &outcome {
            if error.code == "NOSCRIPT" && !travelling.loaded {
                self.server.load(&travelling.request.call);
                travelling.loaded = true;
                let hops = self.delay(client) + self.delay(client) + self.delay(client);
                return self.after(hops, Event::Request(travelling));
            }
            if error.code != "NOSCRIPT" {
                self.book.violation("scripts", error.text.clone());
            }
        }
        if let Ok(reply) = &outcome {
            self.audit_run(&travelling, reply, &before);
        }
        self.post();
        self.reply(&travelling, outcome);
        self.count_down_to_failover();
    }

    /// The lock of a call that may change it, as it is now.
    fn before(&self, call: &Call) -> Before {
        if call.script.name == "common/renew" {
            return Before::default();
        }
        let (lock, held) = (&call.keys[0], self.server.held(&call.keys[0]));
        if !order::may_choose(call, &held, self.now) {
            return Before { held, queue: Queue::default() };
        }
        let subscribed = |id| {
            let client = self.processes.iter().position(|process| process.id == id);
            client.is_some_and(|client| self.server.is_subscribed(client))
        };
        Before { held, queue: self.server.queue(lock, subscribed) }
    }

    fn audit_run(&mut self, travelling: &Travelling, reply: &Value, before: &Before) {
        let Travelling { client, sent, request, .. } = travelling;
        self.note(|| format!("server: {client}'s {} => {}", shown(request), words(reply)));
        let stale_after = sent + nanos(request.timeout) + 5 * MILLI;
        let client = self.processes[*client].id;
        let run = Run { client, at: self.now, stale_after, call: &request.call, reply, before };
        let findings = [self.audit.ran(&run), self.look(&run)];
        for (rule, what) in findings.into_iter().flatten() {
            self.book.violation(rule, what);
        }
        if request.call.script.name == "common/force_release" && words(reply).starts_with("released") {
            self.incident(Fault::Force, None, self.now);
        }
    }

    fn look(&mut self, run: &Run<'_>) -> Option<(&'static str, String)> {
        if run.call.script.name == "common/inspect" {
            return None;
        }
        let mut finding = None;
        let locks: Vec<&str> = run.call.keys.iter().filter(|key| key.ends_with('}')).collect();
        for lock in locks {
            let held = self.server.held(lock);
            finding = finding.or(self.audit.looked(run, lock, held));
        }
        finding
    }

    fn reply(&mut self, travelling: &Travelling, outcome: Result<Value, Failure>) {
        let (client, id) = (travelling.client, travelling.request.id);
        if travelling.deaf || self.links[client].severed || self.processes[client].life == Life::Dead {
            return;
        }
        if self.net.percent(self.weather.replies_lost) {
            self.incident(Fault::ReplyLost, Some(client), self.now + nanos(travelling.request.timeout));
            return;
        }
        let delay = self.delay(client);
        self.after(delay, Event::Reply { client, id, outcome });
    }

    // ---- messages ---------------------------------------------------------------------------------------------

    /// Sends on what scripts have published.
    pub fn post(&mut self) {
        for posted in self.server.take_posted() {
            let client = posted.client;
            self.note(|| format!("server: to {client}: {}", String::from_utf8_lossy(&posted.text)));
            if self.net.percent(self.weather.messages_lost) {
                self.incident(Fault::MessageLost, Some(client), self.now);
                continue;
            }
            let arrival = self.now + self.delay(client);
            let arrival = self.in_order(self.links[client].last_message, arrival);
            self.links[client].last_message = arrival;
            self.at(arrival, Event::Message(posted));
        }
    }

    pub fn deliver(&mut self, Posted { client, generation, text }: Posted) {
        let (process, link) = (&self.processes[client], &mut self.links[client]);
        if process.life == Life::Dead || link.lagging {
            return;
        }
        if let Some((coming, early)) = &mut link.coming
            && *coming == generation
        {
            return early.push(text);
        }
        if link.generation == Some(generation) && !link.half_open && !link.severed {
            process.events.message(text.clone(), link.epoch);
            self.drive(client);
            self.expect_leaving(client, &text);
        }
    }

    // ---- connections ------------------------------------------------------------------------------------------

    pub fn step_link(&mut self, client: usize, attempt: u64, step: Step) {
        if self.links[client].attempt != attempt || self.processes[client].life == Life::Dead {
            return;
        }
        let mine = !matches!(step, Step::Subscribe { .. });
        if mine && self.processes[client].life == Life::Stopped {
            return self.links[client].deferred.push((attempt, step));
        }
        self.note(|| format!("client {client}: {step:?}"));
        match step {
            Step::Deaf => self.go_deaf(client),
            Step::Down => self.go_down(client),
            Step::Retry => {
                let (sent, delay) = (self.now_of(client), self.delay(client));
                self.after(delay, Event::Link { client, attempt, step: Step::Subscribe { sent } });
            }
            Step::Subscribe { sent } => self.subscribe(client, attempt, sent),
            Step::Connect { generation, sent, server_millis } => {
                self.connect(client, generation, sent, server_millis);
            }
        }
    }

    fn go_deaf(&mut self, client: usize) {
        self.hang_up(client);
        self.processes[client].tell(Told::Deaf);
        self.drive(client);
        self.expect_poll(client);
        let pause = self.chance.within(10, 1_500) * MILLI;
        self.link_after(pause, client, Step::Retry);
    }

    fn go_down(&mut self, client: usize) {
        self.hang_up(client);
        self.processes[client].wire.lose();
        self.processes[client].tell(Told::Down { detail: "the connection was closed".into() });
        self.drive(client);
        self.links[client].severed = false;
        let most = if self.chance.percent(10.0) { 14_000 } else { 2_500 };
        let pause = self.chance.within(10, most) * MILLI;
        self.link_after(pause, client, Step::Retry);
    }

    /// The client no longer listens; the server may think so for a while longer.
    fn hang_up(&mut self, client: usize) {
        let link = &mut self.links[client];
        (link.half_open, link.coming) = (false, None);
        if let Some(generation) = link.generation.take() {
            let linger = if self.chance.percent(50.0) { 0 } else { self.chance.below(3 * SECOND) };
            self.after(linger, Event::Unsubscribe { client, generation });
        }
    }

    pub fn link_after(&mut self, span: Nanos, client: usize, step: Step) {
        let attempt = self.links[client].attempt;
        self.after(span, Event::Link { client, attempt, step });
    }

    fn subscribe(&mut self, client: usize, attempt: u64, sent: Moment) {
        let link = &mut self.links[client];
        link.last_generation += 1;
        link.incarnation = self.server.incarnation;
        let generation = link.last_generation;
        link.coming = Some((generation, Vec::new()));
        self.server.subscribe(client, self.processes[client].id, generation);
        let server_millis = self.server.millis();
        let delay = self.delay(client);
        let step = Step::Connect { generation, sent, server_millis };
        self.after(delay, Event::Link { client, attempt, step });
    }

    fn connect(&mut self, client: usize, generation: u64, sent: Moment, server_millis: u64) {
        let received = self.now_of(client);
        let (process, link) = (&self.processes[client], &mut self.links[client]);
        link.epoch += 1;
        link.generation = Some(generation);
        let epoch = link.epoch;
        process.wire.open(epoch);
        let run_id = format!("run {}", self.server.incarnation);
        let counted = self.mix.counted;
        process.tell(Told::Up(Up { epoch, server_millis, sent, received, counted, run_id }));
        for text in link.coming.take().map(|(_, early)| early).unwrap_or_default() {
            process.events.message(text, epoch);
        }
        if let Some(incident) = link.incident.take() {
            let now = self.now;
            self.book.with(|history| history.incidents[incident].ended = now);
        }
        self.drive(client);
        self.expect_poll(client);
    }

    pub fn end_lag(&mut self, client: usize) {
        self.links[client].lagging = false;
        self.processes[client].events.lagged();
        self.drive(client);
        if self.processes[client].life == Life::Running {
            self.expect_poll(client);
        }
    }
}

/// A request in few words.
fn shown(request: &Request) -> String {
    let mut text = request.call.script.name.to_owned();
    for arg in request.call.args.iter() {
        text.push(' ');
        text.push_str(arg);
    }
    text
}

/// A reply in few words.
pub fn words(reply: &Value) -> String {
    match reply {
        Value::Nil => "nil".into(),
        Value::Int(number) => number.to_string(),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Status(text) => text.clone(),
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(" "),
    }
}

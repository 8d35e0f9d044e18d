//! One lock on one server, and clients of it.

use lockwright::internals::backend::Value;
use lockwright::internals::name::{LockKeys, Namespace};
use lockwright::internals::owner::OwnerId;
use lockwright::internals::scripts::*;
use lockwright::internals::ticket::{ClientId, Ticket, Tickets};

use crate::support::resp::{Connection, Reply};
use crate::support::server::Server;

pub const LEASE: u64 = 30_000;
pub const CLAIM: u64 = 3_000;
pub const DEADLINE: u64 = 10_000;
pub const DAY: i64 = 24 * 60 * 60 * 1_000;

/// Replaces one argument of a call.
pub fn set_arg(call: &mut Call, at: usize, value: &str) {
    let args = call.args.iter().enumerate();
    call.args = args.map(|(here, arg)| if here == at { value } else { arg }).collect();
}

/// A lock, its server, and a connection from which all calls are made.
pub struct Rig {
    pub server: Server,
    pub wire: Connection,
    pub keys: LockKeys,
    pub kind: Kind,
    pub terms: Terms,
}

impl Rig {
    pub fn new() -> Self {
        Self::on(Server::start())
    }

    pub fn on(server: Server) -> Self {
        let keys = LockKeys::new(&Namespace::default(), "a{b} \u{1f512}").unwrap();
        let terms = Terms { claim_millis: CLAIM, deadline_millis: DEADLINE, sharded: false, counted: true };
        Self { wire: server.connection(), server, keys, kind: Kind::Reentrant, terms }
    }

    /// A read/write lock.
    pub fn shared() -> Self {
        Self { kind: Kind::ReadWrite, ..Self::new() }
    }

    /// A client that hears its messages.
    pub fn client(&self) -> Peer {
        let mut peer = self.silent_client();
        peer.listen(&self.server);
        peer
    }

    /// A client without a subscription.
    pub fn silent_client(&self) -> Peer {
        let id = ClientId::random();
        Peer { id, kind: self.kind, tickets: Tickets::new(id), ears: None }
    }

    pub fn run(&mut self, call: &Call) -> Reply {
        let count = call.keys.len().to_string();
        let mut words = vec!["EVAL", call.script.text, &count];
        words.extend(call.keys.iter().chain(call.args.iter()));
        self.wire.call(&words)
    }

    pub fn value(&mut self, call: &Call) -> Value {
        match self.run(call) {
            Reply::Error(text) => panic!("{}: {text}", call.script.name),
            reply => value(reply),
        }
    }

    pub fn acquire_call(&mut self, attempt: &Attempt, wait: Wait) -> Call {
        let not_after_millis = self.now() + 1_000;
        let (keys, kind, terms) = (&self.keys, self.kind, self.terms);
        Acquire { keys, kind, attempt, wait, not_after_millis, deaf: false, terms }.call()
    }

    pub fn acquire(&mut self, attempt: &Attempt, wait: Wait) -> AcquireReply {
        let call = self.acquire_call(attempt, wait);
        AcquireReply::decode(&self.value(&call)).unwrap().reply
    }

    pub fn acquire_deaf(&mut self, attempt: &Attempt, wait: Wait) -> AcquireReply {
        let not_after_millis = self.now() + 1_000;
        let (keys, terms) = (&self.keys, self.terms);
        let kind = self.kind;
        let call = Acquire { keys, kind, attempt, wait, not_after_millis, deaf: true, terms }.call();
        AcquireReply::decode(&self.value(&call)).unwrap().reply
    }

    /// A grant, or a failed test.
    pub fn granted(&mut self, attempt: &Attempt) -> Granted {
        match self.acquire(attempt, Wait::No) {
            AcquireReply::Granted(granted) => granted,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// A place in the queue, or a failed test.
    pub fn queued(&mut self, attempt: &Attempt) -> Queued {
        match self.acquire(attempt, Wait::Join) {
            AcquireReply::Queued(queued) => queued,
            other => panic!("not queued: {other:?}"),
        }
    }

    /// Whether a try finds others there.
    pub fn is_busy(&mut self, attempt: &Attempt) -> bool {
        matches!(self.acquire(attempt, Wait::No), AcquireReply::Busy { .. })
    }

    pub fn poll(&mut self, attempt: &Attempt) -> AcquireReply {
        self.acquire(attempt, Wait::Poll)
    }

    pub fn leave_call(&mut self, ticket: Ticket, next: Option<&Attempt>) -> Call {
        let next = next.map(|attempt| (attempt, self.now() + 1_000));
        let (keys, kind, terms) = (&self.keys, self.kind, self.terms);
        Leave { keys, kind, ticket, next, deaf: false, terms }.call()
    }

    pub fn leave_for(&mut self, ticket: Ticket, next: Option<&Attempt>) -> LeaveReply {
        let call = self.leave_call(ticket, next);
        LeaveReply::decode(&self.value(&call)).unwrap().reply
    }

    pub fn leave(&mut self, attempt: &Attempt) -> LeaveReply {
        self.leave_for(attempt.ticket, None)
    }

    pub fn downgrade_call(&self, write: &Attempt, read: &Attempt) -> Call {
        Downgrade { keys: &self.keys, write: write.ticket, read, terms: self.terms }.call()
    }

    pub fn downgrade(&mut self, write: &Attempt, read: &Attempt) -> DowngradeReply {
        let call = self.downgrade_call(write, read);
        DowngradeReply::decode(&self.value(&call)).unwrap().reply
    }

    pub fn renew(&mut self, holds: &[(Ticket, u64)]) -> Vec<Renewed> {
        let hold = |&(ticket, lease_millis)| RenewHold { keys: self.keys.clone(), ticket, lease_millis };
        let holds: Vec<RenewHold> = holds.iter().map(hold).collect();
        let call = Renew { holds: &holds, deadline_millis: self.terms.deadline_millis }.call();
        RenewReply::decode(&self.value(&call)).unwrap().reply.holds
    }

    pub fn force_release(&mut self, token: u64) -> ForceReleaseReply {
        self.force_call(token, false)
    }

    pub fn force_call(&mut self, token: u64, goes_on: bool) -> ForceReleaseReply {
        let call = ForceRelease { keys: &self.keys, token, goes_on, terms: self.terms }.call();
        ForceReleaseReply::decode(&self.value(&call)).unwrap().reply
    }

    pub fn inspect(&mut self) -> LockInfo {
        let call = Inspect { keys: &self.keys }.call();
        match InspectReply::decode(&self.value(&call)).unwrap().reply {
            InspectReply::Info(info) => info,
            other => panic!("{other:?}"),
        }
    }

    /// The server's clock in milliseconds.
    pub fn now(&mut self) -> u64 {
        self.micros() / 1_000
    }

    /// The server's clock in microseconds.
    pub fn micros(&mut self) -> u64 {
        let time = self.wire.ok(&["TIME"]).texts();
        time[0].parse::<u64>().unwrap() * 1_000_000 + time[1].parse::<u64>().unwrap()
    }

    /// Lets so much time pass at the server.
    pub fn pass(&mut self, millis: u64) {
        let seconds = format!("{}.{:03}", millis / 1_000, millis % 1_000);
        assert_eq!(self.wire.ok(&["BLPOP", "never", &seconds]), Reply::Nil);
    }

    pub fn ttl(&mut self, key: &str) -> i64 {
        self.wire.ok(&["PTTL", key]).int()
    }

    pub fn all_keys(&mut self) -> Vec<String> {
        let mut keys = self.wire.ok(&["KEYS", "*"]).texts();
        keys.sort();
        keys
    }

    pub fn list(&mut self) -> Vec<String> {
        self.wire.ok(&["LRANGE", &self.keys.queue(), "0", "-1"]).texts()
    }

    pub fn get(&mut self, key: &str, field: &str) -> String {
        match self.wire.ok(&["HGET", key, field]) {
            Reply::Nil => String::new(),
            reply => reply.text(),
        }
    }

    pub fn set(&mut self, key: &str, field: &str, value: &str) {
        self.wire.ok(&["HSET", key, field, value]);
    }

    /// What `K:waiting` says of a client.
    pub fn places_of(&mut self, peer: &Peer) -> String {
        self.get(&self.keys.waiting(), &peer.id.to_string())
    }

    /// `K`.
    pub fn lock(&self) -> String {
        self.keys.lock().to_owned()
    }

    /// The holder's first token; 0 where the lock is free.
    pub fn held_token(&mut self) -> u64 {
        self.get(&self.lock(), "token").parse().unwrap_or(0)
    }

    /// The lease end of a read hold in `K:readers`; 0 where it is not there.
    pub fn read_end(&mut self, ticket: Ticket) -> u64 {
        match self.wire.ok(&["ZSCORE", &self.keys.readers(), &ticket.to_string()]) {
            Reply::Nil => 0,
            reply => reply.text().parse().unwrap(),
        }
    }

    /// Puts the deadline of a client so far from now: negative is past.
    pub fn set_deadline(&mut self, peer: &Peer, millis: i64) {
        let text = self.places_of(peer);
        let rest = text.split_once(' ').expect("the client waits").1;
        let deadline = self.now().checked_add_signed(millis).unwrap();
        self.set(&self.keys.waiting(), &peer.id.to_string(), &format!("{deadline} {rest}"));
    }

    /// Puts dead entries at the tail of the list.
    pub fn add_dead(&mut self, count: usize) {
        let queue = self.keys.queue();
        let peer = self.silent_client();
        let tickets: Vec<String> = (0..count).map(|_| peer.tickets.next().to_string()).collect();
        for chunk in tickets.chunks(1_000) {
            let words: Vec<&str> =
                ["RPUSH", &queue].into_iter().chain(chunk.iter().map(String::as_str)).collect();
            self.wire.ok(&words);
        }
    }

    /// How many commands the server has run, by name, since the last reset.
    pub fn commands(&mut self) -> Vec<(String, u64)> {
        let stats = self.wire.ok(&["INFO", "commandstats"]).text();
        let of = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_uppercase(), rest.split_once(',')?.0.parse().ok()?))
        };
        stats
            .lines()
            .filter_map(of)
            .filter(|(name, _)| name != "EVAL" && !name.starts_with("CONFIG"))
            .collect()
    }

    /// How many commands a script calls.
    pub fn cost(&mut self, call: &Call) -> u64 {
        self.wire.ok(&["CONFIG", "RESETSTAT"]);
        self.value(call);
        self.commands().iter().map(|(_, calls)| calls).sum()
    }
}

/// One client.
pub struct Peer {
    pub id: ClientId,
    pub kind: Kind,
    pub tickets: Tickets,
    ears: Option<Connection>,
}

impl Peer {
    /// A new ticket without an owner.
    pub fn attempt(&self) -> Attempt {
        let (ticket, mode) = (self.tickets.next(), Mode::Exclusive);
        Attempt { ticket, mode, owner: None, lease_millis: LEASE, block: 1, label: None }
    }

    pub fn attempt_of(&self, owner: OwnerId) -> Attempt {
        Attempt { owner: Some(owner), ..self.attempt() }
    }

    /// A new ticket to read, without an owner.
    pub fn read(&self) -> Attempt {
        Attempt { mode: Mode::Read, block: 0, ..self.attempt() }
    }

    /// A new ticket to write, without an owner.
    pub fn write(&self) -> Attempt {
        Attempt { mode: Mode::Write, block: 2, ..self.attempt() }
    }

    pub fn read_of(&self, owner: OwnerId) -> Attempt {
        Attempt { owner: Some(owner), ..self.read() }
    }

    pub fn write_of(&self, owner: OwnerId) -> Attempt {
        Attempt { owner: Some(owner), ..self.write() }
    }

    /// What has come since the last call. All messages sent before it are in: the server answers in order.
    pub fn messages(&mut self) -> Vec<(Ticket, News)> {
        let ears = self.ears.as_mut().expect("the client listens");
        ears.send(&["PING"]);
        let mut messages = Vec::new();
        loop {
            let words = ears.read().texts();
            match words[0].as_str() {
                "message" | "smessage" => {
                    let message = Message::parse(words[2].as_bytes()).expect("a message of ours");
                    assert_eq!(message.kind, self.kind, "it names the lock");
                    messages.push((message.ticket, message.news));
                }
                "pong" => return messages,
                _ => {}
            }
        }
    }

    /// Subscribes.
    pub fn listen(&mut self, server: &Server) {
        let mut ears = server.connection();
        ears.ok(&["SUBSCRIBE", &Namespace::default().wake_channel(self.id)]);
        self.ears = Some(ears);
    }

    pub fn listens(&self) -> bool {
        self.ears.is_some()
    }

    /// Subscribes to the sharded channel of a lock instead.
    pub fn listen_sharded(&mut self, server: &Server, channel: &str) {
        let mut ears = server.connection();
        ears.ok(&["SSUBSCRIBE", channel]);
        self.ears = Some(ears);
    }

    /// Closes the subscription, and waits until the server knows.
    pub fn hang_up(&mut self, rig: &mut Rig) {
        self.ears = None;
        let channel = Namespace::default().wake_channel(self.id);
        while rig.wire.ok(&["PUBSUB", "NUMSUB", &channel]).items()[1].int() > 0 {}
    }
}

/// An owner, always the same for the same digit.
pub fn owner(digit: u8) -> OwnerId {
    OwnerId::parse(&format!("00000000-0000-4000-8000-00000000000{digit}")).unwrap()
}

/// A reply, as a back end would hand it on.
pub fn value(reply: Reply) -> Value {
    match reply {
        Reply::Nil => Value::Nil,
        Reply::Int(number) => Value::Int(number),
        Reply::Bulk(bytes) => Value::Bulk(bytes),
        Reply::Status(text) => Value::Status(text),
        Reply::Array(items) => Value::Array(items.into_iter().map(value).collect()),
        Reply::Error(text) => panic!("{text}"),
    }
}

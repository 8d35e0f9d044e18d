//! Random calls of the scripts that we ship, drawn up from their headers: a new script takes part by itself.
//!
//! What a script does depends on the server's clock, and two servers never agree on the microsecond. So the calls
//! bring a clock of their own, which also jumps; what lives in keys is then equal to the byte.

use std::cell::RefCell;

use lockwright::internals::backend::Value;
use lockwright::internals::clock::wall_micros;
use lockwright::internals::embedded::{Engine, Instruments};
use lockwright::internals::scripts::{ALL, BATCHES, Script};

use super::generate::{Check, Dice, Step, WILD};
use super::known::Facts;

/// In front of a script, on its first line: `TIME` is what the last two arguments say.
const OWN_CLOCK: &str = "local redis = (function(real, now) \
    local function timed(call) return function(name, ...) \
    if name == 'TIME' then return now end return call(name, ...) end end \
    return setmetatable({call = timed(real.call), pcall = timed(real.pcall)}, {__index = real}) \
    end)(redis, {table.remove(ARGV, #ARGV - 1), table.remove(ARGV)}) ";

const LEASES: [&str; 6] = ["30000", "30000", "20000", "60000", "3600000", "86400000"];
const LOCKS: [&str; 2] = ["lw:{x}", "lw:{y}"];
const SUFFIXES: [&str; 5] = ["", ":queue", ":waiting", ":token", ":readers"];
const CLIENTS: [&str; 3] = [
    "6f2b1d9e-0d4b-4b5e-9f43-0d6c1f1f7a01",
    "6f2b1d9e-0d4b-4b5e-9f43-0d6c1f1f7a02",
    "a3b1d9e0-0d4b-4b5e-9f43-0d6c1f1f7a03",
];

pub struct Protocol {
    scripts: Vec<Timed>,
    batches: Vec<Timed>,
    /// The clock of the calls, and what it showed lately: tokens are made of that.
    micros: RefCell<Vec<u64>>,
}

/// A script behind its own clock.
struct Timed {
    name: &'static str,
    text: Vec<u8>,
    sha: Vec<u8>,
    keys: Vec<Slot>,
    args: Vec<Slot>,
    /// How many arguments it needs, where the rest may be left out.
    least: Option<usize>,
}

impl Timed {
    fn new(script: &Script) -> Self {
        let text = format!("{OWN_CLOCK}{}", script.text).into_bytes();
        let slots = |what| script.text.lines().filter_map(|line| Slot::read(line, what)).collect();
        let (keys, args): (_, Vec<Slot>) = (slots("KEYS"), slots("ARGV"));
        let least = args.iter().position(|slot| slot.note.contains("may be left out"));
        match Engine::new().command(&["SCRIPT".as_bytes(), b"LOAD", &text]) {
            Ok(Value::Bulk(sha)) => Self { name: script.name, text, sha, keys, args, least },
            other => panic!("{} does not compile: {other:?}", script.name),
        }
    }
}

impl Protocol {
    pub fn new() -> Self {
        let timed = |all: &[&Script]| all.iter().map(|script| Timed::new(script)).collect();
        Self { scripts: timed(ALL), batches: timed(BATCHES), micros: RefCell::new(vec![wall_micros()]) }
    }

    /// The next call.
    pub fn step(&self, dice: &Dice, facts: &Facts) -> Step {
        let now = self.tick(dice);
        let script = &self.scripts[dice.below(self.scripts.len())];
        let (script, keys, args) = match self.batch_of(script).filter(|_| dice.once_in(3)) {
            Some(batch) => {
                let (keys, args) = self.several(dice, facts, batch);
                (batch, keys, args)
            }
            None => {
                let (keys, args) = self.slots(dice, facts, script);
                (script, keys, args)
            }
        };
        let count = keys.len().to_string();
        let time = [now / 1_000_000, now % 1_000_000].map(|part| part.to_string().into_bytes());
        let (how, what) = if dice.once_in(4) { ("eval", &script.text) } else { ("evalsha", &script.sha) };
        let mut words = vec![how.into(), what.clone(), count.into_bytes()];
        words.extend(keys.into_iter().chain(args).chain(time));
        Step { words, check: Check::Exact }
    }

    /// The batch that carries out calls of this script, too.
    fn batch_of(&self, script: &Timed) -> Option<&Timed> {
        let (kind, operation) = script.name.split_once('/')?;
        let is_of_kind = |batch: &&Timed| batch.name.strip_suffix("/batch") == Some(kind);
        self.batches.iter().find(is_of_kind).filter(|_| ["acquire", "leave"].contains(&operation))
    }

    /// Keys and arguments of a few calls together.
    fn several(&self, dice: &Dice, facts: &Facts, batch: &Timed) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for _ in 0..1 + dice.below(4) {
            let operation = dice.pick(&["acquire", "leave"]);
            let name = batch.name.replace("batch", operation);
            let script = self.scripts.iter().find(|script| script.name == name).expect("it is there");
            let (own_keys, own_args) = self.slots(dice, facts, script);
            if args.is_empty() {
                args.extend([own_args[0].clone(), dice.pick(&["0", "60000000"]).into()]);
            }
            keys.extend(own_keys);
            args.extend([operation.into(), (own_args.len() - 1).to_string().into_bytes()]);
            args.extend(own_args.into_iter().skip(1));
        }
        (keys, args)
    }

    fn tick(&self, dice: &Dice) -> u64 {
        let mut micros = self.micros.borrow_mut();
        let last = micros[micros.len() - 1];
        let next = match dice.below(100) {
            0 => last - 40_000_000,
            1 => last + 40_000_000,
            2..10 => last + 3_000_000,
            _ => last + dice.below(200_000) as u64,
        };
        micros.push(next);
        if micros.len() > 8 {
            micros.remove(0);
        }
        next
    }

    /// Keys and arguments as the header names them. Slots with an `n` in their number come again and again.
    fn slots(&self, dice: &Dice, facts: &Facts, script: &Timed) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let rounds = 1 + dice.below(3);
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        let mut add = |lock: &str, repeated: bool| {
            keys.extend(
                script.keys.iter().filter(|slot| slot.repeated == repeated).map(|slot| slot.key(lock)),
            );
            let slots = script.args.iter().filter(|slot| slot.repeated == repeated);
            args.extend(slots.map(|slot| self.arg(dice, facts, script, slot)));
        };
        add(dice.pick(&LOCKS), false);
        (0..rounds).for_each(|_| add(dice.pick(&LOCKS), true));
        if dice.once_in(25) {
            let place = dice.below(args.len().max(1));
            args.get_mut(place).into_iter().for_each(|arg| *arg = dice.pick(&WILD).to_vec());
        }
        // Scripts have slots at their end that may be left out.
        if dice.once_in(3)
            && let Some(least) = script.least
        {
            args.truncate(least);
        }
        (keys, args)
    }

    fn arg(&self, dice: &Dice, facts: &Facts, script: &Timed, slot: &Slot) -> Vec<u8> {
        let micros = self.micros.borrow();
        let now = micros[micros.len() - 1];
        let text = match slot.kind.as_str() {
            "ms" if slot.note.contains("server time") => {
                (now / 1000 + 2000 - dice.below(3000) as u64).to_string()
            }
            "ms" => dice.pick(&LEASES).to_owned(),
            "request" => {
                let modes = match script.name.starts_with("read_write/") {
                    true => ["read", "read", "write"],
                    false => ["exclusive"; 3],
                };
                let (mode, lease, block) =
                    (dice.pick(&modes), dice.pick(&LEASES), dice.pick(&["1", "2", "64", "0"]));
                let owner = dice.pick(&["-", "-", CLIENTS[0], CLIENTS[2]]);
                format!("{mode} {lease} {block} {owner}{}", dice.pick(&["", " web 1", " x"]))
            }
            "terms" => {
                let millis = ["30000", "20000", "60000", "3600000"];
                let sharded = if facts.has_sharded_channels() { dice.below(2) } else { 0 };
                let (claim, deadline) = (dice.pick(&millis), dice.pick(&millis));
                format!("{claim} {deadline} {sharded} {} {}", dice.below(2), dice.below(2))
            }
            "01" => dice.below(2).to_string(),
            "012" => dice.below(3).to_string(),
            "ticket" => format!("{}:{}", dice.pick(&CLIENTS), dice.below(6)),
            "token" => (micros[dice.below(micros.len())] + dice.below(2) as u64).to_string(),
            "text" => dice.pick(&["", "web 1", "x"]).to_owned(),
            other => panic!("no sample of a {other}"),
        };
        text.into_bytes()
    }
}

/// Some key of some lock, for commands that meddle.
pub fn some_key(dice: &Dice) -> String {
    format!("{}{}", dice.pick(&LOCKS), dice.pick(&SUFFIXES))
}

/// A line of a header: `-- ARGV[5]  ticket  mine`.
struct Slot {
    repeated: bool,
    kind: String,
    note: String,
}

impl Slot {
    fn read(line: &str, what: &str) -> Option<Self> {
        let (number, rest) =
            line.strip_prefix("-- ")?.strip_prefix(what)?.strip_prefix('[')?.split_once(']')?;
        let (kind, note) = rest.trim().split_once(' ')?;
        Some(Self { repeated: number.contains('n'), kind: kind.to_owned(), note: note.trim().to_owned() })
    }

    fn key(&self, lock: &str) -> Vec<u8> {
        // `K:queue: the waiting tickets`, or `K: the holds`
        let name = self.note.split(": ").next().and_then(|name| name.strip_prefix('K'));
        let name = name.unwrap_or_else(|| panic!("no name of a key: {}", self.note));
        format!("{lock}{name}").into_bytes()
    }
}

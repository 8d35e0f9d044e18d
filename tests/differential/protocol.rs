//! Random calls of the scripts that we ship, drawn up from their headers: a new script takes part by itself.
//!
//! What a script does depends on the server's clock, and two servers never agree on the microsecond. So the calls
//! bring a clock of their own, which also jumps; what lives in keys is then equal to the byte.

use std::cell::RefCell;

use lockwright::internals::clock::wall_micros;
use lockwright::internals::scripts::{ALL, Script};

use super::generate::{Check, Dice, Step, WILD};
use super::known::Facts;

/// In front of a script, on its first line: `TIME` is what the last two arguments say.
const OWN_CLOCK: &str = "local redis = (function(real, now) \
    local function timed(call) return function(name, ...) \
    if name == 'TIME' then return now end return call(name, ...) end end \
    return setmetatable({call = timed(real.call), pcall = timed(real.pcall)}, {__index = real}) \
    end)(redis, {table.remove(ARGV, #ARGV - 1), table.remove(ARGV)}) ";

const LOCKS: [&str; 2] = ["lw:{x}", "lw:{y}"];
const SUFFIXES: [&str; 5] = ["", ":queue", ":waiting", ":token", ":readers"];
const CLIENTS: [&str; 3] = [
    "6f2b1d9e-0d4b-4b5e-9f43-0d6c1f1f7a01",
    "6f2b1d9e-0d4b-4b5e-9f43-0d6c1f1f7a02",
    "a3b1d9e0-0d4b-4b5e-9f43-0d6c1f1f7a03",
];

/// The clock of the calls, and what it showed lately: tokens are made of that.
pub struct Protocol {
    micros: RefCell<Vec<u64>>,
}

impl Protocol {
    pub fn new() -> Self {
        Self { micros: RefCell::new(vec![wall_micros()]) }
    }

    /// The next call.
    pub fn step(&self, dice: &Dice, facts: &Facts) -> Step {
        let script = dice.pick(ALL);
        let now = self.tick(dice);
        let text = format!("{OWN_CLOCK}{}", script.text);
        let (keys, args) = self.slots(dice, facts, script);
        let count = keys.len().to_string();
        let time = [now / 1_000_000, now % 1_000_000].map(|part| part.to_string().into_bytes());
        let mut words = vec![b"eval".to_vec(), text.into_bytes(), count.into_bytes()];
        words.extend(keys.into_iter().chain(args).chain(time));
        Step { words, check: Check::Exact }
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
    fn slots(&self, dice: &Dice, facts: &Facts, script: &Script) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let lines = |what: &'static str| script.text.lines().filter_map(move |line| Slot::read(line, what));
        let rounds = 1 + dice.below(3);
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        let lock = dice.pick(&LOCKS);
        keys.extend(lines("KEYS").filter(|slot| !slot.repeated).map(|slot| slot.key(lock)));
        args.extend(lines("ARGV").filter(|slot| !slot.repeated).map(|slot| self.arg(dice, facts, &slot)));
        for _ in 0..rounds {
            let lock = dice.pick(&LOCKS);
            keys.extend(lines("KEYS").filter(|slot| slot.repeated).map(|slot| slot.key(lock)));
            args.extend(lines("ARGV").filter(|slot| slot.repeated).map(|slot| self.arg(dice, facts, &slot)));
        }
        if dice.once_in(25) {
            let place = dice.below(args.len().max(1));
            args.get_mut(place).into_iter().for_each(|arg| *arg = dice.pick(&WILD).to_vec());
        }
        // Scripts have slots at their end that may be left out.
        if dice.once_in(3) && args.len() == 12 {
            args.truncate(6);
        }
        (keys, args)
    }

    fn arg(&self, dice: &Dice, facts: &Facts, slot: &Slot) -> Vec<u8> {
        let micros = self.micros.borrow();
        let now = micros[micros.len() - 1];
        let text = match slot.kind {
            "ms" if slot.note.contains("server time") => {
                (now / 1000 + 2000 - dice.below(3000) as u64).to_string()
            }
            "ms" => dice.pick(&["30000", "30000", "20000", "60000", "3600000", "86400000"]).to_owned(),
            "01" if slot.note.contains("sharded") && !facts.has_sharded_channels() => "0".to_owned(),
            "01" => dice.below(2).to_string(),
            "012" => dice.below(3).to_string(),
            "count" => dice.pick(&["1", "2", "64", "0"]).to_owned(),
            "ticket" => format!("{}:{}", dice.pick(&CLIENTS), dice.below(6)),
            "owner" => dice.pick(&["-", "-", CLIENTS[0], CLIENTS[2]]).to_owned(),
            "token" => (micros[dice.below(micros.len())] + dice.below(2) as u64).to_string(),
            "text" => dice.pick(&["", "web 1", "x"]).to_owned(),
            _ => return dice.pick(&WILD).to_vec(),
        };
        text.into_bytes()
    }
}

/// Some key of some lock, for commands that meddle.
pub fn some_key(dice: &Dice) -> String {
    format!("{}{}", dice.pick(&LOCKS), dice.pick(&SUFFIXES))
}

/// A line of a header: `-- ARGV[5]  ticket  mine`.
struct Slot<'a> {
    repeated: bool,
    kind: &'a str,
    note: &'a str,
}

impl<'a> Slot<'a> {
    fn read(line: &'a str, what: &str) -> Option<Self> {
        let (number, rest) =
            line.strip_prefix("-- ")?.strip_prefix(what)?.strip_prefix('[')?.split_once(']')?;
        let (kind, note) = rest.trim().split_once(' ')?;
        Some(Self { repeated: number.contains('n'), kind, note: note.trim() })
    }

    fn key(&self, lock: &str) -> Vec<u8> {
        // `K:queue: the waiting tickets`, or `K: the holds`
        let name = self.note.split(": ").next().and_then(|name| name.strip_prefix('K'));
        let name = name.unwrap_or_else(|| panic!("no name of a key: {}", self.note));
        format!("{lock}{name}").into_bytes()
    }
}

//! Random steps: single commands and script calls, with arguments from reasonable to wild.

use lockwright::internals::chance::Chance;

use super::known::Facts;
use super::protocol::{self, Protocol};

/// How far two replies to a step may differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// To the byte.
    Exact,
    /// Numbers by the time that passed between the two clocks.
    Timed,
    /// The items in any order.
    Unordered,
    /// The pairs of items in any order.
    UnorderedPairs,
}

/// One command for both sides.
#[derive(Clone, Debug)]
pub struct Step {
    pub words: Vec<Vec<u8>>,
    pub check: Check,
}

/// The numbers that a history is made of.
pub struct Dice {
    chance: Chance,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self { chance: Chance::from_seed(seed) }
    }

    pub fn below(&self, limit: usize) -> usize {
        (self.chance.next_u64() % limit as u64) as usize
    }

    pub fn once_in(&self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T: ?Sized>(&self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }
}

const KEYS: [&str; 5] = ["a", "b", "c", "d", ""];
const FIELDS: [&str; 5] = ["f", "g", "h", "1", ""];
pub const WILD: [&[u8]; 28] = [
    b"",
    b"x",
    b"0",
    b"1",
    b"-1",
    b"2",
    b"10",
    b"-10",
    b"1.5",
    b"-0.1",
    b"1e3",
    b"inf",
    b"-inf",
    b"nan",
    b"01",
    b"+1",
    b" 1",
    b"1 ",
    b"9007199254740993",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"1700000000123456",
    b"\xff\xfe\x00\r\n",
    "k\u{e9}".as_bytes(),
    b"1e400",
    b"0.1",
    b"3.99",
];
const LIVES: [&str; 4] = ["100000", "3600000", "86400000", "250000"];

/// Commands with placeholders: K key, F field or member, V value, N number, T life, S score, B bound, I index,
/// Z option of ZADD, O option of SET, E option of EXPIRE.
const COMMANDS: &[&str] = &[
    "get K",
    "set K V",
    "set K V",
    "set K V px T",
    "set K V px N",
    "set K V ex T",
    "set K V keepttl",
    "set K V get",
    "set K V O",
    "set K V O O",
    "set K V xx get",
    "set K V pxat N",
    "set K V nx px T",
    "incr K",
    "incrby K N",
    "decr K",
    "del K",
    "del K K",
    "unlink K",
    "rename K K",
    "exists K K",
    "type K",
    "pexpire K T",
    "pexpire K T",
    "pexpire K N",
    "expire K T",
    "expire K N",
    "pexpireat K N",
    "pttl K",
    "ttl K",
    "persist K",
    "hset K F V",
    "hset K F V F V",
    "hset K F",
    "hget K F",
    "hmget K F F",
    "hdel K F F",
    "hexists K F",
    "hincrby K F N",
    "hlen K",
    "hgetall K",
    "hkeys K",
    "rpush K V V",
    "rpush K F F F",
    "lpush K V",
    "lpop K",
    "rpop K",
    "lpop K I",
    "rpop K N",
    "lindex K I",
    "lrem K I F",
    "llen K",
    "lrange K I I",
    "ltrim K I I",
    "zadd K S F",
    "zadd K S F S F",
    "zadd K Z S F",
    "zadd K Z Z S F",
    "zadd K Z Z S F S F",
    "zrem K F F",
    "zscore K F",
    "zrank K F",
    "zrange K I I",
    "zrange K I I withscores",
    "zrange K I I rev",
    "zrange K B B byscore",
    "zrange K B B byscore rev limit I I",
    "zrangebyscore K B B",
    "zrangebyscore K B B withscores limit I I",
    "zremrangebyscore K B B",
    "zcard K",
    "zcount K B B",
    "zpopmin K",
    "zpopmin K I",
    "zincrby K S F",
    "sadd K F F",
    "srem K F",
    "scard K",
    "sismember K F",
    "smembers K",
    "publish F V",
    "ping",
    "echo V",
    "time",
    "flushall",
    "nonsense V",
    "evalsha x 0",
];

/// Scripts on KEYS[1], KEYS[2] and ARGV[1], ARGV[2]. None of them shows what differs from server to server.
const SCRIPTS: &[&str] = &[
    "return 1",
    "return {KEYS, ARGV}",
    "return tonumber(ARGV[1])",
    "return {1, nil, 3}",
    "return {1, false, {}, {{'x'}}, true, 3.99, -3.99, 1e20, 2^53}",
    "return {ARGV[1], tonumber(ARGV[1]) or false, #ARGV[1]}",
    "return {tostring(tonumber(ARGV[1])), string.format('%.0f', tonumber(ARGV[2]) or 0.5)}",
    "local r = redis.call('get', KEYS[1]) return {type(r), r}",
    "local r = redis.call('hget', KEYS[1], ARGV[1]) return {type(r), r == false}",
    "local r = redis.call('set', KEYS[1], ARGV[1]) return {type(r), r.ok, r}",
    "redis.call('set', KEYS[1], 1700000000123456) return redis.call('incr', KEYS[1])",
    "redis.call('set', KEYS[1], '9007199254740993') return {redis.call('incr', KEYS[1]), redis.call('get', KEYS[1])}",
    "redis.call('set', KEYS[1], '9223372036854775805') return redis.call('incr', KEYS[1])",
    "redis.call('zadd', KEYS[1], 1700000000123456, ARGV[1]) return redis.call('zscore', KEYS[1], ARGV[1])",
    "redis.call('set', KEYS[1], ARGV[1]) redis.call('lpush', KEYS[1], 'x') return 'not reached'",
    "redis.call('set', KEYS[2], ARGV[1]) error('after a write')",
    "local ok, e = pcall(redis.call, 'lpush', KEYS[1], ARGV[1]) return {tostring(ok), type(e), e}",
    "local ok, e = pcall(function() error({code = 5}) end) return {tostring(ok), type(e), e.code}",
    "local ok, e = pcall(error, 'x', 0) return {tostring(ok), e}",
    "local e = redis.pcall('hset', KEYS[1], 'f', 'v') return type(e) == 'table' and e.err or e",
    "return redis.error_reply('MINE ' .. #ARGV[1])",
    "return redis.status_reply('FINE')",
    "return {err = 'MINE two\\nlines'}",
    "return {ok = 'two\\nlines'}",
    "return redis.sha1hex(ARGV[1])",
    "if redis.call('exists', KEYS[1]) == 0 then redis.call('set', KEYS[1], 'v', 'px', 100000) end return redis.call('type', KEYS[1])",
    "redis.call('del', KEYS[1]) for i = 1, 70 do redis.call('rpush', KEYS[1], i) end redis.call('ltrim', KEYS[1], 5, -5) return redis.call('lrange', KEYS[1], 10, 20)",
    "redis.call('pexpire', KEYS[1], tonumber(ARGV[1]) or 100000) return redis.call('exists', KEYS[1])",
    "local a = {} for i = 1, #ARGV do a[#a + 1] = ARGV[i]:rep(2) end table.sort(a) return a",
    "return ARGV[1] .. ':' .. (('x'):rep(3)):upper()",
    "return {string.match('id:12', '^(%a+):(%d+)$')}",
    "return coroutine.wrap(function() return redis.call('get', KEYS[1]) end)()",
    "return loadstring('return ' .. #KEYS)()",
    "return {pcall(function() return 1, 2 end)}",
    "return select('#', unpack(ARGV))",
    "return #redis.call('hgetall', KEYS[1])",
    "return redis.call('publish', ARGV[1], ARGV[2])",
    "redis.log(redis.LOG_DEBUG, 'x') return redis.LOG_WARNING",
    "return -0.0 == 0",
    "local n = 0 for _ in ('a,b,c'):gmatch('[^,]+') do n = n + 1 end return n",
    "redis.call('del', KEYS[1]) redis.call('zadd', KEYS[1], 3, 'c', 1, 'a', 2, 'b') return redis.call('zrange', KEYS[1], 0, -1, 'withscores')",
    "redis.call('set', KEYS[1], tonumber(ARGV[1]) or 0.1) return redis.call('get', KEYS[1])",
    "redis.call('set', KEYS[1], 1/3) return redis.call('get', KEYS[1])",
    "redis.call('zadd', KEYS[1], 0.1, 'm') return redis.call('zscore', KEYS[1], 'm')",
    "redis.call('set', KEYS[1], 'v', 'px', 5000) redis.call('persist', KEYS[1]) return redis.call('pttl', KEYS[1])",
];

/// Calls of whatever command ARGV holds.
const CALLERS: &[&str] = &[
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "local r = redis.call(unpack(ARGV)) return r",
    "local r = redis.pcall(unpack(ARGV)) return {type(r), type(r) == 'table' and #r or r}",
    "redis.call('set', KEYS[2], 'before') redis.call(unpack(ARGV)) return 'done'",
];

/// The next step.
pub fn step(dice: &Dice, facts: &Facts, protocol: &Protocol) -> Step {
    if dice.once_in(3) {
        return protocol.step(dice, facts);
    }
    if dice.once_in(500) {
        return Step { words: vec![b"script".to_vec(), b"flush".to_vec()], check: Check::Exact };
    }
    match dice.below(10) {
        0..5 => command(dice, facts),
        5..7 => through_a_script(dice, facts),
        7 if facts.has_sandbox() && dice.once_in(3) => attack(dice),
        _ => script(dice),
    }
}

fn command(dice: &Dice, facts: &Facts) -> Step {
    let words = loop {
        let mut words: Vec<_> = dice.pick(COMMANDS).split(' ').map(|word| fill(dice, word)).collect();
        if dice.once_in(40) && words.len() > 1 {
            words.pop();
        }
        if dice.once_in(40) {
            words.push(words[words.len() - 1].clone());
        }
        if facts.is_comparable(&words) {
            break words;
        }
    };
    let check = match words[0].as_slice() {
        b"pttl" | b"ttl" | b"time" => Check::Timed,
        b"hgetall" => Check::UnorderedPairs,
        b"hkeys" | b"smembers" => Check::Unordered,
        _ => Check::Exact,
    };
    Step { words, check }
}

fn fill(dice: &Dice, placeholder: &str) -> Vec<u8> {
    match placeholder {
        "K" if dice.once_in(40) => protocol::some_key(dice).into_bytes(),
        "K" => dice.pick(&KEYS).as_bytes().to_vec(),
        "F" => dice.pick(&FIELDS).as_bytes().to_vec(),
        "V" => dice.pick(&WILD).to_vec(),
        "T" if dice.once_in(60) => b"40".to_vec(),
        "T" => dice.pick(&LIVES).as_bytes().to_vec(),
        "N" | "S" => number(dice),
        "B" => [dice.pick(&["", "", "("]).as_bytes(), &number(dice)].concat(),
        "I" if dice.once_in(10) => dice.pick(&WILD).to_vec(),
        "I" => dice.pick(&["0", "1", "2", "5", "-1", "-2", "-100", "100"]).as_bytes().to_vec(),
        "Z" => dice.pick(&["nx", "XX", "gt", "lt", "ch", "incr"]).as_bytes().to_vec(),
        "O" => dice.pick(&["nx", "XX", "get", "keepttl"]).as_bytes().to_vec(),
        "E" => dice.pick(&["nx", "XX", "gt", "lt", "huh"]).as_bytes().to_vec(),
        word => word.as_bytes().to_vec(),
    }
}

fn number(dice: &Dice) -> Vec<u8> {
    if dice.once_in(3) { dice.pick(&WILD).to_vec() } else { dice.below(12).to_string().into_bytes() }
}

fn script(dice: &Dice) -> Step {
    let words = ["eval", dice.pick(SCRIPTS), "2", dice.pick(&KEYS), dice.pick(&KEYS)]
        .map(|word| word.as_bytes().to_vec());
    let args = (0..2 + dice.below(3)).map(|_| dice.pick(&WILD).to_vec());
    Step { words: words.into_iter().chain(args).collect(), check: Check::Exact }
}

/// A random command, called by a script.
fn through_a_script(dice: &Dice, facts: &Facts) -> Step {
    let inner = loop {
        let inner = command(dice, facts);
        // The order of a hash cannot be told from a list's once a script has it; TIME is text.
        // Subcommands are commands of their own there, with other texts again.
        let barred = matches!(&*inner.words[0], b"time" | b"script" | b"evalsha");
        if matches!(inner.check, Check::Exact | Check::Timed) && !barred {
            break inner;
        }
    };
    let words = ["eval", dice.pick(CALLERS), "2", dice.pick(&KEYS), dice.pick(&KEYS)];
    let words = words.map(|word| word.as_bytes().to_vec()).into_iter().chain(inner.words).collect();
    Step { words, check: inner.check }
}

/// What a script must not be able to do, nor to leave behind.
fn attack(dice: &Dice) -> Step {
    let place = dice.below(ATTACKS.len());
    let words = ["eval", ATTACKS[place], "0"].map(|word| word.as_bytes().to_vec());
    Step { words: words.to_vec(), check: Check::Exact }
}

pub const ATTACKS: &[&str] = &[
    "x = 1",
    "return x",
    "redis = nil",
    "redis.call = nil",
    "redis.x = 1",
    "string.format = nil",
    "table.insert = 1",
    "math.floor = nil",
    "coroutine.wrap = nil",
    "KEYS = nil",
    "function f() end",
    "rawset(_G, 'x', 1)",
    "rawset(redis, 'call', 1)",
    "setmetatable(_G, {})",
    "setmetatable(redis, {})",
    "getmetatable(_G).__index = nil",
    "getmetatable('').__index = nil",
    "getmetatable('').x = 1",
    "table.insert(redis, 1)",
    "table.insert(_G, 1)",
    "return getfenv()",
    "return setfenv(1, {})",
    "return debug.getinfo(1)",
    "return io.open('x')",
    "return require('x')",
    "return dofile('x')",
    "return print('x')",
    "loadstring('x = 1')()",
    "return {pcall(function() x = 1 end)}",
    "return {pcall(function() return y end)}",
    "return {type(rawget(_G, 'redis')), rawget(_G, 'nothing')}",
    "return getmetatable(redis)",
    "local t = setmetatable({}, {__index = function(_, k) return k < 3 and k or nil end}) return t",
    "coroutine.wrap(function() redis = nil end)()",
    "return redis.call('eval', 'return 1', 0)",
    "return redis.call('script', 'flush')",
    "return redis.call('subscribe', 'x')",
    "return redis.call()",
    "return redis.call({})",
    "return redis.call('get', nil)",
    "return redis.pcall('get', true)",
    "return +",
    "if",
    "local t = nil\nreturn t.x",
    "\n\nerror('on line three')",
    "error('plain', 0)",
    "error({err = 'MINE own'})",
    "error()",
    "return {pcall()}",
    "assert(false, 'no')",
    "return ('x').y",
    "return ('x'):y()",
    "table.sort({3, 2, 1}, function() error('z') end)",
    "string.gsub('x', 'x', redis.call)",
    "return string.format('%d', 'x')",
    "return table.concat({{}})",
    "return unpack({}, 1, 1e8)",
    "return redis.sha1hex(1, 2)",
    "return {redis.error_reply()}[1].err",
    "return redis.error_reply('x')",
    "return redis.error_reply('-MINE x')",
    "return redis.status_reply({})",
];

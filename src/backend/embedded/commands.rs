//! The commands that the engine knows: those that our scripts use, and those that a test needs beside them. Any
//! other is an error that names it.

mod hashes;
mod keys;
mod lists;
mod server;
mod sets;
mod sorted_sets;
mod strings;

use std::borrow::Cow;

use super::keyspace::{Keyspace, Problem};
use super::number::{format_double, parse_integer};
use super::pubsub::Hub;
use super::words::Words;
use crate::backend::Value;
use crate::sync::Arc;

/// What commands work on.
pub(super) struct Server {
    pub keys: Keyspace,
    pub hub: Hub,
    /// Microseconds since 1970.
    pub time: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Server {
    /// The time now, which may move while a script runs: only expiry stands still.
    pub fn micros(&self) -> u64 {
        (self.time)()
    }

    pub fn millis(&self) -> i64 {
        i64::try_from(self.micros() / 1000).unwrap_or(i64::MAX)
    }
}

pub(super) type Reply = Result<Value, Problem>;

struct Command {
    name: &'static str,
    /// How many words there are at least, the name included, and at most.
    words: (usize, usize),
    in_scripts: bool,
    run: fn(&mut Server, &Words) -> Reply,
}

const fn exactly(name: &'static str, words: usize, run: fn(&mut Server, &Words) -> Reply) -> Command {
    Command { name, words: (words, words), in_scripts: true, run }
}

const fn from(name: &'static str, words: usize, run: fn(&mut Server, &Words) -> Reply) -> Command {
    Command { name, words: (words, usize::MAX), in_scripts: true, run }
}

/// What is done elsewhere, or needs a connection; here for its name, and for the words that scripts get to hear.
const fn of_connections(name: &'static str, words: usize) -> Command {
    Command { name, words: (words, usize::MAX), in_scripts: false, run: server::only_on_connections }
}

/// Sorted by name.
static COMMANDS: &[Command] = &[
    exactly("dbsize", 1, server::dbsize),
    exactly("decr", 2, strings::decr),
    from("del", 2, keys::del),
    exactly("echo", 2, server::echo),
    of_connections("eval", 3),
    of_connections("evalsha", 3),
    from("exists", 2, keys::exists),
    from("expire", 3, keys::expire),
    from("flushall", 1, server::flushall),
    from("flushdb", 1, server::flushall),
    exactly("get", 2, strings::get),
    from("hdel", 3, hashes::hdel),
    exactly("hexists", 3, hashes::hexists),
    exactly("hget", 3, hashes::hget),
    exactly("hgetall", 2, hashes::hgetall),
    exactly("hincrby", 4, hashes::hincrby),
    exactly("hkeys", 2, hashes::hkeys),
    exactly("hlen", 2, hashes::hlen),
    from("hmget", 3, hashes::hmget),
    from("hset", 4, hashes::hset),
    exactly("incr", 2, strings::incr),
    exactly("incrby", 3, strings::incrby),
    exactly("lindex", 3, lists::lindex),
    exactly("llen", 2, lists::llen),
    from("lpop", 2, lists::lpop),
    from("lpush", 3, lists::lpush),
    exactly("lrange", 4, lists::lrange),
    exactly("lrem", 4, lists::lrem),
    exactly("ltrim", 4, lists::ltrim),
    exactly("persist", 2, keys::persist),
    from("pexpire", 3, keys::pexpire),
    from("pexpireat", 3, keys::pexpireat),
    Command { name: "ping", words: (1, 2), in_scripts: true, run: server::ping },
    exactly("pttl", 2, keys::pttl),
    exactly("publish", 3, server::publish),
    exactly("rename", 3, keys::rename),
    from("rpop", 2, lists::rpop),
    from("rpush", 3, lists::rpush),
    from("sadd", 3, sets::sadd),
    exactly("scard", 2, sets::scard),
    of_connections("script", 2),
    from("set", 3, strings::set),
    exactly("sismember", 3, sets::sismember),
    exactly("smembers", 2, sets::smembers),
    exactly("spublish", 3, server::spublish),
    from("srem", 3, sets::srem),
    of_connections("ssubscribe", 2),
    of_connections("subscribe", 2),
    of_connections("sunsubscribe", 1),
    exactly("time", 1, server::time),
    exactly("ttl", 2, keys::ttl),
    exactly("type", 2, keys::type_),
    from("unlink", 2, keys::del),
    of_connections("unsubscribe", 1),
    Command { name: "wait", words: (3, 3), in_scripts: false, run: server::wait },
    from("zadd", 4, sorted_sets::zadd),
    exactly("zcard", 2, sorted_sets::zcard),
    exactly("zcount", 4, sorted_sets::zcount),
    exactly("zincrby", 4, sorted_sets::zincrby),
    from("zpopmin", 2, sorted_sets::zpopmin),
    from("zrange", 4, sorted_sets::zrange),
    from("zrangebyscore", 4, sorted_sets::zrangebyscore),
    exactly("zrank", 3, sorted_sets::zrank),
    from("zrem", 3, sorted_sets::zrem),
    exactly("zremrangebyscore", 4, sorted_sets::zremrangebyscore),
    exactly("zscore", 3, sorted_sets::zscore),
];

/// Runs a command that a connection sent.
pub(super) fn run(server: &mut Server, words: &Words) -> Reply {
    match find(&words[0]) {
        Some(command) if command.takes(words.len()) => (command.run)(server, words),
        Some(command) => Err(wrong_number(command.name)),
        None => Err(unknown(words)),
    }
}

/// Runs a command that a script calls.
pub(super) fn run_from_script(server: &mut Server, words: &Words) -> Reply {
    match find(&words[0]) {
        Some(command) if !command.takes(words.len()) => {
            Err("ERR Wrong number of args calling Redis command from script".into())
        }
        Some(command) if command.in_scripts => (command.run)(server, words),
        Some(_) => Err("ERR This Redis command is not allowed from script".into()),
        None => {
            let name = String::from_utf8_lossy(&words[0]);
            Err(format!("ERR Unknown Redis command called from script: '{name}'").into())
        }
    }
}

fn find(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; 16];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let place = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(lower)).ok()?;
    Some(&COMMANDS[place])
}

impl Command {
    fn takes(&self, words: usize) -> bool {
        (self.words.0..=self.words.1).contains(&words)
    }
}

pub(super) fn wrong_number(name: &str) -> Problem {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// A word in an error's text, as the server shows it: up to its first NUL, on one line.
fn quote(word: &[u8], limit: usize) -> String {
    let word = word.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(&word[..word.len().min(limit)]).replace(['\r', '\n'], " ")
}

/// Names what was sent, up to 128 bytes of it.
fn unknown(words: &Words) -> Problem {
    let mut args = String::new();
    for arg in words.from(1) {
        if args.len() < 128 {
            args.push_str(&format!("'{}' ", quote(arg, 128 - args.len())));
        }
    }
    format!("ERR unknown command '{}', with args beginning with: {args}", quote(&words[0], 128)).into()
}

const SYNTAX: Problem = Cow::Borrowed("ERR syntax error");
const NOT_AN_INTEGER: Problem = Cow::Borrowed("ERR value is not an integer or out of range");
const OVERFLOW: Problem = Cow::Borrowed("ERR increment or decrement would overflow");
const NOT_POSITIVE: Problem = Cow::Borrowed("ERR value is out of range, must be positive");

pub(super) fn ok() -> Reply {
    Ok(Value::Status("OK".to_owned()))
}

fn flag(yes: bool) -> Reply {
    Ok(Value::Int(yes.into()))
}

fn count(number: usize) -> Reply {
    Ok(Value::Int(i64::try_from(number).unwrap_or(i64::MAX)))
}

fn bulk(bytes: &[u8]) -> Value {
    Value::Bulk(bytes.to_vec())
}

fn bulk_or_nil(bytes: Option<&[u8]>) -> Reply {
    Ok(bytes.map_or(Value::Nil, bulk))
}

fn bulks<'a>(items: impl Iterator<Item = &'a [u8]>) -> Reply {
    Ok(Value::Array(items.map(bulk).collect()))
}

fn score(value: f64) -> Value {
    Value::Bulk(format_double(value).into_bytes())
}

fn integer(word: &[u8]) -> Result<i64, Problem> {
    parse_integer(word).ok_or(NOT_AN_INTEGER)
}

/// A word that says how many, where `None` is one, without a list around it.
fn how_many(word: Option<&[u8]>) -> Result<Option<usize>, Problem> {
    let parse = |word| parse_integer(word).and_then(|number| number.try_into().ok()).ok_or(NOT_POSITIVE);
    word.map(parse).transpose()
}

/// The part of `length` items that `start` and `stop` mean, counted from the end where negative.
fn slice(start: i64, stop: i64, length: usize) -> std::ops::Range<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let from_end = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
    let start = from_end(start).max(0);
    let stop = from_end(stop).min(length - 1);
    if start > stop { 0..0 } else { start as usize..stop as usize + 1 }
}

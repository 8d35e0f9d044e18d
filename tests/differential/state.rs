//! All keys of either side: name, type, value, life.

use lockwright::internals::backend::Value;
use lockwright::internals::embedded::{Engine, Instruments};

use super::as_reply;
use super::known::{Facts, align};
use crate::support::resp::Reply;

#[derive(Debug)]
pub struct Key {
    pub name: Vec<u8>,
    pub kind: String,
    /// In milliseconds; -1 for ever.
    pub life: i64,
    pub value: Reply,
}

/// Reads everything in one command.
pub const COMMAND: [&str; 3] = ["EVAL", READ_ALL, "0"];

const READ_ALL: &str = "
local names, all = redis.call('KEYS', '*'), {}
table.sort(names)
local read = {
  string = function(name) return redis.call('GET', name) end,
  hash = function(name) return redis.call('HGETALL', name) end,
  list = function(name) return redis.call('LRANGE', name, 0, -1) end,
  set = function(name) return redis.call('SMEMBERS', name) end,
  zset = function(name) return redis.call('ZRANGE', name, 0, -1, 'WITHSCORES') end,
}
for _, name in ipairs(names) do
  local kind = redis.call('TYPE', name).ok
  if read[kind] then all[#all + 1] = {name, kind, string.format('%.0f', redis.call('PTTL', name)), read[kind](name)} end
end
return all";

pub fn of_server(reply: &Reply) -> Vec<Key> {
    let keys = reply.items().iter().map(|key| match key.items() {
        [Reply::Bulk(name), kind, life, value] => Key {
            name: name.clone(),
            kind: kind.text(),
            life: life.text().parse::<f64>().expect("a life") as i64,
            value: in_order(&kind.text(), value.clone()),
        },
        other => panic!("not a key: {other:?}"),
    });
    keys.collect()
}

pub fn of_engine(engine: &Engine) -> Vec<Key> {
    engine.keys().into_iter().map(|name| read(engine, name)).collect()
}

fn read(engine: &Engine, name: Vec<u8>) -> Key {
    let call = |command: &[&str]| {
        let mut words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        words.insert(1, &name);
        engine.command(&words)
    };
    let Ok(Value::Status(kind)) = call(&["TYPE"]) else { panic!("no type") };
    let Ok(Value::Int(life)) = call(&["PTTL"]) else { panic!("no life") };
    let value = as_reply(match kind.as_str() {
        "string" => call(&["GET"]),
        "hash" => call(&["HGETALL"]),
        "list" => call(&["LRANGE", "0", "-1"]),
        "set" => call(&["SMEMBERS"]),
        _ => call(&["ZRANGE", "0", "-1", "WITHSCORES"]),
    });
    let value = in_order(&kind, value);
    Key { name, kind, life, value }
}

fn in_order(kind: &str, value: Reply) -> Reply {
    match (kind, value) {
        ("hash", Reply::Array(items)) => Reply::Array(sort(items, 2)),
        ("set", Reply::Array(items)) => Reply::Array(sort(items, 1)),
        (_, value) => value,
    }
}

/// Sorts a list of groups of `width` items.
pub fn sort(items: Vec<Reply>, width: usize) -> Vec<Reply> {
    let mut groups: Vec<_> = items.chunks(width).map(<[Reply]>::to_vec).collect();
    groups.sort_by(|one, other| match (&one[0], &other[0]) {
        (Reply::Bulk(one), Reply::Bulk(other)) => one.cmp(other),
        other => panic!("not names: {other:?}"),
    });
    groups.concat()
}

/// Whether the keys are equal, and their lives nearly so.
pub fn alike(facts: &Facts, engine: &[Key], server: &[Key], apart: i64) -> bool {
    let same_life = |ours: i64, theirs: i64| match (ours, theirs) {
        (-1, -1) => true,
        // A script reads lives as doubles.
        (0.., 0..) => (ours - theirs).abs() <= apart || ours > 1 << 52,
        _ => false,
    };
    engine.len() == server.len()
        && engine.iter().zip(server).all(|(ours, theirs)| {
            let (value, their_value) = align(facts, ours.value.clone(), theirs.value.clone());
            let same_key = ours.name == theirs.name && ours.kind == theirs.kind;
            same_key && same_life(ours.life, theirs.life) && value == their_value
        })
}

//! Keys of any type, and their expiry.

use super::super::keyspace::{Entry, Problem};
use super::super::words::Words;
use super::{Reply, Server, count, flag, integer, quote};
use crate::backend::Value;

pub fn del(server: &mut Server, words: &Words) -> Reply {
    count(words.from(1).filter(|key| server.keys.remove(key)).count())
}

pub fn rename(server: &mut Server, words: &Words) -> Reply {
    let Entry { data, expires } = server.keys.get(&words[1]).cloned().ok_or("ERR no such key")?;
    server.keys.remove(&words[1]);
    server.keys.put(&words[2], data, expires);
    Ok(Value::Status("OK".to_owned()))
}

pub fn exists(server: &mut Server, words: &Words) -> Reply {
    count(words.from(1).filter(|key| server.keys.get(key).is_some()).count())
}

pub fn type_(server: &mut Server, words: &Words) -> Reply {
    let name = server.keys.get(&words[1]).map_or("none", |entry| entry.data.type_name());
    Ok(Value::Status(name.to_owned()))
}

pub fn persist(server: &mut Server, words: &Words) -> Reply {
    flag(server.keys.get_mut(&words[1]).is_some_and(|entry| entry.expires.take().is_some()))
}

pub fn pttl(server: &mut Server, words: &Words) -> Reply {
    Ok(Value::Int(match server.keys.get(&words[1]) {
        None => -2,
        Some(Entry { expires: None, .. }) => -1,
        Some(Entry { expires: Some(end), .. }) => (end - server.millis()).max(0),
    }))
}

pub fn ttl(server: &mut Server, words: &Words) -> Reply {
    match pttl(server, words)? {
        Value::Int(millis) if millis >= 0 => Ok(Value::Int(millis.saturating_add(500) / 1000)),
        none => Ok(none),
    }
}

pub fn expire(server: &mut Server, words: &Words) -> Reply {
    let start = server.millis();
    set_life(server, words, "expire", 1000, start)
}

pub fn pexpire(server: &mut Server, words: &Words) -> Reply {
    let start = server.millis();
    set_life(server, words, "pexpire", 1, start)
}

pub fn pexpireat(server: &mut Server, words: &Words) -> Reply {
    set_life(server, words, "pexpireat", 1, 0)
}

/// Under which condition a new expiry replaces the old one.
#[derive(Default)]
struct Condition {
    none: bool,
    some: bool,
    greater: bool,
    less: bool,
}

impl Condition {
    fn parse(words: &Words) -> Result<Self, Problem> {
        let mut condition = Self::default();
        for (index, word) in words.from(3).enumerate() {
            let index = index + 3;
            match () {
                () if words.is(index, "nx") => condition.none = true,
                () if words.is(index, "xx") => condition.some = true,
                () if words.is(index, "gt") => condition.greater = true,
                () if words.is(index, "lt") => condition.less = true,
                () => return Err(format!("ERR Unsupported option {}", quote(word, usize::MAX)).into()),
            }
        }
        if condition.none && (condition.some || condition.greater || condition.less) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
        }
        if condition.greater && condition.less {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(condition)
    }

    fn admits(&self, old: Option<i64>, new: i64) -> bool {
        let barred = match old {
            Some(old) => self.none || self.greater && new <= old || self.less && new >= old,
            None => self.some || self.greater,
        };
        !barred
    }
}

fn set_life(server: &mut Server, words: &Words, name: &str, unit: i64, start: i64) -> Reply {
    let condition = Condition::parse(words)?;
    let end = integer(&words[2])?
        .checked_mul(unit)
        .and_then(|life| life.checked_add(start))
        .ok_or_else(|| format!("ERR invalid expire time in '{name}' command"))?;
    let now = server.millis();
    let Some(entry) = server.keys.get_mut(&words[1]) else { return flag(false) };
    if !condition.admits(entry.expires, end) {
        return flag(false);
    }
    entry.expires = Some(end);
    if end <= now {
        server.keys.remove(&words[1]);
    }
    flag(true)
}

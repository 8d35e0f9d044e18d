//! Strings and counters.

use super::super::keyspace::{Data, Problem};
use super::super::words::Words;
use super::{NOT_AN_INTEGER, OVERFLOW, Reply, SYNTAX, Server, bulk_or_nil, integer, ok};
use crate::backend::Value;

pub fn get(server: &mut Server, words: &Words) -> Reply {
    bulk_or_nil(server.keys.read::<Vec<u8>>(&words[1])?.map(Vec::as_slice))
}

/// The options of `SET`.
#[derive(Default)]
struct Options<'a> {
    must_be_missing: bool,
    must_be_there: bool,
    get: bool,
    keep_life: bool,
    life: Option<(Unit, &'a [u8])>,
}

#[derive(Clone, Copy, PartialEq)]
struct Unit {
    millis: i64,
    absolute: bool,
}

impl<'a> Options<'a> {
    fn parse(words: &'a Words) -> Result<Self, Problem> {
        let mut options = Self::default();
        let mut index = 3;
        while index < words.len() {
            if words.is(index, "nx") && !options.must_be_there {
                options.must_be_missing = true;
            } else if words.is(index, "xx") && !options.must_be_missing {
                options.must_be_there = true;
            } else if words.is(index, "get") {
                options.get = true;
            } else if words.is(index, "keepttl") && options.life.is_none() {
                options.keep_life = true;
            } else {
                options.life = Some(options.parse_life(words, index)?);
                index += 1;
            }
            index += 1;
        }
        Ok(options)
    }

    fn parse_life(&self, words: &'a Words, index: usize) -> Result<(Unit, &'a [u8]), Problem> {
        let unit = [("ex", 1000, false), ("px", 1, false), ("exat", 1000, true), ("pxat", 1, true)]
            .into_iter()
            .find(|(name, ..)| words.is(index, name))
            .map(|(_, millis, absolute)| Unit { millis, absolute })
            .ok_or(SYNTAX)?;
        let other = self.life.is_some_and(|(earlier, _)| earlier != unit);
        if self.keep_life || other {
            return Err(SYNTAX);
        }
        Ok((unit, words.get(index + 1).ok_or(SYNTAX)?))
    }

    /// When the value expires.
    fn expires(&self, server: &Server) -> Result<Option<i64>, Problem> {
        let Some((unit, word)) = self.life else { return Ok(None) };
        let life = integer(word)?;
        let start = if unit.absolute { 0 } else { server.millis() };
        let invalid = "ERR invalid expire time in 'set' command";
        let end =
            life.checked_mul(unit.millis).filter(|life| *life > 0).and_then(|life| life.checked_add(start));
        end.map(Some).ok_or(invalid.into())
    }
}

pub fn set(server: &mut Server, words: &Words) -> Reply {
    let options = Options::parse(words)?;
    let mut expires = options.expires(server)?;
    let key = &words[1];
    let old = if options.get {
        bulk_or_nil(server.keys.read::<Vec<u8>>(key)?.map(Vec::as_slice))?
    } else {
        Value::Nil
    };
    let there = server.keys.get(key);
    if there.is_some() && options.must_be_missing || there.is_none() && options.must_be_there {
        return Ok(old);
    }
    if options.keep_life {
        expires = there.and_then(|entry| entry.expires);
    }
    server.keys.put(key, Data::Text(words[2].to_vec()), expires);
    if options.get { Ok(old) } else { ok() }
}

pub fn incr(server: &mut Server, words: &Words) -> Reply {
    add(server, &words[1], 1)
}

pub fn decr(server: &mut Server, words: &Words) -> Reply {
    add(server, &words[1], -1)
}

pub fn incrby(server: &mut Server, words: &Words) -> Reply {
    let by = integer(&words[2])?;
    add(server, &words[1], by)
}

fn add(server: &mut Server, key: &[u8], by: i64) -> Reply {
    let old = match server.keys.read::<Vec<u8>>(key)? {
        Some(text) => super::parse_integer(text).ok_or(NOT_AN_INTEGER)?,
        None => 0,
    };
    let sum = old.checked_add(by).ok_or(OVERFLOW)?;
    *server.keys.make::<Vec<u8>>(key)? = sum.to_string().into_bytes();
    Ok(Value::Int(sum))
}

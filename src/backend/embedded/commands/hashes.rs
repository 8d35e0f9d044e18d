//! Hashes.

use super::super::keyspace::Hash;
use super::super::words::Words;
use super::{OVERFLOW, Reply, Server, bulk_or_nil, bulks, count, flag, integer, parse_integer, wrong_number};
use crate::backend::Value;

pub fn hset(server: &mut Server, words: &Words) -> Reply {
    if words.len() % 2 == 1 {
        return Err(wrong_number("hset"));
    }
    let hash = server.keys.make::<Hash>(&words[1])?;
    count(words.pairs_from(2).filter(|(field, value)| put(hash, field, value)).count())
}

/// Whether the field is new.
fn put(hash: &mut Hash, field: &[u8], value: &[u8]) -> bool {
    match hash.get_mut(field) {
        Some(old) => {
            old.clear();
            old.extend_from_slice(value);
            false
        }
        None => hash.insert(field.to_vec(), value.to_vec()).is_none(),
    }
}

pub fn hget(server: &mut Server, words: &Words) -> Reply {
    let hash = server.keys.read::<Hash>(&words[1])?;
    bulk_or_nil(hash.and_then(|hash| hash.get(&words[2])).map(Vec::as_slice))
}

pub fn hmget(server: &mut Server, words: &Words) -> Reply {
    let hash = server.keys.read::<Hash>(&words[1])?;
    let value = |field| bulk_or_nil(hash.and_then(|hash| hash.get(field)).map(Vec::as_slice));
    words.from(2).map(value).collect::<Result<_, _>>().map(Value::Array)
}

pub fn hdel(server: &mut Server, words: &Words) -> Reply {
    let delete = |hash: &mut Hash| words.from(2).filter(|field| hash.remove(*field).is_some()).count();
    count(server.keys.change(&words[1], delete)?.unwrap_or(0))
}

pub fn hexists(server: &mut Server, words: &Words) -> Reply {
    flag(server.keys.read::<Hash>(&words[1])?.is_some_and(|hash| hash.contains_key(&words[2])))
}

pub fn hlen(server: &mut Server, words: &Words) -> Reply {
    count(server.keys.read::<Hash>(&words[1])?.map_or(0, Hash::len))
}

pub fn hkeys(server: &mut Server, words: &Words) -> Reply {
    let hash = server.keys.read::<Hash>(&words[1])?;
    bulks(hash.into_iter().flatten().map(|(field, _)| field.as_slice()))
}

/// In the order of the fields' bytes: nothing may depend on the order that a real server shows.
pub fn hgetall(server: &mut Server, words: &Words) -> Reply {
    let hash = server.keys.read::<Hash>(&words[1])?;
    bulks(hash.into_iter().flatten().flat_map(|(field, value)| [field.as_slice(), value.as_slice()]))
}

pub fn hincrby(server: &mut Server, words: &Words) -> Reply {
    let by = integer(&words[3])?;
    let old = match server.keys.read::<Hash>(&words[1])?.and_then(|hash| hash.get(&words[2])) {
        Some(text) => parse_integer(text).ok_or("ERR hash value is not an integer")?,
        None => 0,
    };
    let sum = old.checked_add(by).ok_or(OVERFLOW)?;
    put(server.keys.make(&words[1])?, &words[2], sum.to_string().as_bytes());
    Ok(Value::Int(sum))
}

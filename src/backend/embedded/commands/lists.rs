//! Lists.

use super::super::keyspace::List;
use super::super::words::Words;
use super::{Reply, Server, bulk_or_nil, bulks, count, how_many, integer, ok, slice, wrong_number};
use crate::backend::Value;

pub fn rpush(server: &mut Server, words: &Words) -> Reply {
    let list = server.keys.make::<List>(&words[1])?;
    list.extend(words.from(2).map(<[u8]>::to_vec));
    count(list.len())
}

pub fn lpush(server: &mut Server, words: &Words) -> Reply {
    let list = server.keys.make::<List>(&words[1])?;
    words.from(2).for_each(|item| list.push_front(item.to_vec()));
    count(list.len())
}

pub fn lpop(server: &mut Server, words: &Words) -> Reply {
    pop(server, words, "lpop", List::pop_front)
}

pub fn rpop(server: &mut Server, words: &Words) -> Reply {
    pop(server, words, "rpop", List::pop_back)
}

fn pop(server: &mut Server, words: &Words, name: &str, end: fn(&mut List) -> Option<Vec<u8>>) -> Reply {
    if words.len() > 3 {
        return Err(wrong_number(name));
    }
    let number = how_many(words.get(2))?;
    let take = |list: &mut List| match number {
        None => end(list).map_or(Value::Nil, Value::Bulk),
        Some(number) => {
            let items = std::iter::from_fn(|| end(list)).take(number);
            Value::Array(items.map(Value::Bulk).collect())
        }
    };
    Ok(server.keys.change(&words[1], take)?.unwrap_or(Value::Nil))
}

pub fn llen(server: &mut Server, words: &Words) -> Reply {
    count(server.keys.read::<List>(&words[1])?.map_or(0, List::len))
}

pub fn lindex(server: &mut Server, words: &Words) -> Reply {
    let Some(list) = server.keys.read::<List>(&words[1])? else { return Ok(Value::Nil) };
    let index = integer(&words[2])?;
    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
    let place = if index < 0 { index.saturating_add(length) } else { index };
    bulk_or_nil(usize::try_from(place).ok().and_then(|place| list.get(place)).map(Vec::as_slice))
}

pub fn lrange(server: &mut Server, words: &Words) -> Reply {
    let (start, stop) = (integer(&words[2])?, integer(&words[3])?);
    let list = server.keys.read::<List>(&words[1])?;
    bulks(list.into_iter().flat_map(|list| list.range(slice(start, stop, list.len()))).map(Vec::as_slice))
}

pub fn ltrim(server: &mut Server, words: &Words) -> Reply {
    let (start, stop) = (integer(&words[2])?, integer(&words[3])?);
    let trim = |list: &mut List| {
        let kept = slice(start, stop, list.len());
        list.truncate(kept.end);
        list.drain(..kept.start);
    };
    server.keys.change(&words[1], trim)?;
    ok()
}

/// Removes items equal to one, from the head, from the tail, or all.
pub fn lrem(server: &mut Server, words: &Words) -> Reply {
    let number = integer(&words[2])?;
    let limit =
        if number == 0 { usize::MAX } else { usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX) };
    let remove = |list: &mut List| {
        let equal = |index: &usize| list[*index] == words[3];
        let places: Vec<_> = if number < 0 {
            (0..list.len()).rev().filter(equal).take(limit).collect()
        } else {
            let mut places: Vec<_> = (0..list.len()).filter(equal).take(limit).collect();
            places.reverse();
            places
        };
        // From the tail on, so that the places before stay what they are.
        places.iter().for_each(|place| drop(list.remove(*place)));
        places.len()
    };
    count(server.keys.change(&words[1], remove)?.unwrap_or(0))
}

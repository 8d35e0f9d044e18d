//! Time, messages, and the keyspace as a whole.

use super::super::pubsub::Channels;
use super::super::words::Words;
use super::{Reply, SYNTAX, Server, bulk, count, integer, ok, parse_integer};
use crate::backend::Value;

pub fn time(server: &mut Server, _words: &Words) -> Reply {
    let micros = server.micros();
    let part = |number: u64| Value::Bulk(number.to_string().into_bytes());
    Ok(Value::Array(vec![part(micros / 1_000_000), part(micros % 1_000_000)]))
}

pub fn publish(server: &mut Server, words: &Words) -> Reply {
    count(server.hub.publish(Channels::Plain, &words[1], &words[2]))
}

pub fn spublish(server: &mut Server, words: &Words) -> Reply {
    count(server.hub.publish(Channels::Sharded, &words[1], &words[2]))
}

pub fn flushall(server: &mut Server, words: &Words) -> Reply {
    if words.len() > 2 || words.len() == 2 && !words.is(1, "sync") && !words.is(1, "async") {
        return Err(SYNTAX);
    }
    server.keys.clear();
    ok()
}

pub fn dbsize(server: &mut Server, _words: &Words) -> Reply {
    count(server.keys.names().count())
}

pub fn ping(_server: &mut Server, words: &Words) -> Reply {
    Ok(words.get(1).map_or_else(|| Value::Status("PONG".to_owned()), bulk))
}

pub fn echo(_server: &mut Server, words: &Words) -> Reply {
    Ok(bulk(&words[1]))
}

/// A server without replicas.
pub fn wait(_server: &mut Server, words: &Words) -> Reply {
    integer(&words[1])?;
    match parse_integer(&words[2]) {
        None => Err("ERR timeout is not an integer or out of range".into()),
        Some(..0) => Err("ERR timeout is negative".into()),
        Some(_) => Ok(Value::Int(0)),
    }
}

pub fn only_on_connections(_server: &mut Server, words: &Words) -> Reply {
    Err(format!("ERR {} needs a connection", String::from_utf8_lossy(&words[0])).into())
}

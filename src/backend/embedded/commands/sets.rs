//! Sets.

use super::super::keyspace::Set;
use super::super::words::Words;
use super::{Reply, Server, bulks, count, flag};

pub fn sadd(server: &mut Server, words: &Words) -> Reply {
    let set = server.keys.make::<Set>(&words[1])?;
    count(words.from(2).filter(|member| set.insert(member.to_vec())).count())
}

pub fn srem(server: &mut Server, words: &Words) -> Reply {
    let remove = |set: &mut Set| words.from(2).filter(|member| set.remove(*member)).count();
    count(server.keys.change(&words[1], remove)?.unwrap_or(0))
}

pub fn scard(server: &mut Server, words: &Words) -> Reply {
    count(server.keys.read::<Set>(&words[1])?.map_or(0, Set::len))
}

pub fn sismember(server: &mut Server, words: &Words) -> Reply {
    flag(server.keys.read::<Set>(&words[1])?.is_some_and(|set| set.contains(&words[2])))
}

pub fn smembers(server: &mut Server, words: &Words) -> Reply {
    bulks(server.keys.read::<Set>(&words[1])?.into_iter().flatten().map(Vec::as_slice))
}

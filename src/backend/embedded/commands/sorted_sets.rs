//! Sorted sets.

use super::super::keyspace::Problem;
use super::super::number::{Bound, parse_score};
use super::super::sorted::Sorted;
use super::super::words::Words;
use super::{Reply, SYNTAX, Server, bulk, count, how_many, integer, score, slice};
use crate::backend::Value;

/// What `ZADD` and `ZINCRBY` may do.
#[derive(Default)]
struct Rule {
    only_new: bool,
    only_old: bool,
    only_up: bool,
    only_down: bool,
    count_changes: bool,
    add: bool,
}

impl Rule {
    /// The rule, and where the first score stands.
    fn parse(words: &Words) -> (Self, usize) {
        let mut rule = Self::default();
        for index in 2..words.len() {
            match () {
                () if words.is(index, "nx") => rule.only_new = true,
                () if words.is(index, "xx") => rule.only_old = true,
                () if words.is(index, "gt") => rule.only_up = true,
                () if words.is(index, "lt") => rule.only_down = true,
                () if words.is(index, "ch") => rule.count_changes = true,
                () if words.is(index, "incr") => rule.add = true,
                () => return (rule, index),
            }
        }
        (rule, words.len())
    }

    fn check(&self, scores: usize) -> Result<(), Problem> {
        if scores == 0 || scores % 2 == 1 {
            return Err(SYNTAX);
        }
        if self.only_new && self.only_old {
            return Err("ERR XX and NX options at the same time are not compatible".into());
        }
        if self.only_up && (self.only_new || self.only_down) || self.only_down && self.only_new {
            return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
        }
        if self.add && scores > 2 {
            return Err("ERR INCR option supports a single increment-element pair".into());
        }
        Ok(())
    }

    /// The score that a member gets, `None` where it must not be touched.
    fn new_score(&self, old: Option<f64>, given: f64) -> Result<Option<f64>, Problem> {
        let Some(old) = old else { return Ok((!self.only_old).then_some(given)) };
        if self.only_new {
            return Ok(None);
        }
        let new = if self.add { old + given } else { given };
        if new.is_nan() {
            return Err("ERR resulting score is not a number (NaN)".into());
        }
        let barred = self.only_up && new <= old || self.only_down && new >= old;
        Ok((!barred).then_some(new))
    }
}

pub fn zadd(server: &mut Server, words: &Words) -> Reply {
    let (rule, first) = Rule::parse(words);
    rule.check(words.len() - first)?;
    add(server, words, &rule, first)
}

pub fn zincrby(server: &mut Server, words: &Words) -> Reply {
    add(server, words, &Rule { add: true, ..Rule::default() }, 2)
}

fn add(server: &mut Server, words: &Words, rule: &Rule, first: usize) -> Reply {
    let pairs = words.pairs_from(first).map(|(score, member)| (parse_score(score), member));
    let pairs: Vec<_> = pairs.map(|(score, member)| score.map(|score| (score, member))).collect();
    let pairs: Vec<_> = pairs.into_iter().collect::<Option<_>>().ok_or("ERR value is not a valid float")?;
    let there = server.keys.read::<Sorted>(&words[1])?.is_some();
    if !there && rule.only_old {
        return Ok(if rule.add { Value::Nil } else { Value::Int(0) });
    }
    let sorted = server.keys.make::<Sorted>(&words[1])?;
    let (mut added, mut changed, mut result) = (0, 0, Value::Nil);
    for (given, member) in pairs {
        let old = sorted.score(member);
        let Some(new) = rule.new_score(old, given)? else { continue };
        sorted.set(member, new);
        added += usize::from(old.is_none());
        changed += usize::from(old != Some(new));
        result = score(new);
    }
    match rule {
        Rule { add: true, .. } => Ok(result),
        Rule { count_changes: true, .. } => count(changed),
        _ => count(added),
    }
}

pub fn zrem(server: &mut Server, words: &Words) -> Reply {
    let remove = |sorted: &mut Sorted| words.from(2).filter(|member| sorted.remove(member)).count();
    count(server.keys.change(&words[1], remove)?.unwrap_or(0))
}

pub fn zcard(server: &mut Server, words: &Words) -> Reply {
    count(server.keys.read::<Sorted>(&words[1])?.map_or(0, Sorted::len))
}

pub fn zscore(server: &mut Server, words: &Words) -> Reply {
    let sorted = server.keys.read::<Sorted>(&words[1])?;
    Ok(sorted.and_then(|sorted| sorted.score(&words[2])).map_or(Value::Nil, score))
}

pub fn zrank(server: &mut Server, words: &Words) -> Reply {
    let sorted = server.keys.read::<Sorted>(&words[1])?;
    sorted.and_then(|sorted| sorted.rank(&words[2])).map_or(Ok(Value::Nil), count)
}

pub fn zcount(server: &mut Server, words: &Words) -> Reply {
    let (low, high) = bounds(&words[2], &words[3])?;
    count(server.keys.read::<Sorted>(&words[1])?.map_or(0, |sorted| sorted.between(low, high).count()))
}

pub fn zremrangebyscore(server: &mut Server, words: &Words) -> Reply {
    let (low, high) = bounds(&words[2], &words[3])?;
    let remove = |sorted: &mut Sorted| {
        let members: Vec<_> = sorted.between(low, high).map(|(member, _)| member.to_vec()).collect();
        members.iter().filter(|member| sorted.remove(member)).count()
    };
    count(server.keys.change(&words[1], remove)?.unwrap_or(0))
}

pub fn zpopmin(server: &mut Server, words: &Words) -> Reply {
    if words.len() > 3 {
        return Err(SYNTAX);
    }
    let number = how_many(words.get(2))?.unwrap_or(1);
    let pop = |sorted: &mut Sorted| {
        let lowest: Vec<_> =
            sorted.iter().take(number).map(|(member, score)| (member.to_vec(), score)).collect();
        for (member, _) in &lowest {
            sorted.remove(member);
        }
        list(lowest.iter().map(|(member, score)| (member.as_slice(), *score)), true)
    };
    Ok(server.keys.change(&words[1], pop)?.unwrap_or_else(|| Value::Array(Vec::new())))
}

fn bounds(low: &[u8], high: &[u8]) -> Result<(Bound, Bound), Problem> {
    let both = Bound::parse(low).zip(Bound::parse(high));
    both.ok_or("ERR min or max is not a float".into())
}

fn list<'a>(items: impl Iterator<Item = (&'a [u8], f64)>, with_scores: bool) -> Value {
    let words = items.flat_map(|(member, value)| [Some(bulk(member)), with_scores.then(|| score(value))]);
    Value::Array(words.flatten().collect())
}

/// The options of a range.
#[derive(Default)]
struct Range {
    by_score: bool,
    reversed: bool,
    with_scores: bool,
    limit: Option<(i64, i64)>,
}

impl Range {
    fn parse(words: &Words, mut range: Self, is_zrange: bool) -> Result<Self, Problem> {
        let mut index = 4;
        while index < words.len() {
            if words.is(index, "withscores") {
                range.with_scores = true;
            } else if words.is(index, "limit") && index + 2 < words.len() {
                range.limit = Some((integer(&words[index + 1])?, integer(&words[index + 2])?));
                index += 2;
            } else if is_zrange && !range.reversed && words.is(index, "rev") {
                range.reversed = true;
            } else if is_zrange && !range.by_score && words.is(index, "byscore") {
                range.by_score = true;
            } else {
                return Err(SYNTAX);
            }
            index += 1;
        }
        if range.limit.is_some() && !range.by_score {
            let only = "LIMIT is only supported in combination with either BYSCORE or BYLEX";
            return Err(format!("ERR syntax error, {only}").into());
        }
        Ok(range)
    }
}

pub fn zrange(server: &mut Server, words: &Words) -> Reply {
    let range = Range::parse(words, Range::default(), true)?;
    if range.by_score {
        return by_score(server, words, &range);
    }
    let (start, stop) = (integer(&words[2])?, integer(&words[3])?);
    let Some(sorted) = server.keys.read::<Sorted>(&words[1])? else { return Ok(Value::Array(Vec::new())) };
    let part = slice(start, stop, sorted.len());
    let (skip, take) = (part.start, part.len());
    Ok(if range.reversed {
        list(sorted.iter().rev().skip(skip).take(take), range.with_scores)
    } else {
        list(sorted.iter().skip(skip).take(take), range.with_scores)
    })
}

pub fn zrangebyscore(server: &mut Server, words: &Words) -> Reply {
    let range = Range::parse(words, Range { by_score: true, ..Range::default() }, false)?;
    by_score(server, words, &range)
}

fn by_score(server: &mut Server, words: &Words, range: &Range) -> Reply {
    let (low, high) = if range.reversed { (&words[3], &words[2]) } else { (&words[2], &words[3]) };
    let (low, high) = bounds(low, high)?;
    let Some(sorted) = server.keys.read::<Sorted>(&words[1])? else { return Ok(Value::Array(Vec::new())) };
    let (skip, take) = range.limit.unwrap_or((0, -1));
    // A negative start shows nothing; a negative count, everything.
    let Ok(skip) = usize::try_from(skip) else { return Ok(Value::Array(Vec::new())) };
    let take = usize::try_from(take).unwrap_or(usize::MAX);
    let items = sorted.between(low, high);
    Ok(if range.reversed {
        list(items.rev().skip(skip).take(take), range.with_scores)
    } else {
        list(items.skip(skip).take(take), range.with_scores)
    })
}

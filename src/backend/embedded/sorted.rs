//! A sorted set: members by score, equal scores by their bytes.

use std::collections::{BTreeMap, BTreeSet};

use super::number::Bound;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sorted {
    scores: BTreeMap<Vec<u8>, f64>,
    order: BTreeSet<(Score, Vec<u8>)>,
}

/// A score that sorts. Never NaN: no command lets one in.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Score(f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Unlike `total_cmp`, with zero and minus zero equal.
        self.0.partial_cmp(&other.0).unwrap_or(std::cmp::Ordering::Equal)
    }
}

impl Sorted {
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Sets a member's score. An equal score stays as it was written first, minus zero for instance.
    pub fn set(&mut self, member: &[u8], score: f64) {
        match self.scores.get_mut(member) {
            Some(old) if *old == score => {}
            Some(old) => {
                self.order.remove(&(Score(*old), member.to_vec()));
                *old = score;
                self.order.insert((Score(score), member.to_vec()));
            }
            None => {
                self.scores.insert(member.to_vec(), score);
                self.order.insert((Score(score), member.to_vec()));
            }
        }
    }

    pub fn remove(&mut self, member: &[u8]) -> bool {
        match self.scores.remove(member) {
            Some(score) => self.order.remove(&(Score(score), member.to_vec())),
            None => false,
        }
    }

    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        let key = (Score(self.score(member)?), member.to_vec());
        Some(self.order.range(..key).count())
    }

    /// All members with their scores, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        self.order.iter().map(|(score, member)| (member.as_slice(), score.0))
    }

    /// The members whose scores lie between two bounds.
    pub fn between(&self, low: Bound, high: Bound) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        self.order
            .range((Score(low.value), Vec::new())..)
            .take_while(move |(score, _)| high.admits_from_above(score.0))
            .filter(move |(score, _)| low.admits_from_below(score.0))
            .map(|(score, member)| (member.as_slice(), score.0))
            .collect::<Vec<_>>()
            .into_iter()
    }
}

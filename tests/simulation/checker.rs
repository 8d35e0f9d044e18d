//! Judges a history by what was seen from outside, in O(n log n): the grants of a lock sorted by token are the order
//! that everything else must agree with.

use std::collections::BTreeMap;

use crate::audit::Grant;
use crate::dice::{MILLI, Nanos, SECOND};
use crate::faults::{Fault, Incident};
use crate::history::{History, Hold, Violation, Wait};
use crate::mix::Named;
use lockwright::Kind;

/// All holds by one token: one, or those of an owner that re-entered.
#[derive(Clone, Debug)]
pub struct Turn {
    pub token: u64,
    /// When it was asked for last, and granted first.
    pub asked: Nanos,
    pub granted: Nanos,
    /// When somebody re-entered it last.
    pub latest: Nanos,
    /// When the last of its holders stopped trusting it.
    pub end: Nanos,
}

/// A pair of turns that break a rule, the one with the smaller token first.
pub type Pair = (usize, usize);

/// The turns of one lock in the order of their tokens.
pub fn turns<'a>(holds: impl Iterator<Item = &'a Hold>) -> Vec<Turn> {
    let mut by_token: BTreeMap<u64, Turn> = BTreeMap::new();
    for hold in holds {
        let (granted, latest) = (hold.granted, hold.granted);
        let new = Turn { token: hold.token, asked: hold.asked, granted, latest, end: hold.end() };
        by_token
            .entry(hold.token)
            .and_modify(|turn| {
                // Who re-enters asks later than the one whose grant it shares.
                turn.asked = turn.asked.min(new.asked);
                turn.granted = turn.granted.min(new.granted);
                turn.latest = turn.latest.max(new.latest);
                turn.end = turn.end.max(new.end);
            })
            .or_insert(new);
    }
    by_token.into_values().collect()
}

/// Turns that overlap, or whose order in time is not that of their tokens.
pub fn overlaps(turns: &[Turn]) -> Vec<Pair> {
    let (mut pairs, mut longest) = (Vec::new(), 0);
    for at in 1..turns.len() {
        if turns[at - 1].end >= turns[longest].end {
            longest = at - 1;
        }
        if turns[longest].end > turns[at].granted {
            pairs.push((longest, at));
        }
    }
    pairs
}

/// Turns that were asked for when one with a larger token had been granted.
pub fn misordered(turns: &[Turn]) -> Vec<Pair> {
    let (mut pairs, mut first) = (Vec::new(), turns.len());
    for at in (0..turns.len()).rev() {
        if first < turns.len() && turns[first].granted < turns[at].asked {
            pairs.push((at, first));
        }
        if first == turns.len() || turns[at].granted < turns[first].granted {
            first = at;
        }
    }
    pairs
}

/// One wait at a fair lock.
#[derive(Clone, Copy, Debug)]
pub struct Stay {
    pub client: usize,
    pub asked: Nanos,
    /// When it was told its place in the queue.
    pub placed: Option<Nanos>,
    pub granted: Option<Nanos>,
    /// When it waited no longer.
    pub ended: Nanos,
}

/// Waits that asked when another one had been told its place, and were granted while that one still waited: the
/// other one first.
pub fn overtaken(stays: &[Stay]) -> Vec<Pair> {
    let mut placed: Vec<(Nanos, usize)> =
        stays.iter().enumerate().filter_map(|(at, stay)| Some((stay.placed?, at))).collect();
    let mut asked: Vec<usize> = (0..stays.len()).collect();
    placed.sort_unstable();
    asked.sort_unstable_by_key(|&at| stays[at].asked);
    let (mut pairs, mut placed, mut longest) = (Vec::new(), placed.into_iter().peekable(), None::<usize>);
    for at in asked {
        while let Some((_, other)) = placed.next_if(|&(when, _)| when < stays[at].asked) {
            if longest.is_none_or(|longest| stays[other].ended > stays[longest].ended) {
                longest = Some(other);
            }
        }
        if let (Some(other), Some(granted)) = (longest, stays[at].granted)
            && granted < stays[other].ended
        {
            pairs.push((other, at));
        }
    }
    pairs
}

/// Tokens that stand for two grants: only an owner that re-enters shares one.
pub fn shared<'a>(holds: impl Iterator<Item = &'a Hold>) -> Vec<u64> {
    let mut owners: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    let mut tokens = Vec::new();
    for hold in holds {
        match owners.get(&hold.token) {
            None => {
                owners.insert(hold.token, hold.owner);
            }
            Some(&owner) if owner.is_some() && owner == hold.owner => {}
            Some(_) => tokens.push(hold.token),
        }
    }
    tokens
}

/// The judge of one history.
pub struct Judge<'a> {
    pub history: &'a History,
    pub grants: &'a [Grant],
    pub locks: &'a [Named],
    pub found: Vec<Violation>,
}

impl Judge<'_> {
    pub fn judge(mut self) -> Vec<Violation> {
        for lock in 0..self.locks.len() {
            self.judge_lock(lock);
        }
        self.judge_writes();
        self.judge_losses();
        self.judge_deadlines();
        self.judge_setbacks();
        self.found
    }

    pub fn report(&mut self, rule: &'static str, what: String, excused: bool) {
        self.found.push(Violation { rule, what, excused });
    }

    pub fn holds(&self, lock: usize) -> impl Iterator<Item = &Hold> {
        self.history.holds.iter().filter(move |hold| hold.lock == lock)
    }

    fn judge_lock(&mut self, lock: usize) {
        if self.locks[lock].kind == Kind::ReadWrite {
            return self.judge_phases(lock);
        }
        for token in shared(self.holds(lock)) {
            let excused = self.clock_moved_before(Nanos::MAX);
            self.report("tokens", format!("lock {lock}: token {token} was granted twice"), excused);
        }
        let turns = turns(self.holds(lock));
        let grants = self.grants_of(lock);
        for (first, second) in misordered(&turns) {
            let (first, second) = (&turns[first], &turns[second]);
            let what = format!("lock {lock}: {first:?} was asked for after {second:?}");
            let excused = self.explains(&grants, first, second);
            self.report("order", what, excused);
        }
        for (first, second) in overlaps(&turns) {
            let (first, second) = (&turns[first], &turns[second]);
            let what = format!("lock {lock}: {first:?} overlaps {second:?}");
            let excused = self.explains(&grants, first, second);
            self.report("exclusion", what, excused);
        }
        self.judge_validity(lock, &grants);
        self.judge_reentry(lock);
        if self.locks[lock].kind == Kind::Fair {
            self.judge_queue(lock);
        }
    }

    /// Who has a place is served before all who come later, unless something happened to its client or to the server.
    /// An owner that holds the lock enters past the queue.
    fn judge_queue(&mut self, lock: usize) {
        let stay = |wait: &Wait| {
            let hold = wait.hold.map(|hold| &self.history.holds[hold]);
            let granted = hold.filter(|hold| hold.owner.is_none()).map(|hold| hold.granted);
            let (client, asked, placed) = (wait.client, wait.asked, wait.placed);
            Stay { client, asked, placed, granted, ended: wait.ended.unwrap_or(Nanos::MAX) }
        };
        let waits = self.history.waits.iter().filter(|wait| wait.lock == lock);
        let stays: Vec<Stay> = waits.map(stay).collect();
        for (first, second) in overtaken(&stays) {
            let (first, second) = (stays[first], stays[second]);
            let until = second.granted.unwrap_or(second.asked);
            if !self.is_disturbed(first.client, until) {
                let what = format!("lock {lock}: {second:?} was granted before {first:?}");
                self.report("queue order", what, false);
            }
        }
    }

    /// Whether anything at all has happened to this client, or to everybody, so far.
    fn is_disturbed(&self, client: usize, until: Nanos) -> bool {
        self.history.incidents.iter().any(|incident| {
            incident.client.is_none_or(|touched| touched == client) && incident.began <= until
        })
    }

    /// The server's grants of this lock by the first of their tokens.
    pub fn grants_of(&self, lock: usize) -> BTreeMap<u64, Grant> {
        let key = self.locks[lock].key();
        let mine = self.grants.iter().filter(|grant| grant.lock == key);
        let mut grants: BTreeMap<u64, Grant> = BTreeMap::new();
        for grant in mine {
            let known = grants.entry(grant.token).or_insert_with(|| grant.clone());
            known.ends = known.ends.max(grant.ends);
            known.at = known.at.min(grant.at);
        }
        grants
    }

    /// Whether a loss is the reason for what is wrong between two turns.
    pub fn explains(&self, grants: &BTreeMap<u64, Grant>, first: &Turn, second: &Turn) -> bool {
        let (from, until) = (granted_at(grants, first), first.latest.max(second.latest));
        let disjoint = first.end <= second.granted || second.end <= first.granted;
        if disjoint {
            return self.clock_moved_before(until) || self.is_excused(from, until);
        }
        self.is_excused(from.min(granted_at(grants, second)), until)
    }

    /// Tokens rise for as long as the server's clock does.
    pub fn clock_moved_before(&self, time: Nanos) -> bool {
        self.history.incidents.iter().any(|incident| moves_clock(incident.fault) && incident.began <= time)
    }

    /// Whether lost data, a clock step or force between the server's grant and `until` may be the reason.
    pub fn is_excused(&self, granted: Nanos, until: Nanos) -> bool {
        let losses = self.history.incidents.iter().filter(|incident| incident.fault.is_loss());
        losses.into_iter().any(|loss| {
            // What a clock step broke lives on in samples that were taken before it.
            let reach = if loss.fault == Fault::StepClock { 12 * SECOND } else { 0 };
            loss.began <= until && loss.began + reach >= granted
        })
    }

    /// A holder never trusts its hold for longer than the server promised.
    fn judge_validity(&mut self, lock: usize, grants: &BTreeMap<u64, Grant>) {
        let mut found = Vec::new();
        for hold in self.holds(lock) {
            let moved = self.clock_moved_before(hold.granted);
            let Some((_, grant)) = grants.range(..=hold.token).next_back() else {
                found.push((format!("token {} was never granted by the server", hold.token), moved));
                continue;
            };
            if hold.token >= grant.token + grant.block.max(1) {
                found.push((format!("token {} is beyond the block of {}", hold.token, grant.token), moved));
            } else if hold.trusted > grant.ends {
                let what = format!("{hold:?} is trusted beyond {}", grant.ends);
                found.push((what, self.is_excused(grant.at, hold.trusted)));
            }
        }
        for (what, excused) in found {
            self.report("validity", format!("lock {lock}: {what}"), excused);
        }
    }

    /// An owner that asks while it holds gets the token that it has.
    fn judge_reentry(&mut self, lock: usize) {
        let mut by_owner: BTreeMap<u64, Vec<&Hold>> = BTreeMap::new();
        for hold in self.holds(lock) {
            if let Some(owner) = hold.owner {
                by_owner.entry(owner).or_default().push(hold);
            }
        }
        let mut found = Vec::new();
        for holds in by_owner.values_mut() {
            holds.sort_by_key(|hold| hold.asked);
            let mut outer: Option<&Hold> = None;
            for hold in holds {
                if let Some(outer) = outer
                    && outer.granted < hold.asked
                    && outer.end() > hold.granted
                    && outer.token != hold.token
                {
                    found.push((format!("{hold:?} re-enters {outer:?}"), outer.granted, hold.granted));
                }
                if outer.is_none_or(|outer| outer.end() < hold.end()) {
                    outer = Some(hold);
                }
            }
        }
        for (what, from, until) in found {
            let excused = self.is_excused(from.saturating_sub(SECOND), until);
            self.report("re-entry", format!("lock {lock}: {what}"), excused);
        }
    }

    /// A resource that has seen no larger token takes a valid holder's write.
    fn judge_writes(&mut self) {
        for write in self.history.writes.iter().filter(|write| write.trusted && !write.accepted) {
            let hold = &self.history.holds[write.hold];
            let grants = self.grants_of(hold.lock);
            let turn = turns(std::iter::once(hold)).remove(0);
            let clock = |incident: &Incident| matches!(incident.fault, Fault::Failover | Fault::StepClock);
            let moved =
                self.history.incidents.iter().any(|incident| clock(incident) && incident.began <= write.at);
            let excused = moved || self.is_excused(granted_at(&grants, &turn), write.at);
            self.report("writes", format!("a trusted holder was refused: {hold:?}"), excused);
        }
    }

    /// A guard with a renewed lease is lost only where something has happened to its client or to the server.
    fn judge_losses(&mut self) {
        let mut found = Vec::new();
        for hold in self.history.holds.iter().filter(|hold| hold.endless) {
            if let Some((at, reason)) = hold.lost
                && !self.is_touched(hold.client, hold.granted.saturating_sub(SECOND), at)
            {
                found.push(format!("{hold:?}: {reason:?}"));
            }
        }
        for &(at, client) in &self.history.unavailable {
            if !self.is_touched(client, at.saturating_sub(20 * SECOND), at) {
                found.push(format!("client {client} was told at {at} that no server answers"));
            }
        }
        found.into_iter().for_each(|what| self.report("losses", what, false));
    }

    /// An attempt with a limit ends in time, whatever becomes of the server.
    fn judge_deadlines(&mut self) {
        let mut found = Vec::new();
        for wait in &self.history.waits {
            let ended = wait.ended.unwrap_or(Nanos::MAX);
            let late = ended > wait.deadline.saturating_add(100 * MILLI);
            if late && !self.was_stopped(wait.client, wait.asked, ended) {
                found.push(format!("{wait:?} ended too late"));
            }
        }
        found.into_iter().for_each(|what| self.report("deadlines", what, false));
    }

    /// A place moves forward, save where it was lost, which happens to nobody undisturbed.
    fn judge_setbacks(&mut self) {
        let setbacks = self.history.setbacks.iter();
        let undisturbed = setbacks.filter(|(at, client, _)| !self.is_disturbed(*client, *at));
        let found: Vec<String> = undisturbed.map(|(_, _, what)| what.clone()).collect();
        found.into_iter().for_each(|what| self.report("places", what, false));
    }

    fn was_stopped(&self, client: usize, from: Nanos, until: Nanos) -> bool {
        self.history.incidents.iter().any(|incident| {
            let stopped = matches!(incident.fault, Fault::Stop | Fault::Die | Fault::Quit)
                && incident.client == Some(client);
            stopped && incident.began <= until && incident.ended >= from
        })
    }

    fn is_touched(&self, client: usize, from: Nanos, until: Nanos) -> bool {
        let slack = 10 * MILLI;
        let reaches = |incident: &&Incident| {
            let mine = incident.client.is_none_or(|touched| touched == client);
            mine && incident.began <= until && incident.ended.saturating_add(slack) >= from
        };
        self.history.incidents.iter().any(|incident| {
            // The clock of the server, and its memory, are everybody's.
            let always = incident.fault.is_loss() && incident.began <= until;
            let gentle = matches!(incident.fault, Fault::MessageLost | Fault::Lag | Fault::FlushScripts);
            always || !gentle && reaches(&incident)
        })
    }
}

fn moves_clock(fault: Fault) -> bool {
    matches!(fault, Fault::Failover | Fault::StepClock)
}

fn granted_at(grants: &BTreeMap<u64, Grant>, turn: &Turn) -> Nanos {
    grants.range(..=turn.token).next_back().map_or(turn.asked, |(_, grant)| grant.at)
}

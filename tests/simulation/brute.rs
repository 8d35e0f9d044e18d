//! The checker checked: on tiny histories it finds what trying every pair finds.

use crate::checker::{Turn, misordered, overlaps, shared, turns};
use crate::dice::{Dice, Nanos};
use crate::history::Hold;
use crate::liveness::{Gap, Longest, gaps};

const ROUNDS: u64 = 20_000;

fn hold(dice: &Dice) -> Hold {
    let asked = dice.below(12);
    let granted = asked + dice.below(6);
    Hold {
        client: 0,
        lock: 0,
        owner: Some(dice.below(2)).filter(|_| dice.percent(40.0)),
        token: dice.below(6),
        endless: true,
        capped: false,
        asked,
        granted,
        trusted: granted + dice.below(8),
        promised: 0,
        released: Some(granted + dice.below(8)).filter(|_| dice.percent(60.0)),
        lost: None,
    }
}

fn holds(dice: &Dice) -> Vec<Hold> {
    (0..dice.within(1, 8)).map(|_| hold(dice)).collect()
}

/// Every pair of turns, the one with the smaller token first, that this is true of.
fn pairs(turns: &[Turn], wrong: impl Fn(&Turn, &Turn) -> bool) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, first) in turns.iter().enumerate() {
        for (other, second) in turns.iter().enumerate() {
            if first.token < second.token && wrong(first, second) {
                found.push((at, other));
            }
        }
    }
    found
}

/// Both find something or neither does, and what the checker finds is there.
fn agree(found: &[(usize, usize)], all: &[(usize, usize)]) {
    assert_eq!(found.is_empty(), all.is_empty(), "{found:?} against {all:?}");
    assert!(found.iter().all(|pair| all.contains(pair)), "{found:?} against {all:?}");
}

#[test]
fn turns_that_overlap_or_are_out_of_order() {
    let dice = Dice::new(1);
    for _ in 0..ROUNDS {
        let turns = turns(holds(&dice).iter());
        let all = pairs(&turns, |first, second| first.end > second.granted);
        let late: Vec<usize> = overlaps(&turns).iter().map(|&(_, second)| second).collect();
        agree(&overlaps(&turns), &all);
        // Every turn that begins too early is named.
        assert!(all.iter().all(|(_, second)| late.contains(second)));

        let all = pairs(&turns, |first, second| second.granted < first.asked);
        let early: Vec<usize> = misordered(&turns).iter().map(|&(first, _)| first).collect();
        agree(&misordered(&turns), &all);
        assert!(all.iter().all(|(first, _)| early.contains(first)));
    }
}

#[test]
fn turns_are_the_holds_of_each_token() {
    let dice = Dice::new(2);
    for _ in 0..ROUNDS {
        let holds = holds(&dice);
        for turn in turns(holds.iter()) {
            let mine: Vec<&Hold> = holds.iter().filter(|hold| hold.token == turn.token).collect();
            let least = |of: fn(&Hold) -> Nanos| mine.iter().map(|hold| of(hold)).min();
            let most = |of: fn(&Hold) -> Nanos| mine.iter().map(|hold| of(hold)).max();
            assert_eq!(Some(turn.asked), least(|hold| hold.asked));
            assert_eq!(Some(turn.granted), least(|hold| hold.granted));
            assert_eq!(Some(turn.latest), most(|hold| hold.granted));
            assert_eq!(Some(turn.end), most(Hold::end));
        }
    }
}

#[test]
fn tokens_that_stand_for_two_grants() {
    let dice = Dice::new(3);
    for _ in 0..ROUNDS {
        let holds = holds(&dice);
        let twice = |token: u64| {
            let mine: Vec<&Hold> = holds.iter().filter(|hold| hold.token == token).collect();
            mine.len() > 1 && mine.iter().any(|hold| hold.owner.is_none() || hold.owner != mine[0].owner)
        };
        let found = shared(holds.iter());
        assert!((0..6).all(|token| twice(token) == found.contains(&token)), "{holds:?}: {found:?}");
    }
}

#[test]
fn the_longest_gap_of_a_wait() {
    let dice = Dice::new(4);
    for _ in 0..ROUNDS {
        let held: Vec<(Nanos, Nanos)> =
            (0..dice.below(8)).map(|_| dice.below(40)).map(|from| (from, from + dice.within(1, 6))).collect();
        let gaps = gaps(held.clone(), 50);
        let (from, to) = (dice.below(40), 10 + dice.below(40));
        let found = Longest::new(&gaps).within(from, to).map_or(0, Gap::length);
        assert_eq!(found, longest_free(&held, from, to), "{held:?}, {from} to {to}");
    }
}

/// Step by step.
fn longest_free(held: &[(Nanos, Nanos)], from: Nanos, to: Nanos) -> Nanos {
    let (mut run, mut longest) = (0, 0);
    for time in from..to {
        let taken = held.iter().any(|&(granted, ended)| granted <= time && time < ended);
        run = if taken { 0 } else { run + 1 };
        longest = longest.max(run);
    }
    longest
}

//! The checker checked: on tiny histories it finds what trying every pair finds.

use lockwright::internals::ticket::{ClientId, Ticket};

use crate::checker::{Stay, Turn, misordered, overlaps, overtaken, shared, turns};
use crate::dice::{Dice, Nanos};
use crate::history::Hold;
use crate::liveness::{Gap, Longest, gaps};
use crate::order::{Choice, Entry, Queue, Standing};

const ROUNDS: u64 = 20_000;

fn hold(dice: &Dice) -> Hold {
    let asked = dice.below(12);
    let granted = asked + dice.below(6);
    Hold {
        mode: lockwright::Mode::Exclusive,
        client: 0,
        lock: 0,
        owner: Some(dice.below(2)).filter(|_| dice.percent(40.0)),
        token: dice.below(6),
        endless: true,
        capped: false,
        asked,
        granted,
        trusted: granted + dice.below(8),
        joins: false,
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
fn waits_that_overtake_others() {
    let dice = Dice::new(5);
    for _ in 0..ROUNDS {
        let stay = |_| {
            let asked = dice.below(12);
            let ended = asked + dice.below(12);
            let granted = Some(ended).filter(|_| dice.percent(70.0));
            let placed = Some(asked + dice.below(4)).filter(|&placed| placed <= ended && dice.percent(60.0));
            Stay { client: 0, asked, placed, granted, ended }
        };
        let stays: Vec<Stay> = (0..dice.within(1, 8)).map(stay).collect();
        let mut all = Vec::new();
        for (at, first) in stays.iter().enumerate() {
            for (other, second) in stays.iter().enumerate() {
                let later = first.placed.is_some_and(|placed| placed < second.asked);
                if later && second.granted.is_some_and(|granted| granted < first.ended) {
                    all.push((at, other));
                }
            }
        }
        let found = overtaken(&stays);
        agree(&found, &all);
        // Everybody who overtakes is named.
        assert!(all.iter().all(|(_, second)| found.iter().any(|(_, named)| named == second)));
    }
}

/// A queue of a few clients, its list in the order of sequence numbers, with entries of tickets that have left.
fn choice(dice: &Dice) -> Choice {
    let clients: Vec<ClientId> = (0..3)
        .map(|at| ClientId::parse(&format!("00000000-0000-4000-8000-00000000000{at}")).expect("an id"))
        .collect();
    let mut queue = Queue { now: 100_000, ..Queue::default() };
    for &client in &clients {
        let (deaf, subscribed) = (dice.percent(20.0), dice.percent(60.0));
        let deadline = if dice.percent(80.0) { 100_001 } else { 100_000 };
        queue.clients.insert(client, Standing { deadline, deaf, subscribed });
    }
    for number in 0..dice.below(8) {
        let ticket = Ticket { client: *dice.pick(&clients), number };
        queue.list.push(ticket);
        if dice.percent(75.0) {
            let arrival = if dice.percent(50.0) { 99_000 } else { 90_000 };
            queue.entries.insert(ticket, Entry { sequence: number + 1, arrival });
        }
    }
    let own = Ticket { client: *dice.pick(&clients), number: dice.below(10) };
    let own = Some(own).filter(|_| dice.percent(60.0));
    if let Some(client) = own.and_then(|own| queue.clients.get_mut(&own.client)) {
        client.deadline = u64::MAX;
    }
    let (joins, counted) = (dice.percent(40.0), dice.percent(70.0));
    Choice { queue, own, joins, counted, limit: dice.within(1, 6) as usize }
}

/// The walk from the head, entry by entry, as the scripts' rules tell it. `Err` where it stops at the limit.
fn walk(choice: &Choice) -> Result<Option<Ticket>, ()> {
    let queue = &choice.queue;
    for ticket in queue.list.iter().take(choice.limit) {
        let Some(entry) = queue.entries.get(ticket) else { continue };
        let client = &queue.clients[&ticket.client];
        if client.deadline <= queue.now {
            continue;
        }
        let unheard = choice.counted && !client.subscribed;
        let blind = client.deaf && queue.now - entry.arrival > 3_000;
        if choice.own == Some(*ticket) || !unheard || blind {
            return Ok(Some(*ticket));
        }
    }
    if queue.list.len() > choice.limit { Err(()) } else { Ok(choice.own) }
}

#[test]
fn grants_in_the_order_of_the_queue() {
    let dice = Dice::new(6);
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..ROUNDS {
        let choice = choice(&dice);
        let queued = choice.own.filter(|own| choice.joins || choice.queue.entries.contains_key(own));
        let first = walk(&choice).unwrap_or(queued);
        assert_eq!(choice.judge(first), None, "{choice:?}: {first:?}");
        right += 1;
        // Nobody else of those that the walk meets may have it, nor may it stay free.
        let Ok(Some(first)) = walk(&choice) else { continue };
        let Some(entry) = choice.queue.entries.get(&first) else { continue };
        let met: Vec<Ticket> = choice.queue.list.iter().take(choice.limit).copied().collect();
        let later = |ticket: &&Ticket| {
            choice.queue.entries.get(ticket).is_some_and(|other| other.sequence > entry.sequence)
        };
        for other in met.iter().filter(later).copied().map(Some).chain([None]) {
            assert!(choice.judge(other).is_some(), "{choice:?}: {other:?} instead of {first:?}");
            wrong += 1;
        }
    }
    assert!(right > 1_000 && wrong > 1_000);
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

//! Random calls of a few clients on one lock, with what must hold after every one of them.

use std::collections::BTreeMap;

use lockwright::internals::scripts::*;

use super::rig::*;

/// A small generator: the same choices on every run (the clock and the ids are others).
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[usize::try_from(self.below(items.len() as u64)).unwrap()]
    }
}

/// The counts of `K:waiting` are those of its tickets, the list has them all, and nothing lives for ever. Returns
/// whether one of the two is there without the other.
fn check(rig: &mut Rig, step: &str) -> bool {
    let (queue, waiting) = (rig.keys.queue(), rig.keys.waiting());
    let keys = rig.all_keys();
    for key in &keys {
        // It may have ended since they were listed.
        assert_ne!(rig.ttl(key), -1, "{step}: {key} lives for ever");
    }
    if keys.contains(&queue) != keys.contains(&waiting) {
        return true;
    }
    let flat = rig.wire.ok(&["HGETALL", &waiting]).texts();
    let fields: BTreeMap<&str, &str> =
        flat.chunks(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    let list = rig.list();
    let mut living: BTreeMap<&str, u64> = BTreeMap::new();
    for (field, text) in &fields {
        if let Some((client, _)) = field.split_once(':') {
            *living.entry(client).or_default() += 1;
            assert!(list.iter().any(|entry| entry == field), "{step}: {field} is not in the list");
            assert_eq!(rig.get(&rig.lock(), field), "", "{step}: {field} holds and waits, {text}");
        }
    }
    for (client, count) in &living {
        assert_eq!(fields[client].split(' ').nth(1), Some(count.to_string().as_str()), "{step}: {client}");
    }
    let all: u64 = living.values().sum();
    let counted =
        fields.get("queue").and_then(|text| text.rsplit_once(' ')).map(|(_, count)| count.to_owned());
    assert_eq!(counted, (all > 0).then(|| all.to_string()), "{step}: {fields:?}");
    assert_eq!(fields.len(), living.len() + usize::try_from(all).unwrap() + usize::from(all > 0), "{step}");
    false
}

fn history(seed: u64, steps: usize) {
    let mut rig = Rig::new();
    let mut dice = Dice(seed);
    rig.terms.claim_millis = 60;
    let clients: Vec<Peer> =
        (0..5).map(|at| if at < 3 { rig.client() } else { rig.silent_client() }).collect();
    let mut attempts: Vec<Attempt> = Vec::new();
    let (mut last, mut holders, mut lost_one) = (0, Vec::new(), false);
    for at in 0..steps {
        rig.terms.counted = dice.below(4) > 0;
        let client = dice.pick(&clients);
        let step = format!("seed {seed}, step {at}");
        let new = Attempt {
            owner: (dice.below(4) == 0).then(|| owner(u8::try_from(dice.below(3)).unwrap())),
            lease_millis: *dice.pick(&[100, 200, LEASE]),
            block: *dice.pick(&[1, 64]),
            ..client.attempt()
        };
        let old = if attempts.is_empty() { new.clone() } else { dice.pick(&attempts).clone() };
        match dice.below(20) {
            0..=4 => drop(rig.acquire(&new, *dice.pick(&[Wait::Join, Wait::No]))),
            5..=8 => drop(rig.acquire(&old, *dice.pick(&[Wait::Join, Wait::Poll]))),
            9..=12 if old.ticket.client == client.id => drop(rig.leave_for(old.ticket, Some(&new))),
            9..=15 => drop(rig.leave(&old)),
            16 => drop(rig.renew(&[(old.ticket, 200)])),
            17 => drop(rig.acquire_deaf(&old, Wait::Poll)),
            18 if dice.below(3) == 0 => {
                let key =
                    dice.pick(&[rig.lock(), rig.keys.queue(), rig.keys.waiting(), rig.keys.token()]).clone();
                rig.wire.ok(&["DEL", &key]);
                lost_one = true;
            }
            18 => drop(rig.force_release(last)),
            _ => rig.pass(1 + dice.below(40)),
        }
        attempts.push(new);
        let recent = attempts.len().saturating_sub(12);
        attempts.drain(..recent);
        // One lost alone is put right by the next who looks at it: until then there is nothing to compare.
        let is_half = check(&mut rig, &step);
        assert!(!is_half || lost_one, "{step}: one of the queue's keys without the other");
        lost_one &= is_half;
        let token = rig.held_token();
        let tickets: Vec<String> = rig.inspect().holds.into_iter().map(|hold| hold.ticket).collect();
        assert!(token == 0 || token >= last, "{step}: {token} after {last}");
        if token == last && !tickets.is_empty() && tickets.iter().all(|ticket| !holders.contains(ticket)) {
            panic!("{step}: {token} was granted twice");
        }
        if token != 0 && !tickets.is_empty() {
            (last, holders) = (token, tickets);
        }
    }
}

#[test]
fn counts_lists_and_tokens_agree_after_every_call() {
    for seed in 1..=4 {
        history(seed, 250);
    }
}

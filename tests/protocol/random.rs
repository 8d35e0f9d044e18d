//! Random calls of a few clients on one lock, with what must hold after every one of them.

use std::collections::BTreeMap;

use lockwright::internals::scripts::*;
use lockwright::internals::ticket::Ticket;

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
    let writers = fields.values().filter(|text| text.split(' ').nth(2) == Some("write")).count();
    let counted = fields.get("queue").map(|text| text.split(' ').skip(2).collect::<Vec<_>>().join(" "));
    let expected = if writers > 0 { format!("{all} {writers}") } else { all.to_string() };
    assert_eq!(counted, (all > 0).then_some(expected), "{step}: {fields:?}");
    check_reads(rig, step);
    assert_eq!(fields.len(), living.len() + usize::try_from(all).unwrap() + usize::from(all > 0), "{step}");
    false
}

/// What `K` and `K:readers` say of reads agrees, unless one of them was lost alone: a `K` that was restored does not
/// name those from before.
fn check_reads(rig: &mut Rig, step: &str) {
    let (lock, readers, now) = (rig.lock(), rig.keys.readers(), rig.now());
    let flat = rig.wire.ok(&["HGETALL", &lock]).texts();
    let fields: BTreeMap<&str, &str> =
        flat.chunks(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    let listed = rig.wire.ok(&["ZRANGE", &readers, "0", "-1", "WITHSCORES"]).texts();
    if fields.is_empty() || listed.is_empty() {
        return;
    }
    let ends_of = |ticket: &str| fields.get(ticket).and_then(|text| text.split(' ').next());
    let is_restored = fields.contains_key("restored");
    for pair in listed.chunks(2).filter(|pair| !is_restored || fields.contains_key(pair[0].as_str())) {
        assert_eq!(ends_of(&pair[0]), Some(pair[1].as_str()), "{step}: {fields:?}");
    }
    let is_read = |ticket: &str| listed.chunks(2).any(|pair| pair[0] == ticket);
    let living = |ticket: &str| ends_of(ticket).is_some_and(|ends| ends.parse::<u64>().unwrap() > now);
    let holds: Vec<&str> = fields.keys().copied().filter(|field| Ticket::parse(field).is_some()).collect();
    let writes = holds.iter().filter(|ticket| living(ticket) && !is_read(ticket)).count();
    assert!(fields["mode"] == "write" || writes == 0, "{step}: {fields:?}");
    let owner_of = |ticket: &str| fields[ticket].split(' ').nth(1).unwrap();
    for ticket in &holds {
        let owner = owner_of(ticket);
        let of_owner = fields.get(format!("reader:{owner}").as_str()).copied().unwrap_or_default();
        let is_named = of_owner.split(' ').any(|named| named == *ticket);
        assert_eq!(is_named, owner != "-" && is_read(ticket), "{step}: {fields:?}");
        let is_beside = is_read(ticket) || writes == 0 || owner == fields["owner"];
        assert!(is_beside, "{step}: {ticket} beside a write of another owner: {fields:?}");
    }
    let strangers = holds.iter().filter(|ticket| living(ticket) && owner_of(ticket) != fields["owner"]);
    assert!(writes == 0 || strangers.count() == 0, "{step}: others read beside a write: {fields:?}");
}

fn history(kind: Kind, seed: u64, steps: usize) {
    let mut rig = Rig { kind, ..Rig::new() };
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
            ..match kind {
                Kind::ReadWrite if dice.below(3) == 0 => client.write(),
                Kind::ReadWrite => client.read(),
                _ => Attempt { block: *dice.pick(&[1, 64]), ..client.attempt() },
            }
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
                let keys =
                    [rig.lock(), rig.keys.queue(), rig.keys.waiting(), rig.keys.token(), rig.keys.readers()];
                rig.wire.ok(&["DEL", dice.pick(&keys).as_str()]);
                lost_one = true;
            }
            19 if kind == Kind::ReadWrite && old.mode == Mode::Write => {
                let read = Attempt { owner: old.owner, lease_millis: 200, ..client.read() };
                rig.downgrade(&old, &read);
                attempts.push(read);
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
        let info = rig.inspect();
        let (is_read, tickets) = (
            info.mode == Some(Mode::Read),
            info.holds.into_iter().map(|hold| hold.ticket).collect::<Vec<String>>(),
        );
        assert!(token == 0 || token >= last, "{step}: {token} after {last}");
        let is_granted_anew = token == last && !tickets.is_empty() && !is_read;
        if is_granted_anew && tickets.iter().all(|ticket| !holders.contains(ticket)) {
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
        history(Kind::Reentrant, seed, 250);
    }
}

#[test]
fn those_of_a_read_write_lock_agree_too() {
    for seed in 1..=8 {
        history(Kind::ReadWrite, seed, 300);
    }
}

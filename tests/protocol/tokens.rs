//! Fencing tokens: each grant's is larger than all before it, whatever was lost.

use lockwright::internals::scripts::*;

use super::rig::*;

fn grant(rig: &mut Rig, block: u64) -> u64 {
    let attempt = Attempt { block, ..rig.silent_client().attempt() };
    let token = rig.granted(&attempt).token;
    rig.leave(&attempt);
    token
}

fn counter(rig: &mut Rig) -> u64 {
    rig.wire.ok(&["GET", &rig.keys.token()]).text().parse().unwrap()
}

#[test]
fn a_token_is_the_clock_or_more_than_the_last_of_the_block_before() {
    let mut rig = Rig::new();
    let before = rig.micros();
    let first = grant(&mut rig, 64);
    assert!((before..=rig.micros()).contains(&first));
    assert_eq!(counter(&mut rig), first + 63);
    let ahead = rig.micros() + 60_000_000;
    rig.wire.ok(&["SET", &rig.keys.token(), &ahead.to_string()]);
    assert_eq!(grant(&mut rig, 64), ahead + 1);
    assert_eq!(grant(&mut rig, 1), ahead + 65);
    assert_eq!(grant(&mut rig, 2), ahead + 66);
    assert_eq!(counter(&mut rig), ahead + 67);
}

#[test]
fn the_counter_lives_a_day_and_longer_only_by_its_lead() {
    let mut rig = Rig::new();
    let key = rig.keys.token();
    grant(&mut rig, 1);
    assert!((DAY - 1_000..=DAY).contains(&rig.ttl(&key)));
    rig.wire.ok(&["PEXPIRE", &key, "60000"]);
    grant(&mut rig, 64);
    assert!((50_000..=60_000).contains(&rig.ttl(&key)), "a counter behind the clock keeps its TTL");

    let ahead = rig.micros() + 3_600_000_000;
    rig.wire.ok(&["SET", &key, &ahead.to_string()]);
    grant(&mut rig, 1);
    let most = DAY + 3_600_000;
    assert!((most - 2_000..=most).contains(&rig.ttl(&key)), "{}", rig.ttl(&key));
}

#[test]
fn tokens_rise_across_lost_data_expiry_and_a_restart() {
    let mut rig = Rig::new();
    let mut last = grant(&mut rig, 64);
    let mut rises = |rig: &mut Rig, after: &str| {
        let token = grant(rig, 64);
        assert!(token > last + 63, "after {after}");
        last = token;
    };
    rig.wire.ok(&["FLUSHALL"]);
    rises(&mut rig, "FLUSHALL");
    rig.wire.ok(&["DEL", &rig.keys.token()]);
    rises(&mut rig, "the loss of the counter");
    let brief = Attempt { lease_millis: 100, ..rig.client().attempt() };
    rig.granted(&brief);
    rig.pass(120);
    rises(&mut rig, "an expiry");
    rig.server.restart();
    rig.wire = rig.server.connection();
    rises(&mut rig, "a restart without persistence");
}

#[test]
fn tokens_below_the_limit_are_exact() {
    let mut rig = Rig::new();
    let high = (1 << 53) - 2_000;
    rig.wire.ok(&["SET", &rig.keys.token(), &high.to_string()]);
    assert_eq!(grant(&mut rig, 64), high + 1);
    assert_eq!(counter(&mut rig), high + 64);
}

#[test]
fn a_token_that_reached_nobody_is_granted_to_the_next_and_to_one_only() {
    let mut rig = Rig::new();
    let (a, mut b) = (rig.client(), rig.client());
    let (silent, holder) = (rig.silent_client(), a.attempt());
    rig.granted(&holder);
    let small = silent.attempt();
    let large = Attempt { block: 64, ..b.attempt() };
    let behind = b.attempt();
    for attempt in [&small, &large, &behind] {
        rig.queued(attempt);
    }
    rig.leave(&holder);
    let [Message::Grant { token, .. }] = b.messages()[..] else { panic!() };
    assert_eq!(counter(&mut rig), token + 63, "the whole of the larger block is spent");
    rig.leave(&large);
    let [Message::Grant { token: next, .. }] = b.messages()[..] else { panic!() };
    assert!(next > token + 63);
}

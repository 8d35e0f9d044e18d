//! Fenced values: no smaller token overwrites one, and no call that comes late or twice changes anything.

use lockwright::internals::scripts::*;
use lockwright::internals::ticket::Ticket;

use super::rig::*;

impl Rig {
    fn fenced_set(&mut self, token: u64, ticket: Ticket, value: &str) -> FencedSetReply {
        let call = FencedSet { keys: &self.keys, token, ticket, value }.call();
        FencedSetReply::decode(&self.value(&call)).unwrap().reply
    }

    fn fenced(&mut self) -> FencedGetReply {
        let call = FencedGet { keys: &self.keys }.call();
        FencedGetReply::decode(&self.value(&call)).unwrap().reply
    }

    #[track_caller]
    fn fenced_is(&mut self, token: u64, text: &str) {
        match self.fenced() {
            FencedGetReply::Value(found) => assert_eq!((found.token, found.value.as_str()), (token, text)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_write_that_is_repeated_or_late_changes_nothing() {
    let mut rig = Rig::new();
    let peer = rig.silent_client();
    let (first, second) = (peer.tickets.next(), peer.tickets.next());
    assert_eq!(rig.fenced_set(5, first, "1"), FencedSetReply::Written);
    assert_eq!(rig.fenced_set(5, second, "2"), FencedSetReply::Written);
    // The first call was thought lost, and was in a socket all the time.
    assert_eq!(rig.fenced_set(5, first, "1"), FencedSetReply::Written);
    rig.fenced_is(5, "2");
    assert_eq!(rig.fenced_set(5, second, "2"), FencedSetReply::Written);
    rig.fenced_is(5, "2");
}

#[test]
fn a_late_write_changes_nothing_though_another_client_wrote_with_the_same_token() {
    let mut rig = Rig::new();
    let (one, other) = (rig.silent_client(), rig.silent_client());
    let (late, next) = (one.tickets.next(), one.tickets.next());
    rig.fenced_set(5, late, "1");
    rig.fenced_set(5, other.tickets.next(), "2");
    rig.fenced_set(5, late, "1");
    rig.fenced_is(5, "2");
    rig.fenced_set(5, next, "3");
    rig.fenced_is(5, "3");
    let writers = rig.get(&rig.keys.fenced(), "writers");
    assert_eq!(writers.split(' ').count(), 2, "{writers}");
    // What is remembered of writers goes with their token.
    rig.fenced_set(6, other.tickets.next(), "4");
    assert_eq!(rig.get(&rig.keys.fenced(), "writers").split(' ').count(), 1);
}

#[test]
fn tokens_are_compared_with_all_their_digits() {
    let mut rig = Rig::new();
    let peer = rig.silent_client();
    let large = (1 << 53) - 1;
    rig.fenced_set(large - 1, peer.tickets.next(), "1");
    assert_eq!(rig.fenced_set(large, peer.tickets.next(), "2"), FencedSetReply::Written);
    let refused = rig.fenced_set(large - 1, peer.tickets.next(), "3");
    assert_eq!(refused, FencedSetReply::Stale { largest: large });
    rig.fenced_is(large, "2");
}

#[test]
fn a_key_of_something_else_is_left_alone() {
    for words in
        [["SET", "x"], ["HSET", "a b"], ["HSET", "token 7"], ["HSET", "token x"], ["HSET", "value 7"]]
    {
        let mut rig = Rig::new();
        let (key, ticket) = (rig.keys.fenced(), rig.silent_client().tickets.next());
        let command: Vec<&str> = [words[0], &key].into_iter().chain(words[1].split(' ')).collect();
        rig.wire.ok(&command);
        let before = rig.wire.ok(&["DUMP", &key]);
        assert_eq!(
            rig.fenced_set(9, ticket, "1"),
            FencedSetReply::ForeignKey { key: key.clone() },
            "{words:?}"
        );
        assert_eq!(rig.fenced(), FencedGetReply::ForeignKey { key: key.clone() }, "{words:?}");
        assert_eq!(rig.wire.ok(&["DUMP", &key]), before);
    }
}

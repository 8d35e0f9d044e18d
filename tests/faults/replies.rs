//! Replies and messages that no server of ours sends: the corpus of `fuzz/`, changed at random. C3 and what strangers
//! can publish.

use std::fs;
use std::path::{Path, PathBuf};

use lockwright::internals::backend::Value;
use lockwright::internals::clock::Clock;
use lockwright::internals::scripts::Message;

use super::inputs::Dice;
use value::{decode_all, read};

#[path = "../../fuzz/value.rs"]
mod value;

fn corpus(of: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(of);
    let entries =
        fs::read_dir(folder).expect("the corpus is there").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = entries.map(|path| (path.clone(), fs::read(path).expect("a file"))).collect();
    files.sort();
    assert!(files.len() >= 4);
    files
}

/// One of the ways to spoil a text.
fn spoil(text: &mut Vec<u8>, others: &[(PathBuf, Vec<u8>)], dice: &mut Dice) {
    let at = dice.index(text.len() + 1);
    match dice.below(7) {
        0 => text.truncate(at),
        1 => text.insert(at, u8::try_from(dice.below(256)).expect("a byte")),
        2 if at < text.len() => text[at] = u8::try_from(dice.below(256)).expect("a byte"),
        3 if at < text.len() => drop(text.remove(at)),
        4 => {
            let other = &others[dice.index(others.len())].1;
            let from = dice.index(other.len());
            text.truncate(at);
            text.extend_from_slice(&other[from..]);
        }
        5 => {
            let numbers = [
                "-1",
                "0",
                "9223372036854775807",
                "-9223372036854775808",
                "9007199254740993",
                "99999999999999999999",
            ];
            let number = numbers[dice.index(numbers.len())];
            text.splice(at..at, number.bytes());
        }
        _ => text.extend_from_within(..at.min(1_000)),
    }
}

/// The corpus is what it says: each reply is taken by a decoder, each message but the odd one is read.
#[test]
fn the_corpus_is_read() {
    for (path, text) in corpus("reply") {
        assert!(decode_all(&read(&text)) >= 1, "{}: {:?}", path.display(), read(&text));
    }
    for (path, text) in corpus("message") {
        assert_eq!(Message::parse(&text).is_some(), !path.ends_with("odd"), "{}", path.display());
    }
}

/// Fails where a decoder indexes, unwraps, overflows or loops over what it did not check.
#[test]
fn c3_spoiled_replies_and_messages_are_refused_without_a_panic() {
    let (replies, messages) = (corpus("reply"), corpus("message"));
    let mut dice = Dice::new("c3");
    let clock = Clock::boot();
    let began = clock.now();
    let (mut taken, mut read_at_all) = (0, 0);
    for _ in 0..60_000 {
        let mut reply = replies[dice.index(replies.len())].1.clone();
        let mut message = messages[dice.index(messages.len())].1.clone();
        for _ in 0..=dice.index(4) {
            spoil(&mut reply, &replies, &mut dice);
            spoil(&mut message, &messages, &mut dice);
        }
        taken += decode_all(&read(&reply));
        read_at_all += usize::from(Message::parse(&message).is_some());
    }
    // Some changes leave a good text: else the seed would show nothing.
    assert!(taken > 100 && read_at_all > 100, "{taken} and {read_at_all} were still good");
    let took = clock.now().since(began);
    assert!(took.as_secs() < 60, "{took:?}");
}

/// Fails where a decoder keeps more than it was sent, or recurses into what it was sent.
#[test]
fn large_replies_cost_what_they_are() {
    let big = Value::Array(vec![Value::Array(vec![Value::Nil; 100_000]); 10]);
    assert_eq!(decode_all(&big), 0);
    let mut deep = Value::Nil;
    for _ in 0..2_000 {
        deep = Value::Array(vec![deep]);
    }
    let word = Value::Bulk(b"info".to_vec());
    assert_eq!(decode_all(&Value::Array(vec![word, Value::Int(1), deep])), 0);
    let long = vec![b' '; 10_000_000];
    assert_eq!(Message::parse(&long), None);
}

//! Reading replies: whatever bytes come, the answer is a value or [`Malformed`], never a panic.

use thiserror::Error;

use crate::backend::Value;
use crate::ticket::Ticket;

/// A reply, and the server's clock when it was given, where it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timed<T> {
    pub server_millis: Option<u64>,
    pub reply: T,
}

/// The server's reply has none of the forms that our scripts give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the server sent a reply that none of our scripts gives")]
pub struct Malformed;

/// What is left to read of a reply.
pub(super) enum Items<'a> {
    Array(std::slice::Iter<'a, Value>),
    /// The same in one text: the usual replies, which cost less so.
    Text(Option<&'a str>),
}

/// One of them.
enum Item<'a> {
    Value(&'a Value),
    Word(&'a str),
}

impl<'a> Items<'a> {
    /// Opens a reply, an array or a text of items with blanks between: its word, its time, and the rest.
    pub(super) fn open(value: &'a Value) -> Result<(&'a str, u64, Self), Malformed> {
        let mut items = match value {
            Value::Array(items) => Self::Array(items.iter()),
            Value::Bulk(bytes) => Self::Text(Some(utf8(bytes)?)),
            _ => return Err(Malformed),
        };
        Ok((items.text()?, items.number()?, items))
    }

    /// Ends the reading: an item too many is as wrong as one too few.
    pub(super) fn close<T>(self, reply: T) -> Result<T, Malformed> {
        if self.is_empty() { Ok(reply) } else { Err(Malformed) }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Array(items) => items.as_slice().is_empty(),
            Self::Text(left) => left.is_none(),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        match self.next()? {
            Item::Value(Value::Bulk(bytes)) => utf8(bytes),
            Item::Value(Value::Status(text)) => Ok(text),
            Item::Word(word) => Ok(word),
            Item::Value(_) => Err(Malformed),
        }
    }

    /// Text from a user's hand, which may be no UTF-8 where somebody else wrote it, and may have blanks.
    pub(super) fn lossy(&mut self) -> Result<String, Malformed> {
        match self.next()? {
            Item::Value(Value::Bulk(bytes)) => Ok(String::from_utf8_lossy(bytes).into_owned()),
            _ => Err(Malformed),
        }
    }

    pub(super) fn signed(&mut self) -> Result<i64, Malformed> {
        match self.next()? {
            Item::Value(Value::Int(number)) => Ok(*number),
            Item::Word(word) => word.parse().map_err(|_| Malformed),
            Item::Value(_) => Err(Malformed),
        }
    }

    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        u64::try_from(self.signed()?).map_err(|_| Malformed)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.signed()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub(super) fn ticket(&mut self) -> Result<Ticket, Malformed> {
        Ticket::parse(self.text()?).ok_or(Malformed)
    }

    pub(super) fn array(&mut self) -> Result<Items<'a>, Malformed> {
        match self.next()? {
            Item::Value(Value::Array(items)) => Ok(Self::Array(items.iter())),
            _ => Err(Malformed),
        }
    }

    fn next(&mut self) -> Result<Item<'a>, Malformed> {
        let next = match self {
            Self::Array(items) => items.next().map(Item::Value),
            Self::Text(left) => left.take().map(|text| {
                // By hand: `split_once` makes the reading of a grant a third dearer (bench `instructions`, decode).
                let Some(end) = text.bytes().position(|byte| byte == b' ') else { return Item::Word(text) };
                *left = Some(&text[end + 1..]);
                Item::Word(&text[..end])
            }),
        };
        next.ok_or(Malformed)
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripts::*;

    /// Every value of three items at most, out of those that decoders look at.
    fn odd_replies() -> Vec<Value> {
        let words = AcquireReply::WORDS.iter().chain(LeaveReply::WORDS).chain(RenewReply::WORDS);
        let words = words.chain(ForceReleaseReply::WORDS).chain(InspectReply::WORDS);
        let words =
            words.chain(FencedSetReply::WORDS).chain(FencedGetReply::WORDS).chain(DowngradeReply::WORDS);
        let first: Vec<Value> = words.map(|word| Value::Bulk(word.as_bytes().to_vec())).collect();
        let others = [
            Value::Nil,
            Value::Int(-1),
            Value::Int(i64::MIN),
            Value::Int(i64::MAX),
            Value::Bulk(vec![0xff, 0]),
            Value::Bulk(Vec::new()),
            Value::Array(Vec::new()),
            Value::Array(vec![Value::Nil; 9]),
            Value::Status("OK".into()),
        ];
        let mut replies = others.to_vec();
        for rest in [
            "",
            " ",
            " 1",
            " 1 2 3",
            " 1 2 3 ",
            " 1 2 3 2",
            " 1 2  0",
            " 1 2 3 0 0",
            " 1 2 -3 0",
            " 1 2 3 none",
        ] {
            replies.push(Value::Bulk(format!("granted{rest}").into_bytes()));
        }
        for word in &first {
            replies.push(word.clone());
            replies.push(Value::Array(vec![word.clone()]));
            for second in &others {
                replies.push(Value::Array(vec![word.clone(), second.clone()]));
                for third in &others {
                    replies.push(Value::Array(vec![
                        word.clone(),
                        Value::Int(7),
                        second.clone(),
                        third.clone(),
                    ]));
                }
            }
        }
        replies
    }

    #[test]
    fn a_text_is_read_word_by_word() {
        let text = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        let granted = AcquireReply::decode(&text("granted 1785000000000 1785000000000123 30000 1")).unwrap();
        assert_eq!(granted.server_millis, Some(1_785_000_000_000));
        let grant = Granted { token: 1_785_000_000_000_123, left_millis: 30_000, waiting: true };
        assert_eq!(granted.reply, AcquireReply::Granted(grant));
        let freed = LeaveReply::Freed { more: false, next: Next::None };
        for (reply, server_millis) in [("freed", None), ("freed 7 0 none", Some(7))] {
            let reply = LeaveReply::decode(&text(reply)).unwrap();
            assert_eq!(reply, Timed { server_millis, reply: freed.clone() });
        }
        assert_eq!(LeaveReply::decode(&text("freed ")), Err(Malformed));
    }

    #[test]
    fn no_reply_panics_and_none_of_these_is_taken_for_a_grant() {
        for value in odd_replies() {
            if let Ok(timed) = AcquireReply::decode(&value) {
                assert!(!matches!(timed.reply, AcquireReply::Granted(_)), "{value:?}");
            }
            if let Ok(timed) = DowngradeReply::decode(&value) {
                assert!(!matches!(timed.reply, DowngradeReply::Granted(_)), "{value:?}");
            }
            let _ = (LeaveReply::decode(&value), RenewReply::decode(&value));
            let _ = (FencedSetReply::decode(&value), FencedGetReply::decode(&value));
            let _ = (ForceReleaseReply::decode(&value), InspectReply::decode(&value));
        }
    }
}

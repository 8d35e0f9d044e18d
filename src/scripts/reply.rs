//! Reading replies: whatever bytes come, the answer is a value or [`Malformed`], never a panic.

use thiserror::Error;

use crate::backend::Value;
use crate::ticket::Ticket;

/// A reply, and the server's clock when it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timed<T> {
    pub server_millis: u64,
    pub reply: T,
}

/// The server's reply has none of the forms that our scripts give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the server sent a reply that none of our scripts gives")]
pub struct Malformed;

/// What is left to read of an array.
pub(super) struct Items<'a>(std::slice::Iter<'a, Value>);

impl<'a> Items<'a> {
    /// Opens an array.
    pub(super) fn of(value: &'a Value) -> Result<Self, Malformed> {
        match value {
            Value::Array(items) => Ok(Self(items.iter())),
            _ => Err(Malformed),
        }
    }

    /// Opens a reply: its word, its time, and the rest.
    pub(super) fn open(value: &'a Value) -> Result<(&'a str, u64, Self), Malformed> {
        let mut items = Self::of(value)?;
        Ok((items.text()?, items.number()?, items))
    }

    /// Ends the reading: an item too many is as wrong as one too few.
    pub(super) fn close<T>(mut self, reply: T) -> Result<T, Malformed> {
        self.0.next().map_or(Ok(reply), |_| Err(Malformed))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        match self.next()? {
            Value::Bulk(bytes) => std::str::from_utf8(bytes).map_err(|_| Malformed),
            Value::Status(text) => Ok(text),
            _ => Err(Malformed),
        }
    }

    /// Text from a user's hand, which may be no UTF-8 where somebody else wrote it.
    pub(super) fn lossy(&mut self) -> Result<String, Malformed> {
        match self.next()? {
            Value::Bulk(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
            _ => Err(Malformed),
        }
    }

    pub(super) fn signed(&mut self) -> Result<i64, Malformed> {
        match self.next()? {
            Value::Int(number) => Ok(*number),
            _ => Err(Malformed),
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
        Items::of(self.next()?)
    }

    fn next(&mut self) -> Result<&'a Value, Malformed> {
        self.0.next().ok_or(Malformed)
    }
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

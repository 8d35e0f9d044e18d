//! Replies out of bytes, for the fuzz target and for the test that mutates the same corpus.
//!
//! A reply is a line of items with `|` behind each: `i7` a number, `n` nil, `t..` a bulk string, `s..` a status, `[`
//! and `]` around the items of an array within it. What is none of these is a bulk string. The line as a whole is an
//! array; a line without `|` is one text.

use lockwright::internals::backend::Value;
use lockwright::internals::scripts::{
    AcquireReply, DowngradeReply, ForceReleaseReply, InspectReply, LeaveReply, RenewReply,
};

/// No reply of a server has more levels, and the tests' own stack is not the subject.
const DEEPEST: usize = 16;

/// The reply that `bytes` stand for. Each has one.
pub fn read(bytes: &[u8]) -> Value {
    if !bytes.contains(&b'|') {
        return Value::Bulk(bytes.to_vec());
    }
    let mut open: Vec<Vec<Value>> = vec![Vec::new()];
    for item in bytes.split(|&byte| byte == b'|') {
        let value = match item {
            b"[" if open.len() < DEEPEST => {
                open.push(Vec::new());
                continue;
            }
            b"]" if open.len() > 1 => Value::Array(open.pop().unwrap_or_default()),
            b"n" => Value::Nil,
            [b'i', digits @ ..] => number(digits),
            [b's', text @ ..] => Value::Status(String::from_utf8_lossy(text).into_owned()),
            [b't', text @ ..] => Value::Bulk(text.to_vec()),
            other => Value::Bulk(other.to_vec()),
        };
        if let Some(last) = open.last_mut() {
            last.push(value);
        }
    }
    while open.len() > 1 {
        let inner = Value::Array(open.pop().unwrap_or_default());
        if let Some(outer) = open.last_mut() {
            outer.push(inner);
        }
    }
    Value::Array(open.pop().unwrap_or_default())
}

fn number(digits: &[u8]) -> Value {
    let parsed = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    parsed.map_or_else(|| Value::Bulk(digits.to_vec()), Value::Int)
}

/// Reads the reply as that of every script. Returns how many took it for theirs.
pub fn decode_all(value: &Value) -> usize {
    let taken = [
        AcquireReply::decode(value).is_ok(),
        LeaveReply::decode(value).is_ok(),
        RenewReply::decode(value).is_ok(),
        ForceReleaseReply::decode(value).is_ok(),
        InspectReply::decode(value).is_ok(),
        DowngradeReply::decode(value).is_ok(),
    ];
    taken.into_iter().filter(|&taken| taken).count()
}

//! `batch`: several calls of [`Acquire`](super::Acquire) and [`Leave`](super::Leave) in one script call. To send a call
//! and to hear its answer costs a client and a server more than the usual call itself.

use super::{Call, Script, Words, acquire, compose, leave};
use crate::backend::Value;

/// How long a batch may take before it begins with no other call: what takes long (a queue of clients that cannot be
/// reached) is not to come after much else, since a server does nothing beside a script.
pub const MICROS: u64 = 500;
/// How many calls go out in one.
pub const MOST: usize = 16;

impl Script {
    /// The batch that can carry out its calls, and what they are called there; `None` where they go alone.
    fn batched_by(&self) -> Option<(&'static Script, &'static str)> {
        let is = |other: &Script| std::ptr::eq(self, other);
        [
            (&REENTRANT, &acquire::REENTRANT, &leave::REENTRANT),
            (&FAIR, &acquire::FAIR, &leave::FAIR),
            (&READ_WRITE, &acquire::READ_WRITE, &leave::READ_WRITE),
        ]
        .into_iter()
        .find_map(|(batch, acquire, leave)| match () {
            () if is(acquire) => Some((batch, "acquire")),
            () if is(leave) => Some((batch, "leave")),
            () => None,
        })
    }
}

impl Call {
    /// Whether it can go out with others.
    pub fn is_batched(&self) -> bool {
        self.script.batched_by().is_some()
    }

    /// Whether it may bring a hold, or a place: it must not be sent again unless it is still wanted.
    pub fn asks(&self) -> bool {
        matches!(self.script.batched_by(), Some((_, "acquire")))
    }

    /// Whether the two can go out together.
    pub fn goes_with(&self, other: &Self) -> bool {
        let batch = |call: &Self| call.script.batched_by().map(|(batch, _)| batch);
        batch(self).zip(batch(other)).is_some_and(|(mine, its)| std::ptr::eq(mine, its))
            && self.args[0] == other.args[0]
    }
}

/// The call that carries out all of these, which go with each other.
///
/// # Panics
/// Where there is none, or one that goes alone.
pub fn batch<'a>(calls: impl Iterator<Item = &'a Call> + Clone, micros: u64) -> Call {
    let first = calls.clone().next().expect("there is one");
    let (script, _) = first.script.batched_by().expect("it goes with others");
    let (mut keys, mut args) = (Words::default(), Words::default());
    args.push(&first.args[0]);
    args.push_number(micros);
    for call in calls {
        keys.append(&call.keys, 0);
        let (_, operation) = call.script.batched_by().expect("it goes with others");
        args.push(operation);
        args.push_number(call.args.len() as u64 - 1);
        args.append(&call.args, 1);
    }
    Call { script, keys, args }
}

/// What each of `count` calls that went out together has brought, `None` where it was not carried through; and whether
/// one of them ended by an error.
pub fn outcomes(reply: Value, count: usize) -> (Vec<Option<Value>>, bool) {
    let Value::Array(replies) = reply else { return (vec![None; count], true) };
    let is_reply = |reply: &Value| match reply {
        Value::Array(_) => true,
        Value::Bulk(text) => !text.is_empty(),
        _ => false,
    };
    let has_failed = replies.len() > count || !replies.iter().all(is_reply);
    let mut outcomes: Vec<_> = replies.into_iter().map(|reply| Some(reply).filter(is_reply)).collect();
    outcomes.resize(count, None);
    (outcomes, has_failed)
}

/// The batch of a kind, whose `acquire` and `leave` are `@<word>` with their bodies, and with what stands before the
/// clock of a `leave`, if anything.
macro_rules! of_both {
    ($kind:literal, @ $acquire:ident, $($first:literal,)? @ $leave:ident) => {
        compose!(
            concat!($kind, "/batch"),
            1,
            [
                concat!($kind, "/kind.lua"),
                "batch/acquire.lua",
                @ $acquire,
                concat!($kind, "/acquire.v1.lua"),
                "batch/end.lua",
                "batch/leave.lua",
                $($first,)?
                @ $leave,
                concat!($kind, "/leave.v1.lua"),
                "batch/end.lua",
                "lib/run_batch.lua",
                concat!($kind, "/batch.v1.lua"),
            ]
        )
    };
}

pub(super) static REENTRANT: Script = of_both!("reentrant", @acquire, "first/free.lua", @leave);
pub(super) static FAIR: Script = of_both!("fair", @acquire, "first/free.lua", @leave);
pub(super) static READ_WRITE: Script = of_both!("read_write", @acquire_shared, @leave_shared);

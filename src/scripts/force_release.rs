//! `force_release`: takes a lock from its holders, and tells them.

use super::reply::{Items, Malformed, Timed};
use super::{Call, SHARED, Script, Terms, Words, compose, keys_with};
use crate::backend::Value;
use crate::name::LockKeys;

/// The request.
#[derive(Clone, Debug)]
pub struct ForceRelease<'a> {
    pub keys: &'a LockKeys,
    /// Any token of the grant that is to end: nothing happens where a later one holds the lock.
    pub token: u64,
    /// Whether that has ended, and only its holders are still to be told.
    pub goes_on: bool,
    pub terms: Terms,
}

impl ForceRelease<'_> {
    pub fn call(&self) -> Call {
        let mut args = Words::default();
        self.terms.push(false, &mut args);
        args.push_number(self.token);
        args.push_number(self.goes_on.into());
        let mut keys = keys_with(self.keys, SHARED);
        keys.push_joined(self.keys.lock(), LockKeys::ENDED);
        Call { script: &SCRIPT, keys, args }
    }
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForceReleaseReply {
    Released {
        /// Whether to call again: some of its holders are still to be told.
        more: bool,
    },
    /// Nothing but holders were told whom an earlier call had ended.
    Told {
        /// Whether some of them still are to be told.
        more: bool,
    },
    /// The lock is free, or its grant is another one.
    NotHeld,
    /// The lock's own key is in use by something else.
    ForeignKey { key: String },
}

impl ForceReleaseReply {
    /// The first words of the replies that [`ForceReleaseReply::decode`] knows.
    pub const WORDS: &'static [&'static str] = &["released", "told", "not_held", "foreign_key"];

    /// Reads the script's reply.
    pub fn decode(value: &Value) -> Result<Timed<Self>, Malformed> {
        let (word, server_millis, mut items) = Items::open(value)?;
        let reply = match word {
            "released" => Self::Released { more: items.flag()? },
            "told" => Self::Told { more: items.flag()? },
            "not_held" => Self::NotHeld,
            "foreign_key" => Self::ForeignKey { key: items.lossy()? },
            _ => return Err(Malformed),
        };
        items.close(Timed { server_millis: Some(server_millis), reply })
    }
}

pub(super) static SCRIPT: Script = compose!(
    "common/force_release",
    1,
    [
        "first/time.lua",
        "first/clock.lua",
        "lib/int.lua",
        @call,
        "lib/read_holders.lua",
        @waiting,
        @save,
        "lib/write_lock.lua",
        @walk,
        "lib/tell_ended.lua",
        "lib/pass_on.lua",
        "lib/give.lua",
        "lib/advance.lua",
        @share,
        "lib/advance_shared.lua",
        "common/force_release.v1.lua",
    ]
);

//! What the engine stores: keys with values and expiry, all on one clock that stands still during a command.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::sorted::Sorted;
use crate::sync::Arc;

pub(super) type Hash = BTreeMap<Vec<u8>, Vec<u8>>;
pub(super) type List = VecDeque<Vec<u8>>;
pub(super) type Set = BTreeSet<Vec<u8>>;

/// The text of an error, code first.
pub(super) type Problem = Cow<'static, str>;

pub(super) const WRONG_TYPE: Problem =
    Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value");

/// A key's value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    Text(Vec<u8>),
    Hash(Hash),
    List(List),
    Set(Set),
    Sorted(Sorted),
}

impl Data {
    /// Its name in the reply of `TYPE`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::Sorted(_) => "zset",
        }
    }

    /// A key whose last element is gone does not exist; an empty string does.
    fn is_gone(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Hash(hash) => hash.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::Sorted(sorted) => sorted.is_empty(),
        }
    }
}

/// The kinds of [`Data`] that commands work on.
pub(super) trait Kind: Default {
    fn of(data: &Data) -> Option<&Self>;
    fn of_mut(data: &mut Data) -> Option<&mut Self>;
    fn wrap(self) -> Data;
}

macro_rules! kind {
    ($($type:ty => $variant:ident,)*) => {
        $(impl Kind for $type {
            fn of(data: &Data) -> Option<&Self> {
                if let Data::$variant(value) = data { Some(value) } else { None }
            }

            fn of_mut(data: &mut Data) -> Option<&mut Self> {
                if let Data::$variant(value) = data { Some(value) } else { None }
            }

            fn wrap(self) -> Data {
                Data::$variant(self)
            }
        })*
    };
}
kind!(Vec<u8> => Text, Hash => Hash, List => List, Set => Set, Sorted => Sorted,);

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub data: Data,
    /// In milliseconds since 1970; `None` for ever.
    pub expires: Option<i64>,
}

/// The keys. A clone shares all values until one side changes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Keyspace {
    entries: BTreeMap<Arc<[u8]>, Arc<Entry>>,
    /// The time by which keys expire: a script sees each key either all along or never.
    frozen: i64,
    next_sweep: i64,
}

/// How often keys that nobody asks for are looked at.
const SWEEP_PERIOD: i64 = 10_000;

impl Keyspace {
    /// Sets the time for the command that begins.
    pub fn begin(&mut self, millis: i64) {
        self.frozen = millis;
        // A clock that was set back must not stop the sweep for good.
        if millis >= self.next_sweep || self.next_sweep - millis > SWEEP_PERIOD {
            self.next_sweep = millis + SWEEP_PERIOD;
            self.entries.retain(|_, entry| !is_past(entry, millis));
        }
    }

    /// The entry of a key that is there and has not expired.
    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key).map(AsRef::as_ref).filter(|entry| !is_past(entry, self.frozen))
    }

    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(key)?;
        (!is_past(entry, self.frozen)).then(|| Arc::make_mut(entry))
    }

    /// The value of a key, which must be of the kind asked for where it is there.
    pub fn read<T: Kind>(&self, key: &[u8]) -> Result<Option<&T>, Problem> {
        self.get(key).map(|entry| T::of(&entry.data).ok_or(WRONG_TYPE)).transpose()
    }

    /// Changes the value of a key that is there; removes the key where nothing is left of it.
    pub fn change<T: Kind, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<R>, Problem> {
        let Some(entry) = self.get_mut(key) else { return Ok(None) };
        let result = change(T::of_mut(&mut entry.data).ok_or(WRONG_TYPE)?);
        if entry.data.is_gone() {
            self.entries.remove(key);
        }
        Ok(Some(result))
    }

    /// The value of a key, made where it was not there: the caller puts something into it.
    pub fn make<T: Kind>(&mut self, key: &[u8]) -> Result<&mut T, Problem> {
        if self.get(key).is_none() {
            self.put(key, T::default().wrap(), None);
        }
        self.get_mut(key).and_then(|entry| T::of_mut(&mut entry.data)).ok_or(WRONG_TYPE)
    }

    /// Writes a key anew.
    pub fn put(&mut self, key: &[u8], data: Data, expires: Option<i64>) {
        let entry = Arc::new(Entry { data, expires });
        match self.entries.get_mut(key) {
            Some(old) => *old = entry,
            None => drop(self.entries.insert(key.into(), entry)),
        }
    }

    /// Whether there was such a key.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        self.entries.remove(key).is_some_and(|entry| !is_past(&entry, self.frozen))
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The names of all keys that are there, in order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().filter(|(_, entry)| !is_past(entry, self.frozen)).map(|(name, _)| name.as_ref())
    }
}

fn is_past(entry: &Entry, millis: i64) -> bool {
    entry.expires.is_some_and(|expires| millis > expires)
}

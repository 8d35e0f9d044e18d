//! Names of locks, the namespace around them, and the keys and channels that they become.

use std::fmt;

use crate::error::{InvalidName, InvalidNamespace};
use crate::ticket::ClientId;
use std::sync::Arc;

/// The longest name of a lock, in bytes of UTF-8.
pub const LONGEST_NAME: usize = 512;
/// The longest namespace, in bytes.
pub const LONGEST_NAMESPACE: usize = 64;

/// What all keys and channels of an installation begin with.
#[derive(Clone, PartialEq, Eq)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Checks `text`: 1 to 64 of `A-Z a-z 0-9 . _ : -`.
    pub fn new(text: &str) -> Result<Self, InvalidNamespace> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        if text.is_empty() {
            Err(InvalidNamespace::Empty)
        } else if text.len() > LONGEST_NAMESPACE {
            Err(InvalidNamespace::TooLong { bytes: text.len() })
        } else if let Some(found) = text.chars().find(|&c| !u8::try_from(c).is_ok_and(allowed)) {
            Err(InvalidNamespace::Character { found })
        } else {
            Ok(Self(text.into()))
        }
    }

    /// `<namespace>:layout`, the one key that is not a lock's.
    pub fn layout_key(&self) -> String {
        format!("{}:layout", self.0)
    }

    /// The channel on which `client` hears its messages on one server.
    pub fn wake_channel(&self, client: ClientId) -> String {
        format!("{}:wake:{client}", self.0)
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self("lw".into())
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The keys of one lock in one namespace. All carry the same hash tag, so they share a cluster slot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockKeys {
    lock: Arc<str>,
}

impl LockKeys {
    /// What stands behind `K` in the name of each other key.
    pub const QUEUE: &str = ":queue";
    pub const WAITING: &str = ":waiting";
    pub const READERS: &str = ":readers";
    pub const ENDED: &str = ":ended";
    pub const FENCED: &str = ":fenced";
    pub const TOKEN: &str = ":token";

    /// Checks `name` (1 to 512 bytes) and escapes it: `%`, `{` and `}` become `%25`, `%7B` and `%7D`, so that two
    /// names are never one lock and a name cannot choose its own hash tag.
    pub fn new(namespace: &Namespace, name: &str) -> Result<Self, InvalidName> {
        if name.is_empty() {
            return Err(InvalidName::Empty);
        }
        if name.len() > LONGEST_NAME {
            return Err(InvalidName::TooLong { bytes: name.len() });
        }
        let mut lock = format!("{namespace}:{{");
        for c in name.chars() {
            match c {
                '%' => lock.push_str("%25"),
                '{' => lock.push_str("%7B"),
                '}' => lock.push_str("%7D"),
                _ => lock.push(c),
            }
        }
        lock.push('}');
        Ok(Self { lock: lock.into() })
    }

    /// Reads `K` back; `None` for any other text.
    pub fn parse(lock: &str) -> Option<Self> {
        let (namespace, tag) = lock.strip_suffix('}')?.split_once(":{")?;
        let escaped = !tag.is_empty() && !tag.contains(['{', '}']);
        (escaped && Namespace::new(namespace).is_ok()).then(|| Self { lock: lock.into() })
    }

    /// `K`: the holds.
    pub fn lock(&self) -> &str {
        &self.lock
    }

    fn key(&self, suffix: &str) -> String {
        [&self.lock, suffix].concat()
    }

    /// `K:queue`: the waiting tickets, oldest first.
    pub fn queue(&self) -> String {
        self.key(Self::QUEUE)
    }

    /// `K:waiting`: what is known of each waiting ticket and client.
    pub fn waiting(&self) -> String {
        self.key(Self::WAITING)
    }

    /// `K:readers`: read holds by the end of their lease.
    pub fn readers(&self) -> String {
        self.key(Self::READERS)
    }

    /// `K:ended`: read holds that were ended by force and are still to be told.
    pub fn ended(&self) -> String {
        self.key(Self::ENDED)
    }

    /// `K:fenced`: a value that no smaller token overwrites.
    pub fn fenced(&self) -> String {
        self.key(Self::FENCED)
    }

    /// `K:token`: the last fencing token minted.
    pub fn token(&self) -> String {
        self.key(Self::TOKEN)
    }
}

/// The longest label, in bytes.
const LONGEST_LABEL: usize = 128;

/// `label`, cut to what is stored of it: a text for people is not worth an error.
pub fn cut_label(label: &str) -> &str {
    let end = (0..=LONGEST_LABEL.min(label.len())).rev().find(|&at| label.is_char_boundary(at));
    &label[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> String {
        LockKeys::new(&Namespace::default(), name).unwrap().lock().to_owned()
    }

    #[test]
    fn a_name_cannot_leave_its_hash_tag_and_no_two_names_meet() {
        let names =
            ["a", "a{b}c", "{}x", "}{", "{", "%7B", "%257B", "a:queue", "\0", "a b\r\n*?[]", "\u{1f512}"];
        let keys: Vec<String> = names.iter().map(|name| key(name)).collect();
        for (at, key) in keys.iter().enumerate() {
            let tag = key.strip_prefix("lw:{").and_then(|rest| rest.strip_suffix('}')).unwrap();
            assert!(!tag.contains(['{', '}']), "{key}");
            assert!(!keys[..at].contains(key), "{key} stands for two names");
            assert_eq!(LockKeys::parse(key).unwrap().lock(), key);
        }
        assert_eq!(key("a{b}%"), "lw:{a%7Bb%7D%25}");
        for odd in ["", "lw:{}", "lw:{a}:queue", "lw:a", "{a}", "lw:{a}b}", "l w:{a}"] {
            assert_eq!(LockKeys::parse(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn bounds_of_names_and_namespaces() {
        let keys = |name: &str| LockKeys::new(&Namespace::default(), name);
        assert_eq!(keys(""), Err(InvalidName::Empty));
        assert!(keys(&"x".repeat(512)).is_ok());
        assert_eq!(keys(&"é".repeat(257)), Err(InvalidName::TooLong { bytes: 514 }));
        assert!(Namespace::new("Az09._:-").is_ok());
        assert_eq!(Namespace::new(""), Err(InvalidNamespace::Empty));
        assert_eq!(Namespace::new(&"x".repeat(65)), Err(InvalidNamespace::TooLong { bytes: 65 }));
        for found in ['{', ' ', '*', 'é', '\n'] {
            assert_eq!(Namespace::new(&format!("a{found}")), Err(InvalidNamespace::Character { found }));
        }
    }
}

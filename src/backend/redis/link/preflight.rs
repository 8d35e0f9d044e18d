//! What a server must be and allow, found out before it is used: whatever is missing is one clear error, and what
//! may go wrong later is one warning. Nothing here needs a right that a user may lack: a server that keeps the
//! answer to itself is taken, and its refusals then speak for themselves.

use std::sync::atomic::Ordering;

use futures_util::future::try_join_all;

use crate::backend::{Failure, Value};
use crate::error::Fault;
use crate::scripts::Words;

use super::Shared;
use super::handshake::{Fresh, Trouble};

/// The oldest server that is tested: Redis 6.2, from 2021. All of Valkey is newer.
const OLDEST: (u32, u32) = (6, 2);

/// The policy under which a full server refuses writes. Every other one may throw a lock away, or its counter.
const KEEPS_ALL: &str = "noeviction";

/// What is asked under a name that no lock has, and never touched.
const NOBODY: &str = "preflight";

impl Fresh<'_> {
    /// Refuses a server that is too old, and one that is a replica. `HELLO` says both to everybody.
    pub async fn check_server(&self) -> Result<(), Trouble> {
        let hello = match self.ask("HELLO", ["3"].into()).await {
            Ok(hello) => hello,
            // It let us in in some other way.
            Err(Failure::Server(_)) => return Ok(()),
            Err(failure) => return Err(failure.into()),
        };
        if field(&hello, "role").is_some_and(|role| role == "replica" || role == "slave") {
            return Err(Trouble::Refused(Fault::ReadOnly));
        }
        match field(&hello, "version") {
            Some(version) if version_of(version).is_some_and(|found| found < OLDEST) => {
                let (major, minor) = OLDEST;
                let detail =
                    format!("its version is {version}, and {major}.{minor} is the oldest that is known");
                Err(Trouble::Refused(Fault::Unsupported { detail }))
            }
            _ => Ok(()),
        }
    }

    /// Warns, once for each client, of a server that may throw locks away when its memory is full.
    pub async fn check_eviction(&self, info: Option<&str>, shared: &Shared) {
        let policy = match info.and_then(|info| value_in(info, "maxmemory_policy")) {
            Some(policy) => Some(policy.to_owned()),
            None => self.policy().await,
        };
        let Some(policy) = policy.filter(|policy| policy != KEEPS_ALL) else { return };
        if !shared.warned_of_eviction.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                policy,
                "the server may evict locks when its memory is full: its maxmemory-policy should be noeviction"
            );
        }
    }

    async fn policy(&self) -> Option<String> {
        let asked = self.ask("CONFIG", ["GET", "maxmemory-policy"].into()).await.ok()?;
        field(&asked, "maxmemory-policy").map(str::to_owned)
    }

    /// Names every right that the user lacks, where the server tells (Redis 7 and Valkey, to a user who may run
    /// `ACL DRYRUN`). Elsewhere the first call that is denied names one.
    pub async fn check_rights(&self, needs: &Needs, shared: &Shared) -> Result<(), Trouble> {
        let Ok(Value::Bulk(user)) = self.ask("ACL", ["WHOAMI"].into()).await else { return Ok(()) };
        let user = String::from_utf8_lossy(&user).into_owned();
        let asked = needs.all(shared).into_iter().map(|need| self.lacks(&user, need));
        let lacking: Vec<Need> = try_join_all(asked).await?.into_iter().flatten().collect();
        // Scripts can be sent as texts; see `call`.
        let by_hash = |need: &Need| matches!(need.command, "EVALSHA" | "SCRIPT");
        let hashes_denied = lacking.iter().any(by_hash);
        let fatal = |need: &Need| if hashes_denied { !by_hash(need) } else { need.command != "EVAL" };
        let missing: Vec<String> = lacking.iter().filter(|need| fatal(need)).map(Need::shown).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = format!("the user {user:?} lacks the right to {}", missing.join(", "));
        Err(Trouble::Refused(Fault::Unauthorized { missing }))
    }

    /// `need`, where the server says that it is denied.
    async fn lacks(&self, user: &str, need: Need) -> Result<Option<Need>, Trouble> {
        let mut words = Words::from(["DRYRUN", user, need.command]);
        words.extend(need.words.iter().map(String::as_str));
        match self.ask("ACL", words).await {
            Ok(Value::Bulk(_)) => Ok(Some(need)),
            // Allowed; or the server tells nothing of this, by an error.
            Ok(_) | Err(Failure::Server(_)) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }
}

/// What a client works on, for its rights.
pub struct Needs {
    pub namespace: String,
    pub layout_key: String,
    pub channel: String,
}

/// A command that must be allowed, with words that it could have.
struct Need {
    command: &'static str,
    words: Vec<String>,
    /// The key or the channel that it is about.
    about: String,
}

impl Need {
    fn shown(&self) -> String {
        let Self { command, about, .. } = self;
        if about.is_empty() { (*command).to_owned() } else { format!("{command} {about}") }
    }
}

impl Needs {
    fn all(&self, shared: &Shared) -> Vec<Need> {
        let mut needs =
            vec![self.need("SUBSCRIBE", &[&self.channel], &self.channel), self.need("TIME", &[], "")];
        for (command, more) in [("GET", &[][..]), ("SET", &["1"])] {
            let words = [&[self.layout_key.as_str()], more].concat();
            needs.push(self.need(command, &words, &self.layout_key));
        }
        let mut inside: Vec<&str> =
            shared.scripts.iter().flat_map(|known| commands_of(known.script.text)).collect();
        inside.sort_unstable();
        inside.dedup();
        if !inside.is_empty() {
            let key = self.key();
            needs.push(self.need("EVALSHA", &["0", "1", &key], "scripts"));
            needs.push(self.need("SCRIPT", &["LOAD", "return 1"], "LOAD"));
            needs.push(self.need("EVAL", &["return 1", "1", &key], "scripts"));
        }
        needs.extend(inside.into_iter().filter_map(|command| self.inside(command)));
        needs
    }

    /// A command inside a script: `None` where this client never runs it.
    fn inside(&self, command: &str) -> Option<Need> {
        let &(command, words) = INSIDE.iter().find(|(known, _)| *known == command)?;
        match command {
            "TIME" => None,
            "RENAME" => {
                Some(self.need(command, &[&self.key(), &self.key()], &format!("{}:*", self.namespace)))
            }
            "PUBLISH" => Some(self.need(command, &[&self.channel, "m"], &self.channel)),
            _ => {
                let key = self.key();
                let words = [&[key.as_str()], words].concat();
                Some(self.need(command, &words, &format!("{}:*", self.namespace)))
            }
        }
    }

    fn key(&self) -> String {
        format!("{}:{{{NOBODY}}}", self.namespace)
    }

    fn need(&self, command: &'static str, words: &[&str], about: &str) -> Need {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Need { command, words, about: about.to_owned() }
    }
}

/// Every command that a script of ours may run on one server, and words that could stand behind its key.
const INSIDE: &[(&str, &[&str])] = &[
    ("DEL", &[]),
    ("EXISTS", &[]),
    ("GET", &[]),
    ("HDEL", &["f"]),
    ("HEXISTS", &["f"]),
    ("HGET", &["f"]),
    ("HGETALL", &[]),
    ("HLEN", &[]),
    ("HMGET", &["f"]),
    ("HSET", &["f", "v"]),
    ("INCRBY", &["1"]),
    ("LLEN", &[]),
    ("LPUSH", &["v"]),
    ("LRANGE", &["0", "0"]),
    ("LREM", &["1", "-"]),
    ("LTRIM", &["0", "0"]),
    ("PEXPIRE", &["1"]),
    ("PTTL", &[]),
    ("PUBLISH", &[]),
    ("RENAME", &[]),
    ("RPUSH", &["v"]),
    ("SET", &["v"]),
    ("TIME", &[]),
    ("ZADD", &["1", "m"]),
    ("ZCARD", &[]),
    ("ZRANGE", &["0", "0"]),
    ("ZRANGEBYSCORE", &["0", "0"]),
    ("ZREM", &["m"]),
    ("ZSCORE", &["m"]),
];

/// The commands that the header of a script says it needs; the list may go on in further lines, which are indented.
fn commands_of(text: &str) -> impl Iterator<Item = &str> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("-- NEEDS "));
    let first = lines.next().and_then(|line| line.strip_prefix("-- NEEDS "));
    let further = lines.map_while(|line| line.strip_prefix("--  "));
    first.into_iter().chain(further).flat_map(str::split_whitespace)
}

/// The value of a field in a reply that is a map.
fn field<'a>(map: &'a Value, name: &str) -> Option<&'a str> {
    let Value::Array(flat) = map else { return None };
    flat.chunks_exact(2).find(|pair| text(&pair[0]) == Some(name)).and_then(|pair| text(&pair[1]))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
        Value::Status(text) => Some(text),
        _ => None,
    }
}

/// The value of a line `name:value` in what `INFO` says.
pub fn value_in<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Major and minor; `None` for what is no such number.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that is not in the table would never be asked for.
    #[test]
    fn every_command_of_the_scripts_is_known() {
        for script in crate::scripts::every() {
            assert!(commands_of(script.text).next().is_some(), "{} has no NEEDS", script.name);
            for command in commands_of(script.text).filter(|&command| command != "SPUBLISH") {
                assert!(INSIDE.iter().any(|(known, _)| *known == command), "{command}");
            }
        }
    }

    #[test]
    fn a_list_of_commands_may_go_on_in_further_lines() {
        let header = "-- KEYS[1] list\n-- NEEDS    GET SET\n--          TIME\nreturn acquire(KIND) -- DEL";
        assert_eq!(commands_of(header).collect::<Vec<_>>(), ["GET", "SET", "TIME"]);
    }

    #[test]
    fn versions_are_compared_by_number() {
        let is_old = |text: &str| version_of(text).is_some_and(|found| found < OLDEST);
        assert!(["5.0.14", "6.0.16", "6.1.240"].into_iter().all(is_old));
        assert!(
            !["6.2.5", "6.10", "7.0.15", "10.0.0", "255.255.255", "unstable", ""].into_iter().any(is_old)
        );
    }
}

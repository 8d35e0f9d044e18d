//! The known differences between servers, by name, all of them. The engine speaks as redis-server 7.0 does;
//! everything that is not listed here must be equal.

use crate::support::resp::Reply;

/// Which server this is.
#[derive(Debug)]
pub struct Facts {
    pub version: (u32, u32),
    pub is_valkey: bool,
}

impl Facts {
    /// From the text of `INFO server`.
    pub fn read(info: &str) -> Self {
        let line = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let valkey = line("valkey_version:");
        let text = valkey.or_else(|| line("redis_version:")).expect("a version");
        let mut parts = text.split('.').map(|part| part.parse().expect("a number"));
        let version = (parts.next().expect("a version"), parts.next().expect("a version"));
        Self { version, is_valkey: valkey.is_some() }
    }

    fn is_before_7(&self) -> bool {
        self.version < (7, 0)
    }

    /// `scripts may break the interpreter`: before 7.0 a script may assign to globals and libraries, to the harm of
    /// every script after it.
    pub fn has_sandbox(&self) -> bool {
        !self.is_before_7()
    }

    /// `commands and options that came with 7.0`: conditions of EXPIRE, SPUBLISH, SET with NX and GET.
    pub fn extra_commands(&self) -> &'static [&'static str] {
        if self.is_before_7() {
            return &[];
        }
        &[
            "pexpire K T E",
            "pexpire K N E E",
            "expire K T E",
            "pexpireat K N E",
            "spublish F V",
            "set K V nx get",
        ]
    }

    pub fn set_options(&self) -> &'static [&'static str] {
        if self.is_before_7() { &["nx", "XX", "keepttl"] } else { &["nx", "XX", "get", "keepttl"] }
    }

    /// Before 7.0 one word too many for EXPIRE is another error: that option did not exist.
    pub fn may_repeat(&self, name: &[u8]) -> bool {
        !(self.is_before_7() && name.ends_with(b"expire") || name == b"pexpireat" && self.is_before_7())
    }

    /// `fractions that a script passes on`: Redis before 7.2 writes all 17 digits, Valkey the shortest form.
    pub fn extra_scripts(&self) -> &'static [&'static str] {
        if self.is_valkey {
            return &[];
        }
        &[
            "redis.call('set', KEYS[1], tonumber(ARGV[1]) or 0.1) return redis.call('get', KEYS[1])",
            "redis.call('set', KEYS[1], 1/3) return redis.call('get', KEYS[1])",
            "redis.call('zadd', KEYS[1], 0.1, 'm') return redis.call('zscore', KEYS[1], 'm')",
        ]
    }

    /// Whether a step lets a script call this.
    pub fn may_be_called(&self, words: &[Vec<u8>]) -> bool {
        // Subcommands are commands of their own there, with other texts again.
        !matches!(words[0].as_slice(), b"script" | b"evalsha")
    }
}

/// A difference that is known, and what makes it disappear.
pub struct Known {
    /// For people.
    #[allow(dead_code, reason = "names are what this list is for")]
    pub name: &'static str,
    pub applies: fn(&Facts) -> bool,
    /// Changes a text of the engine into what such a server says.
    pub of_engine: fn(&str) -> String,
    /// Changes a text of such a server, where it cannot be made from ours.
    pub of_server: fn(&str) -> String,
}

fn same(text: &str) -> String {
    text.to_owned()
}

/// Applied in this order to the text of every error, also where a script returns it as a value.
pub const KNOWN: &[Known] = &[
    Known {
        // So that a script that needs more than the engine has finds out what.
        name: "the engine names the command that it does not know",
        applies: |_| true,
        of_engine: |text| match text.split_once("called from script: '") {
            Some((before, rest)) => match rest.split_once('\'') {
                Some((_, after)) => format!("{before}called from script{after}"),
                None => same(text),
            },
            None => same(text),
        },
        of_server: same,
    },
    Known {
        name: "Valkey leaves out the name of the script that failed",
        applies: |facts| facts.is_valkey,
        of_engine: |text| match text.split_once(" script: ") {
            Some((before, after)) if after.get(40..45) == Some(", on ") => {
                format!("{before} script: {}", &after[42..])
            }
            _ => same(text),
        },
        of_server: same,
    },
    Known {
        name: "Valkey does not call itself Redis",
        applies: |facts| facts.is_valkey,
        of_engine: |text| {
            text.replace("Unknown Redis command", "Unknown command")
                .replace("calling Redis command", "calling command")
                .replace("This Redis command", "This Valkey command")
                .replace("for this redis lib call", "for this call")
                .replace("Lua redis lib command arguments", "Command arguments")
                .replace("No matching script. Please use EVAL.", "No matching script.")
        },
        of_server: same,
    },
    Known {
        name: "before 7.0, errors of scripts have other words around them, and no code",
        applies: Facts::is_before_7,
        of_engine: essence,
        of_server: essence,
    },
];

/// What an error of a script says, without who says it and where: the one thing that 6.2 and 7.0 share.
fn essence(text: &str) -> String {
    let mut text = text.to_owned();
    if let Some((before, _)) = text.split_once(" script: ") {
        text = before.to_owned();
    }
    if text.starts_with("ERR Error running script") {
        text = text.splitn(4, ": ").nth(2).unwrap_or_default().to_owned();
    }
    for word in ["ERR ", "@user_script: 1: ", "user_script:1: "] {
        text = text.strip_prefix(word).unwrap_or(&text).to_owned();
    }
    text.replace('`', "'")
        .replace("', '", "' '")
        .replace("', ", "' ")
        .replace("expire time in set", "expire time in 'set' command")
}

/// Applies what is known to both replies.
pub fn align(facts: &Facts, engine: Reply, server: Reply) -> (Reply, Reply) {
    KNOWN.iter().filter(|known| (known.applies)(facts)).fold((engine, server), |(engine, server), known| {
        (change(engine, known.of_engine), change(server, known.of_server))
    })
}

fn change(reply: Reply, text: fn(&str) -> String) -> Reply {
    match reply {
        Reply::Error(error) => Reply::Error(text(&error)),
        Reply::Array(items) => Reply::Array(items.into_iter().map(|item| change(item, text)).collect()),
        Reply::Bulk(bytes) => match String::from_utf8(bytes) {
            Ok(valid) => Reply::Bulk(text(&valid).into_bytes()),
            Err(error) => Reply::Bulk(error.into_bytes()),
        },
        other => other,
    }
}

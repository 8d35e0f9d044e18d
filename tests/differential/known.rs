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

    /// `SPUBLISH came with 7.0`, and with it clusters as we use them.
    pub fn has_sharded_channels(&self) -> bool {
        !self.is_before_7()
    }

    /// Whether this server is known to answer a command as 7.0 does.
    pub fn is_comparable(&self, words: &[Vec<u8>]) -> bool {
        UNLIKE.iter().all(|unlike| !(unlike.applies)(self) || !(unlike.concerns)(words))
    }
}

/// Commands that a server does not answer as 7.0 does: no step uses them there.
struct Unlike {
    #[allow(dead_code, reason = "names are what this list is for")]
    name: &'static str,
    applies: fn(&Facts) -> bool,
    concerns: fn(&[Vec<u8>]) -> bool,
}

const UNLIKE: &[Unlike] = &[
    Unlike {
        name: "EXPIRE has no conditions before 7.0",
        applies: Facts::is_before_7,
        concerns: |words| matches!(&*words[0], b"expire" | b"pexpire" | b"pexpireat") && words.len() != 3,
    },
    Unlike {
        name: "EXPIRE does not notice before 7.0 that so many seconds are too many milliseconds",
        applies: Facts::is_before_7,
        concerns: |words| {
            let large =
                |word: &Vec<u8>| integer(word).is_some_and(|seconds| seconds.checked_mul(1000).is_none());
            words[0] == b"expire" && words.iter().any(large)
        },
    },
    Unlike {
        name: "SPUBLISH came with 7.0",
        applies: Facts::is_before_7,
        concerns: |words| words[0] == b"spublish",
    },
    Unlike {
        name: "subcommands of SCRIPT that do not exist have another error before 7.0",
        applies: Facts::is_before_7,
        concerns: |words| words[0] == b"script" && words.get(1).is_none_or(|word| word != b"flush"),
    },
    Unlike {
        name: "SET takes GET together with NX only since 7.0",
        applies: Facts::is_before_7,
        concerns: |words| words[0] == b"set" && has(words, b"nx") && has(words, b"get"),
    },
    Unlike {
        name: "before 7.0, a count of 0 or less to LPOP, RPOP and ZPOPMIN is checked otherwise",
        applies: Facts::is_before_7,
        concerns: |words| {
            let positive = |word: &Vec<u8>| integer(word).is_some_and(|count| count > 0);
            matches!(&*words[0], b"lpop" | b"rpop" | b"zpopmin") && !words.iter().skip(2).all(positive)
        },
    },
    Unlike {
        name: "Valkey refuses the smallest integer as the count of LREM",
        applies: |facts| facts.is_valkey,
        concerns: |words| words[0] == b"lrem" && has(words, b"-9223372036854775808"),
    },
    Unlike {
        name: "Valkey refuses space before a bound",
        applies: |facts| facts.is_valkey,
        concerns: |words| {
            words[0][0] == b'z' && words.iter().any(|word| matches!(&**word, [b' ', ..] | [b'(', b' ', ..]))
        },
    },
    Unlike {
        name: "ZRANK has an option since 7.2",
        applies: |facts| facts.version >= (7, 2),
        concerns: |words| words[0] == b"zrank" && words.len() != 3,
    },
];

fn integer(word: &[u8]) -> Option<i64> {
    let number: i64 = str::from_utf8(word).ok()?.parse().ok()?;
    // "+1" and "01" are no integers to a server.
    (number.to_string().as_bytes() == word).then_some(number)
}

fn has(words: &[Vec<u8>], option: &[u8]) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(option))
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
        name: "Valkey writes fractions and large numbers in their shortest form, Redis with 17 digits",
        applies: |facts| facts.is_valkey,
        of_engine: as_number,
        of_server: as_number,
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
    let mut text = text.split_once(" script: ").map_or(text, |(before, _)| before);
    if text.starts_with("ERR Error running script") {
        text = text.splitn(3, ": ").nth(2).unwrap_or_default();
    }
    for word in ["ERR ", "@user_script: 1: ", "user_script:1: "] {
        text = text.strip_prefix(word).unwrap_or(text);
    }
    if text.contains("invalid expire time") || text.contains("unknown command") {
        return text.replace(['`', '\'', ','], "").replace(" command", "").trim().to_owned();
    }
    text.replace("from Lua script", "from script").replace("From Lua script", "from script")
}

/// One form for all spellings of a number.
fn as_number(text: &str) -> String {
    // Minus zero and zero are one number; Valkey does not pass on the sign.
    text.parse::<f64>().map_or_else(|_| same(text), |number| format!("{:e}", number + 0.0))
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

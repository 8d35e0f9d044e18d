//! What a server's error means to whoever asked.
//!
//! Servers tell errors apart by their first word, but not always: what goes wrong inside a script is `ERR` with the
//! reason behind it, in words that differ between servers and versions. The texts in the tests are those of Redis
//! 6.2.5 and 7.0.15 and of Valkey 9.1.2.

use std::fmt::Write;

use crate::error::Fault;
use crate::scripts::Script;

use super::ServerError;

/// What to do about an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It passes: ask again within the deadline.
    Later(String),
    /// Somebody must do something about it: asking again is of no use.
    Final(Fault),
}

/// Errors that pass by themselves: the server loads its data, runs a long script, has lost its master, is full of
/// clients, or its deployment is changing.
const PASSING: [&str; 7] =
    ["LOADING", "BUSY", "UNKILLABLE", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOSCRIPT"];
const PASSING_TEXTS: [&str; 2] = ["max number of clients", "killed by user with SCRIPT KILL"];

/// How servers say `NOPERM` about a command inside a script: Redis 7.0, Redis 7.2 and Valkey.
const DENIED_INSIDE: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// Judges `error`. A Lua error names the file and the line of `script`, whose call brought it.
pub fn judge(error: &ServerError, script: Option<&Script>) -> Verdict {
    let text = &error.text;
    let detail = || located(text, script);
    let code = code(error);
    let has = |texts: &[&str]| texts.iter().any(|known| text.contains(known));
    if PASSING.contains(&code) || has(&PASSING_TEXTS) {
        return Verdict::Later(text.clone());
    }
    Verdict::Final(match code {
        "OOM" => Fault::OutOfMemory,
        "READONLY" | "MISCONF" | "NOREPLICAS" => Fault::ReadOnly,
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => Fault::Unauthorized { missing: detail() },
        "NOPROTO" => Fault::Unsupported { detail: "it does not speak RESP3".into() },
        "MOVED" | "ASK" | "CROSSSLOT" => Fault::Unsupported {
            detail: "it is a node of a cluster, and this client knows single servers".into(),
        },
        _ if has(&DENIED_INSIDE) => Fault::Unauthorized { missing: named(text, script, detail()) },
        _ if is_unknown_command(text) => Fault::Unsupported { detail: detail() },
        _ => Fault::Rejected { detail: detail() },
    })
}

/// Whether the server has no such command, or hides it under another name.
pub fn is_unknown_command(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("unknown command") || text.contains("unknown redis command")
}

/// The first word; of an error inside a script before Redis 7 that of the command: `... user_script: 2: -OOM ...`.
fn code(error: &ServerError) -> &str {
    let inner = error.text.split_once("user_script: ").and_then(|(_, rest)| rest.split_once(": -"));
    match inner.and_then(|(_, inner)| inner.split_whitespace().next()) {
        Some(inner) if error.code == "ERR" => inner,
        _ => &error.code,
    }
}

/// The error with `user_script:<line>` replaced by the file and its own line. What stands in front of it and what
/// Redis 7 repeats behind it says nothing more.
fn located(text: &str, script: Option<&Script>) -> String {
    let Some((script, (line, what))) = script.zip(script_line(text)) else { return text.to_owned() };
    let mut located = match script.locate(line) {
        Some((file, line)) => format!("{file}:{line}"),
        None => format!("{}:{line}", script.name),
    };
    let what = what.split(" script: ").next().unwrap_or(what);
    let _ = write!(located, ": {what}");
    located
}

/// `detail` behind the command that was denied: the server names its line, and not always the command itself.
fn named(text: &str, script: Option<&Script>, detail: String) -> String {
    let Some(script) = script else { return detail };
    let Some((line, _)) = script_line(text) else {
        // The one refusal that scripts hand on instead of ending by it: a lock that gets no lease is taken back.
        return format!("PEXPIRE, denied in {}: {detail}", script.name);
    };
    let line = line.checked_sub(1).and_then(|line| script.text.lines().nth(usize::try_from(line).ok()?));
    match line.and_then(|line| line.split_once("redis.call('")?.1.split_once('\'')) {
        Some((command, _)) => format!("{command}, denied at {detail}"),
        None => detail,
    }
}

/// The line of the script that `text` names, and what is said of it: the last such pair, since some servers name
/// the line twice in front of the message.
fn script_line(text: &str) -> Option<(u32, &str)> {
    let message = text.split(" script: ").next().unwrap_or(text);
    let named = message.rsplit_once("user_script:").and_then(|(_, rest)| line_and_message(rest));
    // An error without a line of its own: Redis 7 names the line of the call behind it.
    named.or_else(|| {
        let (_, rest) = text.rsplit_once("user_script:")?;
        let (line, _) = line_and_message(rest)?;
        Some((line, message))
    })
}

fn line_and_message(text: &str) -> Option<(u32, &str)> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start_matches([':', '.', ' '])))
}

#[cfg(test)]
mod tests {
    use super::*;

    static SCRIPT: Script = Script {
        name: "test",
        version: 1,
        text: "-- one\n-- two\nreturn 1\n",
        parts: &[("lib/a.lua", "-- one\n-- two\n"), ("test.v1.lua", "return 1\n")],
    };

    fn verdict(text: &str) -> Verdict {
        let code = text.split_whitespace().next().unwrap_or_default().to_owned();
        judge(&ServerError { code, text: text.to_owned() }, Some(&SCRIPT))
    }

    #[track_caller]
    fn is(kind: &str, text: &str) {
        let verdict = verdict(text);
        assert!(format!("{verdict:?}").contains(kind), "{text}: {verdict:?}");
    }

    #[test]
    fn errors_that_pass() {
        for text in [
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "UNKILLABLE Sorry the script already executed write commands against the dataset.",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "ERR max number of clients reached",
            "ERR Script killed by user with SCRIPT KILL... script: 69, on @user_script:1.",
            "ERR Error running script (call to f_69): @user_script:1: Script killed by user with SCRIPT KILL...",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "CLUSTERDOWN The cluster is down",
        ] {
            assert!(matches!(verdict(text), Verdict::Later(_)), "{text}");
        }
    }

    #[test]
    fn errors_that_have_a_name() {
        is("OutOfMemory", "OOM command not allowed when used memory > 'maxmemory'.");
        is(
            "OutOfMemory",
            "OOM command not allowed when used memory > 'maxmemory'. script: a3, on @user_script:2.",
        );
        is(
            "OutOfMemory",
            "ERR Error running script (call to f_a3): @user_script:2: @user_script: 2: -OOM command not allowed \
             when used memory > 'maxmemory'.",
        );
        is("ReadOnly", "READONLY You can't write against a read only replica. script: on @user_script:2.");
        is(
            "ReadOnly",
            "ERR Error running script (call to f_a3): @user_script:2: @user_script: 2: -READONLY You can't write \
             against a read only replica.",
        );
        is(
            "ReadOnly",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist",
        );
        is("ReadOnly", "NOREPLICAS Not enough good replicas to write. script: a3, on @user_script:2.");
        is("Unsupported", "NOPROTO unsupported protocol version");
        is("Unsupported", "ERR unknown command 'EVALSHA'");
        is("Unsupported", "ERR Unknown Redis command called from script script: e1, on @user_script:2.");
        is("Unsupported", "MOVED 866 127.0.0.1:7001");
        is("Rejected", "ERR DB index is out of range");
        is("Rejected", "WRONGTYPE Operation against a key holding the wrong kind of value");
    }

    #[test]
    fn rights_that_are_missing() {
        for text in [
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "NOPERM User u has no permissions to run the 'script|load' command",
            "ERR The user executing the script can't run this command or subcommand script: 48, on @user_script:2.",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command \
             arguments script: d0, on @user_script:2.",
            "ERR The user executing the script can't publish to the channel mentioned in the command script: d7, \
             on @user_script:2.",
            "ERR ACL failure in script: User u has no permissions to run the 'hset' command script: on @user_script:2.",
            "ERR ACL failure in script: No permissions to access a key script: on @user_script:2.",
        ] {
            is("Unauthorized", text);
        }
    }

    #[test]
    fn a_lua_error_names_our_file_and_its_line() {
        let boom = [
            "ERR user_script:3: boom script: 5d281ae492bac8794e282be2db21b8c24cd536a5, on @user_script:3.",
            "ERR user_script:3: boom script: on @user_script:3.",
            "ERR Error running script (call to f_5d): @user_script:3: user_script:3: boom",
            "ERR Error compiling script (new function): user_script:3: boom",
            "ERR Error running script (call to f_8c): @enable_strict_lua:15: user_script:3: boom",
        ];
        for text in boom {
            assert_eq!(
                verdict(text),
                Verdict::Final(Fault::Rejected { detail: "test.v1.lua:1: boom".into() }),
                "{text}"
            );
        }
        is("lib/a.lua:2: x", "ERR user_script:2: x");
        is("test:9: x", "ERR user_script:9: x");
        is(
            "lib/a.lua:2: ERR The user executing",
            "ERR The user executing the script can't script: d7, on @user_script:2.",
        );
        is(
            "lib/a.lua:2: WRONGTYPE Operation",
            "WRONGTYPE Operation against a key script: ca, on @user_script:2.",
        );
    }
}

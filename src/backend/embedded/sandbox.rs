//! The Lua side: an interpreter whose scripts see what a server lets them see, and cannot leave anything behind.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};

use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue, VmState};

use super::commands::{self, Reply, Server};
use super::convert::{self, Replies};
use super::keyspace::Problem;
use super::words::Words;
use super::{number, sha1};
use crate::backend::Value;
use crate::scripts;
use crate::sync::{Arc, Mutex, lock};

/// What single commands and scripts share.
pub(super) struct Shared {
    pub server: Server,
    pub words: Words,
}

/// The interpreter, and what it needs to run scripts.
pub(super) struct Sandbox {
    lua: Lua,
    run: Function,
    environment: Table,
    replies: Replies,
}

/// The most memory that a foreign script gets: one that wants more fails, instead of the process.
const MEMORY_LIMIT: usize = 256 << 20;
/// How often a foreign script is looked at, in instructions, and how often before it is stopped.
const LOOK_EVERY: u32 = 1_000_000;
const LOOKS: u32 = 100;

impl Sandbox {
    pub fn new(shared: &Arc<Mutex<Shared>>) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let replies = Replies::new(&lua)?;
        let host = (
            call(&lua, shared, &replies)?,
            pcall(&lua, shared, &replies)?,
            caught(&lua, &replies)?,
            lua.create_function(|_, args| sha1hex(&args).map_err(mlua::Error::external))?,
            lua.create_function(|_, args| log(&args).map_err(mlua::Error::external))?,
            lua.create_function(place_of_fault)?,
        );
        let (run, environment) = lua.load(include_str!("sandbox.lua")).set_name("=sandbox").call(host)?;
        Ok(Self { lua, run, environment, replies })
    }

    /// Compiles a script; the error is the server's text.
    pub fn compile(&self, text: &[u8]) -> Result<Function, String> {
        let chunk = self.lua.load(text).set_name("@user_script").set_mode(mlua::chunk::ChunkMode::Text);
        chunk.set_environment(self.environment.clone()).into_function().map_err(|error| {
            let reason = match error {
                mlua::Error::SyntaxError { message, .. } => message,
                other => other.to_string(),
            };
            format!("ERR Error compiling script (new function): {reason}")
        })
    }

    /// Runs a script that is not this library's own, within limits. They cost too much for every call.
    pub fn run_foreign(&self, script: &Function, sha: &str, keys: &[&[u8]], args: &[&[u8]]) -> Reply {
        let limited = self.lua.set_memory_limit(MEMORY_LIMIT).and_then(|_| watch(&self.lua));
        let reply = match limited {
            Ok(()) => self.run(script, sha, &keys, &args),
            Err(error) => Err(format!("ERR {error}").into()),
        };
        self.lua.remove_global_hook();
        // Zero is no limit. It fails for no state of our own making.
        let _ = self.lua.set_memory_limit(0);
        reply
    }

    /// Runs a compiled script whose SHA-1 is `sha`.
    pub fn run(&self, script: &Function, sha: &str, keys: &impl Texts, args: &impl Texts) -> Reply {
        let outcome = (keys.list(&self.lua))
            .and_then(|keys| Ok((keys, args.list(&self.lua)?)))
            .and_then(|(keys, args)| self.run.call::<(bool, LuaValue)>((script, keys, args)));
        match outcome {
            Ok((true, value)) => self.replies.read(&value),
            Ok((false, fault)) => Err(fault_text(&fault, sha).into()),
            Err(error) => Err(format!("ERR {error}").into()),
        }
    }
}

/// Stops a script that does not end by itself, also one that catches errors: from then on every instruction fails.
fn watch(lua: &Lua) -> mlua::Result<()> {
    let stopped = || Err(mlua::Error::runtime("the script was stopped: it ran for too long"));
    let looks = AtomicU32::new(0);
    lua.set_global_hook(HookTriggers::new().every_nth_instruction(LOOK_EVERY), move |lua, _| {
        if looks.fetch_add(1, Ordering::Relaxed) < LOOKS {
            return Ok(VmState::Continue);
        }
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(1), move |_, _| stopped())?;
        stopped()
    })
}

/// What `KEYS` and `ARGV` are made of.
pub(super) trait Texts {
    fn list(&self, lua: &Lua) -> mlua::Result<Table>;
}

impl Texts for scripts::Words {
    fn list(&self, lua: &Lua) -> mlua::Result<Table> {
        lua.create_sequence_from(self.iter())
    }
}

impl Texts for &[&[u8]] {
    fn list(&self, lua: &Lua) -> mlua::Result<Table> {
        let words = self.iter().map(|word| lua.create_string(word));
        lua.create_sequence_from(words.collect::<mlua::Result<Vec<_>>>()?)
    }
}

/// An error of a command, on its way through Lua: raised by `redis.call` itself, so that the stack is as on a
/// server.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
struct Raised {
    text: Problem,
    /// Whether a command ran and said so.
    of_command: bool,
}

impl Raised {
    fn to_table(&self, lua: &Lua, replies: &Replies) -> mlua::Result<Table> {
        if self.of_command {
            replies.command_problem(lua, &self.text)
        } else {
            replies.problem(lua, &self.text)
        }
    }
}

fn invoke(shared: &Mutex<Shared>, args: &MultiValue) -> Result<Value, Raised> {
    let mut shared = lock(shared);
    let Shared { server, words } = &mut *shared;
    gather(words, args).map_err(|text| Raised { text: text.into(), of_command: false })?;
    commands::run_from_script(server, words).map_err(|text| Raised { text, of_command: true })
}

/// `redis.call`.
fn call(lua: &Lua, shared: &Arc<Mutex<Shared>>, replies: &Replies) -> mlua::Result<Function> {
    let (shared, replies) = (shared.clone(), replies.clone());
    lua.create_function(move |lua, args: MultiValue| {
        convert::to_lua(lua, &replies, invoke(&shared, &args).map_err(mlua::Error::external)?)
    })
}

/// `redis.pcall`.
fn pcall(lua: &Lua, shared: &Arc<Mutex<Shared>>, replies: &Replies) -> mlua::Result<Function> {
    let (shared, replies) = (shared.clone(), replies.clone());
    lua.create_function(move |lua, args: MultiValue| match invoke(&shared, &args) {
        Ok(value) => convert::to_lua(lua, &replies, value),
        Err(raised) => Ok(convert::Passed::Right(LuaValue::Table(raised.to_table(lua, &replies)?))),
    })
}

fn refused(text: &'static str) -> Raised {
    Raised { text: text.into(), of_command: false }
}

/// The text of a string or a number, as Lua writes it.
fn text_of(value: &LuaValue) -> Option<String> {
    match value {
        LuaValue::String(_) | LuaValue::Integer(_) | LuaValue::Number(_) => Some(in_words(value)),
        _ => None,
    }
}

/// `redis.sha1hex`: of what is no text, the digest of nothing.
fn sha1hex(args: &MultiValue) -> Result<String, Raised> {
    match args.iter().collect::<Vec<_>>()[..] {
        [LuaValue::String(text)] => Ok(sha1::hex(&text.as_bytes())),
        [other] => Ok(sha1::hex(text_of(other).unwrap_or_default().as_bytes())),
        _ => Err(refused("ERR wrong number of arguments")),
    }
}

/// `redis.log`.
fn log(args: &MultiValue) -> Result<(), Raised> {
    let Some(level) = args.front().filter(|_| args.len() > 1) else {
        return Err(refused("ERR redis.log() requires two arguments or more."));
    };
    // Lua takes text for a number where it is one.
    let level = text_of(level).and_then(|text| text.trim().parse::<f64>().ok());
    let level = level.ok_or_else(|| refused("ERR First argument must be a number (log level)."))?;
    if !(0.0..=3.0).contains(&level) {
        return Err(refused("ERR Invalid debug level."));
    }
    let words: Vec<_> = args.iter().skip(1).filter_map(text_of).collect();
    tracing::debug!(target: "lockwright::script", level, "{}", words.join(" "));
    Ok(())
}

/// Makes of an error that Lua caught what a server's script would have caught: a table for what `redis.call` raised.
fn caught(lua: &Lua, replies: &Replies) -> mlua::Result<Function> {
    let replies = replies.clone();
    lua.create_function(move |lua, fault: LuaValue| match raised(&fault) {
        Some(raised) => raised.to_table(lua, &replies).map(LuaValue::Table),
        None => Ok(fault),
    })
}

fn raised(fault: &LuaValue) -> Option<&Raised> {
    fault.as_error()?.chain().find_map(|error| error.downcast_ref())
}

fn gather(words: &mut Words, args: &MultiValue) -> Result<(), &'static str> {
    words.clear();
    if args.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    for arg in args {
        match arg {
            LuaValue::String(text) => words.push(&text.as_bytes()),
            LuaValue::Number(value) => words.push(number::format_double(*value).as_bytes()),
            LuaValue::Integer(value) => words.push(number::format_double(*value as f64).as_bytes()),
            _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
        }
    }
    Ok(())
}

/// The handler of errors that no script caught: notes where they happened, as the server's handler does.
fn place_of_fault(lua: &Lua, fault: LuaValue) -> mlua::Result<Table> {
    let frame = |level| {
        lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let name = source.source.map_or_else(String::new, Cow::into_owned);
            (source.what == "C", name, debug.current_line().map_or(-1, |line| line as i64))
        })
    };
    // Level 0 is this function. One function written in C, or here in its stead, does not count as the place.
    let mut level = 1;
    if frame(level).is_some_and(|(is_c, ..)| is_c) {
        level += 1;
    }
    while frame(level).is_some_and(|(_, name, _)| name == "=sandbox") {
        level += 1;
    }
    let place = lua.create_table()?;
    place.raw_set("fault", fault)?;
    if let Some((_, source, line)) = frame(level) {
        place.raw_set("source", source)?;
        place.raw_set("line", line)?;
    }
    Ok(place)
}

fn fault_text(fault: &LuaValue, sha: &str) -> String {
    let place = fault.as_table();
    let thrown = place.and_then(|place| place.raw_get::<LuaValue>("fault").ok());
    let text = match thrown.as_ref().unwrap_or(fault) {
        LuaValue::Table(table) => match table.raw_get::<LuaValue>("err") {
            Ok(text @ (LuaValue::String(_) | LuaValue::Number(_) | LuaValue::Integer(_))) => in_words(&text),
            // Redis 7.0 crashes on this, Valkey says:
            _ => "ERR unknown error".to_owned(),
        },
        other => {
            raised(other).map_or_else(|| format!("ERR {}", in_words(other)), |raised| raised.text.to_string())
        }
    };
    let source = place.and_then(|place| place.raw_get::<String>("source").ok());
    let line = place.and_then(|place| place.raw_get::<i64>("line").ok());
    match (source, line) {
        (Some(source), Some(line)) => format!("{text} script: {sha}, on {source}:{line}."),
        _ => text,
    }
}

fn in_words(value: &LuaValue) -> String {
    match value {
        LuaValue::String(text) => text.to_string_lossy(),
        other => other.to_string().unwrap_or_default(),
    }
}

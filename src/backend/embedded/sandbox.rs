//! The Lua side: an interpreter whose scripts see what a server lets them see, and cannot leave anything behind.

use std::borrow::Cow;

use mlua::{Function, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value as LuaValue};

use super::commands::{self, Server};
use super::convert::{self, Replies};
use super::words::Words;
use super::{number, sha1};
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

/// The most memory that an interpreter takes: a script that wants more fails, instead of the process.
const MEMORY_LIMIT: usize = 256 << 20;

impl Sandbox {
    pub fn new(shared: &Arc<Mutex<Shared>>) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let replies = Replies::new(&lua)?;
        let host = (
            invoke(&lua, shared, &replies)?,
            lua.create_function(|_, text: LuaString| Ok(sha1::hex(&text.as_bytes())))?,
            lua.create_function(|_, (level, text): (f64, LuaString)| {
                tracing::debug!(target: "lockwright::script", level, "{}", text.to_string_lossy());
                Ok(())
            })?,
            lua.create_function(place_of_fault)?,
        );
        let (run, environment) = lua.load(include_str!("sandbox.lua")).set_name("=sandbox").call(host)?;
        lua.set_memory_limit(MEMORY_LIMIT)?;
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

    /// Runs a compiled script whose SHA-1 is `sha`.
    pub fn run<W: AsRef<[u8]>>(
        &self,
        script: &Function,
        sha: &str,
        keys: &[W],
        args: &[W],
    ) -> commands::Reply {
        let strings = |words: &[W]| {
            let words = words.iter().map(|word| self.lua.create_string(word.as_ref()));
            words.collect::<mlua::Result<Vec<_>>>().and_then(|words| self.lua.create_sequence_from(words))
        };
        let outcome = strings(keys)
            .and_then(|keys| Ok((keys, strings(args)?)))
            .and_then(|(keys, args)| self.run.call::<(bool, LuaValue)>((script, keys, args)));
        match outcome {
            Ok((true, value)) => self.replies.read(&value),
            Ok((false, fault)) => Err(fault_text(&fault, sha).into()),
            Err(error) => Err(format!("ERR {error}").into()),
        }
    }
}

/// `redis.call` without its error handling: returns the reply, or `nil` and an error table.
fn invoke(lua: &Lua, shared: &Arc<Mutex<Shared>>, replies: &Replies) -> mlua::Result<Function> {
    let (shared, replies) = (shared.clone(), replies.clone());
    lua.create_function(move |lua, args: MultiValue| {
        let mut guard = lock(&shared);
        let Shared { server, words } = &mut *guard;
        if let Err(problem) = gather(words, &args) {
            return Ok((LuaValue::Nil, Some(replies.problem(lua, problem)?)));
        }
        let reply = commands::run_from_script(server, words);
        drop(guard);
        match reply {
            Ok(value) => Ok((convert::to_lua(lua, &replies, value)?, None)),
            Err(problem) => Ok((LuaValue::Nil, Some(replies.command_problem(lua, &problem)?))),
        }
    })
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
    // Level 0 is this function. A function written in C, or here in its stead, does not count as the place.
    let frame = |level| {
        lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let name = source.source.map_or_else(String::new, Cow::into_owned);
            (source.what == "C", name, debug.current_line().map_or(-1, |line| line as i64))
        })
    };
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
        other => format!("ERR {}", in_words(other)),
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

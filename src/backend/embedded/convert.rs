//! Between replies of commands and values of Lua, by the server's rules.

use std::borrow::Cow;

use mlua::{Either, Lua, LuaString, Table, Value as LuaValue};

use super::commands::Reply;
use super::number;
use crate::backend::Value;

/// How deep a reply's arrays may go.
const DEEPEST: usize = 100;

/// The names of fields that have a meaning in replies, kept so that they are not made anew for each.
#[derive(Clone)]
pub(super) struct Replies {
    err: LuaString,
    ok: LuaString,
    ignore: LuaString,
}

impl Replies {
    pub fn new(lua: &Lua) -> mlua::Result<Self> {
        let name = |name| lua.create_string(name);
        Ok(Self { err: name("err")?, ok: name("ok")?, ignore: name("ignore_error_stats_update")? })
    }

    /// What a script returned, as a reply: numbers are cut, `false` is nil, an array ends at its first nil.
    pub fn read(&self, value: &LuaValue) -> Reply {
        self.read_at(value, 0)
    }

    fn read_at(&self, value: &LuaValue, depth: usize) -> Reply {
        Ok(match value {
            LuaValue::String(text) => Value::Bulk(text.as_bytes().to_vec()),
            LuaValue::Integer(number) => Value::Int(*number),
            LuaValue::Number(number) => Value::Int(number::truncate(*number)),
            LuaValue::Boolean(true) => Value::Int(1),
            LuaValue::Table(table) => return self.read_table(table, depth),
            _ => Value::Nil,
        })
    }

    fn read_table(&self, table: &Table, depth: usize) -> Reply {
        if depth > DEEPEST {
            return Err("ERR reached lua stack limit".into());
        }
        if let Some(text) = field(table, &self.err) {
            return Err(one_line(&text).into());
        }
        if let Some(text) = field(table, &self.ok) {
            return Ok(Value::Status(one_line(&text)));
        }
        let items = table.sequence_values::<LuaValue>();
        let items = items.map(|item| self.read_at(&item.unwrap_or(LuaValue::Nil), depth + 1));
        items.collect::<Result<_, _>>().map(Value::Array)
    }

    /// An error that a command answered with, for a script.
    pub fn command_problem(&self, lua: &Lua, text: &str) -> mlua::Result<Table> {
        let problem = self.problem(lua, text)?;
        problem.raw_set(&self.ignore, true)?;
        Ok(problem)
    }

    /// An error of a call that reached no command, for a script.
    pub fn problem(&self, lua: &Lua, text: &str) -> mlua::Result<Table> {
        let problem = lua.create_table_with_capacity(0, 2)?;
        problem.raw_set(&self.err, text)?;
        Ok(problem)
    }
}

fn field(table: &Table, name: &LuaString) -> Option<Vec<u8>> {
    match table.raw_get::<LuaValue>(name) {
        Ok(LuaValue::String(text)) => Some(text.as_bytes().to_vec()),
        _ => None,
    }
}

/// Errors and statuses are single lines in the protocol.
fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    if text.contains(['\r', '\n']) { text.replace(['\r', '\n'], " ") } else { Cow::into_owned(text) }
}

/// A value on its way into Lua. Text goes as a Rust string where it is one: mlua passes that on without keeping a
/// reference of its own, which is most of the cost of a call.
pub(super) type Passed = Either<String, LuaValue>;

/// A command's reply, for a script: nil is `false`, a status a table.
pub(super) fn to_lua(lua: &Lua, replies: &Replies, value: Value) -> mlua::Result<Passed> {
    Ok(Either::Right(match value {
        Value::Nil => LuaValue::Boolean(false),
        Value::Int(number) => LuaValue::Number(number as f64),
        Value::Bulk(bytes) => match String::from_utf8(bytes) {
            Ok(text) => return Ok(Either::Left(text)),
            Err(error) => LuaValue::String(lua.create_string(error.as_bytes())?),
        },
        Value::Status(text) => {
            let status = lua.create_table_with_capacity(0, 1)?;
            status.raw_set(&replies.ok, text)?;
            LuaValue::Table(status)
        }
        Value::Array(items) => {
            let items = items.into_iter().map(|item| to_lua(lua, replies, item));
            LuaValue::Table(lua.create_sequence_from(items.collect::<mlua::Result<Vec<_>>>()?)?)
        }
    }))
}

//! Scripts by name and by SHA-1, and the commands that manage them.

use std::collections::BTreeMap;

use mlua::Function;

use super::commands::{self, Reply, Server};
use super::keyspace::{Keyspace, Problem};
use super::number::parse_integer;
use super::pubsub::Hub;
use super::sandbox::{Sandbox, Shared};
use super::sha1;
use super::words::Words;
use crate::backend::Value;
use crate::scripts::{self, Script};
use crate::sync::{Arc, Mutex, lock};

/// A script of this library, compiled.
struct Shipped {
    sha: String,
    compiled: Function,
    /// Cleared by `SCRIPT FLUSH`; the compiled function stays.
    loaded: bool,
}

/// The interpreter, the keys, and the scripts that were loaded.
pub(super) struct Scripting {
    shared: Arc<Mutex<Shared>>,
    sandbox: Sandbox,
    by_sha: BTreeMap<String, Function>,
    /// By the address of the script, which is static.
    shipped: BTreeMap<usize, Shipped>,
}

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

impl Scripting {
    pub fn new(hub: Hub, time: Arc<dyn Fn() -> u64 + Send + Sync>) -> Self {
        let server = Server { keys: Keyspace::default(), hub, time };
        let shared = Arc::new(Mutex::new(Shared { server, words: Words::default() }));
        let sandbox = Sandbox::new(&shared).expect("the interpreter's own script runs");
        Self { shared, sandbox, by_sha: BTreeMap::new(), shipped: BTreeMap::new() }
    }

    pub fn load_shipped(&mut self, script: &'static Script) -> Result<(), Problem> {
        let address = std::ptr::from_ref(script).addr();
        if let Some(shipped) = self.shipped.get_mut(&address) {
            shipped.loaded = true;
            return Ok(());
        }
        let sha = self.load(script.text.as_bytes())?;
        let compiled = self.by_sha[&sha].clone();
        self.shipped.insert(address, Shipped { sha, compiled, loaded: true });
        Ok(())
    }

    pub fn run_shipped(
        &mut self,
        script: &'static Script,
        keys: &scripts::Words,
        args: &scripts::Words,
    ) -> Reply {
        let address = std::ptr::from_ref(script).addr();
        self.begin();
        match self.shipped.get(&address) {
            Some(Shipped { sha, compiled, loaded: true }) => self.sandbox.run(compiled, sha, keys, args),
            _ => Err(NO_SCRIPT.into()),
        }
    }

    pub fn flush(&mut self) {
        self.by_sha.clear();
        self.shipped.values_mut().for_each(|shipped| shipped.loaded = false);
    }

    pub fn eval(&mut self, text: &[u8], keys: &[&[u8]], args: &[&[u8]]) -> Reply {
        let sha = self.load(text)?;
        self.begin();
        self.sandbox.run_foreign(&self.by_sha[&sha], &sha, keys, args)
    }

    pub fn command(&mut self, words: &[&[u8]]) -> Reply {
        let Some((name, rest)) = words.split_first() else { return Err("ERR no command".into()) };
        match name.to_ascii_lowercase().as_slice() {
            name @ (b"eval" | b"evalsha") => self.eval_command(name, rest),
            b"script" => self.script_command(rest),
            _ => {
                self.begin();
                let mut shared = lock(&self.shared);
                let Shared { server, words: buffer } = &mut *shared;
                buffer.clear();
                words.iter().for_each(|word| buffer.push(word));
                commands::run(server, buffer)
            }
        }
    }

    pub fn with_keys<R>(&self, act: impl FnOnce(&mut Keyspace) -> R) -> R {
        self.begin();
        act(&mut lock(&self.shared).server.keys)
    }

    /// Sets the time by which keys expire.
    fn begin(&self) {
        let mut shared = lock(&self.shared);
        let millis = shared.server.millis();
        shared.server.keys.begin(millis);
    }

    fn load(&mut self, text: &[u8]) -> Result<String, Problem> {
        let sha = sha1::hex(text);
        if !self.by_sha.contains_key(&sha) {
            self.by_sha.insert(sha.clone(), self.sandbox.compile(text)?);
        }
        Ok(sha)
    }

    fn eval_command(&mut self, name: &[u8], words: &[&[u8]]) -> Reply {
        let [script, number, rest @ ..] = words else {
            return Err(commands::wrong_number(&String::from_utf8_lossy(name)));
        };
        if name == b"evalsha" && script.len() != 40 {
            return Err(NO_SCRIPT.into());
        }
        let number = parse_integer(number).ok_or("ERR value is not an integer or out of range")?;
        let number = usize::try_from(number).map_err(|_| "ERR Number of keys can't be negative")?;
        if number > rest.len() {
            return Err("ERR Number of keys can't be greater than number of args".into());
        }
        let (keys, args) = rest.split_at(number);
        if name == b"eval" {
            return self.eval(script, keys, args);
        }
        let sha = String::from_utf8_lossy(script).to_ascii_lowercase();
        let compiled = self.by_sha.get(&sha).ok_or(NO_SCRIPT)?;
        self.begin();
        self.sandbox.run_foreign(compiled, &sha, keys, args)
    }

    fn script_command(&mut self, words: &[&[u8]]) -> Reply {
        let [name, rest @ ..] = words else { return Err(commands::wrong_number("script")) };
        match (name.to_ascii_lowercase().as_slice(), rest) {
            (b"load", [text]) => self.load(text).map(|sha| Value::Bulk(sha.into_bytes())),
            (b"exists", [_, ..]) => Ok(Value::Array(rest.iter().map(|sha| self.exists(sha)).collect())),
            (b"flush", []) => self.flush_command(),
            (b"flush", [how]) if how.eq_ignore_ascii_case(b"sync") => self.flush_command(),
            (b"flush", [how]) if how.eq_ignore_ascii_case(b"async") => self.flush_command(),
            (b"flush", [_]) => Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into()),
            (known @ (b"load" | b"exists" | b"flush"), _) => {
                Err(commands::wrong_number(&format!("script|{}", String::from_utf8_lossy(known))))
            }
            _ => Err(format!("ERR unknown subcommand '{}'. Try SCRIPT HELP.", String::from_utf8_lossy(name))
                .into()),
        }
    }

    fn exists(&self, sha: &[u8]) -> Value {
        let sha = String::from_utf8_lossy(sha).to_ascii_lowercase();
        Value::Int(self.by_sha.contains_key(&sha).into())
    }

    fn flush_command(&mut self) -> Reply {
        self.flush();
        commands::ok()
    }
}

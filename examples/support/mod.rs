//! What the examples share: where their locks are, workers, the command line, a store, and figures.
#![allow(dead_code, unused_imports, reason = "each example uses its own part of it")]

mod sales;
mod store;
mod workers;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;

use lockwright::{Client, ClientBuilder, Engine};

pub use sales::Sales;
pub use store::Store;
pub use workers::{KILL_ME, KILLED_WORKER, Report, as_process, run_workers};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where the locks are: on an engine in this process, or on a server.
#[derive(Clone)]
pub enum Place {
    Engine(Engine),
    Server(String),
}

impl Place {
    /// That of `--redis URL`, else an engine.
    pub fn of(options: &BTreeMap<String, String>) -> Self {
        match options.get("--redis") {
            Some(url) => Self::Server(url.clone()),
            None => Self::Engine(Engine::new()),
        }
    }

    /// A client of its own: what a process is for a server. One that is to meet others must be on the same engine.
    pub async fn client(&self) -> Result<Client, Failure> {
        self.client_with(|builder| builder).await
    }

    /// The same with settings of its own.
    pub async fn client_with(
        &self,
        customise: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<Client, Failure> {
        let builder = customise(Client::builder());
        Ok(match self {
            Self::Engine(engine) => builder.embedded_on(engine)?,
            Self::Server(url) => builder.url(url).connect().await?,
        })
    }

    /// What a worker is here.
    pub fn workers(&self) -> &'static str {
        match self {
            Self::Engine(_) => "tasks",
            Self::Server(_) => "processes",
        }
    }

    /// The URL of the server, where there is one.
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Engine(_) => None,
            Self::Server(url) => Some(url),
        }
    }
}

/// A name that no other run uses, so that runs on one server do not meet.
pub fn unique(name: &str) -> String {
    format!("{name} {}-{}", std::process::id(), shared_nanos())
}

/// Ends an example: what went wrong goes to the standard error output.
pub fn exit(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The arguments of this program.
pub fn arguments() -> Vec<String> {
    std::env::args().skip(1).collect()
}

/// Reads `arguments` by the list of those that are `known`: `--name VALUE`, or `--name` alone, which has the value "".
pub fn options(arguments: &[String], known: &[&str]) -> Result<BTreeMap<String, String>, Failure> {
    let mut options = BTreeMap::new();
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        let unknown = || format!("{name:?} is not understood; there are: {}", known.join(", "));
        let words = known.iter().map(|known| known.split(' ').collect::<Vec<_>>());
        let value = match words.into_iter().find(|words| words[0] == name).ok_or_else(unknown)?.len() {
            1 => String::new(),
            _ => rest.next().ok_or_else(unknown)?.clone(),
        };
        options.insert(name.clone(), value);
    }
    Ok(options)
}

/// Nanoseconds on a clock that all processes of this machine share.
pub fn shared_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The value below which `percent` of the sorted values are; 0 where there are none.
pub fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// A line that grows on a terminal, and is printed now and then elsewhere.
pub struct Progress {
    shown: u64,
}

impl Progress {
    pub fn new() -> Self {
        Self { shown: 0 }
    }

    pub fn show(&mut self, text: &str) {
        let terminal = std::io::stderr().is_terminal();
        let (now, pause) = (shared_nanos(), if terminal { 50_000_000 } else { 1_000_000_000 });
        if now - self.shown >= pause {
            self.shown = now;
            self.finish(text, if terminal { "" } else { "\n" });
        }
    }

    /// The last state of the line.
    pub fn end(&mut self, text: &str) {
        self.finish(text, "\n");
    }

    fn finish(&mut self, text: &str, end: &str) {
        let start = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
        eprint!("{start}{text}{end}");
    }
}

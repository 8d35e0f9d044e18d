//! What the examples share: a server where none is given, worker processes, and figures from what they report.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A `redis-server` process that only this example knows, on a Unix socket. Stopped when dropped.
pub struct Server {
    child: Child,
    pub url: String,
}

impl Server {
    /// Starts it with its files in `folder`, and returns when it is ready.
    pub fn start(folder: &std::path::Path) -> Result<Self, Failure> {
        let socket = folder.join("redis.sock").display().to_string();
        let arguments = ["--port", "0", "--unixsocket", &socket, "--save", "", "--appendonly", "no"];
        let child = Command::new("redis-server")
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                let cure =
                    "install it (Debian: `apt-get install redis-server`) or name a server by `--redis URL`";
                format!("redis-server does not start: {error}; {cure}")
            })?;
        let mut server = Self { child, url: format!("redis+unix://{socket}") };
        let mut log = BufReader::new(server.child.stdout.take().ok_or("its output is piped")?).lines();
        let ready = log.by_ref().map_while(Result::ok).any(|line| line.contains("eady to accept"));
        if !ready {
            return Err(format!("redis-server ended: {}", server.child.wait()?).into());
        }
        // Read on, or the server would stop at a full pipe.
        std::thread::spawn(move || log.for_each(drop));
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program once more, as a process that reports by lines. Stopped when dropped.
pub struct Worker {
    child: Child,
    orders: ChildStdin,
}

/// What workers report: which one, and a line; `None` when it has no more to say.
pub type Report = (usize, Option<String>);

impl Worker {
    /// Starts worker `number` with these arguments. Its lines go to `reports`.
    pub fn start(number: usize, arguments: &[String], reports: &Sender<Report>) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (lines, reports) = (child.stdout.take().ok_or("its output is piped")?, reports.clone());
        std::thread::spawn(move || {
            let lines = BufReader::new(lines).lines().map_while(Result::ok).map(Some);
            for line in lines.chain([None]) {
                let _ = reports.send((number, line));
            }
        });
        let orders = child.stdin.take().ok_or("its input is piped")?;
        Ok(Self { child, orders })
    }

    /// Says a word that the worker waits for with [`await_order`].
    pub fn order(&mut self, word: &str) -> Result<(), Failure> {
        Ok(writeln!(self.orders, "{word}")?)
    }

    /// Waits for its end, which must be a good one.
    pub fn finish(mut self) -> Result<(), Failure> {
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a worker failed: {status}").into()) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a worker: says that it is ready, and waits for the word to begin.
pub fn await_order() -> Result<(), Failure> {
    println!("ready");
    let mut word = String::new();
    match std::io::stdin().read_line(&mut word)? {
        0 => Err("the process that started this one is gone".into()),
        _ => Ok(()),
    }
}

/// Starts this many workers, lets them begin together, and gives each of their lines to `take`.
pub fn run_workers(
    count: u64,
    arguments: &[String],
    mut take: impl FnMut(usize, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (sender, reports) = channel();
    let start = |number| Worker::start(number as usize, arguments, &sender);
    let mut workers: Vec<Worker> = (0..count).map(start).collect::<Result<_, _>>()?;
    let (mut ready, mut running) = (0, workers.len());
    while running > 0 {
        // More than a worker may take for one step.
        let (number, line) = reports.recv_timeout(Duration::from_secs(60)).map_err(|_| "the workers hang")?;
        match line.as_deref() {
            Some("ready") => {
                ready += 1;
                if ready == workers.len() {
                    workers.iter_mut().try_for_each(|worker| worker.order("go"))?;
                }
            }
            Some(line) => take(number, line)?,
            None if ready < workers.len() => {
                return Err(format!("worker {number} ended before it was ready").into());
            }
            None => running -= 1,
        }
    }
    workers.into_iter().try_for_each(Worker::finish)
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

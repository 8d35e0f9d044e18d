//! Real servers, started by the test that needs one and stopped by their process id.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::resp::Connection;

/// A `redis-server` process with a folder of its own. Stopped when dropped.
pub struct Server {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
    program: PathBuf,
    extra: Vec<String>,
}

impl Server {
    /// A server without persistence on a free port and a Unix socket.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more arguments, `["--maxmemory", "2mb"]` for instance.
    pub fn start_with(extra: &[&str]) -> Self {
        Self::start_program("redis-server", extra)
    }

    /// The same with another server program.
    pub fn start_program(program: impl AsRef<OsStr>, extra: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the server");
        let extra: Vec<String> = extra.iter().map(|&arg| arg.to_owned()).collect();
        let program = PathBuf::from(program.as_ref());
        // Another process may take the port between the look and the start: then the server says so and ends.
        for _ in 0..20 {
            let port = free_port();
            if let Some(child) = spawn(&program, &folder, port, &extra) {
                return Self { child, folder, port, program, extra };
            }
        }
        panic!("{} does not start with {extra:?}", program.display());
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `redis://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// `redis+unix://<path>`.
    pub fn socket_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// A plain connection to look at the server from outside.
    pub fn connection(&self) -> Connection {
        Connection::to(self.port)
    }

    /// `kill -9`, and wait until the process is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the killed server again on the same port and folder.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.program, &self.folder, self.port, &self.extra)
            .unwrap_or_else(|| panic!("{} does not start again", self.program.display()));
    }

    /// The connections, our own view left out: each a map of what `CLIENT LIST` says.
    pub fn clients(&self) -> Vec<BTreeMap<String, String>> {
        let mut connection = self.connection();
        let own = connection.ok(&["CLIENT", "ID"]).int().to_string();
        let list = connection.ok(&["CLIENT", "LIST"]).text();
        let fields = |line: &str| {
            let pairs = line.split_whitespace().filter_map(|field| field.split_once('='));
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>()
        };
        list.lines().map(fields).filter(|client| client["id"] != own).collect()
    }

    /// Sends the process a signal, `STOP` and `CONT` for instance.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// How many scripts it has run since it started, or was asked to forget.
    pub fn script_calls(&self) -> u64 {
        let stats = self.connection().ok(&["INFO", "commandstats"]).text();
        let calls = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            line.map_or(0, |rest| {
                rest.split(',').next().and_then(|calls| calls.parse().ok()).expect("a number")
            })
        };
        calls("evalsha") + calls("eval")
    }

    /// The server's own files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to a process that this one has started. After a `STOP` no thread of it runs any more: each takes the
/// signal where it runs next, and on a busy machine one that is due goes on for a while.
pub fn signal(pid: u32, name: &str) {
    let done = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(done.expect("kill runs").success());
    if name == "STOP" {
        let child = WaitId::Pid(Pid::from_raw(pid.cast_signed()).expect("it is no group"));
        waitid(child, WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).expect("it is a child of this process");
    }
}

/// A port that nobody listens on now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// The running server, or `None` where it ended before it was ready.
fn spawn(program: &PathBuf, folder: &tempfile::TempDir, port: u16, extra: &[String]) -> Option<Child> {
    let mut child = Command::new(program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--unixsocket", &folder.path().join("redis.sock").display().to_string()])
        .args(["--dir", &folder.path().display().to_string()])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(if is_before_7(program) { &[][..] } else { &["--enable-debug-command", "yes"] })
        .args(extra)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{} must be installed: {error}", program.display()));
    let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    let ready =
        lines.by_ref().map_while(Result::ok).any(|line| line.to_lowercase().contains("ready to accept"));
    if !ready {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    // The log must be read on, or the server blocks on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Some(child)
}

/// Whether the program is a Redis 6 or older, which refuses settings that it does not know.
fn is_before_7(program: &PathBuf) -> bool {
    let output = Command::new(program).arg("--version").output();
    let output = output.unwrap_or_else(|error| panic!("{} must be installed: {error}", program.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    let major = text.split("v=").nth(1).and_then(|version| version.split('.').next()?.parse().ok());
    major.is_some_and(|major: u32| major < 7)
}

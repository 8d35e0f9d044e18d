//! A proxy of bytes between a client and a server, which can lose, delay and cut what passes. It runs on threads of
//! its own, so that it is no part of the runtime under test.
#![allow(clippy::disallowed_methods, reason = "the delay of a byte is an event here")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    ToServer,
    ToClient,
}

/// Stops when dropped.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

struct State {
    server: u16,
    stopped: AtomicBool,
    refusing: AtomicBool,
    accepted: AtomicUsize,
    delay_millis: AtomicU64,
    lines: Mutex<Vec<Arc<Line>>>,
}

/// One connection through the proxy.
struct Line {
    client: TcpStream,
    server: TcpStream,
    to_server: Pipe,
    to_client: Pipe,
}

struct Pipe {
    swallows: AtomicBool,
    /// How many more bytes pass before the connection is cut; no limit where negative.
    left: AtomicI64,
}

impl Proxy {
    /// A proxy to the server on `port`.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let own = listener.local_addr().expect("an address").port();
        let state = Arc::new(State {
            server: port,
            stopped: AtomicBool::new(false),
            refusing: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            delay_millis: AtomicU64::new(0),
            lines: Mutex::default(),
        });
        let accepting = state.clone();
        thread::spawn(move || accept(&listener, &accepting));
        Self { port: own, state }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// From now on every connection that exists loses what goes this way. New ones are good.
    pub fn swallow(&self, way: Way) {
        self.each(|line| line.pipe(way).swallows.store(true, Ordering::SeqCst));
    }

    /// The same for the `number`th connection since the start alone.
    pub fn swallow_one(&self, number: usize, way: Way) {
        let lines = self.state.lines.lock().unwrap();
        lines[number].pipe(way).swallows.store(true, Ordering::SeqCst);
    }

    /// Cuts every connection that exists.
    pub fn cut(&self) {
        self.each(Line::cut);
    }

    /// Cuts every connection that exists once so many bytes more have gone this way.
    pub fn cut_after(&self, way: Way, bytes: i64) {
        self.each(|line| line.pipe(way).left.store(bytes, Ordering::SeqCst));
    }

    /// New connections are closed at once.
    pub fn refuse(&self, refusing: bool) {
        self.state.refusing.store(refusing, Ordering::SeqCst);
    }

    /// Everything that passes takes so much longer.
    pub fn delay(&self, delay: Duration) {
        self.state.delay_millis.store(delay.as_millis().try_into().unwrap(), Ordering::SeqCst);
    }

    /// How many connections there have been, those that were refused included.
    pub fn connections(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }

    fn each(&self, act: impl Fn(&Line)) {
        self.state.lines.lock().unwrap().iter().for_each(|line| act(line));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Line {
    fn pipe(&self, way: Way) -> &Pipe {
        match way {
            Way::ToServer => &self.to_server,
            Way::ToClient => &self.to_client,
        }
    }

    fn cut(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for client in listener.incoming().map_while(Result::ok) {
        if state.stopped.load(Ordering::SeqCst) {
            return;
        }
        state.accepted.fetch_add(1, Ordering::SeqCst);
        if state.refusing.load(Ordering::SeqCst) {
            continue;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", state.server)) else { continue };
        let pipe = || Pipe { swallows: AtomicBool::new(false), left: AtomicI64::new(-1) };
        let line = Arc::new(Line { client, server, to_server: pipe(), to_client: pipe() });
        state.lines.lock().unwrap().push(line.clone());
        for way in [Way::ToServer, Way::ToClient] {
            let (line, state) = (line.clone(), state.clone());
            thread::spawn(move || {
                pump(&line, way, &state);
                line.cut();
            });
        }
    }
}

fn pump(line: &Line, way: Way, state: &State) {
    let (mut from, mut to) = match way {
        Way::ToServer => (&line.client, &line.server),
        Way::ToClient => (&line.server, &line.client),
    };
    let pipe = line.pipe(way);
    let mut bytes = [0; 65_536];
    loop {
        let Ok(read @ 1..) = from.read(&mut bytes) else { return };
        let delay = state.delay_millis.load(Ordering::SeqCst);
        if delay > 0 {
            thread::sleep(Duration::from_millis(delay));
        }
        if pipe.swallows.load(Ordering::SeqCst) {
            continue;
        }
        let left = pipe.left.load(Ordering::SeqCst);
        let passing = if left < 0 { read } else { read.min(left.try_into().unwrap()) };
        if to.write_all(&bytes[..passing]).is_err() || passing < read {
            return;
        }
        if left >= 0 {
            pipe.left.store(left - i64::try_from(passing).unwrap(), Ordering::SeqCst);
        }
    }
}

//! A proxy between a client and a server, which can lose, delay and cut what passes: any bytes, or single requests
//! that hold a given word. It runs on threads of its own, so that it is no part of the runtime under test.
#![allow(clippy::disallowed_methods, reason = "the delay of a byte is an event here")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::frames::Frames;
use super::resp::{Connection, Reply};

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    ToServer,
    ToClient,
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It never arrives, nor does anything behind it on its connection: no stream loses a piece of its middle.
    Lost,
    /// The same until [`Proxy::deliver`], as if it were stuck in a socket.
    Stuck,
    /// It arrives, and once more at [`Proxy::deliver`].
    Doubled,
    /// It arrives, and the connection is cut once so many bytes more have gone to the client.
    ReplyCut(i64),
}

/// The fate of the next requests that hold a word.
struct Doom {
    word: Vec<u8>,
    fate: Fate,
    times: usize,
}

/// Stops when dropped.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

struct State {
    server: AtomicU16,
    stopped: AtomicBool,
    refusing: AtomicBool,
    accepted: AtomicUsize,
    delay_millis: AtomicU64,
    /// How much longer than the delay anything takes at most.
    jitter_millis: AtomicU64,
    /// Whether bytes pass one by one, a thousand each second.
    slow: AtomicBool,
    /// Whether new connections, too, lose what goes to the server, or to the client.
    new_lose: [AtomicBool; 2],
    turn: Mutex<Option<(usize, u16)>>,
    dooms: Mutex<Vec<Doom>>,
    kept: Mutex<Vec<Vec<u8>>>,
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
            server: AtomicU16::new(port),
            stopped: AtomicBool::new(false),
            refusing: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            delay_millis: AtomicU64::new(0),
            jitter_millis: AtomicU64::new(0),
            slow: AtomicBool::new(false),
            new_lose: Default::default(),
            turn: Mutex::default(),
            dooms: Mutex::default(),
            kept: Mutex::default(),
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

    /// Everything that passes takes longer, by a time from `least` to `most` each.
    pub fn delay_between(&self, least: Duration, most: Duration) {
        self.delay(least);
        let span = (most - least).as_millis();
        self.state.jitter_millis.store(span.try_into().unwrap(), Ordering::SeqCst);
    }

    /// From now on bytes pass one by one, about a thousand each second.
    pub fn slow(&self) {
        self.state.slow.store(true, Ordering::SeqCst);
    }

    /// As [`swallow`](Self::swallow), and new connections are no better, until [`heal`](Self::heal).
    pub fn black_hole(&self, way: Way) {
        self.state.new_lose[way as usize].store(true, Ordering::SeqCst);
        self.swallow(way);
    }

    /// Connections are good again; those that had lost anything are cut.
    pub fn heal(&self) {
        self.state.new_lose.iter().for_each(|lose| lose.store(false, Ordering::SeqCst));
        self.refuse(false);
        self.delay_between(Duration::ZERO, Duration::ZERO);
        self.state.slow.store(false, Ordering::SeqCst);
        self.each(|line| {
            if line.has_swallowed() {
                line.cut();
            }
        });
    }

    /// After so many connections since the start, new ones go to the server on `port`.
    pub fn turn_to_after(&self, connections: usize, port: u16) {
        *self.state.turn.lock().unwrap() = Some((connections, port));
    }

    /// The next `times` requests that hold `word` meet this fate.
    pub fn doom(&self, word: &str, fate: Fate, times: usize) {
        let doom = Doom { word: word.as_bytes().to_vec(), fate, times };
        self.state.dooms.lock().unwrap().push(doom);
    }

    /// No request is doomed any more. How many had not met their fate.
    pub fn pardon(&self) -> usize {
        self.state.dooms.lock().unwrap().drain(..).map(|doom| doom.times).sum()
    }

    /// How many requests are kept for [`deliver`](Self::deliver).
    pub fn kept(&self) -> usize {
        self.state.kept.lock().unwrap().len()
    }

    /// Brings the server what was kept, on a connection that the client knows nothing of; its replies.
    pub fn deliver(&self) -> Vec<Reply> {
        let kept = std::mem::take(&mut *self.state.kept.lock().unwrap());
        let mut connection = Connection::to(self.state.server.load(Ordering::SeqCst));
        kept.iter().map(|frame| connection.raw(frame)).collect()
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

    fn has_swallowed(&self) -> bool {
        [&self.to_server, &self.to_client].iter().any(|pipe| pipe.swallows.load(Ordering::SeqCst))
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
        let before = state.accepted.fetch_add(1, Ordering::SeqCst);
        if let Some((_, port)) = state.turn.lock().unwrap().take_if(|(connections, _)| before >= *connections)
        {
            state.server.store(port, Ordering::SeqCst);
        }
        if state.refusing.load(Ordering::SeqCst) {
            continue;
        }
        let port = state.server.load(Ordering::SeqCst);
        let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let pipe = |way: Way| {
            let swallows = AtomicBool::new(state.new_lose[way as usize].load(Ordering::SeqCst));
            Pipe { swallows, left: AtomicI64::new(-1) }
        };
        let (to_server, to_client) = (pipe(Way::ToServer), pipe(Way::ToClient));
        let line = Arc::new(Line { client, server, to_server, to_client });
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

/// Passes on what comes until the line breaks.
fn pump(line: &Line, way: Way, state: &State) {
    let (mut from, to) = match way {
        Way::ToServer => (&line.client, &line.server),
        Way::ToClient => (&line.server, &line.client),
    };
    let pipe = line.pipe(way);
    let (mut bytes, mut frames) = ([0; 65_536], Frames::default());
    let mut dice = u64::from(std::process::id()) << 16 | state.accepted.load(Ordering::SeqCst) as u64;
    loop {
        let Ok(read @ 1..) = from.read(&mut bytes) else { return };
        thread::sleep(Duration::from_millis(state.delay_of(&mut dice)));
        if pipe.swallows.load(Ordering::SeqCst) {
            continue;
        }
        let passing = match way {
            Way::ToServer => state.fates(line, frames.take(&bytes[..read])),
            Way::ToClient => bytes[..read].to_vec(),
        };
        if !state.pass(pipe, to, &passing) {
            return;
        }
    }
}

impl State {
    /// How long the next bytes are kept. No test depends on which ones take how long.
    fn delay_of(&self, dice: &mut u64) -> u64 {
        let (least, jitter) =
            (self.delay_millis.load(Ordering::SeqCst), self.jitter_millis.load(Ordering::SeqCst));
        *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (*dice >> 33) % (jitter + 1)
    }

    /// What of these requests goes on to the server.
    fn fates(&self, line: &Line, requests: Vec<Vec<u8>>) -> Vec<u8> {
        let mut passing = Vec::new();
        for request in requests {
            let fate = self.fate(&request);
            if let Some(Fate::Lost | Fate::Stuck) = fate {
                line.to_server.swallows.store(true, Ordering::SeqCst);
            }
            if !line.to_server.swallows.load(Ordering::SeqCst) {
                passing.extend_from_slice(&request);
            }
            match fate {
                Some(Fate::Stuck | Fate::Doubled) => self.kept.lock().unwrap().push(request),
                Some(Fate::ReplyCut(bytes)) => line.to_client.left.store(bytes, Ordering::SeqCst),
                _ => {}
            }
        }
        passing
    }

    fn fate(&self, request: &[u8]) -> Option<Fate> {
        let mut dooms = self.dooms.lock().unwrap();
        let holds = |doom: &&mut Doom| request.windows(doom.word.len()).any(|part| part == doom.word);
        let doom = dooms.iter_mut().find(holds)?;
        let fate = doom.fate;
        doom.times -= 1;
        dooms.retain(|doom| doom.times > 0);
        Some(fate)
    }

    /// Whether all of it has passed; the line is over where it has not.
    fn pass(&self, pipe: &Pipe, mut to: &TcpStream, bytes: &[u8]) -> bool {
        let left = pipe.left.load(Ordering::SeqCst);
        let passing = if left < 0 { bytes.len() } else { bytes.len().min(left.try_into().unwrap()) };
        let slow = self.slow.load(Ordering::SeqCst);
        for piece in bytes[..passing].chunks(if slow { 1 } else { usize::MAX }) {
            if slow {
                thread::sleep(Duration::from_millis(1));
            }
            if to.write_all(piece).is_err() {
                return false;
            }
        }
        if left >= 0 {
            pipe.left.store(left - i64::try_from(passing).unwrap(), Ordering::SeqCst);
        }
        passing == bytes.len()
    }
}

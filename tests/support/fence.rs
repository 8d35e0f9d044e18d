//! A resource outside of the server under test, which refuses tokens smaller than the largest that it has seen.
//! Processes reach it over TCP. It is the judge of exclusion.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Default, Clone, Debug)]
pub struct Cell {
    pub largest: u64,
    pub accepted: u64,
    pub refused: u64,
    /// Tokens that were accepted once more after others, or not larger than those before: one for each turn is the
    /// rule where every turn writes once.
    pub repeated: u64,
}

/// Lives in the process that judges.
pub struct Fence {
    port: u16,
    cells: Arc<Mutex<BTreeMap<String, Cell>>>,
}

impl Fence {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let cells: Arc<Mutex<BTreeMap<String, Cell>>> = Arc::default();
        let shared = cells.clone();
        thread::spawn(move || {
            for writer in listener.incoming().map_while(Result::ok) {
                let cells = shared.clone();
                thread::spawn(move || serve(&writer, &cells));
            }
        });
        Self { port, cells }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn cell(&self, name: &str) -> Cell {
        self.cells.lock().unwrap().get(name).cloned().unwrap_or_default()
    }
}

fn serve(writer: &TcpStream, cells: &Mutex<BTreeMap<String, Cell>>) {
    let _ = writer.set_nodelay(true);
    for line in BufReader::new(writer).lines().map_while(Result::ok) {
        let (name, token) = line.rsplit_once(' ').expect("a name and a token");
        let token = token.parse().expect("a token");
        let accepted = cells.lock().unwrap().entry(name.to_owned()).or_default().write(token);
        let mut writer = writer;
        if writeln!(writer, "{}", u8::from(accepted)).is_err() {
            return;
        }
    }
}

impl Cell {
    fn write(&mut self, token: u64) -> bool {
        if token < self.largest {
            self.refused += 1;
            return false;
        }
        self.repeated += u64::from(token == self.largest);
        self.accepted += 1;
        self.largest = token;
        true
    }
}

/// One process's way to the resource.
pub struct Writer(BufReader<TcpStream>);

impl Writer {
    pub fn to(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the resource listens");
        stream.set_nodelay(true).expect("no delay");
        Self(BufReader::new(stream))
    }

    /// Whether the resource takes a write by this token.
    pub fn write(&mut self, name: &str, token: u64) -> bool {
        writeln!(self.0.get_mut(), "{name} {token}").expect("the resource reads");
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("the resource answers");
        answer.trim() == "1"
    }
}

//! A plain blocking connection that speaks the Redis protocol: an outside view of a server that shares no code
//! with the library.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A reply, to the byte and type.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Nil,
    Int(i64),
    Bulk(Vec<u8>),
    Status(String),
    Error(String),
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a bulk string or a status; panics on anything else.
    pub fn text(&self) -> String {
        match self {
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Status(text) => text.clone(),
            other => panic!("no text: {other:?}"),
        }
    }

    /// The same, and an empty text for nil.
    pub fn text_or_empty(&self) -> String {
        if *self == Self::Nil { String::new() } else { self.text() }
    }

    /// The number; panics on anything else.
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("no number: {other:?}"),
        }
    }

    /// The items; panics on anything else.
    pub fn items(&self) -> &[Reply] {
        match self {
            Self::Array(items) => items,
            other => panic!("no array: {other:?}"),
        }
    }

    /// The items as texts.
    pub fn texts(&self) -> Vec<String> {
        self.items().iter().map(Self::text).collect()
    }
}

pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub fn to(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self { stream: BufReader::new(stream) }
    }

    /// One command and its reply, whatever that is.
    pub fn call<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Reply {
        self.send(words);
        self.read()
    }

    /// One command whose reply must not be an error.
    pub fn ok<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Reply {
        match self.call(words) {
            Reply::Error(text) => panic!("{text}"),
            reply => reply,
        }
    }

    /// One request as it is, and its reply.
    pub fn raw(&mut self, frame: &[u8]) -> Reply {
        self.stream.get_mut().write_all(frame).expect("the server reads");
        self.read()
    }

    pub fn send<A: AsRef<[u8]>>(&mut self, words: &[A]) {
        let mut frame = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            let word = word.as_ref();
            frame.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            frame.extend_from_slice(word);
            frame.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&frame).expect("the server reads");
    }

    /// The next reply or pushed message.
    pub fn read(&mut self) -> Reply {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(rest.parse().expect("a number")),
            "_" => Reply::Nil,
            "$" => self.bulk(rest.parse().expect("a length")),
            "*" | ">" | "~" => self.array(rest.parse().expect("a length")),
            _ => panic!("unknown reply {line:?}"),
        }
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).expect("the server answers");
        // An error may quote a word that is no UTF-8.
        String::from_utf8_lossy(&line).trim_end_matches("\r\n").to_owned()
    }

    fn bulk(&mut self, length: i64) -> Reply {
        let Ok(length) = usize::try_from(length) else { return Reply::Nil };
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes).expect("the server answers");
        bytes.truncate(length);
        Reply::Bulk(bytes)
    }

    fn array(&mut self, length: i64) -> Reply {
        if length < 0 { Reply::Nil } else { Reply::Array((0..length).map(|_| self.read()).collect()) }
    }
}

//! The seam to the server: one connection to one address, without a client crate's types.
//!
//! Client crates also reconnect, resubscribe and follow redirections by themselves. None of that is used: each does
//! one thing or another that breaks locks (a reply given to another command, a second execution that nobody asked
//! for, a call that was given up and runs after the reconnect). A wire never heals: it is discarded, and
//! [`super::link`] builds the next one.

use std::time::Duration;

use crate::backend::{Failure, ServerError, Value};
use crate::config::Tls;
use crate::error::ConnectError;
use crate::scripts::Words;

use super::address::Address;

mod fred;

/// How to connect to one address, checked, so that a wrong certificate is found before the first attempt.
#[derive(Clone, Debug)]
pub struct Dialer(fred::Dialer);

/// One connection. Ends with [`Wire::discard`], or when it is dropped.
#[derive(Debug)]
pub struct Wire(fred::Connection);

/// What a wire's subscription hears.
#[derive(Debug)]
pub struct Messages(fred::Messages);

/// One item of a subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    Message(Vec<u8>),
    /// Messages were lost, because they were not read fast enough.
    Lagged,
    /// The wire is gone.
    Closed,
}

/// Why there is no wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoWire {
    /// Nobody answered, or not in time.
    Unreachable(String),
    /// The two sides do not trust each other's certificates, or one of them does not speak TLS.
    Untrusted(String),
    /// The server answered with an error.
    Refused(ServerError),
}

impl Dialer {
    /// Checks that `tls` can be used for `address`.
    pub fn new(address: &Address, tls: &Tls) -> Result<Self, ConnectError> {
        let given = tls.authorities.is_some() || tls.identity.is_some();
        if given && !address.tls {
            let reason = "certificates are given, but not a scheme that uses them, rediss:// for instance";
            return Err(ConnectError::InvalidUrl { reason: reason.into() });
        }
        fred::Dialer::new(address, tls).map(Self)
    }

    /// Connects and logs in, in RESP3. Each of the two may take as long as `limit`.
    ///
    /// # Cancel safety
    /// Cancelling it leaves no connection behind.
    pub async fn connect(&self, limit: Duration) -> Result<Wire, NoWire> {
        self.0.connect(limit).await.map(Wire)
    }
}

impl Wire {
    /// Sends a command, once, when first polled, and waits for its answer for as long as `limit`.
    ///
    /// Dropping the future does not recall the command. Every failure other than [`Failure::Server`] and
    /// [`Failure::NotSent`] is [`Failure::Unknown`]: the command may still run, even after the wire is discarded.
    pub async fn call(&self, name: &'static str, words: Words, limit: Duration) -> Result<Value, Failure> {
        self.0.call(name, words, limit).await
    }

    /// Subscribes to one channel, and returns when the server has confirmed it. After an error the wire must be
    /// discarded. Never on a wire that carries anything but pub/sub and `PING`: the answers of a refused
    /// subscription can be given to other commands.
    pub async fn subscribe(&self, channel: &str, limit: Duration) -> Result<Messages, Failure> {
        self.0.subscribe(channel, limit).await.map(Messages)
    }

    /// Ends when the connection has ended. One caller at a time. Finds no hung server: only a `PING` does.
    pub async fn closed(&self) {
        self.0.closed().await;
    }

    /// Closes the connection at once, also where the server hangs, and ends its task. Whoever waits for an answer
    /// hears [`Failure::Unknown`], and every later call [`Failure::NotSent`].
    pub async fn discard(&self) {
        self.0.discard().await;
    }
}

impl Messages {
    /// The next item.
    ///
    /// # Cancel safety
    /// Cancelling it loses no message.
    pub async fn next(&mut self) -> Heard {
        self.0.next().await
    }
}

/// A server's error text, with its first word apart. What a server repeats of a command is left out: the command
/// may be the one with the password.
pub fn server_error(text: &str) -> ServerError {
    let end = text.find(", with args beginning with").unwrap_or(text.len());
    let text = text[..end].trim_start_matches('-').to_owned();
    let code = text.split_whitespace().next().unwrap_or_default().to_owned();
    ServerError { code, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_known_by_its_first_word_and_repeats_no_arguments() {
        let error =
            server_error("ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'u' 'sesame' ");
        assert_eq!((error.code.as_str(), error.text.as_str()), ("ERR", "ERR unknown command 'HELLO'"));
        assert_eq!(server_error("NOSCRIPT No matching script.").code, "NOSCRIPT");
        assert_eq!(server_error(""), ServerError { code: String::new(), text: String::new() });
    }
}

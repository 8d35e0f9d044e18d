//! One connection: how it is made, and how each call on it ends.

use std::time::Duration;

use lockwright::internals::backend::redis::address::Address;
use lockwright::internals::backend::redis::wire::{Dialer, NoWire, Wire};
use lockwright::internals::backend::{Failure, Value};
use lockwright::internals::config::Tls;
use lockwright::internals::scripts::Words;

use crate::support::backend::LONG;

mod calls;
pub mod connecting;
mod errors;
mod subscriptions;
#[cfg(feature = "tls")]
mod tls;

pub const SHORT: Duration = Duration::from_millis(300);

pub async fn dial(url: &str) -> Result<Wire, NoWire> {
    let address = Address::parse(url).expect("a good URL");
    Dialer::new(&address, &Tls::default()).expect("a good setting").connect(LONG).await
}

pub fn words(texts: &[&str]) -> Words {
    let mut words = Words::default();
    words.extend(texts.iter().copied());
    words
}

pub async fn say(wire: &Wire, command: &[&'static str]) -> Result<Value, Failure> {
    wire.call(command[0], words(&command[1..]), LONG).await
}

pub async fn eval(wire: &Wire, text: &'static str) -> Result<Value, Failure> {
    say(wire, &["EVAL", text, "0"]).await
}

pub fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

pub fn is_unknown(outcome: &Result<Value, Failure>) -> bool {
    matches!(outcome, Err(Failure::Unknown(_)))
}

//! The back end as tests use it: its setup, scripts of their own, and its events.

use std::sync::Arc;
use std::time::Duration;

use lockwright::internals::backend::redis::{self, Setup};
use lockwright::internals::backend::{Answer, Backend, Event, EventReceiver, Failure, Up, Value};
use lockwright::internals::chance::Chance;
use lockwright::internals::clock::Clock;
use lockwright::internals::config::{Config, Secret, Tls};
use lockwright::internals::error::ConnectError;
use lockwright::internals::scripts::{Call, Script};
use lockwright::internals::ticket::ClientId;

use super::time::soon;

macro_rules! script {
    ($name:ident, $text:expr) => {
        pub static $name: Script = Script {
            name: concat!("test/", stringify!($name)),
            version: 1,
            text: $text,
            parts: &[(concat!("test/", stringify!($name), ".v1.lua"), $text)],
        };
    };
}

script!(ECHO, "return ARGV[1]\n");
script!(COUNT, "return redis.call('incr', KEYS[1])\n");
script!(BROKEN, "local nothing\nreturn nothing.at.all\n");
script!(SLOW, "local n = 0\nwhile n < 1e9 do n = n + 1 end\nreturn n\n");

pub static SCRIPTS: &[&Script] = &[&ECHO, &COUNT, &BROKEN];

/// How long a call may take where nothing goes wrong.
pub const LONG: Duration = Duration::from_secs(10);

pub fn setup(url: impl Into<String>) -> Setup {
    Setup {
        url: Secret::new(url),
        tls: Tls::default(),
        config: Config::default(),
        client: ClientId::random(),
        clock: Clock::boot(),
        chance: Chance::from_system(),
    }
}

pub fn call(script: &'static Script, keys: &[&str], args: &[&str]) -> Call {
    Call { script, keys: keys.iter().copied().collect(), args: args.iter().copied().collect() }
}

/// A back end that is up, and its first [`Up`].
pub struct Client {
    pub backend: Arc<dyn Backend>,
    pub events: EventReceiver,
    pub up: Up,
    pub channel: String,
}

impl Client {
    pub async fn connect(setup: Setup) -> Self {
        Self::try_connect(setup).await.expect("the server takes us")
    }

    pub async fn try_connect(setup: Setup) -> Result<Self, ConnectError> {
        Self::connect_with(setup, SCRIPTS).await
    }

    /// A client that knows these scripts.
    pub async fn connect_with(setup: Setup, scripts: &[&'static Script]) -> Result<Self, ConnectError> {
        let channel = setup.config.namespace.wake_channel(setup.client);
        let (backend, mut events) = redis::connect_with(setup, scripts).await?;
        let Some(Event::Up(up)) = soon("the first event", events.next()).await else {
            panic!("the first event is not the Up")
        };
        Ok(Self { backend, events, up, channel })
    }

    pub async fn event(&mut self) -> Event {
        soon("an event", self.events.next()).await.expect("the back end is there")
    }

    pub async fn next_up(&mut self) -> Up {
        loop {
            if let Event::Up(up) = self.event().await {
                return up;
            }
        }
    }

    pub async fn answer(&self, call: Call) -> Answer {
        self.backend.call(call, LONG).await
    }

    pub async fn echo(&self, text: &str) -> Result<String, Failure> {
        match self.answer(call(&ECHO, &[], &[text])).await.outcome? {
            Value::Bulk(bytes) => Ok(String::from_utf8(bytes).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    pub async fn count(&self, key: &str) -> Result<i64, Failure> {
        match self.answer(call(&COUNT, &[key], &[])).await.outcome? {
            Value::Int(number) => Ok(number),
            other => panic!("{other:?}"),
        }
    }
}

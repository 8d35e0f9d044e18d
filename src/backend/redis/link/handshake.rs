//! What a fresh wire is asked before it is used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;

use crate::backend::fault::{Verdict, judge};
use crate::backend::redis::wire::{NoWire, Wire};
use crate::backend::{Failure, ServerError, Value};
use crate::config::Config;
use crate::error::{ConnectError, Fault};
use crate::scripts::Words;
use crate::sync::Arc;

use super::call::{is_denied, load_words, warn_of_texts};
use super::preflight::value_in;
use super::{Known, Shared};

/// The layout of the data in Redis that this client knows. Clients of different layouts never share a namespace.
const LAYOUT: u32 = 1;

/// Why a wire is not there, or not good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// It passes.
    Later(String),
    Refused(Fault),
    Layout {
        found: String,
    },
}

impl From<NoWire> for Trouble {
    fn from(reason: NoWire) -> Self {
        match reason {
            NoWire::Unreachable(detail) => Self::Later(detail),
            NoWire::Untrusted(detail) => Self::Refused(Fault::Unauthorized {
                missing: format!("trust in the TLS connection: {detail}"),
            }),
            NoWire::Refused(error) => error.into(),
        }
    }
}

impl From<ServerError> for Trouble {
    fn from(error: ServerError) -> Self {
        match judge(&error, None) {
            Verdict::Later(detail) => Self::Later(detail),
            Verdict::Final(fault) => Self::Refused(fault),
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Server(error) => error.into(),
            Failure::NotSent => Self::Later("the connection was lost".into()),
            Failure::Unknown(detail) => Self::Later(detail),
        }
    }
}

impl From<Trouble> for ConnectError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Later(detail) => Self::Unavailable { detail },
            Trouble::Refused(fault) => fault.into(),
            Trouble::Layout { found } => Self::LayoutMismatch { found, known: LAYOUT },
        }
    }
}

/// A wire that is being asked.
pub struct Fresh<'a> {
    pub wire: &'a Wire,
    /// How long each answer may take.
    pub limit: Duration,
}

impl Fresh<'_> {
    /// Makes a command wire ready. Returns whether scripts are to be sent as texts.
    pub async fn prepare(
        &self,
        db: u32,
        config: &Config,
        shared: &Shared,
    ) -> Result<Arc<AtomicBool>, Trouble> {
        self.name(config).await;
        if db != 0 {
            self.ask("SELECT", [db.to_string().as_str()].into()).await?;
        }
        self.check_server().await?;
        self.check_layout(config.namespace.layout_key()).await?;
        let by_text = AtomicBool::new(false);
        let loaded = try_join_all(shared.scripts.iter().map(|known| self.load(known))).await;
        match loaded {
            Ok(_) => {}
            Err(Failure::Server(error)) if is_denied(&error, "script") => {
                by_text.store(true, Ordering::Relaxed);
                warn_of_texts(shared, &error);
            }
            Err(failure) => return Err(failure.into()),
        }
        Ok(Arc::new(by_text))
    }

    /// Shows our name in `CLIENT LIST`. Where that is denied, all else still works.
    pub async fn name(&self, config: &Config) {
        let Some(name) = &config.client_name else { return };
        if let Err(Failure::Server(error)) = self.ask("CLIENT", ["SETNAME", name].into()).await {
            tracing::warn!(error = error.text, "the server does not take the client name");
        }
    }

    /// What the server tells of itself; `None` where it keeps that to itself.
    pub async fn info(&self) -> Option<String> {
        let Ok(Value::Bulk(info)) = self.ask("INFO", Words::default()).await else { return None };
        Some(String::from_utf8_lossy(&info).into_owned())
    }

    /// Which run of which server this is.
    pub fn run_id(info: Option<&str>) -> Option<String> {
        value_in(info?, "run_id").map(str::to_owned)
    }

    /// The server's clock in milliseconds.
    pub async fn time(&self) -> Result<u64, Trouble> {
        let reply = self.ask("TIME", Words::default()).await?;
        millis(&reply).ok_or_else(|| {
            Trouble::Refused(Fault::Unsupported { detail: "its answer to TIME is not a time".into() })
        })
    }

    /// Whoever is first in a namespace marks it with its layout; a client of another one must not go on. The mark
    /// is read first, so that a server that is full or takes no writes is no trouble to those who were here before.
    async fn check_layout(&self, key: String) -> Result<(), Trouble> {
        let known = LAYOUT.to_string();
        let mut found = self.layout(&key).await?;
        if found.is_none() {
            let words = [key.as_str(), &known, "NX"].into();
            self.ask("SET", words).await?;
            found = self.layout(&key).await?;
        }
        match found {
            Some(found) if found == known => Ok(()),
            Some(found) => Err(Trouble::Layout { found }),
            None => Err(Trouble::Later("the layout mark was deleted as soon as it was set".into())),
        }
    }

    async fn layout(&self, key: &str) -> Result<Option<String>, Trouble> {
        match self.ask("GET", [key].into()).await {
            Ok(Value::Bulk(text)) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
            Ok(_) => Ok(None),
            Err(Failure::Server(error)) if error.code == "WRONGTYPE" => {
                Err(Trouble::Layout { found: "of another program".into() })
            }
            Err(failure) => Err(failure.into()),
        }
    }

    async fn load(&self, known: &Known) -> Result<(), Failure> {
        if let Value::Bulk(hash) = self.ask("SCRIPT", load_words(known.script)).await? {
            let _ = known.hash.set(String::from_utf8_lossy(&hash).into_owned());
        }
        Ok(())
    }

    pub async fn ask(&self, name: &'static str, words: Words) -> Result<Value, Failure> {
        self.wire.call(name, words, self.limit).await
    }
}

fn millis(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else { return None };
    let [Value::Bulk(seconds), Value::Bulk(micros)] = parts.as_slice() else { return None };
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u64>().ok();
    number(seconds)?.checked_mul(1_000)?.checked_add(number(micros)? / 1_000)
}

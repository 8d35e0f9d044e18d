//! One script call: by hash; where the server does not know the hash, after telling it the script; where it runs
//! no script by hash, by text. All of that is invisible above.

use std::sync::atomic::Ordering;

use crate::backend::fault::is_unknown_command;
use crate::backend::redis::wire::server_error;
use crate::backend::{Answer, Failure, ServerError, Value};
use crate::clock::Moment;
use crate::scripts::{Call, Script, Words};

use super::{Ready, Shared};

/// What becomes of a call whose script the server did not know, once it was told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Resend {
    /// It is sent again, unless it asks for a lock: the leaving of its ticket may have been sent by now, and what comes
    /// behind that would be a hold that nobody knows of. So whoever wants it still sends it again.
    AfterNoscript,
    /// It ends by the server's error.
    Never,
}

/// Sends `call` on the wire that is there now, and ends by `deadline`.
pub async fn call(shared: &Shared, call: &Call, deadline: Moment, resend: Resend) -> Answer {
    let began = shared.clock.now();
    let Some(ready) = shared.ready() else {
        let epoch = shared.epoch.load(Ordering::Relaxed);
        return Answer { outcome: Err(Failure::NotSent), sent: began, received: began, epoch };
    };
    let sending = Sending { shared, ready: &ready, call, deadline, resend };
    let (sent, outcome) = sending.run().await;
    Answer { outcome, sent, received: shared.clock.now(), epoch: ready.epoch }
}

struct Sending<'a> {
    shared: &'a Shared,
    ready: &'a Ready,
    call: &'a Call,
    deadline: Moment,
    resend: Resend,
}

type Sent = (Moment, Result<Value, Failure>);

impl Sending<'_> {
    async fn run(&self) -> Sent {
        if self.ready.by_text.load(Ordering::Relaxed) {
            return self.by_text().await;
        }
        let Some(hash) = self.hash() else { return self.told().await };
        let sent = self.send("EVALSHA", hash).await;
        match &sent.1 {
            Err(Failure::Server(error)) if error.code == "NOSCRIPT" => self.told().await,
            Err(Failure::Server(error)) if is_denied(error, "evalsha") => self.denied(error).await,
            _ => sent,
        }
    }

    /// Tells the server the script, and sends the call again. Nothing has run so far.
    async fn told(&self) -> Sent {
        let (sent, loaded) = self.attempt("SCRIPT", load_words(self.call.script)).await;
        match loaded {
            Ok(Value::Bulk(hash)) => match self.unless_resent(|| server_error("NOSCRIPT")) {
                Some(failure) => (sent, Err(failure)),
                None => self.send("EVALSHA", &String::from_utf8_lossy(&hash)).await,
            },
            Ok(_) => (sent, Err(Failure::NotSent)),
            Err(Failure::Server(error)) if is_denied(&error, "script") => self.denied(&error).await,
            Err(Failure::Server(error)) => (sent, Err(Failure::Server(error))),
            // The loading may have happened or not; the call did not.
            Err(_) => (sent, Err(Failure::NotSent)),
        }
    }

    async fn denied(&self, error: &ServerError) -> Sent {
        self.ready.by_text.store(true, Ordering::Relaxed);
        warn_of_texts(self.shared, error);
        match self.unless_resent(|| error.clone()) {
            Some(failure) => (self.shared.clock.now(), Err(failure)),
            None => self.by_text().await,
        }
    }

    /// How a call ends that has not run, and is not sent again in another way.
    fn unless_resent(&self, error: impl FnOnce() -> ServerError) -> Option<Failure> {
        match self.resend {
            Resend::Never => Some(Failure::Server(error())),
            Resend::AfterNoscript => self.call.asks().then_some(Failure::NotSent),
        }
    }

    async fn by_text(&self) -> Sent {
        self.send("EVAL", self.call.script.text).await
    }

    async fn send(&self, name: &'static str, script: &str) -> Sent {
        let Call { keys, args, .. } = self.call;
        let bytes = script.len() + 4 + keys.bytes() + args.bytes();
        let mut words = Words::with_capacity(2 + keys.len() + args.len(), bytes);
        words.push(script);
        words.push_number(keys.len() as u64);
        words.append(keys, 0);
        words.append(args, 0);
        self.attempt(name, words).await
    }

    async fn attempt(&self, name: &'static str, words: Words) -> Sent {
        let sent = self.shared.clock.now();
        let left = self.deadline.since(sent);
        if left.is_zero() {
            return (sent, Err(Failure::NotSent));
        }
        (sent, self.ready.wire.call(name, words, left).await)
    }

    fn hash(&self) -> Option<&str> {
        self.shared.known(self.call.script)?.hash.get().map(String::as_str)
    }
}

/// The words of `SCRIPT` that load `script`.
pub fn load_words(script: &Script) -> Words {
    ["LOAD", script.text].into()
}

/// Whether `error` says that there is no right to `command`, or no such command. Denied keys are another matter.
pub fn is_denied(error: &ServerError, command: &str) -> bool {
    (error.code == "NOPERM" || is_unknown_command(&error.text))
        && error.text.to_ascii_lowercase().contains(command)
}

/// Warns, once for each client, that this server runs no script by hash.
pub fn warn_of_texts(shared: &Shared, error: &ServerError) {
    if !shared.warned_of_texts.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            error = error.text,
            "scripts are sent as texts with each call, since the server refuses EVALSHA or SCRIPT LOAD"
        );
    }
}

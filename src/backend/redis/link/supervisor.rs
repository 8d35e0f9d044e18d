//! The task that keeps one server's two wires: connects, watches, discards, connects anew, and tells what happens
//! in the order in which it happens.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::watch;

use crate::backend::redis::Setup;
use crate::backend::redis::wire::{Dialer, Heard, Messages, Wire};
use crate::backend::{Epoch, Event, EventSender, Up};
use crate::clock::{Clock, Moment};
use crate::config::Config;
use crate::error::{ConnectError, Fault};
use crate::sync::Arc;

use super::backoff::Backoff;
use super::handshake::{Fresh, Trouble};
use super::preflight::Needs;
use super::pulse;
use super::{Ready, Shared};

/// No connection gets less time to be made, however short the calls' timeout is: a TLS handshake is slower.
const SHORTEST_CONNECT: Duration = Duration::from_secs(1);
/// A connection that lasted this long was good.
const GOOD_AFTER: Duration = Duration::from_secs(2);

pub struct Supervisor {
    dialer: Dialer,
    db: u32,
    config: Config,
    channel: String,
    clock: Clock,
    events: EventSender,
    shared: Arc<Shared>,
    backoff: Backoff,
    epoch: Epoch,
    command: Option<Command>,
    subscription: Option<Subscription>,
    /// What is wrong while we are not up.
    trouble: Option<Trouble>,
}

#[derive(Clone)]
struct Command {
    wire: Arc<Wire>,
    by_text: Arc<AtomicBool>,
    run_id: Option<String>,
}

struct Subscription {
    wire: Wire,
    messages: Messages,
}

/// A reading of the server's clock.
struct Sample {
    server_millis: u64,
    sent: Moment,
    received: Moment,
}

#[derive(Clone, Copy)]
enum State {
    Up,
    Deaf,
    Down,
}

impl Supervisor {
    pub fn new(dialer: Dialer, db: u32, setup: &Setup, shared: Arc<Shared>, events: EventSender) -> Self {
        Self {
            dialer,
            db,
            config: setup.config.clone(),
            channel: setup.config.namespace.wake_channel(setup.client),
            clock: setup.clock.clone(),
            events,
            shared,
            backoff: Backoff::new(setup.clock.clone(), setup.chance.clone()),
            epoch: 0,
            command: None,
            subscription: None,
            trouble: None,
        }
    }

    /// Comes up for the first time, within `unavailable_after`. What does not pass by itself ends it at once.
    pub async fn first(&mut self) -> Result<(), ConnectError> {
        let clock = self.clock.clone();
        let deadline = clock.now().plus(self.config.unavailable_after);
        tokio::select! {
            biased;
            result = self.rise() => result.map_err(ConnectError::from),
            () = clock.sleep_until(deadline) => {
                let nothing = || Trouble::Later("no connection in time".into());
                Err(self.trouble.take().unwrap_or_else(nothing).into())
            }
        }
    }

    async fn rise(&mut self) -> Result<(), Trouble> {
        loop {
            match self.try_up().await {
                Ok(()) => return Ok(()),
                Err(Trouble::Later(detail)) => self.trouble = Some(Trouble::Later(detail)),
                Err(trouble) => return Err(trouble),
            }
            self.backoff.wait().await;
        }
    }

    async fn try_up(&mut self) -> Result<(), Trouble> {
        self.command = Some(self.build_command().await?);
        self.subscribe_and_tell().await
    }

    /// Keeps the wires until `close` says so, or its sender is gone; then ends them.
    pub async fn run_until(mut self, mut close: watch::Receiver<bool>) {
        tokio::select! {
            biased;
            _ = close.wait_for(|&close| close) => {}
            () = self.run() => {}
        }
        self.discard().await;
    }

    async fn run(&mut self) {
        let mut state = State::Up;
        loop {
            state = match state {
                State::Up => self.while_up().await,
                State::Deaf => self.while_deaf().await,
                State::Down => self.while_down().await,
            };
        }
    }

    async fn while_up(&mut self) -> State {
        let began = self.clock.now();
        let interval = pulse::interval(self.config.command_timeout);
        let (Some(command), Some(subscription)) = (&self.command, &mut self.subscription) else {
            return State::Down;
        };
        let heard = pump(&mut subscription.messages, &self.events, self.epoch);
        let command_lost = tokio::select! {
            biased;
            detail = pulse::until_dead(&command.wire, interval, &self.clock) => Some(detail),
            _ = pulse::until_dead(&subscription.wire, interval, &self.clock) => None,
            () = heard => None,
        };
        if self.clock.now().since(began) >= GOOD_AFTER {
            self.backoff.reset();
        }
        match command_lost {
            Some(detail) => self.go_down(detail).await,
            None => self.go_deaf(false).await,
        }
    }

    async fn while_deaf(&mut self) -> State {
        let Some(command) = self.command.clone() else { return State::Down };
        let (clock, interval) = (self.clock.clone(), pulse::interval(self.config.command_timeout));
        let lost = tokio::select! {
            biased;
            detail = pulse::until_dead(&command.wire, interval, &clock) => Some(detail),
            () = self.hear_again() => None,
        };
        match lost {
            Some(detail) => self.go_down(detail).await,
            None => State::Up,
        }
    }

    async fn hear_again(&mut self) {
        loop {
            self.backoff.wait().await;
            match self.subscribe_and_tell().await {
                Ok(()) => return,
                Err(Trouble::Later(_)) => {}
                Err(trouble) => {
                    self.backoff.slow();
                    self.warn_of(trouble);
                }
            }
        }
    }

    async fn while_down(&mut self) -> State {
        self.backoff.wait().await;
        match self.build_command().await {
            Ok(command) => self.command = Some(command),
            Err(trouble) => return self.stay_down(trouble).await,
        }
        match self.subscribe_and_tell().await {
            Ok(()) => State::Up,
            Err(trouble) => {
                self.warn_of(trouble);
                self.go_deaf(true).await
            }
        }
    }

    /// Tells what is wrong where that has changed: a server that refuses us can become one that is not there.
    async fn stay_down(&mut self, trouble: Trouble) -> State {
        let refused_before = matches!(self.trouble, Some(Trouble::Refused(_) | Trouble::Layout { .. }));
        let news = self.trouble.as_ref() != Some(&trouble);
        self.trouble = Some(trouble.clone());
        let event = match trouble {
            Trouble::Later(detail) if refused_before => Event::Down { detail },
            Trouble::Later(_) => return State::Down,
            Trouble::Refused(fault) => Event::Refused(fault),
            layout @ Trouble::Layout { .. } => {
                Event::Refused(Fault::Unsupported { detail: ConnectError::from(layout).to_string() })
            }
        };
        if matches!(event, Event::Refused(_)) {
            self.backoff.slow();
        }
        if news {
            self.events.state(event).await;
        }
        State::Down
    }

    async fn go_down(&mut self, detail: String) -> State {
        tracing::debug!(detail, "the connection to the server is lost");
        self.discard().await;
        self.events.state(Event::Down { detail }).await;
        State::Down
    }

    async fn go_deaf(&mut self, commands_are_new: bool) -> State {
        if let Some(subscription) = self.subscription.take() {
            subscription.wire.discard().await;
        }
        if commands_are_new {
            self.publish();
        }
        self.events.state(Event::Deaf).await;
        State::Deaf
    }

    /// Builds the subscription wire beside the command wire that is there; then we are up, and say so.
    async fn subscribe_and_tell(&mut self) -> Result<(), Trouble> {
        let Some(command) = self.command.clone() else { return Err(Trouble::Later("not connected".into())) };
        let subscription = self.build_subscription(&command).await?;
        let sample = self.sample(&command).await?;
        self.subscription = Some(subscription);
        self.trouble = None;
        self.publish();
        let epoch = self.epoch;
        let up = Up {
            epoch,
            server_millis: sample.server_millis,
            sent: sample.sent,
            received: sample.received,
            // On one server PUBLISH counts all of its subscribers, whichever connection asks.
            counted: true,
            // A server that hides its run may be another one each time.
            run_id: command.run_id.unwrap_or_else(|| format!("hidden, epoch {epoch}")),
        };
        self.events.state(Event::Up(up)).await;
        Ok(())
    }

    async fn build_command(&self) -> Result<Command, Trouble> {
        let wire = self.dialer.connect(self.connect_limit()).await?;
        let fresh = self.fresh(&wire);
        // A right that is taken away later is the trouble of those calls that need it.
        if self.epoch == 0 {
            fresh.check_rights(&self.needs(), &self.shared).await?;
        }
        let by_text = fresh.prepare(self.db, &self.config, &self.shared).await?;
        let info = fresh.info().await;
        fresh.check_eviction(info.as_deref(), &self.shared).await;
        Ok(Command { run_id: Fresh::run_id(info.as_deref()), wire: Arc::new(wire), by_text })
    }

    async fn build_subscription(&self, command: &Command) -> Result<Subscription, Trouble> {
        let wire = self.dialer.connect(self.connect_limit()).await?;
        let fresh = self.fresh(&wire);
        fresh.name(&self.config).await;
        let run_id = Fresh::run_id(fresh.info().await.as_deref());
        if run_id.is_some() && command.run_id.is_some() && run_id != command.run_id {
            // A failover between the two: both must be at the new server, or the messages' clock is not the replies'.
            command.wire.discard().await;
            return Err(Trouble::Later("another server answers at this address".into()));
        }
        let messages = wire.subscribe(&self.channel, self.connect_limit()).await?;
        Ok(Subscription { wire, messages })
    }

    async fn sample(&self, command: &Command) -> Result<Sample, Trouble> {
        let sent = self.clock.now();
        let server_millis = self.fresh(&command.wire).time().await?;
        Ok(Sample { server_millis, sent, received: self.clock.now() })
    }

    /// Lets calls go out, in a new epoch.
    fn publish(&mut self) {
        let Some(command) = self.command.clone() else { return };
        self.epoch += 1;
        self.shared.set_ready(Some(Ready {
            epoch: self.epoch,
            wire: command.wire,
            by_text: command.by_text,
        }));
    }

    /// Ends both wires: no call goes out after this.
    async fn discard(&mut self) {
        self.shared.set_ready(None);
        if let Some(command) = self.command.take() {
            command.wire.discard().await;
        }
        if let Some(subscription) = self.subscription.take() {
            subscription.wire.discard().await;
        }
    }

    fn warn_of(&mut self, trouble: Trouble) {
        if self.trouble.as_ref() != Some(&trouble) {
            let reason = ConnectError::from(trouble.clone()).to_string();
            tracing::warn!(reason, "no subscription: waiters poll until there is one");
            self.trouble = Some(trouble);
        }
    }

    fn needs(&self) -> Needs {
        let namespace = &self.config.namespace;
        Needs {
            namespace: namespace.to_string(),
            layout_key: namespace.layout_key(),
            channel: self.channel.clone(),
        }
    }

    fn connect_limit(&self) -> Duration {
        self.config.command_timeout.max(SHORTEST_CONNECT)
    }

    fn fresh<'a>(&self, wire: &'a Wire) -> Fresh<'a> {
        Fresh { wire, limit: self.connect_limit() }
    }
}

/// Passes messages on until there are no more.
async fn pump(messages: &mut Messages, events: &EventSender, epoch: Epoch) {
    loop {
        match messages.next().await {
            Heard::Message(text) => events.message(text, epoch),
            Heard::Lagged => events.lagged(),
            Heard::Closed => return,
        }
    }
}

//! Redis and Valkey over the network.
//!
//! | file | question |
//! |---|---|
//! | [`address`] | what does a URL say? |
//! | [`wire`] | how does one connection behave? (`wire/fred.rs`: over which crate?) |
//! | [`link`] | how is one server kept: connect, watch, connect anew? |
//! | [`topology`] | which server has a key? |
//!
//! A server must be Redis 6.2 or newer, or Valkey, and a master; `link/preflight.rs` finds out. The user needs the
//! rights to `GET` and `SET` the namespace's layout key, to `SUBSCRIBE` to the client's channel, to `TIME`, and to what
//! the scripts do; `INFO`, `CONFIG`, `CLIENT`, `ACL` and `PING` may be denied. Where `EVALSHA` or `SCRIPT LOAD` is
//! denied, `EVAL` is used. See `docs/operating.md`.

use std::time::Duration;

use crate::backend::{Answer, Backend, EventReceiver, Failure, Pending};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::{Config, Secret, Tls};
use crate::error::ConnectError;
use crate::scripts::{self, Call, Script, Words};
use crate::sync::Arc;
use crate::ticket::ClientId;

use address::Address;
use link::Link;
use topology::Topology;
use wire::Dialer;

pub mod address;
pub mod link;
pub mod topology;
pub mod wire;

/// What a client brings along.
#[derive(Debug)]
pub struct Setup {
    pub url: Secret,
    pub tls: Tls,
    pub config: Config,
    pub client: ClientId,
    pub clock: Clock,
    pub chance: Chance,
}

/// Connects to the server that the URL names, and returns when up for the first time, which is the first event, or
/// fails within `unavailable_after`. The back end lives on the current tokio runtime, and ends when it is closed or
/// dropped.
///
/// # Cancel safety
/// Cancelling it leaves no connection behind.
pub async fn connect(setup: Setup) -> Result<(Arc<dyn Backend>, EventReceiver), ConnectError> {
    let every: Vec<_> = scripts::every().collect();
    connect_with(setup, &every).await
}

/// The same with other scripts than those that are shipped.
pub async fn connect_with(
    setup: Setup,
    scripts: &[&'static Script],
) -> Result<(Arc<dyn Backend>, EventReceiver), ConnectError> {
    let address = Address::parse(setup.url.reveal())?;
    let dialer = Dialer::new(&address, &setup.tls)?;
    let (link, events) = Link::connect(dialer, address.db, &setup, scripts).await?;
    let backend: Arc<dyn Backend> = Arc::new(Redis { topology: Topology::of_one(link) });
    Ok((backend, events))
}

#[derive(Debug)]
struct Redis {
    topology: Topology,
}

impl Backend for Redis {
    fn call(&self, call: Call, timeout: Duration) -> Pending<Answer> {
        self.topology.home(&call.keys).call(call, timeout)
    }

    fn ping(&self, timeout: Duration) -> Pending<Result<Duration, Failure>> {
        self.topology.home(&Words::default()).ping(timeout)
    }

    fn close(&self) -> Pending<()> {
        let closings: Vec<_> = self.topology.servers().map(Link::close).collect();
        Box::pin(async move {
            for closing in closings {
                closing.await;
            }
        })
    }
}

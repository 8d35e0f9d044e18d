//! A client's settings.

use std::fmt;
use std::time::Duration;

use crate::lease::Lease;
use crate::name::Namespace;
use crate::sync::Arc;

/// Everything that a client is told before it connects, checked.
#[derive(Clone, Debug)]
pub struct Config {
    pub namespace: Namespace,
    /// The lease of handles that name no other.
    pub lease: Lease,
    /// The first, short lease of a hold that is handed over.
    pub claim: Duration,
    /// How long the server keeps the places of a client that is silent.
    pub client_deadline: Duration,
    /// How long one call may take.
    pub command_timeout: Duration,
    /// How long an operation waits for a server that does not answer.
    pub unavailable_after: Duration,
    /// How long a cached read is kept without readers.
    pub cache_idle: Duration,
    /// What `CLIENT LIST` shows.
    pub client_name: Option<String>,
    /// What is stored beside this client's holds, for people who inspect them.
    pub label: Option<Arc<str>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            namespace: Namespace::default(),
            lease: Lease::default(),
            claim: Duration::from_secs(3),
            client_deadline: Duration::from_secs(10),
            command_timeout: Duration::from_secs(1),
            unavailable_after: Duration::from_secs(10),
            cache_idle: Duration::from_secs(60),
            client_name: None,
            label: None,
        }
    }
}

/// Text that never shows in `Debug`, errors or logs: URLs, passwords, keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// What `rediss://` trusts, and what it shows of itself: PEM texts.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The authorities that may sign the server's certificate, instead of the system's.
    pub authorities: Option<String>,
    /// The client's certificate chain and its private key.
    pub identity: Option<(String, Secret)>,
}

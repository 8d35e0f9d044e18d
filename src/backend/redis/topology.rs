//! Where a key lives.

use crate::scripts::Words;

use super::link::Link;

/// The deployment: so far one server, which has every key.
#[derive(Debug)]
pub struct Topology {
    server: Link,
}

impl Topology {
    pub fn of_one(server: Link) -> Self {
        Self { server }
    }

    /// The server that has all keys of a call.
    pub fn home(&self, _keys: &Words) -> &Link {
        &self.server
    }

    /// The servers, each once.
    pub fn servers(&self) -> impl Iterator<Item = &Link> {
        std::iter::once(&self.server)
    }
}

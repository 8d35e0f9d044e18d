//! Channels: who listens, and what they hear.

use std::collections::BTreeMap;
use std::fmt;

use crate::sync::{Arc, Mutex, lock};

/// What a subscriber does with a message. It decides alone: one that drops messages is counted as a receiver all
/// the same, as a peer behind a dead connection is.
///
/// It is called while the engine works, so it must not call the engine.
pub type Sink = Box<dyn Fn(Vec<u8>) + Send + Sync>;

/// `SPUBLISH` and `PUBLISH` do not reach each other's subscribers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Channels {
    /// Of `SUBSCRIBE` and `PUBLISH`.
    Plain,
    /// Of `SSUBSCRIBE` and `SPUBLISH`.
    Sharded,
}

type Channel = (Channels, Vec<u8>);

#[derive(Default)]
struct Listening {
    next_id: u64,
    channels: BTreeMap<Channel, BTreeMap<u64, Arc<Sink>>>,
}

/// All subscriptions to one engine.
#[derive(Clone, Default)]
pub(super) struct Hub(Arc<Mutex<Listening>>);

impl Hub {
    pub fn subscribe(&self, channels: Channels, name: &[u8], sink: Sink) -> Subscription {
        let mut listening = lock(&self.0);
        let id = listening.next_id;
        listening.next_id += 1;
        let channel = (channels, name.to_vec());
        listening.channels.entry(channel.clone()).or_default().insert(id, Arc::new(sink));
        Subscription { hub: self.clone(), channel, id }
    }

    /// Hands the message to every subscriber, first come first served, and counts them.
    pub fn publish(&self, channels: Channels, name: &[u8], message: &[u8]) -> usize {
        let sinks: Vec<_> = match lock(&self.0).channels.get(&(channels, name.to_vec())) {
            Some(subscribers) => subscribers.values().cloned().collect(),
            None => return 0,
        };
        // Not under the lock: a sink may end subscriptions.
        sinks.iter().for_each(|sink| sink(message.to_vec()));
        sinks.len()
    }

    /// The channels that have subscribers.
    pub fn channels(&self) -> Vec<Vec<u8>> {
        lock(&self.0).channels.keys().map(|(_, name)| name.clone()).collect()
    }
}

/// A subscription, which ends when this is dropped.
#[must_use = "dropping it unsubscribes"]
pub struct Subscription {
    hub: Hub,
    channel: Channel,
    id: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut listening = lock(&self.hub.0);
        let Some(subscribers) = listening.channels.get_mut(&self.channel) else { return };
        let sink = subscribers.remove(&self.id);
        if subscribers.is_empty() {
            listening.channels.remove(&self.channel);
        }
        drop(listening);
        // What the sink owns may be a subscription too.
        drop(sink);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscription({})", String::from_utf8_lossy(&self.channel.1))
    }
}

//! Redis and Valkey over the network.

pub mod address;
pub mod wire;

//! Redis and Valkey over the network.

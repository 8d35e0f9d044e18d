//! What the tests share: servers of their own, a plain connection to look at them from outside, unique names.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

pub mod backend;
pub mod fence;
pub mod frames;
pub mod kinds;
pub mod logs;
pub mod proxy;
pub mod resp;
pub mod server;
pub mod time;
pub mod tls;
pub mod worker;

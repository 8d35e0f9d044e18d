//! The scripts themselves against a real server, called and read through the library's own types: every rule of the
//! protocol that can be seen from outside.

mod batch;
mod denied;
mod fenced;
mod handover;
mod holds;
mod keys;
mod limits;
mod queue;
mod random;
mod read_write;
pub mod rig;
mod tokens;

//! Everything that is tested on real servers and on the text of this repository.

mod auto_traits;
mod chaos_faults;
mod conformance;
mod dependencies;
#[cfg(feature = "embedded")]
mod differential;
#[cfg(feature = "embedded")]
mod engine;
mod examples;
mod fair;
mod faults;
mod forged;
mod layers;
mod link;
mod protocol;
mod reentry;
mod scripts;
mod suite;
mod support;
mod wire;

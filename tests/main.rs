//! Everything that is tested on real servers and on the text of this repository.

mod protocol;
mod scripts;
mod support;

#[cfg(feature = "embedded")]
mod differential;
#[cfg(feature = "embedded")]
mod engine;

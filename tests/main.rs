//! Everything that is tested on real servers and on the text of this repository.

mod link;
mod protocol;
mod scripts;
mod support;
mod wire;

#[cfg(feature = "embedded")]
#[cfg(feature = "embedded")]
mod differential;

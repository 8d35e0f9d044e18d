//! Everything that is tested on real servers and on the text of this repository.

mod auto_traits;
mod conformance;
mod dependencies;
mod examples;
mod layers;
mod scripts;
mod suite;
mod support;

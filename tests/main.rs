//! Everything that is tested on real servers and on the text of this repository.

mod dependencies;
mod layers;
mod support;

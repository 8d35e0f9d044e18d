//! Everything that is tested on real servers and on the text of this repository.

mod auto_traits;
mod dependencies;
mod layers;
mod support;

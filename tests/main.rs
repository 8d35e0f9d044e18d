//! Everything that is tested on real servers and on the text of this repository.

mod protocol;
mod scripts;
mod link;
mod support;
mod wire;

//! Whatever a client hears on its channel: read without a panic, and the same again where it is read at all.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockwright::internals::scripts::Message;

fuzz_target!(|text: &[u8]| {
    if let Some(message) = Message::parse(text) {
        assert_eq!(Message::parse(text), Some(message));
    }
});

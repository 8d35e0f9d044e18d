//! Whatever a server answers to a script call: decoded without a panic. The bytes are a reply in the notation of
//! `value.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../value.rs"]
mod value;

fuzz_target!(|bytes: &[u8]| value::decode_all(&value::read(bytes)));

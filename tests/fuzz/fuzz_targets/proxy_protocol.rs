//! `cargo fuzz run proxy_protocol`. `weir_fuzz::TARGETS` describes the checks.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::run("proxy_protocol", data));

#[cfg(not(fuzzing))]
fn main() {}

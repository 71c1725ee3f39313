//! `cargo fuzz run pretty`; what it checks is in `weir_fuzz::TARGETS`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::run("pretty", data));

#[cfg(not(fuzzing))]
fn main() {}

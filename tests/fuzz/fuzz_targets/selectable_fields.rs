//! `cargo fuzz run selectable_fields`; what it checks is in `weir_fuzz::TARGETS`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::run("selectable_fields", data));

#[cfg(not(fuzzing))]
fn main() {}

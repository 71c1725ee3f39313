//! `cargo fuzz run field_selector`; what it checks is in `weir_fuzz::targets::field_selector`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::targets::field_selector(data));

#[cfg(not(fuzzing))]
fn main() {}

//! `cargo fuzz run label_selector`; what it checks is in `weir_fuzz::targets::label_selector`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::targets::label_selector(data));

#[cfg(not(fuzzing))]
fn main() {}

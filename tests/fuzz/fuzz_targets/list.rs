//! `cargo fuzz run list`; what it checks is in `weir_fuzz::targets::list`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::targets::list(data));

#[cfg(not(fuzzing))]
fn main() {}

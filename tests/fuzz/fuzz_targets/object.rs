//! `cargo fuzz run object`; what it checks is in `weir_fuzz::targets::object`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::targets::object(data));

#[cfg(not(fuzzing))]
fn main() {}

//! `cargo fuzz run gzip`; what it checks is in `weir_fuzz::targets::gzip`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::targets::gzip(data));

#[cfg(not(fuzzing))]
fn main() {}

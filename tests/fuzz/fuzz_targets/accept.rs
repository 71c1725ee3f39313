//! `cargo fuzz run accept`; what it checks is in `weir_fuzz::targets::accept`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::targets::accept(data));

#[cfg(not(fuzzing))]
fn main() {}

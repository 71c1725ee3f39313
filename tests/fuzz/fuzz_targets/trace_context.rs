//! `cargo fuzz run trace_context`. `weir_fuzz::TARGETS` describes the checks.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::run("trace_context", data));

#[cfg(not(fuzzing))]
fn main() {}

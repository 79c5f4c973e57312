//! Any bytes give a pickle or an error, whichever way they are read.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| torch2carton_fuzz::pickles::check(bytes));

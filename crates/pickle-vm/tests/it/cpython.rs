//! Compares listings and values with CPython's `pickletools` and `pickle`, for thousands of generated pickles.
//!
//! `cpython.py`, next to this file, generates the pickles from a seed: objects at protocols 0 to 5 by both of CPython's
//! picklers, programs of every opcode that no pickler writes, and damaged ones. Without `python3` these tests fail, unless
//! `PICKLE_VM_WITHOUT_PYTHON` is set: then they report on standard error that they compared nothing.

#![expect(clippy::print_stderr, reason = "a skipped test reports that it was skipped")]

use std::collections::BTreeSet;

use crate::common::{Record, describe, generated};
use pickle_vm::{Opcode, Reader, load, trace};

/// How many objects are generated; each gives about nine pickles. `PICKLE_VM_OBJECTS` sets another number.
fn objects() -> String {
    std::env::var("PICKLE_VM_OBJECTS").unwrap_or_else(|_| "600".to_owned())
}

fn listing(pickle: &[u8]) -> String {
    let mut out = Vec::new();
    let result = trace::dis(pickle, &mut out);
    let mut listing = String::from_utf8(out).expect("listings are UTF-8");
    if result.is_err() {
        listing.push_str("raises\n");
    }
    listing
}

/// The listing with everything outside of ASCII escaped as in Python.
fn escaped(listing: &str) -> String {
    listing.chars().fold(String::new(), |out, c| match u32::from(c) {
        0..=0x7f => out + &String::from(c),
        code @ 0..=0xff => out + &format!("\\x{code:02x}"),
        code @ 0..=0xffff => out + &format!("\\u{code:04x}"),
        code => out + &format!("\\U{code:08x}"),
    })
}

#[test]
fn listings_equal_those_of_pickletools() {
    let mut opcodes = BTreeSet::new();
    let mut count = 0;
    for Record { pickle, lines, .. } in generated("1", &objects()) {
        let ours = listing(&pickle);
        if ours != lines {
            // Python and Rust may know different versions of Unicode, and so differ in what prints.
            assert_eq!(escaped(&ours), escaped(&lines), "pickle {}", pickle.escape_ascii());
        }
        if !lines.ends_with("raises\n") {
            opcodes.extend(Reader::new(&pickle).flatten().map(|instruction| instruction.opcode));
        }
        count += 1;
    }
    if count > 0 {
        eprintln!("{count} listings compared");
        let missing: Vec<_> = Opcode::ALL.iter().filter(|&opcode| !opcodes.contains(opcode)).collect();
        assert!(missing.is_empty(), "no listing has {missing:?}");
    }
}

#[test]
fn values_equal_those_of_cpython() {
    let mut opcodes = BTreeSet::new();
    let mut count = 0;
    let mut rejected = 0;
    for Record { damaged, pickle, value, .. } in generated("2", &objects()) {
        let bytes = pickle.escape_ascii();
        match (load(&pickle), value.as_str()) {
            // This crate calls nothing, so nothing can reject the arguments.
            (_, "raises") => continue,
            (Ok(loaded), value) => assert_eq!(describe(&loaded), value, "pickle {bytes}"),
            // CPython may build something odd from a damaged pickle, such as a list with an item of a bytearray.
            (Err(_), _) if damaged => rejected += 1,
            (Err(error), value) => panic!("{error} in pickle {bytes}, which is {value}"),
        }
        opcodes.extend(Reader::new(&pickle).flatten().map(|instruction| instruction.opcode));
        count += 1;
    }
    if count > 0 {
        eprintln!("{count} values compared, {rejected} damaged pickles rejected that CPython reads");
        let missing: Vec<_> = Opcode::ALL.iter().filter(|&opcode| !opcodes.contains(opcode)).collect();
        assert!(missing.is_empty(), "no value has {missing:?}");
    }
}

//! The memory that pickles take: at most 8 times their size and 16 MB for what `torch.save` writes, 64 times and 16 MB for
//! any other.
//!
//! A separate process reads each pickle and reports its peak memory, as counted by Linux.

#![cfg(target_os = "linux")]
#![expect(clippy::arithmetic_side_effects, reason = "an overflow is a failed test")]
#![expect(clippy::print_stdout, reason = "the figures are shown with --nocapture")]

use std::io::{self, Write};

use crate::common::checkpoint::checkpoint;
use pickle_vm::{ErrorKind, PickleLimit, PickleLimits, load, load_with, trace};
use test_support::{each_in_own_process, peak_memory};

const SIZE: usize = 2 << 20;

/// A pickle of about [`SIZE`] bytes that starts and ends with these bytes and repeats others in between.
fn repeated(start: &[u8], middle: &[u8], end: &[u8]) -> Vec<u8> {
    [start, &middle.repeat(SIZE / middle.len()), end].concat()
}

fn scattered() -> Vec<u8> {
    let mut pickle = b"N".to_vec();
    let mut key = 1_u32;
    while pickle.len() < SIZE {
        key = key.wrapping_mul(2_654_435_761).wrapping_add(12345);
        pickle.push(b'r');
        pickle.extend_from_slice(&key.to_le_bytes());
    }
    pickle.push(b'.');
    pickle
}

/// A name, and the start, the repeated middle and the end of a pickle that takes as much memory as possible.
type Case = (&'static str, &'static [u8], &'static [u8], &'static [u8]);

const CASES: &[Case] = &[
    ("empty lists", b"", b"]", b"."),
    ("empty dicts", b"", b"}", b"."),
    ("nested lists", b"]", b"]2a", b"."),
    ("lists above marks", b"", b"(Nl", b"."),
    ("dicts of one", b"", b"}NNs", b"."),
    ("sets of one", b"", b"\x8f(N\x90", b"."),
    ("tuples in tuples", b"N", b"\x85", b"."),
    ("memoised lists", b"", b"]\x94", b"."),
    ("marks", b"", b"(", b"N."),
    ("copies", b"N", b"2", b"."),
    ("calls of calls", b"N", b")R", b"."),
    ("calls with states", b"", b"N)RNb", b"."),
    ("calls with everything", b"", b"N)RNbNNsNa", b"."),
    ("globals", b"", b"c\n\n", b"."),
    ("globals with states", b"", b"c\n\nNb", b"."),
    ("globals of the stack", b"\x8c\0q\0", b"h\0h\0\x93", b"."),
    ("instances of classes", b"", b"(i\n\n", b"."),
    ("persistent ids", b"", b"P\n", b"."),
    ("persistent ids with items", b"", b"P\nNa", b"."),
    ("persistent ids of the stack", b"N", b"Q", b"."),
    ("extensions with items", b"", b"\x82\x01Na", b"."),
    ("buffers", b"", b"\x97", b"."),
    ("escaped texts", b"", b"V\xff\n", b"."),
    ("surrogates", b"", b"\x8c\x03\xed\xa0\x80", b"."),
    ("long integers", b"", b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"."),
    ("one escaped text", b"V", b"\xff", b"\n."),
];

/// The pickle of a case, and how many times its own size it may take in memory.
fn case(name: &str) -> (Vec<u8>, u64) {
    match CASES.iter().find(|case| case.0 == name) {
        Some((_, start, middle, end)) => (repeated(start, middle, end), 64),
        None if name == "scattered memo keys" => (scattered(), 64),
        None => (checkpoint(30_000, 64).expect("names are short"), 8),
    }
}

/// A sink that accepts a limited number of bytes: a listing indents by marks, as pickletools does, and can be as large as their square.
struct Limited(usize);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn memory_is_bounded_by_the_pickle() {
    let names = CASES.iter().map(|case| case.0).chain(["scattered memo keys", "checkpoint"]);
    each_in_own_process("memory::memory_is_bounded_by_the_pickle", names, |name| {
        let (pickle, times) = case(name);
        let most = times * pickle.len() as u64 + 16_000_000;
        let before = peak_memory();
        let loaded = load(&pickle).unwrap_or_else(|error| panic!("{error}"));
        let grown = peak_memory() - before;
        assert_eq!(loaded.len, pickle.len() as u64);
        assert!(grown <= most, "{grown} bytes for a pickle of {}", pickle.len());
        drop(loaded);
        let before = peak_memory();
        trace::dis(&pickle, &mut Limited(1_000_000)).ok();
        let listed = peak_memory() - before;
        assert!(listed <= most, "the listing took {listed} bytes");
        println!("{name}: {} times its size", grown / pickle.len() as u64);
    });
}

/// The counted memory is the memory that is taken: a pickle that was compressed is refused before it takes more.
#[test]
fn memory_is_counted() {
    const MOST: u64 = 24 << 20;
    let names = CASES.iter().map(|case| case.0).chain(["scattered memo keys"]);
    each_in_own_process("memory::memory_is_counted", names, |name| {
        let pickle = case(name).0;
        let before = peak_memory();
        let loaded = load_with(&pickle, &PickleLimits { memory: MOST, ..PickleLimits::default() });
        let grown = peak_memory() - before;
        match loaded {
            Ok(loaded) => assert_eq!(loaded.len, pickle.len() as u64),
            Err(error) => {
                let limit = ErrorKind::LimitExceeded { limit: PickleLimit::Memory, max: MOST };
                assert_eq!(error.kind, limit);
                assert!(grown >= MOST / 2, "{grown} bytes are counted as {MOST}");
            }
        }
        // The stack, the memo and the items are copied when they grow.
        assert!(grown <= MOST * 3 / 2 + 4_000_000, "{grown} bytes are counted as {MOST}");
        println!("{name}: {grown} bytes");
    });
}

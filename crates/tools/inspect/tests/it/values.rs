//! The values of pickles of a megabyte that would fill memory or take hours, if each value were shown under each of its
//! names: their rows are bounded in sum, and are not kept.
//!
//! Each pickle is read by its own process, which reports its peak memory as Linux counts it.

#![cfg(target_os = "linux")]

use std::io::Write;

use inspect::{InspectOptions, inspect};
use test_support::{each_in_own_process, peak_memory};

/// The most bytes of memory for each byte of a pickle, and in addition.
const MOST: (u64, u64) = (16, 96 << 20);
/// The most bytes of JSON.
const MOST_JSON: u64 = 256 << 20;

/// A name, a value, and what is shown of it or not shown.
type Bomb = (&'static str, fn() -> Vec<u8>, &'static str);

const BOMBS: &[Bomb] = &[
    ("nothing", || b"N".to_vec(), "null"),
    ("an empty dict", || b"}".to_vec(), "{}"),
    ("a call", || b"ca\nb\n)R".to_vec(), "$call"),
    ("a long text", || sized(b'X', 0xff00), "$more"),
    ("long bytes", || sized(b'B', 0xff00), "$more"),
    ("long bytes of protocol 2", || encoded(0xff00), "$more"),
    ("a long name", || [b"c", "k".repeat(0xff00).as_bytes(), b"\nb\n"].concat(), "$more"),
    ("a call of a long name", || [b"c", "k".repeat(0xff00).as_bytes(), b"\nb\n)R"].concat(), "$call"),
    ("a long number", || [b"\x8b\xf8\x06\0\0".as_slice(), &[0x7f; 0x6f8]].concat(), "$more"),
    ("a call with arguments", || arguments(9000), "null"),
];

/// A text or bytes of a length.
fn sized(opcode: u8, len: u32) -> Vec<u8> {
    [[opcode].as_slice(), &len.to_le_bytes(), "k".repeat(len as usize).as_bytes()].concat()
}

/// Bytes of a length, as protocol 2 writes them.
fn encoded(len: u32) -> Vec<u8> {
    [b"c_codecs\nencode\n".as_slice(), &sized(b'X', len), b"X\x06\0\0\0latin1\x86R"].concat()
}

/// A call with this many arguments.
fn arguments(count: usize) -> Vec<u8> {
    [b"ca\nb\n(".as_slice(), &b"N".repeat(count), b"tR"].concat()
}

/// A list in which the value is as often as 500 kB allow.
fn pickle(value: &[u8]) -> Vec<u8> {
    [b"\x80\x03", value, b"q\x000](", &b"h\x00".repeat(500_000), b"e."].concat()
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are shown with --nocapture")]
fn values_are_shown_in_bounded_memory() {
    let names = BOMBS.iter().map(|bomb| bomb.0);
    each_in_own_process("values::values_are_shown_in_bounded_memory", names, |wanted| {
        let (name, value, expected) =
            BOMBS.iter().find(|bomb| bomb.0 == wanted).expect("the parent names one of them");
        let pickle = pickle(&value());
        let mut file = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
        file.write_all(&pickle).expect("the temporary folder is writable");
        let mut options = InspectOptions::new(file.path());
        options.values = true;
        let before = peak_memory();
        let report = inspect(&options, &()).expect("it is a checkpoint");
        let (mut json, mut is_shown) = (0, false);
        for row in report.values.iter().flat_map(open::ValueRows::rows) {
            let text = row.value.to_string();
            json += (row.path.len() + row.type_name.len() + text.len()) as u64;
            is_shown |= text.contains(expected);
        }
        assert!(is_shown, "nothing has {expected}");
        assert!(json <= MOST_JSON, "{json} bytes of JSON");
        let grown = peak_memory() - before;
        assert!(grown <= MOST.0 * pickle.len() as u64 + MOST.1, "{grown} bytes for {}", pickle.len());
        println!("{name}: {grown} bytes of memory, {json} bytes of JSON for a pickle of {}", pickle.len());
    });
}

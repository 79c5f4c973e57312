//! Pickles of about a megabyte that would fill memory, or take hours, if each of their objects were given a meaning under
//! each of its names: they are rejected in bounded memory, or read without some of their values.
//!
//! Each one is read by its own process, which reports its peak memory as Linux counts it, as the test `memory` of
//! `pickle-vm` does. Read one object at a time, they would take from 10 GB (the names) down to 1.6 GB (the sizes).

use std::io::Write;

#[cfg(target_os = "linux")]
use test_support::{each_in_own_process, peak_memory};
use torch_import::{Checkpoint, Container};

/// The most bytes that reading may add to 16 times the pickle: the limits on names and on shared sizes each allow 64 MiB,
/// and the pickle's own objects come on top.
#[cfg(target_os = "linux")]
const MOST: u64 = 96 << 20;

/// A name, the pickle, and what the error or the note says.
type Bomb = (&'static str, fn() -> Vec<u8>, &'static str);

const BOMBS: &[Bomb] = &[
    ("long key", long_key, "values are not listed: there are too many"),
    ("long key of tensors", long_key_of_tensors, "bytes in the names of tensors"),
    ("long keys", long_keys, "bytes in the names of tensors"),
    ("shared sizes", shared_sizes, "that tensors share"),
    ("shared lists", shared_lists, "that tensors share"),
    ("shared dict", shared_dict, "shared too often"),
    ("shared dict of a tensor", shared_dict_of_a_tensor, "paths through shared containers"),
    ("shared state", shared_state, "paths through shared containers"),
    ("shared tensor", shared_tensor, "repeated names of tensors"),
    ("dicts with one long key", one_long_key, "values are not listed: there are too many"),
    ("calls around calls", wrapped, ""),
    ("deep lists", deep, "nested too deeply"),
    ("dropped objects", dropped, ""),
    ("shared attributes", shared_attributes, ""),
    ("equal values", equal_values, "values are not listed: there are too many"),
];

/// One key of a megabyte, and 10,000 values whose names would each contain it.
fn long_key() -> Vec<u8> {
    const KEY: u32 = 1 << 20;
    let mut pickle = b"\x80\x03}X".to_vec();
    pickle.extend(KEY.to_le_bytes());
    pickle.extend(b"k".repeat(1 << 20));
    pickle.extend(b"](");
    pickle.extend(b"K\x01".repeat(10_000));
    pickle.extend(b"es.");
    pickle
}

/// The same with 10,000 times a tensor on the meta device, in memo 0.
fn long_key_of_tensors() -> Vec<u8> {
    let mut pickle = META.to_vec();
    pickle.extend(b"q\x000}X");
    pickle.extend((1_u32 << 20).to_le_bytes());
    pickle.extend(b"k".repeat(1 << 20));
    pickle.extend(b"](");
    pickle.extend(b"h\x00".repeat(10_000));
    pickle.extend(b"es.");
    pickle
}

/// A tensor without elements on the meta device.
const META: &[u8] = b"\x80\x03ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\n))\x89tR";

/// 900 dicts inside each other, each under the same key of 100 kB.
fn long_keys() -> Vec<u8> {
    let mut pickle = b"\x80\x03X\xa0\x86\x01\x00".to_vec();
    pickle.extend(b"k".repeat(100_000));
    pickle.extend(b"q\x000");
    pickle.extend(b"}h\x00".repeat(900));
    pickle.extend(b"K\x01");
    pickle.extend(b"s".repeat(900));
    pickle.push(b'.');
    pickle
}

/// A dict of 30,000 numbers in memo 0, without the instruction that adds them.
fn numbers() -> Vec<u8> {
    let mut pickle = b"}(".to_vec();
    for key in 0..30_000_u32 {
        pickle.push(b'J');
        pickle.extend(key.to_le_bytes());
        pickle.extend(b"K\x01");
    }
    pickle
}

/// The end of a pickle: a list of 30,000 times `item`.
fn names(item: &[u8]) -> Vec<u8> {
    [b"](".as_slice(), &item.repeat(30_000), b"e."].concat()
}

/// A dict of 30,000 numbers, under 30,000 names.
fn shared_dict() -> Vec<u8> {
    [b"\x80\x03".as_slice(), &numbers(), b"uq\x000", &names(b"h\x00")].concat()
}

/// The same with a tensor in the dict, so that each of the names would be one of its names.
fn shared_dict_of_a_tensor() -> Vec<u8> {
    [META, b"q\x010", &numbers(), b"Nh\x01uq\x000", &names(b"h\x00")].concat()
}

/// 30,000 objects that share one state, a dict of 30,000 attributes.
fn shared_state() -> Vec<u8> {
    let class = b"c__main__\nC\nq\x010";
    [b"\x80\x03".as_slice(), &numbers(), b"uq\x000", class, &names(b"h\x01)\x81h\x00b")].concat()
}

/// A tensor under a million names.
fn shared_tensor() -> Vec<u8> {
    let mut pickle = META.to_vec();
    pickle.extend(b"q\x000](");
    pickle.extend(b"h\x00".repeat(1_000_000));
    pickle.extend(b"e.");
    pickle
}

/// 100,000 dicts with the same two keys of 100 kB.
fn one_long_key() -> Vec<u8> {
    let mut pickle = b"\x80\x03".to_vec();
    for (memo, letter) in [(0, b"k"), (1, b"l")] {
        pickle.extend(b"X\xa0\x86\x01\x00");
        pickle.extend(letter.repeat(100_000));
        pickle.extend([b'q', memo, b'0']);
    }
    pickle.extend(b"](");
    pickle.extend(b"}(h\x00K\x01h\x01K\x01u".repeat(100_000));
    pickle.extend(b"e.");
    pickle
}

/// 100,000 calls around each other, each of which would return its argument.
fn wrapped() -> Vec<u8> {
    let function = b"\x80\x03ctorch.jit._pickle\nbuild_intlist\nq\x000";
    repeated(&[(function, 1), (b"h\x00", 100_000), (b"K\x01", 1), (b"\x85R", 100_000), (b".", 1)])
}

/// 300,000 lists inside each other.
fn deep() -> Vec<u8> {
    repeated(&[(b"\x80\x03", 1), (b"]", 300_000), (b"a", 299_999), (b".", 1)])
}

/// A list of a million times `None`.
fn equal_values() -> Vec<u8> {
    repeated(&[(b"\x80\x03](", 1), (b"N", 1_000_000), (b"e.", 1)])
}

/// 1000 tensors that share one size of 200,000 ones: the function is in memo 0, the size in memo 1. On the meta device no
/// storage is needed.
fn shared_sizes() -> Vec<u8> {
    let function = b"\x80\x03ctorch._utils\n_rebuild_meta_tensor_no_storage\nq\x000(";
    let args = b"tq\x010(ctorch\nfloat32\nh\x01h\x01\x89tq\x020](";
    repeated(&[(function, 1), (b"K\x01", 200_000), (args, 1), (b"h\x00h\x02R", 1000), (b"e.", 1)])
}

/// 1000 nested tensors whose four lists are one, in memo 1: old files hold the parts of nested tensors in lists.
fn shared_lists() -> Vec<u8> {
    let function = b"\x80\x03ctorch._utils\n_rebuild_nested_tensor\nq\x000](";
    let args = b"eq\x010(h\x01h\x01h\x01h\x01tq\x020](";
    repeated(&[(function, 1), (b"K\x01", 200_000), (args, 1), (b"h\x00h\x02R", 1000), (b"e.", 1)])
}

/// 300,000 texts and 100,000 lists that the pickle drops.
fn dropped() -> Vec<u8> {
    repeated(&[(b"\x80\x03", 1), (b"U\x01a0", 300_000), (b"]0", 100_000), (b"N.", 1)])
}

/// Modules that share their attributes, of which `state_dict()` returns none: 500 modules with 1,000 attributes.
fn shared_attributes() -> Vec<u8> {
    let mut pickle = b"\x80\x03c__main__\nNet\nq\x000}(X\x0b\0\0\0_parameters}X\x08\0\0\0_modules}".to_vec();
    for number in 0..1000_u32 {
        pickle.extend(b"X\x04\0\0\0");
        pickle.extend(format!("{number:04}").bytes());
        pickle.extend(b"K\x01");
    }
    pickle.extend(repeated(&[(b"uq\x010](", 1), (b"h\x00)\x81h\x01b", 500), (b"e.", 1)]));
    pickle
}

/// Byte strings joined together, each repeated as often as its count says.
fn repeated(parts: &[(&[u8], usize)]) -> Vec<u8> {
    parts.iter().flat_map(|(bytes, times)| bytes.repeat(*times)).collect()
}

/// The error or the note for a file that consists of `pickle`.
fn outcome(pickle: &[u8]) -> String {
    let mut file = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
    file.write_all(pickle).expect("the temporary folder is writable");
    let container = Container::open(file.path()).expect("it is a pickle");
    match Checkpoint::read(&container) {
        Ok(checkpoint) => checkpoint.notes.first().map(ToString::to_string).unwrap_or_default(),
        Err(error) => error.to_string(),
    }
}

#[cfg(not(target_os = "linux"))]
#[test]
fn bombs_are_rejected_or_cut() {
    for (name, pickle, expected) in BOMBS {
        let outcome = outcome(&pickle());
        assert!(outcome.contains(expected), "{name}: {outcome}");
    }
}

#[cfg(target_os = "linux")]
#[test]
#[expect(clippy::print_stdout, reason = "the figures are shown with --nocapture")]
fn bombs_are_rejected_or_cut_in_little_memory() {
    let names = BOMBS.iter().map(|bomb| bomb.0);
    each_in_own_process("bombs::bombs_are_rejected_or_cut_in_little_memory", names, |wanted| {
        let (name, pickle, expected) =
            BOMBS.iter().find(|bomb| bomb.0 == wanted).expect("the parent names one of them");
        let pickle = pickle();
        let before = peak_memory();
        let outcome = outcome(&pickle);
        assert!(outcome.contains(expected), "{outcome}");
        let grown = peak_memory().saturating_sub(before);
        assert!(grown <= MOST + 16 * pickle.len() as u64, "{grown} bytes for a pickle of {}", pickle.len());
        println!("{name}: {grown} bytes for a pickle of {}", pickle.len());
    });
}

//! Pickles of about a megabyte that would fill memory if each of their objects were given a meaning: they are rejected in
//! bounded memory.
//!
//! Each one is read by its own process, which reports its peak memory as Linux counts it, as the test `memory` of
//! `pickle-vm` does. Read one object at a time, they would take from 10 GB (the names) down to 1.6 GB (the sizes).

use std::io::Write;
#[cfg(target_os = "linux")]
use std::process::Command;

use torch_import::{Checkpoint, Container};

/// The environment variable that names the bomb that a process is for.
#[cfg(target_os = "linux")]
const BOMB: &str = "TORCH_IMPORT_BOMB";

/// The most bytes that reading may add: the limits on names and on shared sizes each allow 64 MiB, and the pickle's own
/// objects come on top.
#[cfg(target_os = "linux")]
const MOST: u64 = 96 << 20;

/// A name, the pickle, and what the error says.
type Bomb = (&'static str, fn() -> Vec<u8>, &'static str);

const BOMBS: &[Bomb] = &[
    ("long key", long_key, "bytes in the names of tensors and values"),
    ("shared sizes", shared_sizes, "that tensors share"),
    ("shared lists", shared_lists, "that tensors share"),
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

/// 1000 tensors that share one size of 200,000 ones: the function is in memo 0, the size in memo 1. On the meta device no
/// storage is needed.
fn shared_sizes() -> Vec<u8> {
    let mut pickle = b"\x80\x03ctorch._utils\n_rebuild_meta_tensor_no_storage\nq\x000(".to_vec();
    pickle.extend(b"K\x01".repeat(200_000));
    pickle.extend(b"tq\x010(ctorch\nfloat32\nh\x01h\x01\x89tq\x020](");
    pickle.extend(b"h\x00h\x02R".repeat(1000));
    pickle.extend(b"e.");
    pickle
}

/// 1000 nested tensors whose four lists are one, in memo 1: old files hold the parts of nested tensors in lists.
fn shared_lists() -> Vec<u8> {
    let mut pickle = b"\x80\x03ctorch._utils\n_rebuild_nested_tensor\nq\x000](".to_vec();
    pickle.extend(b"K\x01".repeat(200_000));
    pickle.extend(b"eq\x010(h\x01h\x01h\x01h\x01tq\x020](");
    pickle.extend(b"h\x00h\x02R".repeat(1000));
    pickle.extend(b"e.");
    pickle
}

/// The error for a file that consists of `pickle`.
fn error(pickle: &[u8]) -> String {
    let mut file = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
    file.write_all(pickle).expect("the temporary folder is writable");
    let container = Container::open(file.path()).expect("it is a pickle");
    Checkpoint::read(&container).expect_err("reading stops at a limit").to_string()
}

#[test]
fn bombs_are_rejected() {
    for (name, pickle, expected) in BOMBS {
        let error = error(&pickle());
        assert!(error.contains(expected), "{name}: {error}");
    }
}

/// The most memory that this process has held, in bytes.
#[cfg(target_os = "linux")]
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux counts it");
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("it is a number");
    kibibytes << 10
}

#[cfg(target_os = "linux")]
#[test]
#[expect(clippy::print_stdout, reason = "the figures are shown with --nocapture")]
fn bombs_take_little_memory() {
    if let Ok(wanted) = std::env::var(BOMB) {
        let (name, pickle, _) =
            BOMBS.iter().find(|bomb| bomb.0 == wanted).expect("the parent names one of them");
        let pickle = pickle();
        let before = peak();
        error(&pickle);
        let grown = peak().saturating_sub(before);
        assert!(grown <= MOST, "{grown} bytes for a pickle of {}", pickle.len());
        println!("{name}: {grown} bytes for a pickle of {}", pickle.len());
        return;
    }
    for (name, ..) in BOMBS {
        let program = std::env::current_exe().expect("a test has a program");
        let child = Command::new(program)
            .args(["--exact", "bombs_take_little_memory", "--nocapture"])
            .env(BOMB, name)
            .output();
        let output = child.expect("a test can be run again");
        let words = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {words}{}", String::from_utf8_lossy(&output.stderr));
        let figures = words.lines().find(|line| line.contains("bytes for a pickle"));
        println!("{}", figures.expect("the process ran the test"));
    }
}

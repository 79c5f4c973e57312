//! Pickles of a megabyte or less that would fill memory if their objects were given a meaning one by one.

use std::io::Write;

use torch_import::{Checkpoint, Container};

/// Why a pickle, which is a file by itself, is not read.
fn refusal(pickle: &[u8]) -> String {
    let mut file = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
    file.write_all(pickle).expect("the temporary folder is writable");
    let container = Container::open(file.path()).expect("it is a pickle");
    Checkpoint::read(&container).expect_err("it is a bomb").to_string()
}

fn repeated(bytes: &[u8], times: usize) -> Vec<u8> {
    bytes.repeat(times)
}

#[test]
fn a_long_key_over_many_values() {
    const KEY: u32 = 1 << 20;
    let mut pickle = b"\x80\x03}X".to_vec();
    pickle.extend(KEY.to_le_bytes());
    pickle.extend(repeated(b"k", 1 << 20));
    pickle.extend(b"](");
    pickle.extend(repeated(b"K\x01", 10_000));
    pickle.extend(b"es.");
    let error = refusal(&pickle);
    assert!(error.contains("bytes in the names of tensors and values"), "{error}");
}

#[test]
fn sizes_that_many_tensors_share() {
    // The function in memo 0, a size of 200,000 ones in memo 1, and calls of the one with the other: on the
    // meta device no storage is needed.
    let mut pickle = b"\x80\x03ctorch._utils\n_rebuild_meta_tensor_no_storage\nq\x000(".to_vec();
    pickle.extend(repeated(b"K\x01", 200_000));
    pickle.extend(b"tq\x010(ctorch\nfloat32\nh\x01h\x01\x89tq\x020](");
    pickle.extend(repeated(b"h\x00h\x02R", 1000));
    pickle.extend(b"e.");
    let error = refusal(&pickle);
    assert!(error.contains("that tensors share"), "{error}");
}

#[test]
fn lists_that_many_nested_tensors_share() {
    // Four lists that are one, in memo 1: old files hold the parts of nested tensors so.
    let mut pickle = b"\x80\x03ctorch._utils\n_rebuild_nested_tensor\nq\x000](".to_vec();
    pickle.extend(repeated(b"K\x01", 200_000));
    pickle.extend(b"eq\x010(h\x01h\x01h\x01h\x01tq\x020](");
    pickle.extend(repeated(b"h\x00h\x02R", 1000));
    pickle.extend(b"e.");
    let error = refusal(&pickle);
    assert!(error.contains("that tensors share"), "{error}");
}

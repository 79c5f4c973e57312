//! Tensor lists of small checkpoints, for people and for programs.

use crate::program::{inputs, snapshot_name, torch2carton, transcript};

#[test]
fn tensor_lists() {
    for input in inputs("checkpoints", "pth") {
        let listing = transcript(&torch2carton(["inspect", &input]));
        insta::assert_snapshot!(snapshot_name("inspect", &input), listing);
    }
}

#[test]
fn tensor_lists_for_programs() {
    for name in ["llama_tiny/consolidated.00", "views", "tied", "big_endian"] {
        let input = format!("checkpoints/{name}.pth");
        let listing = transcript(&torch2carton(["inspect", "--json", "--sha256", &input]));
        insta::assert_snapshot!(snapshot_name("json", &input), listing);
    }
}

#[test]
fn big_endian_values_are_the_same() {
    let hashes = |input: &str| {
        let output = torch2carton(["inspect", "--json", "--sha256", input]);
        let listing: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let tensors = listing["tensors"].as_array().expect("a list of tensors").clone();
        tensors.into_iter().map(|tensor| tensor["sha256"].clone()).collect::<Vec<_>>()
    };
    let plain = hashes("checkpoints/plain.pth");
    assert!(!plain.is_empty());
    assert_eq!(plain, hashes("checkpoints/big_endian.pth"));
    assert_eq!(plain, hashes("checkpoints/deflated.pth"));
    assert_eq!(plain, hashes("checkpoints/crc_zero.pth"));
}

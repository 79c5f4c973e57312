//! Tensor lists of small checkpoints, for people and for programs.

use crate::program::{folder, inputs, snapshot_name, torch2carton, transcript};

#[test]
fn tensor_lists() {
    for input in inputs("checkpoints", "pth") {
        let listing = transcript(&torch2carton(["inspect", &input]));
        insta::assert_snapshot!(snapshot_name("inspect", &input), listing);
    }
}

#[test]
fn tensor_lists_of_other_files() {
    for input in ["plain.safetensors", "bare.pkl"] {
        let input = format!("checkpoints/{input}");
        let listing = transcript(&torch2carton(["inspect", &input]));
        insta::assert_snapshot!(snapshot_name("inspect", &input.replace('.', "-")), listing);
    }
}

#[test]
fn tensor_lists_for_programs() {
    for name in ["llama_tiny/consolidated.00", "views", "tied", "big_endian", "legacy_views", "tar_view"] {
        let input = format!("checkpoints/{name}.pth");
        let listing = transcript(&torch2carton(["inspect", "--json", "--sha256", &input]));
        insta::assert_snapshot!(snapshot_name("json", &input), listing);
    }
}

fn hashes(input: &str) -> Vec<serde_json::Value> {
    let output = torch2carton(["inspect", "--json", "--sha256", input]);
    let listing: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let tensors = listing.get("tensors").and_then(|list| list.as_array()).expect("a list of tensors");
    tensors.iter().filter_map(|tensor| tensor.get("sha256").cloned()).collect()
}

#[test]
fn elements_are_those_that_torch_and_numpy_see() {
    let expected = std::fs::read_to_string(folder().join("objects/elements.json")).expect("it is checked in");
    let expected: serde_json::Value = serde_json::from_str(&expected).expect("JSON");
    for (file, elements) in expected.as_object().expect("files") {
        let output = torch2carton(["inspect", "--all", "--json", "--sha256", &format!("objects/{file}")]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let tensors = report.get("tensors").and_then(|list| list.as_array()).expect("a list of tensors");
        for (name, sha256) in elements.as_object().expect("tensors") {
            let found = tensors.iter().find(|tensor| tensor.get("name").is_some_and(|found| found == name));
            assert_eq!(found.and_then(|tensor| tensor.get("sha256")), Some(sha256), "{file}: {name}");
        }
        insta::assert_snapshot!(snapshot_name("all", &format!("objects/{file}")), transcript(&output));
    }
}

#[test]
fn values_are_the_same_in_variants_of_one_file() {
    let plain = hashes("checkpoints/plain.pth");
    assert!(!plain.is_empty());
    for same in ["big_endian", "deflated", "crc_zero"] {
        assert_eq!(plain, hashes(&format!("checkpoints/{same}.pth")));
    }
}

#[test]
fn values_are_the_same_in_every_container() {
    let legacy = hashes("checkpoints/legacy.pth");
    assert_eq!(legacy.len(), 2);
    for same in [
        "rootless.pth",
        "zip_in_root.pth",
        "legacy_protocol_0.pth",
        "legacy_protocol_5.pth",
        "tar.pth",
        "plain.safetensors",
    ] {
        assert_eq!(legacy, hashes(&format!("checkpoints/{same}")), "{same}");
    }
}

#[test]
fn a_server_and_a_packer_take_addresses() {
    for arguments in [&["serve"][..], &["serve", "--repository"], &["pack"]] {
        let output = torch2carton(arguments.iter().copied().chain(["s3://bucket/model", "--offline"]));
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("s3://bucket/model is remote, and requests are switched off"), "{text}");
    }
}

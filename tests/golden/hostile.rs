//! Error texts of files that must be refused, one line for each file. No file may run anything or hang the program.

use crate::program::{folder, inputs, torch2carton, transcript};

#[test]
fn checkpoints_are_refused() {
    let mut texts = String::new();
    for input in inputs("hostile", "pth") {
        // Damage to a storage's bytes is found only when they are read.
        let output = torch2carton(["inspect", "--json", "--sha256", &input]);
        let text = match output.status.code() {
            Some(0) => "read\n".to_owned(),
            _ => transcript(&output).replace(&format!("{input}: "), ""),
        };
        texts.extend([input.trim_start_matches("hostile/"), "\n  ", &text]);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn a_wrong_checksum_stops_a_conversion_and_leaves_nothing() {
    // Also if only a part of the storage is written.
    for input in ["hostile/bad_crc_storage.pth", "hostile/cut.pth"] {
        assert_refused_for_its_checksum(input);
    }
}

fn assert_refused_for_its_checksum(input: &str) {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let input = folder().join(input);
    let target = scratch.path().join("out.carton");
    let output = torch2carton([input.as_os_str(), "-o".as_ref(), target.as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("record `archive/data/0` is damaged: its CRC-32 is"), "{text}");
    let left: Vec<_> = scratch.path().read_dir().expect("it is there").collect();
    assert!(left.is_empty(), "{left:?}");
}

//! Error texts of files that must be refused, one line a file. Nothing here may run or hang.

use crate::program::{folder, inputs, torch2carton, transcript};

#[test]
fn checkpoints_are_refused() {
    let mut texts = String::new();
    for input in inputs("hostile", "pth") {
        // Damage of a storage's bytes shows only where they are read.
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
    // Also where only a part of the storage is written.
    for input in ["hostile/bad_crc_storage.pth", "hostile/cut.pth"] {
        refused_for_its_checksum(input);
    }
}

fn refused_for_its_checksum(input: &str) {
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

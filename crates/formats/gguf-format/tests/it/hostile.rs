//! Files that are damaged, or made to do damage.

use gguf_format::{EntryError, Error};

use crate::builder::File;

const HUGE: u64 = 1 << 63;

#[test]
fn every_cut_is_reported() {
    let whole = File::little(1, 2).key("a", 9).u32(8).u64(2).text("x").text("yz").key("b", 10).u64(5);
    let whole = whole.tensor("w", &[4], 0, 0).data(16);
    whole.parse().expect("it fits the format");
    for len in 4..whole.bytes.len() {
        let mut cut = whole.clone();
        cut.bytes.truncate(len);
        let error = cut.parse().expect_err("it is cut");
        // A number of things may exceed the rest of a file that is cut.
        assert!(error.is_truncated() || matches!(error, Error::TooLong { .. }), "{len}: {error}");
    }
    assert_eq!(whole.clone().raw(&[0; 15]).parse().map(|_| ()), Ok(()));
    assert_eq!(whole.raw(&[0; 17]).parse(), Err(Error::Trailing { bytes: 1 }));
}

#[test]
fn lengths_beyond_the_file_are_refused_before_they_are_read() {
    for len in [HUGE, u64::MAX, 1 << 40] {
        let files = [
            File::little(len, 0),
            File::little(0, len),
            File::little(0, 1).u64(len),
            File::little(0, 1).key("a", 8).u64(len),
            File::little(0, 1).key("a", 9).u32(8).u64(len),
            File::little(0, 1).key("a", 9).u32(12).u64(len),
            File::little(0, 1).key("a", 9).u32(9).u64(len),
            File::little(1, 0).u64(len),
        ];
        for file in files {
            let error = file.raw(&[0; 64]).parse().expect_err("it is too long");
            assert!(matches!(error, Error::TooLong { .. }), "{error}");
        }
    }
}

#[test]
fn types_are_refused_by_number() {
    assert_eq!(
        File::little(0, 1).key("a", 13).raw(&[0; 64]).error(),
        "the header is damaged: there is no type of values with the number 13, at byte 33"
    );
    assert_eq!(
        File::little(1, 0).tensor("w", &[32], 42, 0).data(32).error(),
        "tensor `w`: the type with the number 42 is not known"
    );
}

#[test]
fn arrays_are_nested_to_a_limit() {
    let nested = |levels: usize| {
        let file = (1..levels).fold(File::little(0, 1).key("a", 9), |file, _| file.u32(9).u64(1));
        file.u32(0).u64(1).raw(&[7])
    };
    nested(8).parse().expect("it fits the limit");
    assert!(matches!(nested(9).parse(), Err(Error::Nested { .. })));
    assert!(matches!(nested(1 << 16).parse(), Err(Error::Nested { .. })));
}

#[test]
fn a_name_appears_once() {
    let keys = File::little(0, 2).key("a", 7).raw(&[1]).key("a", 7).raw(&[1]);
    assert_eq!(keys.error(), "the header is damaged: key `a` appears twice");
    let tensors = File::little(2, 0).tensor("w", &[8], 0, 0).tensor("w", &[8], 0, 32).data(64);
    assert_eq!(tensors.error(), "two tensors have the name `w`");
    let not_text = File::little(0, 1).u64(1).raw(&[0xff]).u32(7).raw(&[1]);
    assert_eq!(not_text.error(), "the header is damaged: the name at byte 24 is not UTF-8");
}

#[test]
fn the_alignment_is_a_power_of_two() {
    for (kind, alignment, is_right) in
        [(4, 64, true), (4, 1, true), (4, 0, false), (4, 48, false), (5, 32, false)]
    {
        let file = File::little(0, 1).key("general.alignment", kind).u32(alignment);
        assert_eq!(file.parse().is_ok(), is_right, "{kind} {alignment}");
    }
}

#[test]
fn tensors_follow_each_other() {
    let reason = |file: File| match file.parse() {
        Err(Error::Entry { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let two = |first: u64, second: u64| {
        File::little(2, 0).tensor("a", &[9], 0, first).tensor("b", &[1], 0, second).data(96)
    };
    assert_eq!(reason(two(0, 32)), EntryError::Offset { start: 32, expected: 64 });
    assert_eq!(reason(two(0, 96)), EntryError::Offset { start: 96, expected: 64 });
    // The list need not be in the order of the data.
    assert_eq!(two(32, 0).parse().map(|_| ()), Ok(()));
    assert_eq!(reason(two(0, HUGE)), EntryError::Offset { start: HUGE, expected: 64 });
    let one = |dims: &[u64], kind, offset| File::little(1, 0).tensor("w", dims, kind, offset).data(32);
    assert!(matches!(reason(one(&[1], 0, u64::MAX - 3)), EntryError::Shape { .. }));
    assert!(matches!(reason(one(&[HUGE], 24, 0)), EntryError::Shape { .. }));
    assert!(matches!(reason(one(&[1 << 32, 1 << 32], 0, 0)), EntryError::Shape { .. }));
    assert!(matches!(reason(one(&[31], 2, 0)), EntryError::Shape { .. }));
    assert_eq!(reason(one(&[1; 5], 0, 0)), EntryError::Dimensions { dims: 5 });
    let missing = one(&[1 << 20], 0, 0).parse();
    assert_eq!(
        missing,
        Err(Error::TruncatedTensors { described: 1 << 22, missing: (1 << 22) - 32, first: "w".to_owned() })
    );
    // No elements, in a file that ends with its header.
    let empty = File::little(1, 0).tensor("w", &[0, 4], 0, 0);
    assert!(empty.parse().expect("it fits the format").tensors[0].range.is_empty());
}

#[test]
fn other_versions_are_named() {
    let version = |version: u32| File::little(0, 0).with_version(version).error();
    assert_eq!(version(1), "it has version 1 of GGUF, and only versions 2 and 3 are read");
    assert_eq!(version(4), "it has version 4 of GGUF, and only versions 2 and 3 are read");
    assert_eq!(version(0), "it has version 0 of GGUF, and only versions 2 and 3 are read");
    File::little(0, 0).with_version(2).parse().expect("version 2");
    assert_eq!(File::little(0, 0).with_magic(*b"GGML").error(), "it does not start with `GGUF`");
}

//! Pins the text of every error and of every flaw.

use std::collections::HashSet;

use zip_format::{Error, Flaw};

#[test]
fn every_error_has_its_text() {
    let name = || "a\nb".to_owned();
    let errors = [
        Error::NoEnd { len: 3 },
        Error::NoRecord { record: "directory entry", offset: 64 },
        Error::DirectoryTooLong { len: 2 << 30, max: 1 << 30 },
        Error::NoLocal { name: name(), offset: 64 },
        Error::Disagreement { what: "the number of entries", expected: 2, found: 3, offset: 64 },
        Error::NameMismatch { central: name(), local: "c".to_owned(), offset: 64 },
        Error::HeaderMismatch { name: name(), what: "the size", central: 2, local: 3, offset: 64 },
        Error::PastEnd { name: name(), end: 65, limit: 64 },
        Error::Overlap { first: name(), second: "c".to_owned(), offset: 64 },
        Error::Duplicate { name: name(), first: 0, second: 64 },
        Error::UnsafePath { name: "../a".to_owned() },
        Error::Encrypted { name: name() },
        Error::Patch { name: name() },
        Error::DuplicateZip64 { name: name() },
        Error::SecondName { name: name(), other: "c".to_owned() },
        Error::MultipleDisks,
    ];
    let kinds: HashSet<_> = errors.iter().map(std::mem::discriminant).collect();
    assert_eq!(
        kinds.len(),
        include_str!("../../src/read/error.rs").matches("#[error(").count(),
        "each has a text here"
    );
    let texts: Vec<String> = errors.iter().map(|error| format!("{error}\n")).collect();
    insta::assert_snapshot!(texts.concat());
}

#[test]
fn every_flaw_has_its_text() {
    let name = || "a\nb".to_owned();
    let place = "the directory";
    let flaws = [
        Flaw::Local { name: name(), what: "the time", local: 1, central: 2 },
        Flaw::Field { name: name(), what: "the disk", found: 1, expected: "0x0" },
        Flaw::Descriptor { name: name(), crc: 7, packed: 8, len: 9 },
        Flaw::ExtraCut { name: name(), place },
        Flaw::Extra { name: name(), place, id: 0x7075 },
        Flaw::Padding { name: name(), place },
        Flaw::StrayBytes { after: None, offset: 0, len: 3 },
        Flaw::StrayBytes { after: Some(name()), offset: 64, len: 3 },
        Flaw::Disks,
    ];
    let kinds: HashSet<_> = flaws.iter().map(std::mem::discriminant).collect();
    assert_eq!(
        kinds.len(),
        include_str!("../../src/read/flaw.rs").matches("#[error(").count(),
        "each has a text here"
    );
    let texts: Vec<String> = flaws.iter().map(|flaw| format!("{flaw}\n")).collect();
    insta::assert_snapshot!(texts.concat());
}

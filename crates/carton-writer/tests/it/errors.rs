//! Pins the text of every error.

use std::collections::HashSet;

use carton_writer::Error;

#[test]
fn every_error_has_its_text() {
    let errors = [
        Error::Format(carton_format::Error::Duplicate { path: "misc/a".to_owned() }),
        Error::Hash { path: "misc/a".to_owned(), found: "0123".to_owned(), expected: "4567".to_owned() },
        Error::Read(std::io::ErrorKind::UnexpectedEof.into()),
        Error::Write(std::io::Error::from(std::io::ErrorKind::StorageFull)),
    ];
    let kinds: HashSet<_> = errors.iter().map(std::mem::discriminant).collect();
    assert_eq!(
        kinds.len(),
        include_str!("../../src/lib.rs").matches("#[error(").count(),
        "each has a text here"
    );
    let texts: Vec<String> = errors.iter().map(|error| format!("{error}\n")).collect();
    insta::assert_snapshot!(texts.concat());
}

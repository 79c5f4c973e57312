//! Pins the text of every error and of every problem.

use std::collections::HashSet;

use carton_format::{Error, Kind, Place, Problem, Problems};

#[test]
fn every_error_has_its_text() {
    let problem = |line, kind| Problem {
        document: "carton.toml".to_owned(),
        place: Some(Place { line, column: 7 }),
        key: "input[0].name".to_owned(),
        kind,
    };
    let two = vec![problem(3, Kind::Missing), problem(4, Kind::Unspecified)];
    let errors = [
        Error::Document(Problems(two)),
        Error::ShortDescription { found: 101 },
        Error::ManifestPath { path: "misc/a\nb".to_owned() },
        Error::Duplicate { path: "misc/a".to_owned() },
        Error::Print { document: "LINKS", reason: "out of range".to_owned() },
    ];
    let kinds: HashSet<_> = errors.iter().map(std::mem::discriminant).collect();
    assert_eq!(
        kinds.len(),
        include_str!("../../src/error.rs").matches("#[error(").count(),
        "each has a text here"
    );
    let texts: Vec<String> = errors.iter().map(|error| format!("{error}\n")).collect();
    insta::assert_snapshot!(texts.concat());
}

#[test]
fn every_problem_has_its_text() {
    let name = || "x\n".to_owned();
    let kinds = [
        Kind::Syntax("unclosed table, expected `]`".to_owned()),
        Kind::Missing,
        Kind::Type { found: "a list".to_owned(), expected: "a string" },
        Kind::Value { found: "float16".to_owned(), expected: "one of float32, float64".to_owned() },
        Kind::TooLong { found: 101, limit: 100 },
        Kind::Duplicate { name: name() },
        Kind::SymbolKinds { symbol: name() },
        Kind::SymbolValues { symbol: name(), first: "1".to_owned(), found: "2".to_owned() },
        Kind::Reference { target: "@misc/cat.png".to_owned() },
        Kind::Undeclared { name: name(), what: "input" },
        Kind::Unspecified,
        Kind::Dtype { tensor: name(), found: "int8", expected: "int16" },
        Kind::Shape { tensor: name(), found: "[2]".to_owned(), expected: "[n, 3]".to_owned() },
        Kind::Bytes { file: "x.bin".to_owned(), found: 7, expected: "8".to_owned() },
        Kind::Strings { file: "x.toml".to_owned(), found: 7, expected: 8 },
        Kind::Nested { name: name() },
        Kind::Order { other: "misc/a".to_owned() },
    ];
    let found: HashSet<_> = kinds.iter().map(std::mem::discriminant).collect();
    assert_eq!(
        found.len(),
        include_str!("../../src/problem.rs").matches("#[error(").count(),
        "each has a text here"
    );
    let text = |kind: &Kind| format!("carton.toml:3:7: key {kind}\n");
    insta::assert_snapshot!(kinds.iter().map(text).collect::<String>());
}

//! Pins the text of every error and of every problem.

use std::collections::HashSet;
use std::io;

use carton_format::{DocumentProblem, DocumentProblems, Problem, ProblemKind, TextPosition};

#[test]
fn every_error_has_its_text() {
    let path = || "model/a\n.pt".to_owned();
    let io = || io::Error::from(io::ErrorKind::PermissionDenied);
    let hash = || "0123".to_owned();
    let problem = |line, kind| DocumentProblem {
        document: "carton.toml".to_owned(),
        place: Some(TextPosition { line, column: 7 }),
        key: "input[0].name".to_owned(),
        kind,
    };
    let two = vec![problem(3, ProblemKind::Missing), problem(4, ProblemKind::PortsNotDeclared)];
    let errors = [
        Problem::Zip(zip_format::Error::NoEnd { len: 3 }),
        Problem::Document(DocumentProblems(two)),
        Problem::ShortDescription { found: 101 },
        Problem::ManifestPath { path: "misc/a\nb".to_owned() },
        Problem::Duplicate { path: "misc/a".to_owned() },
        Problem::Print { document: "LINKS", reason: "out of range".to_owned() },
        Problem::Missing { path: path() },
        Problem::NotFetched { path: path() },
        Problem::InvalidPath { path: "../a".to_owned() },
        Problem::NameNotUtf8,
        Problem::NotAFile { path: path() },
        Problem::FileAsFolder { path: "misc/a".to_owned(), below: "misc/a/b".to_owned() },
        Problem::LinkOutsideModel { path: "misc/a".to_owned() },
        Problem::BrokenLink { path: path(), target: "../../etc/passwd".to_owned() },
        Problem::Method { path: path(), method: 12 },
        Problem::Decompress { path: path(), reason: "corrupt deflate stream".to_owned() },
        Problem::Length { path: path(), found: 8, is_at_least: true, expected: 7 },
        Problem::Damaged {
            path: path(),
            sum: "SHA-256",
            found: hash(),
            listed_in: "MANIFEST",
            expected: hash(),
        },
        Problem::Unlisted { path: path() },
        Problem::OversizedDocument { path: path(), found: 300, limit: 256 },
        Problem::TextNotUtf8 { path: path() },
        Problem::NoTensor { name: "x".to_owned() },
        Problem::WriteOutput(io()),
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
        ProblemKind::Syntax("unclosed table, expected `]`".to_owned()),
        ProblemKind::Missing,
        ProblemKind::Type { found: "a list".to_owned(), expected: "a string" },
        ProblemKind::Value { found: "float16".to_owned(), expected: "one of float32, float64".to_owned() },
        ProblemKind::TooLong { found: 101, limit: 100 },
        ProblemKind::Duplicate { name: name() },
        ProblemKind::SymbolKinds { symbol: name() },
        ProblemKind::SymbolValues { symbol: name(), first: "1".to_owned(), found: "2".to_owned() },
        ProblemKind::Reference { target: "@misc/cat.png".to_owned() },
        ProblemKind::Undeclared { name: name(), what: "input" },
        ProblemKind::PortsNotDeclared,
        ProblemKind::Dtype { tensor: name(), found: "int8", expected: "int16" },
        ProblemKind::Shape { tensor: name(), found: "[2]".to_owned(), expected: "[n, 3]".to_owned() },
        ProblemKind::FileLength { file: "x.bin".to_owned(), found: 7, expected: "8".to_owned() },
        ProblemKind::Strings { file: "x.toml".to_owned(), found: 7, expected: 8 },
        ProblemKind::Nested { name: name() },
        ProblemKind::LineOrder { other: "misc/a".to_owned() },
    ];
    let found: HashSet<_> = kinds.iter().map(std::mem::discriminant).collect();
    assert_eq!(
        found.len(),
        include_str!("../../src/problem.rs").matches("#[error(").count(),
        "each has a text here"
    );
    let text = |kind: &ProblemKind| format!("carton.toml:3:7: key {kind}\n");
    insta::assert_snapshot!(kinds.iter().map(text).collect::<String>());
}

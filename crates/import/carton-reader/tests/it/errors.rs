//! Pins the text of every error.

use std::collections::HashSet;
use std::io;

use carton_reader::Error;

#[test]
fn every_error_has_its_text() {
    let path = || "model/a\n.pt".to_owned();
    let io = || io::Error::from(io::ErrorKind::PermissionDenied);
    let hash = || "0123".to_owned();
    let errors = [
        Error::Map(byte_source::Error::NotAFile { path: "x.carton".into(), what: "a named pipe" }),
        Error::Zip(zip_format::Error::NoEnd { len: 3 }),
        Error::Format(carton_format::Error::ShortDescription { found: 101 }),
        Error::Model { path: path(), reason: Box::new(tensor_error().into()) },
        Error::Io { path: "folder".into(), reason: io() },
        Error::Changed(changed()),
        Error::Missing { path: path() },
        Error::NotFetched { path: path() },
        Error::InvalidPath { path: "../a".to_owned() },
        Error::NameNotUtf8 { path: "folder/a".into() },
        Error::NotAFile { path: path() },
        Error::FileAsFolder { path: "misc/a".to_owned(), below: "misc/a/b".to_owned() },
        Error::LinkOutsideModel { path: "misc/a".to_owned() },
        Error::BrokenLink { path: path(), target: "../../etc/passwd".to_owned() },
        Error::Method { path: path(), method: 12 },
        Error::Decompress { path: path(), reason: "corrupt deflate stream".to_owned() },
        Error::Length { path: path(), found: 8, is_at_least: true, expected: 7 },
        Error::Checksum { path: path(), found: 1, expected: 2 },
        Error::Hash { path: path(), found: hash(), expected: hash() },
        Error::Unlisted { path: path() },
        Error::OversizedDocument { path: path(), found: 300, limit: 256 },
        Error::TextNotUtf8 { path: path() },
        Error::NoTensor { name: "x".to_owned() },
        Error::WriteOutput(io()),
        Error::Cancelled(byte_source::Cancelled),
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

fn changed() -> byte_source::FileChanged {
    let change = byte_source::FileChange::Length { expected: 300, found: 200 };
    byte_source::FileChanged { path: "x.carton".into(), change }
}

fn tensor_error() -> tensor::Error {
    let storage = tensor::Storage::owned(vec![0; 4]);
    tensor::Tensor::new(tensor::Dtype::Float32, vec![2], vec![1], 0, storage).expect_err("it needs 8 bytes")
}

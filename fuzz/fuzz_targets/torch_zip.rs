//! A zip archive of `torch.save` or `torch.jit.save` with arbitrary records: an error, or tensors inside their storages.

#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};
use torch2carton_fuzz::{archive, checkpoints};

/// Names of records that mean something, with and without a root folder, and some that do not.
const NAMES: &[&str] = &[
    "archive/data.pkl",
    "archive/data/0",
    "archive/data/1",
    "archive/byteorder",
    "archive/version",
    "archive/constants.pkl",
    "archive/.format_version",
    "archive/.data/serialization_id",
    "archive/code/a.py",
    "data.pkl",
    "data/0",
    "other/data.pkl",
    "archive/data/",
    "archive/data/../0",
    "/archive/data/0",
    "",
];

fuzz_target!(|bytes: &[u8]| -> Corpus {
    if bytes.starts_with(b"PK") {
        checkpoints::check(bytes);
    } else if let Ok(bytes) = archive(&mut Unstructured::new(bytes)) {
        checkpoints::check(&bytes);
    } else {
        return Corpus::Reject;
    }
    Corpus::Keep
});

fn archive(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut records = vec![("archive/data/0", u.bytes(u.len().min(48))?)];
    for _ in 0..u.int_in_range(0..=4)? {
        let len = u.int_in_range(0..=40)?;
        records.push((*u.choose(NAMES)?, u.bytes(len)?));
    }
    let patches = u.len().min(8);
    let mut patches = Unstructured::new(u.bytes(patches)?);
    records.push(("archive/data.pkl", u.bytes(u.len())?));
    let mut bytes = archive::zip(&records);
    archive::patch(&mut patches, &mut bytes)?;
    Ok(bytes)
}

//! A carton is read or refused. If `verify` finds nothing in it, another reader of zip files reads the same bytes, and
//! each file has the hash that MANIFEST lists.

#![no_main]

use std::io::{Cursor, Read};

use byte_source::{ProgressReporter, Sha256, Sink, Window};
use carton_format::{Carton, Links, Manifest};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};
use torch_import::{Checkpoint, Container};
use torch2carton_fuzz::{archive, input::source};

/// Paths that mean something, and some that a carton cannot have.
const PATHS: &[&str] = &[
    "carton.toml",
    "tensor_data/index.toml",
    "tensor_data/x.bin",
    "model/model.pt",
    "model/a",
    "misc/a",
    "misc",
    "LINKS",
    "../a",
    "model/a/b",
    "a\\b",
    "é",
];
/// The most bytes of a file that are read: a few compressed bytes can stand for many.
const MAX: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    if bytes.starts_with(b"PK") {
        check(bytes);
    } else if let Ok(bytes) = carton(&mut Unstructured::new(bytes)) {
        check(&bytes);
    } else {
        return Corpus::Reject;
    }
    Corpus::Keep
});

fn check(bytes: &[u8]) {
    let input = source(bytes);
    let Ok(carton) = Carton::from_source(input) else { return };
    carton.config().ok();
    if let Ok(index) = carton.tensor_index() {
        for spec in &index.document.tensors {
            carton.tensor_data(spec).ok();
        }
    }
    if let Some(model) = carton
        .source(carton_format::MODEL_PT, &())
        .ok()
        .and_then(|source| Container::from_source(source).ok())
    {
        Checkpoint::read(&model).ok();
    }
    let report = carton.verify(ProgressReporter::unobserved()).expect("nothing cancels");
    if !report.findings.is_empty() {
        return;
    }
    let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).expect("nothing is wrong with the zip file");
    for entry in carton.entries() {
        if entry.is_symbolic_link || entry.len > MAX {
            continue;
        }
        let mut found = Vec::new();
        carton.read(&entry.path).expect("it was listed").read_to_end(&mut found).expect("it was verified");
        let mut other = Vec::new();
        let mut file = zip.by_name(&entry.path).expect("both readers have the entry");
        file.read_to_end(&mut other).expect("both readers read the entry");
        assert_eq!(found, other, "{}", entry.path);
        let hash = carton.manifest().and_then(|manifest| manifest.hash(&entry.path));
        assert!(hash.is_none_or(|hash| hash == sha256(&found)), "{}", entry.path);
        assert!(hash.is_some() || [Manifest::PATH, Links::PATH].contains(&entry.path.as_str()));
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut sink = Sha256::default();
    sink.write(Window::owned(bytes.to_vec())).expect("a hash takes everything");
    sink.digest()
}

/// A carton whose MANIFEST is mostly right.
fn carton(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const CONFIG: &[u8] = b"spec_version = 1\n[runner]\nrunner_name = 'torchscript'\n\
        required_framework_version = '=2.0'\nrunner_compat_version = 1\n";
    const INDEX: &[u8] =
        b"tensor = [{name = 'x', dtype = 'int16', shape = [2], file = 'x.bin', inner = []}]\n";
    let mut files: Vec<(&str, &[u8])> = vec![("carton.toml", CONFIG), ("tensor_data/index.toml", INDEX)];
    files.push(("tensor_data/x.bin", b"\0\0\x01\0"));
    for _ in 0..u.int_in_range(0..=3)? {
        let len = u.int_in_range(0..=40)?;
        files.push((*u.choose(PATHS)?, u.bytes(len)?));
    }
    let mut manifest: Vec<String> = Vec::new();
    for (path, bytes) in &files {
        if *path != Links::PATH && !u.ratio(1, 32)? {
            manifest.push(format!("{path}={}\n", byte_source::hex(&sha256(bytes))));
        }
    }
    manifest.sort();
    let manifest = manifest.concat();
    files.push((Manifest::PATH, manifest.as_bytes()));
    let mut bytes = archive::zip(&files);
    archive::patch(u, &mut bytes)?;
    Ok(bytes)
}

//! The contents of cartons made from small checkpoints: entries, documents, hashes.

use std::fmt::Write;
use std::io::Read;
use std::path::Path;

use crate::program::{folder, inputs, snapshot_name, torch2carton, transcript};

/// The entries of a zip file, one line for each: bytes, start of the data modulo 64, method, path.
fn entries(zip: &mut zip::ZipArchive<std::fs::File>, out: &mut String) {
    for index in 0..zip.len() {
        let entry = zip.by_index(index).expect("its header is right");
        let at = entry.data_start().expect("its header was read") % 64;
        let name = entry.name().expect("UTF-8 names");
        let _ = writeln!(out, "{:>6} +{at} {} {name}", entry.size(), entry.compression());
    }
}

/// The bytes of one entry; reading to the end compares the CRC.
fn read(zip: &mut zip::ZipArchive<std::fs::File>, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    zip.by_name(name).expect("it is there").read_to_end(&mut bytes).expect("its CRC is right");
    bytes
}

fn listing(carton: &Path, scratch: &Path) -> String {
    let mut out = String::new();
    let open = |path: &Path| {
        zip::ZipArchive::new(std::fs::File::open(path).expect("it is there")).expect("a zip file")
    };
    let mut zip = open(carton);
    entries(&mut zip, &mut out);
    for document in ["carton.toml", "MANIFEST", "tensor_data/index.toml"] {
        let text = String::from_utf8(read(&mut zip, document)).expect("UTF-8");
        let _ = write!(out, "\n--- {document}\n{text}");
    }
    let model = scratch.join("model.pt");
    std::fs::write(&model, read(&mut zip, "model/model.pt")).expect("a temporary folder");
    let _ = writeln!(out, "\n--- model/model.pt");
    entries(&mut open(&model), &mut out);
    out
}

#[test]
fn carton_listings() {
    for input in inputs("checkpoints", "pth") {
        let scratch = tempfile::tempdir().expect("a temporary folder");
        let target = scratch.path().join("out.carton");
        let input_path = folder().join(&input);
        // The summary contains times.
        let output = torch2carton([input_path.as_os_str(), "-q".as_ref(), "-o".as_ref(), target.as_os_str()]);
        let text = match output.status.code() {
            Some(0) => listing(&target, scratch.path()),
            _ => transcript(&output).replace(&format!("{}", folder().display()), ""),
        };
        insta::assert_snapshot!(snapshot_name("carton", &input), text);
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let carton = |name: &str| {
        let target = scratch.path().join(name);
        let output = torch2carton([
            "checkpoints/llama_tiny/consolidated.00.pth".as_ref(),
            "-q".as_ref(),
            "-o".as_ref(),
            target.as_os_str(),
        ]);
        assert!(output.status.success(), "{}", transcript(&output));
        std::fs::read(target).expect("it was written")
    };
    assert_eq!(carton("a.carton"), carton("b.carton"));
}

//! Scans of files that a loader reads in another way than their first bytes say. `tests/conformance/test_scan_loaders.py` shows that
//! the loaders run the same kinds of files.

use std::io::Write;

use test_support::stored_zip;
use torch_import::{Container, Risk, Scan, ScanDepth};

const PAYLOAD: &[u8] = b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.";

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("it can be written");
    file
}

fn scan(bytes: &[u8]) -> Scan {
    let file = file(bytes);
    Scan::file(file.path(), ScanDepth::Everything, &()).expect("it is of a known kind")
}

fn kinds(scan: &Scan) -> Vec<&str> {
    scan.findings.iter().map(|found| found.kind).collect()
}

fn worst(scan: &Scan) -> Option<Risk> {
    scan.uses().map(|(_, used)| used.risk).max()
}

/// Returns a member of a tar archive without the magic, whose header begins with `name`.
fn tar_member(name: &[u8], data: &[u8], is_signed: bool) -> Vec<u8> {
    let header = |sum: &[u8]| {
        let size = format!("{:011o}", data.len());
        let mut header = name.to_vec();
        for (end, field) in [(124, &[][..]), (148, size.as_bytes()), (512, sum)] {
            header.extend_from_slice(field);
            header.resize(end, 0);
        }
        header
    };
    let number = |byte: &u8| if is_signed { i64::from(byte.cast_signed()) } else { i64::from(*byte) };
    let sum: i64 = header(b"        ").iter().map(number).sum();
    let mut member = [&header(format!("{sum:06o}\0 ").as_bytes()), data].concat();
    member.resize(member.len().next_multiple_of(512), 0);
    member
}

#[test]
fn capitals_in_the_names_that_pytorch_looks_up_are_a_finding() {
    let plain: &[(&str, &[u8])] = &[("p/data.pkl", b"\x80\x02}."), ("p/version", b"3\n"), ("p/data/0", b"")];
    let with = |name: &'static str| {
        let found = scan(&stored_zip(plain.iter().copied().chain([(name, &b"little"[..])])));
        (kinds(&found).contains(&"name"), found.is_fully_read())
    };
    for name in ["p/byteorder", "p/extra/Notes.txt", "p/Tokenizer.json", "q/BYTEORDER"] {
        assert_eq!(with(name), (false, true), "{name}");
    }
    for name in ["p/BYTEORDER", "P/byteorder", "p/.DATA/EXTERN_MODULES", "p/Code/__torch__/a.txt"] {
        assert_eq!(with(name), (true, true), "{name}");
    }
}

#[test]
fn numbers_that_only_one_unpickler_reads_are_not_clean() {
    for number in ["I10\n", "I00\n", "I01\n", "L10L\n", "F1.5\n", "Finf\n"] {
        assert!(scan(&[number.as_bytes(), b"0cm\nn\n."].concat()).is_fully_read(), "{number:?}");
    }
    for number in ["I010\n", "I+1\n", "I\0\n", "L010L\n", "F1_0.5\n", "F1e999\n"] {
        let found = scan(&[number.as_bytes(), b"0cos\nsystem\n."].concat());
        assert!(!found.is_fully_read() && found.uses().count() == 1, "{number:?}: {found:?}");
    }
}

#[test]
fn a_class_of_cpp_in_a_pickle_has_the_risk_of_its_use_in_code() {
    let risk = |class: &str| {
        let pickle = [b"\x80\x02c__torch__.torch.classes.", class.as_bytes(), b"\n)\x81."].concat();
        let records =
            [("p/data.pkl", &pickle[..]), ("p/constants.pkl", b"\x80\x02)."), ("p/code/__torch__.py", b"x")];
        let found = scan(&stored_zip(records));
        worst(&found)
    };
    for (class, expected) in [
        ("quantized\nLinearPackedParamsBase", Risk::Known),
        ("mine\nThing", Risk::Unknown),
        ("dist_c10d\nFileStore", Risk::Dangerous),
    ] {
        assert_eq!(risk(class), Some(expected), "{class}");
    }
}

#[test]
fn the_code_of_old_torchscript_is_not_scanned() {
    let is_read = |name| scan(&stored_zip([("p/version", &b"2\n"[..]), (name, b"{}")])).is_fully_read();
    assert!(
        is_read("p/a/model.json")
            && is_read("model.json")
            && !is_read("p/model.json")
            && !is_read("p/MODEL.json")
    );
}

#[test]
fn the_code_of_a_mobile_model_is_not_scanned() {
    let found = scan(&[&b"\x18\0\0\0PTMF"[..], &[0; 64]].concat());
    assert!((found.format, found.is_fully_read()) == ("flatbuffer", false) && found.findings.is_empty());
    let found = scan(b"\x80\x03C\x04PTMF.");
    assert_eq!(kinds(&found), ["polyglot"]);
}

#[test]
fn an_archive_that_brings_modules_has_no_known_globals() {
    let pickle = b"\x80\x02ccollections\nOrderedDict\n)R.";
    let risk = |name: &'static str| {
        let found = scan(&stored_zip([("p/model/data.pkl", &pickle[..]), (name, b"x = 1\n")]));
        worst(&found)
    };
    assert_eq!(risk("p/model/a.txt"), Some(Risk::Known));
    for name in ["p/.data/extern_modules", "p/.DATA/EXTERN_MODULES", "p/collections.py", "p/code/a.py"] {
        assert_eq!(risk(name), Some(Risk::Unknown), "{name}");
    }
}

#[test]
fn a_file_that_python_reads_as_tar_is_not_only_what_it_starts_as() {
    for start in [
        &b"\x80\x02}."[..],
        b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.",
        b"\x93NUMPY\x01\0",
        b"\x1f\x8b\x08\0",
        b"\x08\0\0\0\0\0\0\0{}",
        b"PK\x05\x06",
        b"GGUF",
    ] {
        for is_signed in [false, true] {
            let parts = [tar_member(start, b"", is_signed), tar_member(b"storages", PAYLOAD, is_signed)];
            let bytes = [parts.concat(), vec![0; 1024]].concat();
            let found = scan(&bytes);
            assert!(!found.findings.is_empty(), "{}: {found:?}", start.escape_ascii());
            assert!(Container::open(file(&bytes).path()).is_err(), "{}", start.escape_ascii());
        }
    }
    assert_eq!(kinds(&scan(&[&b"\x80\x02}."[..], &[0; 509]].concat())), ["trailing"]);
}

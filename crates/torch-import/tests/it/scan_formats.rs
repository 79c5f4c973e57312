//! Scans of formats besides those of PyTorch whose loaders run code: msgpack, HDF5, and tar archives that programs unpack.

use std::sync::Arc;

use byte_source::{BufferSource, Source};
use test_support::{safetensors, stored_zip};
use torch_import::{Risk, Scan, ScanDepth};

const PICKLE: &[u8] = b"\x80\x02cos\nsystem\nX\x01\0\0\0x\x85R.";
const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";

fn tar(name: &str, data: &[u8]) -> Vec<u8> {
    tar_with(name, data, None)
}

/// A tar archive of one member, whose name and target are not checked.
fn tar_with(name: &str, data: &[u8], target: Option<&str>) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    let names = &mut header.as_gnu_mut().expect("a header of GNU").name;
    names.get_mut(..name.len()).expect("it is short").copy_from_slice(name.as_bytes());
    header.set_size(data.len() as u64);
    if let Some(target) = target {
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_link_name_literal(target).expect("it is short");
    }
    header.set_cksum();
    let mut tar = tar::Builder::new(Vec::new());
    tar.append(&header, data).expect("memory takes it");
    tar.into_inner().expect("memory takes it")
}

/// What was found: `dangerous`, a kind of finding, `missed` or `clean`; `refused` if nothing is read.
fn verdict(bytes: &[u8]) -> String {
    let source = Arc::new(BufferSource::new("a", bytes.to_vec())) as Arc<dyn Source>;
    let Ok(scan) = Scan::source(&source, ScanDepth::Everything, &()) else { return "refused".to_owned() };
    let risk = scan.uses().map(|(_, used)| used.risk).max();
    match scan.findings.first() {
        _ if risk == Some(Risk::Dangerous) => "dangerous".to_owned(),
        Some(found) => found.kind.to_owned(),
        None => if scan.is_fully_read() { "clean" } else { "missed" }.to_owned(),
    }
}

#[test]
fn byte_strings_of_msgpack_are_scanned() {
    let len = u8::try_from(PICKLE.len()).expect("it is short");
    let with = |before: &[u8]| [before, PICKLE].concat();
    let extension = |kind: u8| with(&[0x81, 0xa1, b'a', 0xc7, len, kind]);
    let state = with(&[&b"\x81\xa5state\xc4"[..], &[len]].concat());
    let shims = [&b"\x82\xa5nodes\x90\xa5shims\x91\xc4"[..], &[len + 9], &state].concat();
    for (bytes, expected) in [
        (
            with(&[&b"\x83\xc4\x02nd\xc3\xc4\x04kind\xc4\x01O\xc4\x04data\xc4"[..], &[len]].concat()),
            "dangerous",
        ),
        (shims, "dangerous"),
        (with(&[0x81, 1, 0xc4, len]), "dangerous"),
        (extension(5), "dangerous"),
        (b"\x82\xa2nd\xc3\xa4type\xa2|O".to_vec(), "missed"),
        (b"\x83\xa2nd\xc3\xa4kind\xa1V\xa4type\x91\x92\xa1a\xa1O".to_vec(), "missed"),
        (b"\x82\xa2nd\xc3\xa4type\x82\xa5names\x91\xa1a\xa7formats\x91\xa1O".to_vec(), "missed"),
        (b"\x81\xa4tags\x92\xa1O\xa1B".to_vec(), "clean"),
        (b"\x81\xa1a\xc4\x02\xff\x01".to_vec(), "missed"),
        (b"\x81\xa1a\xc7\x0c\x01\x93\x91\x02\xa4int8\xc4\x02\xff\xfe".to_vec(), "clean"),
        (extension(1), "dangerous"),
        (b"\x82\xa1a\x01\xa1b\xa1N".to_vec(), "clean"),
        (b"\x82\xa1a\x01\xa1b\xa2N".to_vec(), "refused"),
    ] {
        assert_eq!(verdict(&bytes), expected, "{}", bytes.escape_ascii());
        // In an archive, what nothing reads is reported.
        let expected = if expected == "refused" { "missed" } else { expected };
        for archive in [stored_zip([("tagger/model", &bytes[..])]), tar("tagger/model", &bytes)] {
            assert_eq!(verdict(&archive), expected, "{}", bytes.escape_ascii());
        }
    }
}

/// A member of another kind than a text or a picture is reported, and so is a file that another program runs.
#[test]
fn what_nothing_reads_in_an_archive_is_reported() {
    for (name, bytes, expected) in [
        ("a.txt", &b"text"[..], "clean"),
        ("a.png", b"\x89PNG\r\n\x1a\n\0", "clean"),
        ("a.dat", b"\0\x01\x02\x03", "missed"),
        ("library", b"\x7fELF\x02", "missed"),
        ("saved_model.pbtxt", b"a: 1", "missed"),
        ("a.engine", b"text", "missed"),
        // Formats without a signature begin like a picture, or have the name of a text.
        ("a.pdmodel", b"BM\x01\x02", "missed"),
        ("a.cfg", b"\xe3\0\x01", "missed"),
        ("a.jinja", b"\xe3\0\x01", "missed"),
        ("a.gguf", b"text", "missed"),
        ("a.pbtxt", b"node { op: \"WriteFile\" }", "missed"),
        ("a.textproto", b"graph { initializer { external_data { key: \"location\" } } }", "missed"),
        ("a.dir", b"'a', (512, 7)\n", "missed"),
        ("model.onnx", b"\x08\x0a\x3a\0", "clean"),
        ("saved_model.pb", b"\x08\x0a\x3a\0", "missed"),
    ] {
        let pickle = ("b.pkl", &b"\x80\x02}."[..]);
        assert_eq!(verdict(&stored_zip([pickle, (name, bytes)])), expected, "{name}");
        let document = ("a.json", &b"{}"[..]);
        assert_eq!(
            verdict(&stored_zip([document, ("b.tar", &tar(name, bytes))])),
            expected,
            "{name} in a tar archive"
        );
    }
}

/// A member of a tar archive may have a pickle that calls nothing first.
#[test]
fn every_pickle_of_a_member_is_scanned() {
    let two = [&b"\x80\x02}."[..], PICKLE].concat();
    assert_eq!(verdict(&tar("a.dat", &two)), "dangerous");
    assert_eq!(verdict(&tar("a.dat", &[&b"\x80\x02}."[..], &[0; 64]].concat())), "trailing");
    assert_eq!(verdict(&tar("a.dat", b"\x80\x02}.")), "clean");
    // Without a magic number, and after several.
    for first in [&b"N."[..], b"]q\0.", b"N.I5\n.Va\n."] {
        let two = [first, b"cos\nsystem\n(Vx\ntR."].concat();
        assert_eq!(verdict(&two), "dangerous", "{}", first.escape_ascii());
        assert_eq!(verdict(&tar("a.dat", &two)), "dangerous", "{}", first.escape_ascii());
        let pickle = ("b.pkl", &b"\x80\x02}."[..]);
        assert_eq!(verdict(&stored_zip([pickle, ("a.yaml", &two)])), "dangerous", "{}", first.escape_ascii());
    }
    assert_eq!(verdict(&stored_zip([("b.pkl", &b"\x80\x02}."[..]), ("a.txt", b"N. N.")])), "clean");
}

/// Programs keep configurations in the metadata of safetensors.
#[test]
fn the_metadata_of_safetensors_is_a_document() {
    for (text, expected) in [
        ("networks.lora", "clean"),
        (r#"{"_target_": "os.system"}"#, "dangerous"),
        ("!!python/object/apply:os.system [x]", "tag"),
        ("{{ a.__class__ }}", "template"),
    ] {
        let text = text.replace('"', "\\\"");
        let header = format!("{{\"__metadata__\":{{\"a\":\"{text}\"}}}}");
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
        assert_eq!(verdict(&bytes), expected, "{text}");
        assert_eq!(verdict(&stored_zip([("a.safetensors", &*bytes)])), expected, "{text}");
        assert_eq!(verdict(&tar("a.safetensors", &bytes)), expected, "{text}");
    }
}

/// The schema of a file of columns may name a type that pyarrow unpickles.
#[test]
fn columns_that_are_unpickled_are_found() {
    let base64 = b"AAAAFwAAAGFycm93LnB5X2V4dGVuc2lvbl90eXBlAA==".to_vec();
    let parquet = |schema: &[u8]| {
        let len = u32::try_from(schema.len()).expect("it is short").to_le_bytes();
        [b"PAR1", schema, &len, b"PAR1"].concat()
    };
    for (bytes, expected) in [
        (parquet(b"\x15\x02 ARROW:schema\x18"), "clean"),
        (parquet(&[b"\x15\x02 ARROW:schema\x18", &base64[..]].concat()), "columns"),
        (parquet(b"arrow.py_extension_type"), "columns"),
        (parquet(b"ARROW:extension:name ray.data.arrow_tensor"), "missed"),
        (b"PAR1\xff\xff\xff\xffPAR1".to_vec(), "missed"),
        (b"PARE\0\0\0\0PARE".to_vec(), "missed"),
        (b"PAR1".to_vec(), "missed"),
    ] {
        assert_eq!(verdict(&bytes), expected, "{}", bytes.escape_ascii());
    }
}

/// HDF5 may begin at a power of two, and its readers do not look at names.
#[test]
fn hdf5_is_found_by_its_content() {
    let at = |start: usize| [&vec![b' '; start][..], HDF5, &[0; 64]].concat();
    for bytes in [at(0), at(512), at(4096)] {
        for file in [stored_zip([("a.h5", &bytes[..])]), tar("a", &bytes), bytes] {
            assert_eq!(verdict(&file), "missed");
        }
    }
    assert_eq!(verdict(&at(500)), "refused");
    let numbers = vec![1; 1024];
    let mut both = safetensors([("a", "U8", [1024], &numbers)]);
    both[512..520].copy_from_slice(HDF5);
    assert_eq!(verdict(&both), "polyglot");
}

#[test]
fn a_tar_archive_that_leads_out_of_its_folder_is_a_finding() {
    for (name, target, expected) in [
        ("../../a.json", None, "tar"),
        ("/a.json", None, "tar"),
        ("lib", Some("/etc"), "tar"),
        ("lib", Some("../.."), "tar"),
        ("lib", Some("lib64"), "refused"),
        ("weights/a.json", None, "clean"),
    ] {
        let data: &[u8] = if target.is_some() { b"" } else { b"{}" };
        assert_eq!(verdict(&tar_with(name, data, target)), expected, "{name} {target:?}");
    }
}

/// Programs go on after the end of the first stream, in which there may be nothing.
#[test]
fn bytes_after_a_stream_of_zlib_are_reported() {
    let zlib = |bytes: &[u8]| {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut zlib, bytes).expect("memory takes it");
        zlib.finish().expect("memory takes it")
    };
    assert_eq!(verdict(&zlib(b"\x80\x02}.")), "clean");
    assert_eq!(verdict(&[zlib(b"\x80\x02}."), zlib(PICKLE)].concat()), "missed");
    assert_eq!(verdict(&[zlib(b""), zlib(PICKLE)].concat()), "missed");
}

#[test]
fn a_compressed_file_of_something_else_is_no_checkpoint() {
    let gzip = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, bytes).expect("memory takes it");
        gzip.finish().expect("memory takes it")
    };
    for (bytes, expected) in [
        (&b"X\n\0\0\0\x03\0\x04\x03\0"[..], "missed"),
        (b"text", "refused"),
        (&tar("a.txt", b"text"), "refused"),
        (b"\x80\x02}.", "clean"),
        (PICKLE, "dangerous"),
        (HDF5, "missed"),
        (&gzip(PICKLE), "dangerous"),
        (&gzip(b"text"), "refused"),
    ] {
        assert_eq!(verdict(&gzip(bytes)), expected, "{}", bytes.escape_ascii());
    }
}

//! Scans at their edges: what counts as a pickle, the most levels, and the most lines of a report.
//!
//! Facts: which bytes Python's unpicklers go on reading is from CPython 3.11 (`Modules/_pickle.c`, `Lib/pickle.py`); the
//! limits are those of `src/scan`.

use std::io::Write;

use byte_source::Observer;
use test_support::stored_zip;
use torch_import::{Error, Risk, Scan, ScanDepth};

const PAYLOAD: &[u8] = b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.";
const CLEAN: &[u8] = b"\x80\x02}.";

fn scan(bytes: &[u8]) -> Scan {
    scan_until(bytes, &()).expect("it is of a known kind")
}

fn scan_until(bytes: &[u8], observer: &dyn Observer) -> Result<Scan, Error> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("it can be written");
    Scan::file(file.path(), ScanDepth::Everything, observer)
}

#[test]
fn what_macos_adds_to_an_archive_is_no_pickle() {
    let attributes = [b"\0\x05\x16\x07".as_slice(), &[0; 100]].concat();
    let archive = |extra: &[u8]| {
        let pickle = (b"archive/data.pkl".as_slice(), CLEAN);
        let records = [pickle, (b"__MACOSX/archive/._data.pkl", extra)];
        stored_zip(records.map(|(name, bytes)| (str::from_utf8(name).expect("UTF-8"), bytes)))
    };
    assert!(scan(&archive(&attributes)).is_fully_read());
    assert_eq!(dangerous(&scan(&archive(PAYLOAD))), ["os.system"]);
}

fn names(scan: &Scan) -> Vec<String> {
    scan.uses().map(|(_, found)| found.global.to_string()).collect()
}

fn dangerous(scan: &Scan) -> Vec<String> {
    let found = scan.uses().filter(|(_, found)| found.risk == Risk::Dangerous);
    found.map(|(_, found)| found.global.to_string()).collect()
}

/// A pickle of these bytes.
fn bytes(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).expect("it is short").to_le_bytes();
    [b"\x80\x03B", &len[..], bytes, b"."].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).expect("memory takes it");
    gzip.finish().expect("memory takes it")
}

fn zip(method: zip::CompressionMethod, records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    for (name, data) in records {
        zip.start_file(*name, options).expect("memory takes it");
        zip.write_all(data).expect("memory takes it");
    }
    zip.finish().expect("memory takes it").into_inner()
}

fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, *data).expect("memory takes it");
    }
    tar.into_inner().expect("memory takes it")
}

/// An archive with `count` records of one byte `.`, each with this method and CRC-32 in its headers.
fn archive(count: u16, method: u8, crc: u8) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for number in 0..count {
        let name = format!("m/{number:04}.pkl");
        let start = u32::try_from(out.len()).expect("archives are short").to_le_bytes();
        let name_len = u8::try_from(name.len()).expect("names are short");
        let common = [
            &[20, 0, 0, 0, method, 0, 0, 0, 0x21, 0, crc, 0, 0, 0][..],
            &[1, 0, 0, 0, 1, 0, 0, 0, name_len, 0, 0, 0],
        ]
        .concat();
        out.extend([b"PK\x03\x04", common.as_slice(), name.as_bytes(), b"."].concat());
        directory
            .extend([b"PK\x01\x02\x14\0", common.as_slice(), &[0; 10], &start, name.as_bytes()].concat());
    }
    let start = u32::try_from(out.len()).expect("archives are short").to_le_bytes();
    let len = u32::try_from(directory.len()).expect("archives are short").to_le_bytes();
    let count = count.to_le_bytes();
    out.extend([&directory[..], b"PK\x05\x06\0\0\0\0", &count, &count, &len, &start, b"\0\0"].concat());
    out
}

/// Bytes after a pickle, and whether they are one.
#[test]
fn bytes_with_an_error_are_a_pickle_if_python_may_do_something_with_them() {
    let cases: &[(&str, &[u8], bool)] = &[
        ("a name that nothing calls", b"cm\nn\n0\xff", false),
        ("the same with a protocol", b"\x80\x02cm\nn\n0\xff", true),
        ("a protocol and no name", b"\x80\x02N\xff", false),
        ("a call", b"cm\nn\n)R0\xff", true),
        ("a change of a global", b"cm\nn\n}b0\xff", true),
        ("a dangerous name", b"cos\nsystem\n0\xff", true),
        ("a number that Python reads, then a name", b"I0x10\n0cm\nn\n.", true),
        ("a name, then a number that Python reads", b"cm\nn\n0I0x10\n.", true),
        ("a number that Python reads, and no name", b"I0x10\n.", false),
        ("an error for Python, then a name", b"\xffcm\nn\n.", false),
        ("a name from the stack", b"I0x10\n0\x8c\x01m\x8c\x01n\x93.", true),
        ("an extension", b"I0x10\n0\x82\x01.", true),
        ("a persistent object for a name, then a name", b"\x8c\x01mNQ\x93cm\nn\n.", true),
        ("a name without an end", b"I0x10\n0cm\nn", true),
    ];
    for (name, bytes, is_one) in cases {
        let found = scan(&[CLEAN, *bytes].concat());
        assert_eq!(found.count, 1 + usize::from(*is_one), "{name}: {found:?}");
        assert_eq!(found.findings.iter().any(|found| found.kind == "trailing"), !is_one, "{name}: {found:?}");
    }
}

#[test]
fn a_text_is_not_a_pickle_unless_python_may_call_what_it_names() {
    let kind =
        |bytes: &[u8]| scan_until(bytes, &()).map(|scan| scan.format).map_err(|error| error.to_string());
    for text in [&b"import os\n"[..], b"class", b"config", b"i am a text", b"(it is a text\n", b"Mi is one\n"]
    {
        let found = kind(text).expect_err("it is a text");
        assert!(found.contains("it is a text"), "{}: {found}", text.escape_ascii());
    }
    // Python's own unpickler takes the rest of the bytes as the name, and calls it.
    for pickle in [&b"(ios\nsystem"[..], b"(Vls\nios\nsystemX", b"\x80\x02cos"] {
        assert_eq!(kind(pickle), Ok("pickle"), "{}", pickle.escape_ascii());
    }
}

#[test]
fn names_after_an_error_are_listed() {
    let cases: [(&[u8], &str); 4] = [
        (b"I0x10\n0cm\nn\n.", "m.n"),
        (b"I0x10\n0\x8c\x01m\x8c\x01n\x93.", "m.n"),
        (b"I0x10\n0U\x01mU\x01n\x93.", "m.n"),
        (b"I0x10\n0\x8c\x01xU\x01m\x8c\x01n\x93.", "m.n"),
    ];
    for (bytes, expected) in cases {
        let found = scan(&[CLEAN, bytes].concat());
        assert_eq!(names(&found), [expected], "{}", bytes.escape_ascii());
        assert!(found.uses().all(|(_, found)| found.after_error), "{found:?}");
    }
}

#[test]
fn byte_strings_in_a_pickle_are_scanned_if_they_are_one() {
    let short = |bytes: &[u8]| [&[u8::try_from(bytes.len()).expect("it is short")], bytes].concat();
    let string = [b"\x80\x02U".to_vec(), short(PAYLOAD), b".".to_vec()].concat();
    assert_eq!(dangerous(&scan(&string)), ["os.system"]);
    // Protocol 2 writes bytes as text, in which U+0080 takes two bytes.
    let text: String = PAYLOAD.iter().map(|byte| char::from(*byte)).collect();
    let len = u32::try_from(text.len()).expect("it is short").to_le_bytes();
    let encoded = |more: &[u8]| {
        let start = b"\x80\x02(c_codecs\nencode\nq\x00X";
        [start, &len[..], text.as_bytes(), b"q\x01X\x06\0\0\0latin1q\x02\x86R", more, b"t."].concat()
    };
    let found = scan(&encoded(b""));
    assert_eq!((dangerous(&found), found.count), (vec!["os.system".to_owned()], 2));
    // Once, however often the text is encoded.
    assert_eq!(scan(&encoded(b"h\0h\x01h\x02\x86R")).count, 2);
    // Other text is not a pickle, and the text of another one does not hide it.
    let word = b"h\0X\x04\0\0\0word\x85R";
    assert_eq!(scan(&encoded(word)).count, 2);
    // An archive is one, and so are bytes without a protocol that name something.
    let archive = stored_zip([("m/data.pkl", PAYLOAD)]);
    assert_eq!(dangerous(&scan(&bytes(&archive))), ["os.system"]);
    assert_eq!(dangerous(&scan(&bytes(b"cos\nsystem\n)R."))), ["os.system"]);
    assert!(names(&scan(&bytes(b"conv1.weight\n"))).is_empty());
}

#[test]
fn a_payload_in_byte_strings_in_byte_strings_is_found() {
    let mut nested = PAYLOAD.to_vec();
    for level in 1..=7 {
        nested = bytes(&nested);
        let found = scan(&nested);
        assert_eq!(dangerous(&found), ["os.system"], "{level}");
    }
    // Deeper levels are not scanned, and the scan reports that.
    for _ in 0..8 {
        nested = bytes(&nested);
    }
    assert!(!scan(&nested).is_fully_read());
}

#[test]
fn pickles_that_follow_one_another_in_a_byte_string_are_all_read() {
    let found = scan(&bytes(&[b"\x80\x02cm\nn\n.", CLEAN].concat()));
    assert_eq!((found.count, found.findings.len()), (3, 0), "{found:?}");
    // The offset is that in the file.
    let found = scan(&[CLEAN, &bytes(PAYLOAD)].concat());
    let places: Vec<String> = found.pickles.iter().map(|pickle| pickle.place.to_string()).collect();
    assert_eq!(places, ["pickle, bytes at 0x6"]);
}

#[test]
fn eight_levels_are_scanned() {
    let nested = |wrap: &dyn Fn(&[u8]) -> Vec<u8>, levels: usize| {
        let nested = (0..levels).fold(PAYLOAD.to_vec(), |inner, _| wrap(&inner));
        scan(&nested)
    };
    let loaded = |inner: &[u8]| {
        let len = u32::try_from(inner.len()).expect("it is short").to_le_bytes();
        [b"\x80\x03ctorch.storage\n_load_from_bytes\nB", &len[..], inner, b"\x85R."].concat()
    };
    for wrap in [loaded, gzip] {
        let found = nested(&wrap, 8);
        assert_eq!(
            (dangerous(&found), found.missed.as_slice()),
            (vec!["os.system".to_owned()], [].as_slice())
        );
        let found = nested(&wrap, 9);
        assert!(
            dangerous(&found).is_empty() && found.missed[0].contains("deeper than 8 levels"),
            "{found:?}"
        );
    }
}

#[test]
fn a_damaged_pickle_is_reported_where_one_is_expected() {
    assert!(!scan(&gzip(b"\x80\x02}")).is_fully_read());
    for name in ["m/model.pickle", "m/model.PKL", "m/traced.debug_pkl"] {
        let found = scan(&stored_zip([("m/data.pkl", CLEAN), (name, b"\xff\xff")]));
        assert!(!found.is_fully_read(), "{name}: {found:?}");
    }
    assert!(scan(&stored_zip([("m/data.pkl", CLEAN), ("m/data/0", b"\xff\xff")])).is_fully_read());
}

#[test]
fn compressed_records_are_read_past_their_start() {
    let late = [&bytes(&[7; 600])[..607], b"0", &PAYLOAD[2..]].concat();
    let deflated = zip::CompressionMethod::Deflated;
    let archive = zip(deflated, &[("m/data.pkl", CLEAN), ("m/other.bin", &late)]);
    assert_eq!(dangerous(&scan(&archive)), ["os.system"]);
    // Python's `zipfile` finds an archive behind a text.
    let behind = [&[b' '; 600][..], &stored_zip([("a.pkl", PAYLOAD)])].concat();
    assert_eq!(dangerous(&scan(&zip(deflated, &[("b.pkl", CLEAN), ("a.txt", &behind)]))), ["os.system"]);
    // An interrupted download: without its directory.
    let cut = archive.windows(4).position(|window| window == b"PK\x01\x02").expect("it has one");
    assert_eq!(dangerous(&scan(&archive[..cut])), ["os.system"]);
}

#[test]
fn bytes_that_are_bzip2_and_a_pickle_are_a_pickle() {
    // BINBYTES with a length of 0x685a.
    let both = [b"BZh\0\0", &vec![0; 0x685a][..], b"0", &PAYLOAD[2..]].concat();
    let found = scan(&stored_zip([("m/data.pkl", CLEAN), ("m/extra", &both)]));
    assert_eq!(dangerous(&found), ["os.system"]);
    assert!(found.missed[0].contains("cannot be decompressed here"), "{found:?}");
}

#[test]
fn arrays_of_numbers_hold_no_pickle() {
    let array = |dtype: &str, data: &[u8]| {
        let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': (1,), }}\n");
        let len = u16::try_from(header.len()).expect("it is short").to_le_bytes();
        [b"\x93NUMPY\x01\0", &len[..], header.as_bytes(), data].concat()
    };
    let numbers = scan(&array("<f4", b"\xff\xff\xff\xff"));
    assert!(numbers.is_fully_read() && numbers.count == 0, "{numbers:?}");
    assert!(!scan(&array("|O", b"\xff\xff\xff\xff")).is_fully_read());
    assert_eq!(dangerous(&scan(&array("|O", PAYLOAD))), ["os.system"]);
}

#[test]
fn the_python_code_of_a_package_is_not_scanned() {
    let package = |name: &str| {
        let extern_modules = ("p/.data/extern_modules", &b"torch\n"[..]);
        scan(&stored_zip([("p/model/data.pkl", CLEAN), extern_modules, (name, b"x = 1\n")]))
    };
    let found = package("p/pkg/module.py");
    assert!(found.missed[0].contains("Python code (1 records), which runs"), "{found:?}");
    // Packages have no TorchScript in such a folder, and text is not code.
    assert!(!package("p/code/module.py").is_fully_read());
    assert!(package("p/pkg/module.txt").is_fully_read());
}

#[test]
fn the_native_code_of_a_compiled_model_is_not_scanned() {
    let with = |name: &str| scan(&stored_zip([("a.pkl", CLEAN), (name, b"\x7fELF")]));
    for name in ["data/lib/a.wrapper.so", "m/a.PYD", "a.dylib", "a/b.dll"] {
        let found = with(name);
        assert!(found.missed[0].contains("native code (1 records)"), "{name}: {found:?}");
    }
    for name in ["data/aotinductor/model/a.json", "m/DATA/AOTInductor/model/a.cpp"] {
        let found = with(name);
        assert!(found.missed[0].contains("a compiled model (1 records)"), "{name}: {found:?}");
    }
    // By its content.
    assert_eq!(with("so").missed, ["`so`: a program or a library, which nothing here reads"]);
}

#[test]
fn a_checkpoint_of_torch_0_1_in_another_file_is_not_scanned() {
    let old: &[(&str, &[u8])] =
        &[("sys_info", CLEAN), ("pickle", CLEAN), ("storages", PAYLOAD), ("tensors", b"")];
    let found = scan(&gzip(&tar(old)));
    assert!(names(&found).is_empty() && found.missed.len() == 2, "{found:?}");
    assert!(found.missed[0].contains("a checkpoint of PyTorch 0.1 in another file"), "{found:?}");
    // Without its pickle it is a tar archive like any other.
    let found = scan(&gzip(&tar(&[("readme", b"text"), ("storages", PAYLOAD), ("empty", b"")])));
    assert_eq!((dangerous(&found), found.is_fully_read()), (vec!["os.system".to_owned()], true));
}

#[test]
fn the_code_of_torchscript_is_split_into_names() {
    let code =
        |code: &str| names(&scan(&stored_zip([("m/data.pkl", CLEAN), ("m/code/m.py", code.as_bytes())])));
    assert_eq!(code("    return ops.mine.run(x)\n"), ["torch.ops.mine.run"]);
    assert_eq!(code("    y = ops.mine\\\n.run(x)\n"), ["TorchScript.syntax", "torch.ops.mine.run"]);
    assert_eq!(code("    y = ops..aten.from_file\n"), ["torch.ops", "torch.ops.aten.from_file"]);
    let bytecode =
        |pickle: &[u8]| names(&scan(&stored_zip([("m/data.pkl", CLEAN), ("m/bytecode.pkl", pickle)])));
    assert_eq!(bytecode(b"\x80\x02)0X\x09\0\0\0mine::run."), ["torch.ops.mine.run"]);
}

#[test]
fn a_scan_stops_when_it_is_told_to() {
    struct Stop;
    impl Observer for Stop {
        fn is_cancelled(&self) -> bool {
            true
        }
    }
    assert!(scan_until(PAYLOAD, &Stop).is_err_and(|error| error.is_cancelled()));
}

#[test]
fn a_report_has_at_most_1024_lines_of_each_kind() {
    let many = |name: &str, end: &[u8]| {
        let globals: Vec<u8> = (0..1100).flat_map(|n| format!("c{name}{n}\nn\n0").into_bytes()).collect();
        scan(&[b"\x80\x02", &globals[..], end].concat())
    };
    let found = many("mine", b"N.");
    assert_eq!((found.uses().count(), found.omitted.globals, found.omitted.total()), (1024, 76, 76));
    let found = scan(&archive(1100, 0, 1));
    assert_eq!((found.findings.len(), found.omitted.findings), (1024, 76));
    assert!(found.findings.iter().all(|found| found.kind == "checksum"));
    let found = scan(&archive(1100, 99, 1));
    assert_eq!((found.missed.len(), found.omitted.missed, found.is_fully_read()), (1024, 76, false));
    // One note about all archives, and one about each.
    let found = scan(&archive(1, 0, 0).repeat(1100));
    assert_eq!(found.notes.len(), 1024);
    let found = scan(&archive(1, 0, 0).repeat(2));
    assert_eq!(found.notes.len(), 3, "{:?}", found.notes);
}

#[test]
fn a_full_report_says_that_more_is_irregular() {
    // 4,000 globals, each called eight times; then two extensions.
    let mut pickle = b"\x80\x02".to_vec();
    for number in 0..4000 {
        pickle.extend(format!("cmine{number}\n{}\nq\0", "a".repeat(60)).bytes());
        pickle.extend(b"(K\x01tR0h\0".repeat(8));
        pickle.push(b'0');
    }
    pickle.extend(b"\x82\x010\x82\x020N.");
    let found = scan(&pickle);
    assert_eq!((found.findings.len(), found.omitted.findings), (1, 1));
    assert_eq!(found.findings[0].text, "the report has no room for what is irregular");
}

#[test]
fn the_work_for_a_file_ends() {
    // 20,000 numbers, all of them arguments of 2,000 calls.
    let mut pickle = [b"\x80\x02(", &b"K\x01".repeat(20_000)[..], b"tq\0"].concat();
    (0..2000).for_each(|_| pickle.extend(b"cos\nsystem\nh\0R"));
    pickle.push(b'.');
    let found = scan(&pickle);
    assert_eq!(dangerous(&found), ["os.system"]);
    assert!(
        found.missed.iter().any(|missed| missed.ends_with("the limit on the work for one file was reached"))
    );
}

fn is_clean(scan: &Scan) -> bool {
    scan.findings.is_empty() && scan.uses().next().is_none() && scan.is_fully_read()
}

#[test]
fn numbers_that_look_like_a_format_are_numbers() {
    let in_storage = |numbers: &[u8]| {
        scan(&stored_zip([("m/data.pkl", CLEAN), ("m/data/0", numbers), ("m/version", b"3\n")]))
    };
    let cases: &[(&str, &[u8])] = &[
        ("an extension", b"N\x83\xaa\xbe."),
        ("an extension alone", b"\x82\x01\x97\x84\x01\0\0\0."),
        ("a name without an end", b"i\x01\x02\x03"),
        ("the integer 93, as lzma begins", &[0x5d, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]),
        ("a header of zlib", b"\x78\x9c\x3f\x11\x22\x33\x44\x55"),
        ("a header of compress", b"\x1f\x9d\x90\x3f\x11\x22\x33\x44"),
        ("a short header of gzip", b"\x1f\x8b\x3f\x11\x22\x33\x44\x55"),
        ("a short header of bzip2", b"BZh9\x11\x22\x33\x44\x55\x66\x77"),
    ];
    for (name, numbers) in cases {
        let found = in_storage(numbers);
        assert!(is_clean(&found), "{name}: {found:?}");
    }
    // What Python could load is found.
    for (name, bytes) in [
        ("a pickle", PAYLOAD.to_vec()),
        ("a pickle without a protocol", b"cos\nsystem\n(X\x01\0\0\0atR.".to_vec()),
        ("a compressed pickle", gzip(PAYLOAD)),
        ("a compressed pickle that is cut off", gzip(&PAYLOAD.repeat(300))),
        ("an archive", stored_zip([("data.pkl", PAYLOAD)])),
    ] {
        let found = in_storage(&bytes);
        assert_eq!(dangerous(&found).first().map(String::as_str), Some("os.system"), "{name}: {found:?}");
    }
    assert!(!is_clean(&in_storage(b"BZh91AY&SY\x11\x22\x33\x44")), "it cannot be decompressed here");
}

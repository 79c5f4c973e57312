//! Scans of files that hold others: joblib's arrays, compressed files, archives in byte strings, interrupted downloads.
//!
//! The files of joblib are what joblib 1.5.2 writes with NumPy 2.4; which payloads run is from CPython 3.11.

use std::io::Write;

use test_support::stored_zip;
use torch_import::{Risk, Scan, ScanDepth};

const PAYLOAD: &[u8] = b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.";

fn scan(bytes: &[u8]) -> Scan {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("it can be written");
    Scan::file(file.path(), ScanDepth::Everything, &()).expect("it is of a known kind")
}

fn dangerous(scan: &Scan) -> Vec<String> {
    let found = scan.uses().filter(|(_, found)| found.risk == Risk::Dangerous);
    found.map(|(_, found)| found.global.to_string()).collect()
}

/// `joblib.dump({'w': array, 'next': …})`, from which the rest of the pickle is cut.
fn joblib(dtype: &str, elements: &[u8], rest: &[u8]) -> Vec<u8> {
    let (size, flags) = match dtype {
        "O8" => (-1, 63),
        "V4" => (4, 16),
        _ => (-1, 0),
    };
    joblib_with(dtype, size, flags, elements, rest)
}

/// The same with another size and other flags in the dtype's state.
fn joblib_with(dtype: &str, size: i32, flags: u8, elements: &[u8], rest: &[u8]) -> Vec<u8> {
    let head = b"\x80\x04}\x94\x8c\x01w\x94\x8c\x13joblib.numpy_pickle\x94\x8c\x11NumpyArrayWrapper\x94\x93\x94)\x81\x94}\x94(\
        \x8c\x05shape\x94K\x03\x85\x94\x8c\x05order\x94\x8c\x01C\x94\x8c\x05dtype\x94\x8c\x05numpy\x94\x8c\x05dtype\x94\x93\x94\x8c\x02";
    let state = b"\x94\x89\x88\x87\x94R\x94(K\x03\x8c\x01<\x94NNNJ";
    let end = b"t\x94b\x8c\x1bnumpy_array_alignment_bytes\x94K\x10ub";
    let size = size.to_le_bytes();
    [&head[..], dtype.as_bytes(), state, &size, b"J\xff\xff\xff\xffK", &[flags], end, elements, b"s", rest]
        .concat()
}

#[test]
fn what_follows_an_array_of_joblib_is_scanned() {
    // One byte of padding, then three floats, whose bytes are not instructions.
    let floats = b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    let clean = scan(&joblib("f4", floats, b"."));
    assert!(clean.is_fully_read() && clean.findings.is_empty(), "{clean:?}");
    let call = b"\x8c\x01x\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85Rs.";
    assert_eq!(dangerous(&scan(&joblib("f4", floats, call))), ["os.system"]);
    // The objects of an array are a pickle of their own.
    let objects = [PAYLOAD, b""].concat();
    // Every other unpickler ends where that does, after the same call.
    assert_eq!(dangerous(&scan(&joblib("O8", &objects, b"."))), ["os.system", "os.system"]);
    let array = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\x01b\x87R(K\x01K\x03\x85cnumpy\ndtype\n\
        X\x02\0\0\0O8\x89\x88\x87R\x89](K\x01K\x02K\x03etb.";
    let clean = scan(&joblib("O8", array, b"."));
    assert!(clean.is_fully_read() && clean.findings.is_empty(), "{clean:?}");
    // Without elements it is a plain pickle.
    let clean = scan(&joblib("f4", b"", b"."));
    assert!(clean.findings.is_empty() && dangerous(&clean).is_empty(), "{clean:?}");
    // Every other unpickler reads the elements as instructions.
    let elements = b"\x00\x8c\x02os\x8c\x06system\x93)R";
    assert_eq!(dangerous(&scan(&joblib("f4", &elements[1..], b"."))), ["os.system"]);
    // Records, such as the nodes of a tree, are bytes.
    assert_eq!(dangerous(&scan(&joblib("V4", floats, call))), ["os.system"]);
    let clean = scan(&joblib("V4", floats, b"."));
    assert!(clean.is_fully_read() && clean.findings.is_empty(), "{clean:?}");
    // The flags say whether they have objects in them.
    assert_eq!(dangerous(&scan(&joblib_with("V8", 8, 27, &objects, b"."))), ["os.system", "os.system"]);
    assert!(!scan(&joblib("f4", &floats[..9], b"")).is_fully_read());
    // Texts have four bytes for each character.
    let texts = [b"\x01\xff", &[0xff; 24][..]].concat();
    assert_eq!(dangerous(&scan(&joblib_with("U2", 8, 8, &texts, call))), ["os.system"]);
    // What other unpicklers take for names among the elements is noise, unless it is dangerous. `)` is 41 bytes of padding.
    let noise = [b")0cfoo\nbar\n0", &b"N0".repeat(21)[..]].concat();
    let found = scan(&joblib("f4", &noise, b"."));
    assert!(!found.uses().any(|(_, found)| found.global.to_string() == "foo.bar"), "{found:?}");
}

/// NumPy takes an array for one of objects if the flags say so, and text for as long as the state says.
#[test]
fn what_a_dtype_says_against_its_code_is_not_scanned() {
    let floats = b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    for (dtype, size, flags) in
        [("f4", -1, 1), ("O8", -1, 0), ("S4", -1, 0), ("S4", 5, 0), ("V4", 3, 16), ("M8", 4, 0), ("f4", 0, 0)]
    {
        let scan = scan(&joblib_with(dtype, size, flags, floats, b"."));
        assert!(!scan.is_fully_read(), "{dtype} {size} {flags}: {scan:?}");
    }
    // A version that NumPy does not write.
    let mut other = joblib("f4", floats, b".");
    let at = other.windows(6).position(|bytes| bytes == b"K\x03\x8c\x01<\x94").expect("it has a version");
    other[at + 1] = 5;
    assert!(!scan(&other).is_fully_read());
    // Also if a pickle follows.
    let scan = scan(&joblib_with("f4", -1, 1, b"\x80\x02N.", b"."));
    assert!(!scan.missed.is_empty(), "{scan:?}");
}

#[test]
fn only_joblib_describes_arrays() {
    // joblib 0.9 has the elements in other files: `joblib.load` reads those with `numpy.load`.
    let other_file =
        b"\x80\x03cjoblib.numpy_pickle\nNDArrayWrapper\n)\x81}X\x08\0\0\0filenameX\x05\0\0\0m.npysb.";
    let found = scan(other_file);
    assert!(!found.is_fully_read() && found.missed[0].contains("from another file"), "{:?}", found.missed);
    let risk = |module: &str| {
        let found = scan(&[b"\x80\x02c", module.as_bytes(), b"\nNumpyArrayWrapper\n)\x81."].concat());
        found.uses().map(|(_, found)| found.risk).next()
    };
    assert_eq!(risk("joblib.numpy_pickle"), Some(Risk::Known));
    assert_eq!(risk("sklearn.externals.joblib.numpy_pickle"), Some(Risk::Known));
    // Another package with a module of that name is not joblib.
    assert_eq!(risk("other.joblib.numpy_pickle"), Some(Risk::Unknown));
    assert_ne!(risk("os.joblib.numpy_pickle"), Some(Risk::Known));
}

#[test]
fn compressed_files_are_scanned() {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(PAYLOAD).expect("memory takes it");
    let gzip = gzip.finish().expect("memory takes it");
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(PAYLOAD).expect("memory takes it");
    let zlib = zlib.finish().expect("memory takes it");
    let zstd = zstd::encode_all(PAYLOAD, 3).expect("memory takes it");
    let old_joblib = [b"ZF0x21               ", &zlib[..]].concat();
    for packed in [&gzip, &zlib, &zstd, &old_joblib] {
        let found = scan(packed);
        assert_eq!(dangerous(&found), ["os.system"], "{}", found.format);
        assert!(found.is_fully_read(), "{found:?}");
        assert!(!scan(&packed[..packed.len() - 6]).is_fully_read(), "{}", found.format);
    }
    for (format, start) in [
        ("bzip2", &b"BZh91AY&SY"[..]),
        ("xz", b"\xfd7zXZ\0"),
        ("lzma", b"]\0\0\x80\0"),
        ("7z", b"7z\xbc\xaf\x27\x1c"),
    ] {
        let found = scan(start);
        assert_eq!((found.format, found.is_fully_read()), (format, false));
    }
}

fn loaded(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).expect("it is short").to_le_bytes();
    [b"\x80\x03ctorch.storage\n_load_from_bytes\nB", &len[..], bytes, b"\x85R."].concat()
}

#[test]
fn an_archive_that_is_loaded_is_scanned_whatever_follows_it() {
    let whole = stored_zip([("archive/data.pkl", PAYLOAD)]);
    let comment = whole.len() - 2;
    let mut lying = whole.clone();
    lying[comment] = 7;
    for archive in [whole.clone(), [&whole[..], b"\0"].concat(), lying, whole[..whole.len() - 30].to_vec()] {
        assert_eq!(dangerous(&scan(&loaded(&archive))), ["os.system"]);
    }
}

#[test]
fn what_is_loaded_is_never_dropped() {
    // Python reads a hexadecimal number and goes on; a word of two letters is not a number for anyone, but an unpickler
    // was called.
    for bytes in [&b"I0x10\n0cos\nsystem\n)R."[..], b"Ixy\n.", b"", b"\0", b"\x1f\x8b\x08"] {
        let found = scan(&loaded(bytes));
        assert!(!found.is_fully_read() || !dangerous(&found).is_empty(), "{bytes:?}");
    }
    // Its bytes are not those of the pickle when it is loaded.
    let changed = b"\x80\x05ctorch.storage\n_load_from_bytes\ncbuiltins\nbytearray\nC\x02N.\x85RK\x2ea\x85R.";
    assert_eq!(dangerous(&scan(changed)), ["torch.storage._load_from_bytes"]);
}

#[test]
fn an_interrupted_download_is_cut_short_and_nothing_else() {
    let whole = stored_zip([("archive/data.pkl", b"\x80\x02}.")]);
    let found = scan(&whole[..whole.len() - 80]);
    assert!(found.findings.is_empty() && !found.is_fully_read(), "{found:?}");
    assert!(
        found.missed[0].contains("the file is cut short; download or copy it again"),
        "{:?}",
        found.missed
    );
}

#[test]
fn archives_that_follow_one_another_are_each_scanned() {
    let clean = stored_zip([("archive/data.pkl", b"\x80\x02}.")]);
    let found = scan(&clean.repeat(5));
    assert!(found.is_fully_read() && found.findings.is_empty(), "{found:?}");
    assert_eq!(found.count, 5);
    let found = scan(&[clean.clone(), stored_zip([("archive/data.pkl", PAYLOAD)]), clean].concat());
    assert_eq!(dangerous(&found), ["os.system"]);
}

#[test]
fn code_that_reads_a_file_is_found() {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let deflated = zip::write::SimpleFileOptions::default();
    for (name, data) in [
        ("m/data.pkl", &b"\x80\x02}."[..]),
        ("m/constants.pkl", b"\x80\x02)."),
        ("m/code/__torch__/m.py", b"class M(Module):\n  def __setstate__(self):\n    x = torch.from_file(\"/etc/passwd\", True, 8)\n"),
    ] {
        zip.start_file(name, deflated).expect("memory takes it");
        zip.write_all(data).expect("memory takes it");
    }
    let found = scan(&zip.finish().expect("memory takes it").into_inner());
    assert_eq!(dangerous(&found), ["torch.ops.aten.from_file"]);
    assert!(found.is_fully_read(), "{found:?}");
}

#[test]
fn the_report_of_a_hostile_pickle_is_short() {
    // 20,000 globals, all of them arguments of 200 calls.
    let mut pickle = b"\x80\x02(".to_vec();
    (0..20_000).for_each(|n| pickle.extend(format!("cmod{n}\nname\n").bytes()));
    pickle.extend(b"tq\0");
    (0..200).for_each(|_| pickle.extend(b"cos\nsystem\nh\0R"));
    pickle.push(b'.');
    let found = scan(&pickle);
    assert_eq!(dangerous(&found), ["os.system"]);
    assert!(found.omitted.globals > 18_000);
    let calls: usize = found.uses().flat_map(|(_, found)| &found.calls).map(|call| call.text.len()).sum();
    assert!(calls < 2 << 20, "{calls}");
    assert!(found.uses().count() < 4000);
}

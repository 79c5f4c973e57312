//! Scans of files whose parts follow one another: archives, pickles, arrays. `tests/conformance/test_scan_sequences.py` shows that the
//! loaders run the same kinds of files.

use std::io::Write;

use test_support::stored_zip;
use torch_import::{Container, Risk, Scan, ScanDepth};

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("it can be written");
    file
}

fn scanned(bytes: &[u8]) -> Scan {
    let file = file(bytes);
    Scan::file(file.path(), ScanDepth::Everything, &()).expect("it is of a known kind")
}

/// Returns the kinds of the findings, and true if all was read.
fn scan(bytes: &[u8]) -> (Vec<&'static str>, bool) {
    let scan = scanned(bytes);
    (scan.findings.iter().map(|found| found.kind).collect(), scan.is_fully_read())
}

/// Returns what `torch.save` writes, with the elements of a storage.
fn saved(root: &str, elements: &[u8]) -> Vec<u8> {
    let records: [(&str, &[u8]); 3] =
        [("data.pkl", b"\x80\x02}."), ("version", b"3\n"), ("data/0", elements)];
    stored_zip(records.map(|(name, bytes)| (format!("{root}/{name}"), bytes)))
}

#[test]
fn archives_in_a_row_are_those_of_distributed_checkpoints() {
    let (long, short) = (saved("archive", &[0; 900]), saved("archive", &[0; 20]));
    assert_eq!(scan(&[&long[..], &short, &long].concat()), (vec![], true));
    assert_eq!(scan(&[&short[..], &short].concat()), (vec![], true));
    assert_eq!(scan(&[saved("m", &[0; 900]), saved("m", &[0; 20])].concat()), (vec!["archives"], true));
}

#[test]
fn a_directory_that_pytorch_finds_in_an_earlier_archive_is_a_finding() {
    let (mut long, short) = (saved("archive", &[0; 900]), saved("archive", &[0; 20]));
    let directory = short.len() - 6;
    let directory = u32::from_le_bytes(short[directory..][..4].try_into().expect("four bytes"));
    let elements = long.windows(900).position(|window| window == [0; 900]).expect("it has a storage");
    let directory = usize::try_from(directory).expect("it is small");
    assert!((elements..elements + 900).contains(&directory), "the directory is among the elements");
    long[directory..][..4].copy_from_slice(b"PK\x01\x02");
    let parts = [&long[..], &short].concat();
    assert_eq!(scan(&parts), (vec!["archives"], true));
    assert!(scan(&stored_zip([("p/a.bin", parts)])).0.contains(&"archives"));
}

/// Returns an instruction for a frame of `len` bytes.
fn frame(len: usize) -> Vec<u8> {
    [&b"\x95"[..], &(len as u64).to_le_bytes()].concat()
}

#[test]
fn a_frame_that_does_not_end_with_its_pickle_is_a_finding() {
    let second = [b"\x80\x04", &frame(2)[..], b"N."].concat();
    let first = |len| [b"\x80\x04", &frame(len)[..], b"N.", &second].concat();
    assert_eq!(scan(&first(2)), (vec![], true));
    for len in [1, 3, 4, 200_000] {
        let expected = if len == 1 { vec![] } else { vec!["pickle"] };
        assert_eq!(scan(&first(len)).0, expected, "a frame of {len} bytes");
    }
    let nested = [b"\x80\x04", &frame(11)[..], &frame(2), b"N."].concat();
    let across = [b"\x80\x04", &frame(1)[..], b"K\x01."].concat();
    assert_eq!((scan(&nested).0, scan(&across).0), (vec!["pickle"], vec!["pickle"]));
}

#[test]
fn a_legacy_checkpoint_whose_frame_reaches_into_the_next_pickle_is_refused() {
    let magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
    let open = |len| {
        let version = [b"\x80\x04", &frame(len)[..], b"M\xe9\x03."].concat();
        let bytes = [&magic[..], &version, b"\x80\x02}.\x80\x02}.\x80\x02]."].concat();
        let file = file(&bytes);
        Container::open(file.path()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(open(4), Ok(()));
    let error = open(9).expect_err("Python reads five bytes more");
    assert!(error.contains("frame goes on after STOP at offset 0xe (STOP)"), "{error}");
}

const WRAPPER: &[u8] = b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81";
const CALL: &[u8] = b"cos\nsystem\nX\x04\0\0\0true\x85R";

fn text(text: &str) -> Vec<u8> {
    [&b"X"[..], &u32::try_from(text.len()).expect("it is short").to_le_bytes(), text.as_bytes()].concat()
}

fn dtype(code: &str) -> Vec<u8> {
    [b"cnumpy\ndtype\n", &text(code)[..], b"\x89\x88\x87R"].concat()
}

/// Returns the state of a description of `len` elements, with another entry, and BUILD.
fn array_of(code: &str, len: usize, more: &[u8]) -> Vec<u8> {
    let shape = [b'K', u8::try_from(len).expect("it is short"), 0x85];
    [b"}(", &text("shape")[..], &shape, &text("dtype"), &dtype(code), more, b"ub"].concat()
}

/// Returns the pickle of an array of objects, after `start`.
fn objects(start: &[u8]) -> Vec<u8> {
    let array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\x01b\x87R(K\x01K\x01\x85";
    [start, array, &dtype("O8"), b"\x89]NatbN0."].concat()
}

#[test]
fn what_joblib_reads_between_its_arrays_is_read_as_joblib_does() {
    let is_clean = |parts: &[&[u8]]| {
        let found = scanned(&[b"\x80\x04", &parts.concat()[..], b"."].concat());
        found.findings.is_empty()
            && found.is_fully_read()
            && found.uses().all(|(_, used)| used.risk == Risk::Known)
    };
    let (numbers, pickled) = (array_of("u1", 3, b""), array_of("O", 1, b""));
    let inner = objects(b"\x80\x04");
    let clean: [&[&[u8]]; 3] = [
        &[WRAPPER, &numbers, b"\xff\xff\xff"],
        &[WRAPPER, &pickled, &inner, b"0", WRAPPER, &numbers, b"\xff\xff\xff"],
        &[b"ccopyreg\n_reconstructor\ncjoblib.numpy_pickle\nNumpyArrayWrapper\nc__builtin__\nobject\nN\x87R", &numbers, b"\xff\xff\xff"],
    ];
    for parts in clean {
        assert!(is_clean(parts), "{}", parts.concat().escape_ascii());
    }
    let hidden = array_of("u1", CALL.len() + 1, b"");
    let called = [CALL, b"0"].concat();
    let namespace = b"\x80\x04ccollections\nOrderedDict\n)R.";
    let other = b"ccollections\nOrderedDict\ncjoblib.numpy_pickle\nNumpyArrayWrapper\n\x85R";
    let shadow = [&text("read")[..], b"cbuiltins\nid\n"].concat();
    let init = [
        b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n(cnumpy\nndarray\n)",
        &text("C")[..],
        &dtype("u1"),
        b"tR",
    ]
    .concat();
    let framed = [WRAPPER, &hidden, &called].concat();
    let swallow = [b"0B", &u32::try_from(called.len()).expect("it is short").to_le_bytes()[..]].concat();
    let long = objects(&[b"\x80\x04", &frame(inner.len() - 2 + swallow.len())[..]].concat());
    let shorter = array_of("u1", CALL.len() + 1, &shadow);
    let magic = b"0\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
    let legacy = [&magic[..], b"M\xe9\x03.N.", CALL, b".].\xff"].concat();
    let attacks: [(&str, &[&[u8]]); 8] = [
        ("a second BUILD", &[WRAPPER, &pickled, &inner, &hidden, &called]),
        ("another object", &[WRAPPER, &pickled, namespace]),
        ("another class", &[other, &hidden, &called]),
        ("a frame around the elements", &[&frame(framed.len()), &framed, b"N"]),
        ("a frame after the objects", &[WRAPPER, &pickled, &long, &swallow, &called]),
        ("a method as an attribute", &[WRAPPER, &shorter, &called]),
        ("attributes by __init__", &[&init, &hidden, &called]),
        ("pickles among the elements", &[WRAPPER, &array_of("u1", legacy.len(), b""), &legacy]),
    ];
    for (name, parts) in attacks {
        assert!(!is_clean(parts), "{name}: {}", parts.concat().escape_ascii());
    }
}

/// Returns an array of NumPy, as `numpy.save` writes it.
fn npy(dtype: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': {dtype}, 'fortran_order': False, 'shape': (1,), }}\n");
    let len = u16::try_from(header.len()).expect("it is short").to_le_bytes();
    [b"\x93NUMPY\x01\0", &len[..], header.as_bytes(), data].concat()
}

#[test]
fn arrays_of_numpy_that_follow_one_another_are_all_read() {
    let (numbers, inner) = (npy("'<f4'", &[0; 4]), npy("'|O'", &objects(b"\x80\x04")));
    for clean in [&[&numbers[..]][..], &[&inner], &[&numbers, &numbers], &[&inner, &numbers, &inner]] {
        assert_eq!(scan(&clean.concat()), (vec![], true));
        assert_eq!(scan(&stored_zip([("a.npy", clean.concat())])), (vec![], true));
    }
    let rest = [&numbers[..], b"rest"].concat();
    assert_eq!(scan(&rest), (vec!["trailing"], true));
    assert_eq!(scan(&stored_zip([("a.npy", rest)])), (vec!["trailing"], true));
    for unread in [npy("'<f8'", &[0; 4]), npy("'float32'", &[0; 4]), npy("'<f4'", b"")[..9].to_vec()] {
        assert!(!scan(&[&numbers[..], &unread].concat()).1, "{}", unread.escape_ascii());
    }
    let evil = [&numbers[..], &npy("'|O'", &[b"\x80\x04", CALL, b"."].concat())].concat();
    let found = scanned(&evil);
    assert!(found.uses().any(|(_, used)| used.global.to_string().contains("os.system")), "{found:?}");
}

#[test]
fn legacy_checkpoints_in_any_record_are_read() {
    let magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
    let evil = [&magic[..], b"\x80\x02M\xe9\x03.\x80\x02}.\x80\x02", CALL, b".\x80\x02]."].concat();
    for name in ["p/data/0", "p/notes.bin"] {
        let found = scanned(&stored_zip([("p/data.pkl", &b"\x80\x02}."[..]), (name, &evil)]));
        assert!(found.uses().any(|(_, used)| used.risk == Risk::Dangerous), "{name}: {found:?}");
    }
    let numbers = scan(&stored_zip([("p/data.pkl", &b"\x80\x02}."[..]), ("p/data/0", &magic[..8])]));
    assert_eq!(numbers, (vec![], true));
}

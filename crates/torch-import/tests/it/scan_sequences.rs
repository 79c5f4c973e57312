//! Scans of files whose parts follow one another: archives, pickles, arrays. `tests/conformance/test_scan_sequences.py` shows that the
//! loaders run the same kinds of files.

use std::io::Write;

use test_support::stored_zip;
use torch_import::{Container, Scan, ScanDepth};

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("it can be written");
    file
}

/// Returns the kinds of the findings, and true if all was read.
fn scan(bytes: &[u8]) -> (Vec<&'static str>, bool) {
    let file = file(bytes);
    let scan = Scan::file(file.path(), ScanDepth::Everything, &()).expect("it is of a known kind");
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

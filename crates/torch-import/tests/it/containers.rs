//! A container format of another crate, and what a scan finds in its files.

use std::io::Write;
use std::sync::Arc;

use byte_source::{BufferSource, Checks, Observer, Source};
use tensor::{CompoundKind, Dtype, Storage, Tensor, Tensors};
use test_support::{RemoteSource, stored_zip};
use torch_import::{
    Checkpoint, CheckpointNote, Container, ContainerContents, ContainerFormat, Result, Risk, Scan, ScanDepth,
    register_container,
};

/// Recognises a file by a mark anywhere in it.
#[derive(Debug)]
struct Marked;

const MARK: &[u8] = b"a mark of 0x5eed";
/// The same length, so that the rest of a file has the same offsets.
const NO_MARK: &[u8] = b"a mark of 0xfeed";
const PAYLOAD: &[u8] = b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.";

impl ContainerFormat for Marked {
    fn name(&self) -> &'static str {
        "marked"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["marked"]
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.windows(MARK.len()).any(|found| found == MARK)
    }

    fn open(&self, file: Arc<dyn Source>, _: Checks, _: &dyn Observer) -> Result<ContainerContents> {
        let part = Tensor::new(Dtype::UInt8, vec![2], vec![1], 0, Storage::owned(vec![1, 2]))?;
        let mut tensors = Tensors::from([("w".to_owned(), part.clone())]);
        let whole = (CompoundKind::Nested, Dtype::UInt8, vec![2]);
        tensors.push_compound("n".to_owned(), whole, [("n.buffer".to_owned(), part)]);
        let contents = ContainerContents::new(file, tensors)?;
        Ok(contents
            .with_metadata(vec![("k".to_owned(), "v".to_owned())])
            .with_note("it is marked".to_owned()))
    }
}

fn register() {
    static MARKED: Marked = Marked;
    register_container(&MARKED);
}

#[test]
fn it_lists_tensors_compounds_metadata_and_notes() {
    register();
    let bytes = [MARK, b" and more"].concat();
    let container = Container::from_source(Arc::new(BufferSource::new("x", bytes))).expect("it is marked");
    assert_eq!((container.format(), container.is_torchscript()), ("marked", false));
    assert_eq!(container.notes(), [CheckpointNote::Format { text: "it is marked".to_owned() }]);
    let checkpoint = Checkpoint::read(&container).expect("it is marked");
    let names: Vec<_> = checkpoint.items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["__metadata__.k", "w", "n"]);
    let tensors: Vec<_> = checkpoint.tensors().map(|(name, _)| name.into_owned()).collect();
    assert_eq!(tensors, ["w", "n.buffer"]);
    let (_, nested) = checkpoint.compounds().next().expect("one is");
    assert_eq!((&nested.kind, nested.parts.len()), (&CompoundKind::Nested, 1));
}

#[test]
fn it_hides_nothing_from_a_scan() {
    register();
    let npy = |mark: &[u8]| {
        let header = [b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), } # ", mark, b"\n"].concat();
        let len = u16::try_from(header.len()).expect("it is short").to_le_bytes();
        [b"\x93NUMPY\x01\0", &len[..], &header, PAYLOAD].concat()
    };
    let gzip = |mark: &[u8]| {
        let options = flate2::GzBuilder::new().comment(mark);
        let mut gzip = options.write(Vec::new(), flate2::Compression::fast());
        gzip.write_all(PAYLOAD).expect("memory takes it");
        gzip.finish().expect("memory takes it")
    };
    let archive = stored_zip([("archive/data.pkl", PAYLOAD)]);
    let files = |mark: &[u8]| {
        let pickle = [b"cos\nsystem\n(V", mark, b"\ntR."].concat();
        let archives = [[mark, &archive].concat(), [&archive[..], mark].concat()];
        [npy(mark), gzip(mark), pickle, [PAYLOAD, mark].concat()].into_iter().chain(archives).map(|file| {
            let source: Arc<dyn Source> = Arc::new(BufferSource::new("x", file));
            Scan::source(&source, ScanDepth::Everything, &()).expect("Python reads it")
        })
    };
    for (index, (marked, unmarked)) in files(MARK).zip(files(NO_MARK)).enumerate() {
        let found = |scan: &Scan| format!("{:?} {:?} {:?}", scan.pickles, scan.findings, scan.missed);
        let without_mark = |text: String| text.replace("5eed", "feed");
        assert_eq!(without_mark(found(&marked)), found(&unmarked), "file {index}");
        assert!(!marked.pickles.is_empty(), "file {index}: {marked:?}");
        let expected = if index == 5 { "zip" } else { "marked" };
        assert_eq!(marked.format, expected, "file {index}");
    }
}

#[test]
fn the_start_and_the_end_of_a_remote_file_are_scanned() {
    register();
    let mut source = RemoteSource::new("x", MARK);
    source.push_zeros(1 << 30);
    let source = Arc::new(source);
    let scan = Scan::source(&(source.clone() as Arc<dyn Source>), ScanDepth::PicklesOnly, &());
    let scan = scan.expect("it is marked");
    assert_eq!((scan.format, scan.notes.len(), scan.is_fully_read()), ("marked", 1, true));
    let ranges = source.take_ranges();
    let read: u64 = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
    assert!(read < 1 << 20, "{ranges:?}");
}

#[test]
fn a_remote_file_that_ends_as_an_archive_is_scanned_as_a_whole() {
    register();
    let file = [MARK, &vec![0; 1 << 20], &stored_zip([("archive/data.pkl", PAYLOAD)])].concat();
    let source: Arc<dyn Source> = Arc::new(RemoteSource::new("x", file));
    let scan = Scan::source(&source, ScanDepth::PicklesOnly, &()).expect("it is marked");
    assert!(scan.uses().any(|(_, found)| found.risk == Risk::Dangerous), "{scan:?}");
    assert_eq!(scan.format, "marked");
}

//! A container format of another crate, and what a scan finds in its files.

use std::io::Write;
use std::sync::Arc;

use byte_source::{BufferSource, Checks, Observer, Source};
use tensor::{CompoundKind, Dtype, Storage, Tensor, Tensors};
use test_support::stored_zip;
use torch_import::{
    Checkpoint, CheckpointNote, Container, ContainerContents, ContainerFormat, Result, Scan, ScanDepth,
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
    let files: [&dyn Fn(&[u8]) -> Vec<u8>; 6] = [
        &|mark| [mark, &archive].concat(),
        &|mark| [PAYLOAD, mark].concat(),
        &|mark| [b"cos\nsystem\n(V", mark, b"\ntR."].concat(),
        &|mark| [&archive[..], mark].concat(),
        &npy,
        &gzip,
    ];
    for (index, file) in files.iter().enumerate() {
        let [marked, unmarked] = [MARK, NO_MARK].map(|mark| {
            let source: Arc<dyn Source> = Arc::new(BufferSource::new("x", file(mark)));
            Scan::source(&source, ScanDepth::Everything, &()).expect("Python reads it")
        });
        let found = |scan: &Scan| format!("{:?} {:?} {:?}", scan.pickles, scan.findings, scan.missed);
        let without_mark = |text: String| text.replace("5eed", "feed");
        assert_eq!(without_mark(found(&marked)), found(&unmarked), "file {index}");
        assert!(!marked.pickles.is_empty(), "file {index}: {marked:?}");
        let expected = if index == 3 { "zip" } else { "marked" };
        assert_eq!(marked.format, expected, "file {index}");
    }
}

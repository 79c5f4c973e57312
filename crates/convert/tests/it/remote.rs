//! Checkpoints that are neither in memory nor mapped: what is read of them, and that it is read once.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use byte_source::{BufferSource, MappedFile, Source};
use convert::{
    CartonOptions, ConvertOptions, OutputFormat, SafetensorsOptions, Target, TorchOptions, convert, outputs,
};
use crc32fast::Hasher;
use inspect::{InspectOptions, inspect};
use open::{Cast, CastFrom};
use pickle_vm::Writer;
use tensor::Dtype;
use test_support::RemoteSource;
use torch_import::{Scan, ScanDepth};

/// A file as a source that is not in memory.
fn of_file(path: &Path) -> RemoteSource {
    RemoteSource::new("remote.pth", std::fs::read(path).expect("it exists"))
}

/// Fails if more was read than what describes 724 tensors.
fn expect_little(file: &RemoteSource, what: &str) {
    let read = file.take_ranges();
    let nbytes: u64 = read.iter().map(|range| range.end - range.start).sum();
    assert!(read.len() <= 4 && nbytes <= 700_000, "{what}: {nbytes} bytes in {read:?}");
    assert!(nbytes > 100_000, "{what}: {nbytes} bytes in {read:?}");
}

fn crc_of_zeros(len: u64) -> u32 {
    let (mut sum, mut power) = (Hasher::new(), Hasher::new());
    power.update(&[0]);
    for bit in 0..64 - len.leading_zeros() {
        if len >> bit & 1 == 1 {
            sum.combine(&power);
        }
        let same = power.clone();
        power.combine(&same);
    }
    sum.finalize()
}

/// Writes entries as PyTorch does: stored, at multiples of 64 bytes or what is set in PyTorch, with offsets and sizes of 64 bits in a field of their own.
#[derive(Default)]
struct Archive {
    file: RemoteSource,
    directory: Vec<u8>,
    entries: u64,
    alignment: u64,
}

impl Archive {
    fn add(&mut self, name: &str, data: Result<&[u8], u64>) {
        let (len, crc) = match data {
            Ok(bytes) => (bytes.len() as u64, crc32fast::hash(bytes)),
            Err(zeros) => (zeros, crc_of_zeros(zeros)),
        };
        let offset = self.file.len();
        let name_len = u16::try_from(name.len()).expect("short").to_le_bytes();
        let fixed = [&[0; 2][..], &[0, 0, 0, 0], &[0; 4], &crc.to_le_bytes(), &[0xff; 8], &name_len].concat();
        let sizes = [len.to_le_bytes(), len.to_le_bytes()].concat();
        let before = offset + 30 + name.len() as u64 + 20 + 4;
        let padding = usize::try_from(before.next_multiple_of(self.alignment) - before).expect("small");
        let pad = [&b"FB"[..], &u16::try_from(padding).expect("short").to_le_bytes(), &vec![b'Z'; padding]];
        let extra = [&[1, 0, 16, 0][..], &sizes, &pad.concat()].concat();
        let extra_len = u16::try_from(extra.len()).expect("short").to_le_bytes();
        let header = [b"PK\x03\x04", &fixed[..], &extra_len, name.as_bytes(), &extra].concat();
        self.file.push(header);
        match data {
            Ok(bytes) => self.file.push(bytes),
            Err(zeros) => self.file.push_zeros(zeros),
        }
        let line = [b"PK\x01\x02\0\0", &fixed[..], &[28, 0], &[0; 10], &[0xff; 4], name.as_bytes()].concat();
        self.directory.extend([&line[..], &[1, 0, 24, 0], &sizes, &offset.to_le_bytes()].concat());
        self.entries += 1;
    }

    fn finish(mut self) -> RemoteSource {
        let (start, len) = (self.file.len().to_le_bytes(), (self.directory.len() as u64).to_le_bytes());
        let entries = self.entries.to_le_bytes();
        self.file.push(std::mem::take(&mut self.directory));
        let wide = self.file.len().to_le_bytes();
        self.file.push(
            [
                b"PK\x06\x06",
                &44_u64.to_le_bytes()[..],
                &[45, 0, 45, 0],
                &[0; 8],
                &entries,
                &entries,
                &len,
                &start,
            ]
            .concat(),
        );
        self.file.push([b"PK\x06\x07", &[0; 4][..], &wide, &[1, 0, 0, 0]].concat());
        self.file.push([b"PK\x05\x06", &[0; 4][..], &[0xff; 12], &[0; 2]].concat());
        self.file
    }
}

/// A checkpoint of `count` bfloat16 tensors of `numel` elements each, which are zeros if no bytes are given.
fn checkpoint(count: u64, numel: u64, alignment: u64, bytes: Option<&[u8]>) -> RemoteSource {
    let mut pickle = Writer::new();
    pickle.empty_dict();
    pickle.mark();
    for number in 0..count {
        let (layer, part) = (number / 9, number % 9);
        pickle.text(&format!("model.layers.{layer}.part_{part}.weight")).expect("short");
        pickle.global("torch._utils", "_rebuild_tensor_v2").expect("short");
        pickle.mark();
        pickle.mark();
        pickle.text("storage").expect("short");
        pickle.global("torch", "BFloat16Storage").expect("short");
        pickle.text(&number.to_string()).expect("short");
        pickle.text("cpu").expect("short");
        pickle.int(i64::try_from(numel).expect("small"));
        pickle.tuple();
        pickle.binpersid();
        pickle.int(0);
        pickle.int(i64::try_from(numel).expect("small"));
        pickle.tuple1();
        pickle.int(1);
        pickle.tuple1();
        pickle.bool(false);
        pickle.global("collections", "OrderedDict").expect("short");
        pickle.empty_tuple();
        pickle.reduce();
        pickle.tuple();
        pickle.reduce();
    }
    pickle.setitems();
    let pickle = pickle.finish();
    let file = RemoteSource::new("remote.pth", []);
    let mut archive = Archive { file, alignment, ..Archive::default() };
    archive.add("consolidated/data.pkl", Ok(&pickle));
    archive.add("consolidated/byteorder", Ok(b"little"));
    for number in 0..count {
        archive.add(&format!("consolidated/data/{number}"), bytes.ok_or(numel * 2));
    }
    archive.add("consolidated/version", Ok(b"3\n"));
    archive.add("consolidated/.data/serialization_id", Ok(&[b'1'; 40]));
    archive.finish()
}

#[test]
fn a_checkpoint_of_140_gb_is_described_by_a_few_ranges() {
    let file = Arc::new(checkpoint(724, 96_700_000, 64, None));
    let source: Arc<dyn Source> = Arc::<RemoteSource>::clone(&file);
    assert!(source.len() > 140_000_000_000, "{}", source.len());

    let report = inspect(&InspectOptions::new(Arc::clone(&source)), &()).expect("it is sound");
    assert_eq!((report.tensors.len(), report.totals.parameters), (724, 724 * 96_700_000));
    expect_little(&file, "inspect");

    let scan = Scan::source(&source, ScanDepth::Everything, &()).expect("it is a checkpoint");
    assert!(scan.findings.is_empty() && scan.count == 1, "{scan:?}");
    let missed = "724 storages of 140021600000 bytes, and what is between the records, were not searched for pickles, \
                  which PyTorch would not load";
    assert_eq!(scan.missed, [missed]);
    expect_little(&file, "scan");

    let folder = tempfile::tempdir().expect("a temporary folder");
    // Triton and llama.cpp run models, and this checkpoint has no configuration.
    let is_of_tensors =
        |format: &&OutputFormat| !format.target().output().needs_forward() && format.name() != "gguf";
    for format in outputs().filter(is_of_tensors) {
        let output = folder.path().join("out");
        let mut options = ConvertOptions::new(Arc::clone(&source));
        options.target = format.target();
        (options.output, options.dry_run) = (Some(output.clone()), true);
        let report = convert(&options, &()).expect("it can be converted");
        assert_eq!(report.tensors, 724);
        assert!(!output.exists());
        expect_little(&file, &format!("convert --dry-run to {format}"));
    }
}

/// Returns a safetensors file with one tensor of `len` zeros, followed by `after`.
fn safetensors(len: u64, after: &[u8]) -> Arc<RemoteSource> {
    let header = format!(r#"{{"w":{{"dtype":"U8","shape":[{len}],"data_offsets":[0,{len}]}}}}"#);
    let mut file = RemoteSource::new("model.safetensors", (header.len() as u64).to_le_bytes());
    file.push(header);
    file.push_zeros(len);
    file.push(after);
    Arc::new(file)
}

#[test]
fn a_safetensors_file_is_scanned_at_its_start_unless_bytes_follow_its_tensors() {
    for depth in [ScanDepth::Everything, ScanDepth::PicklesOnly] {
        let file = safetensors(140_000_000_000, b"");
        let source: Arc<dyn Source> = Arc::<RemoteSource>::clone(&file);
        let scan = Scan::source(&source, depth, &()).expect("it is sound");
        assert!(scan.findings.is_empty() && scan.missed.is_empty(), "{scan:?}");
        let note = "the bytes of the tensors were not searched for pickles and archives, which neither PyTorch nor \
                    safetensors would load";
        assert_eq!(scan.notes, [note]);
        let read = file.take_ranges();
        assert!(read.iter().all(|range| range.end <= 1 << 20), "{read:?}");
    }
    // An archive after the tensors, which the header does not describe.
    let mut archive = Archive { alignment: 64, ..Archive::default() };
    archive.add("m/data.pkl", Ok(b"cos\nsystem\n(S'true'\ntR."));
    let archive = archive.finish();
    let mut bytes = vec![0; usize::try_from(archive.len()).expect("short")];
    archive.read_at(&mut bytes, 0).expect("it is in memory");
    let remote: Arc<dyn Source> = safetensors(500_000, &bytes);
    let whole = remote.read_range(0..remote.len()).expect("it is in memory");
    let local: Arc<dyn Source> = Arc::new(BufferSource::new("model.safetensors", whole.to_vec()));
    let [remote, local] = [remote, local].map(|source| Scan::source(&source, ScanDepth::Everything, &()));
    let (remote, local) = (remote.expect("it can be read"), local.expect("it can be read"));
    assert!(!(remote.findings.is_empty() && remote.missed.is_empty()), "{remote:?}");
    assert_eq!(format!("{remote:?}"), format!("{local:?}"));
}

#[test]
fn a_conversion_reads_each_byte_of_the_weights_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let weights: Vec<u8> = (0..300_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    for alignment in [64, 4096] {
        let path = folder.path().join(format!("{alignment}.pth"));
        let file = checkpoint(20, 150_000, alignment, Some(&weights));
        let mut bytes = vec![0; usize::try_from(file.len()).expect("small")];
        file.read_at(&mut bytes, 0).expect("it is in memory");
        std::fs::write(&path, bytes).expect("there is room");
        converted_once(folder.path(), &path);
    }
}

/// Converts a file from its path and from a source, and compares what is read with the records.
fn converted_once(folder: &Path, path: &Path) {
    let index = zip_format::ZipIndex::read(&MappedFile::open(path).expect("it exists")).expect("a zip file");
    let storages: Vec<Range<u64>> = index.entries.iter().map(|entry| entry.data.clone()).collect();
    let targets: [(&str, Target); 3] = [
        ("x.carton", CartonOptions::default().into()),
        ("x.safetensors", SafetensorsOptions::default().into()),
        ("x.pth", TorchOptions::default().into()),
    ];
    let casts = [Vec::new(), vec![Cast { from: CastFrom::FloatingPoint, to: Dtype::Float32 }]];
    for (name, target) in &targets {
        for casts in &casts {
            let options = |output: &str, mut options: ConvertOptions| {
                options.output = Some(folder.join(output));
                (options.target, options.casts) = (target.clone(), casts.clone().into());
                options
            };
            // The same name, because it is in the output; no documents are next to either.
            let local = folder.join("alone/remote.pth");
            std::fs::create_dir_all(local.parent().expect("a folder")).expect("it is new");
            std::fs::copy(path, &local).expect("there is room");
            convert(&options(name, ConvertOptions::new(&local)), &()).expect("it can be converted");
            let expected = std::fs::read(folder.join(name)).expect("it was written");

            let file = Arc::new(of_file(path));
            let other = format!("remote.{name}");
            convert(
                &options(&other, ConvertOptions::new(Arc::<RemoteSource>::clone(&file) as Arc<dyn Source>)),
                &(),
            )
            .expect("it can be converted");
            let found = std::fs::read(folder.join(&other)).expect("it was written");
            assert!(found == expected, "{name}: the outputs differ");

            let read = file.take_ranges();
            for storage in storages.iter().filter(|storage| !storage.is_empty()) {
                let overlap = |range: &Range<u64>| {
                    range.end.min(storage.end).saturating_sub(range.start.max(storage.start))
                };
                let nbytes: u64 = read.iter().map(overlap).sum();
                assert_eq!(nbytes, storage.end - storage.start, "{name}: {storage:?} of {read:?}");
            }
            std::fs::remove_file(folder.join(name)).expect("it was written");
            std::fs::remove_file(folder.join(other)).expect("it was written");
        }
    }
}

#[test]
fn a_local_header_that_disagrees_is_found_with_the_first_read_of_its_data() {
    let mut file = checkpoint(3, 150_000, 64, Some(&vec![7; 300_000]));
    let header =
        *file.parts.iter().filter(|(_, part)| part.starts_with(b"PK\x03\x04")).nth(3).expect("four").0;
    file.parts.get_mut(&header).expect("it is there")[14] ^= 1;
    let source: Arc<dyn Source> = Arc::new(file);
    let report = inspect(&InspectOptions::new(Arc::clone(&source)), &()).expect("nothing of it is read");
    assert_eq!(report.tensors.len(), 3);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = Some(folder.path().join("x.carton"));
    let mut options = ConvertOptions::new(source);
    options.output = output;
    let error = convert(&options, &()).expect_err("the headers disagree");
    assert_eq!(error.kind(), byte_source::ErrorKind::Damaged, "{error:?}");
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(reason) = cause {
        text = format!("{text}: {reason}");
        cause = reason.source();
    }
    assert!(text.contains("`consolidated/data/1`: the CRC-32 is"), "{text}");
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0);
}

#[test]
fn an_irregular_archive_is_scanned_as_a_whole() {
    let damaged = |name: &str| {
        let mut file = checkpoint(3, 150_000, 64, Some(&vec![7; 300_000]));
        let is_header = |part: &[u8]| {
            part.starts_with(b"PK\x03\x04")
                && part.get(30..).is_some_and(|it| it.starts_with(name.as_bytes()))
        };
        let header = *file.parts.iter().find(|(_, part)| is_header(part)).expect("there is one").0;
        file.parts.get_mut(&header).expect("it is there")[14] ^= 1;
        Arc::new(file) as Arc<dyn Source>
    };
    // Nothing that is read contradicts the directory.
    let scan = Scan::source(&damaged("consolidated/data/1"), ScanDepth::Everything, &())
        .expect("it is a checkpoint");
    assert!(scan.findings.is_empty() && scan.missed.len() == 1, "{scan:?}");
    // The header of a record that is read does, or checksums are to be compared.
    for (name, depth) in
        [("consolidated/version", ScanDepth::Everything), ("consolidated/data/1", ScanDepth::Checksums)]
    {
        let scan = Scan::source(&damaged(name), depth, &()).expect("it is a checkpoint");
        assert!(scan.findings.iter().any(|finding| finding.text.contains(name)), "{scan:?}");
        assert!(scan.missed.is_empty(), "{scan:?}");
    }
}

#[test]
fn real_files_are_read_the_same_from_a_source() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let mut folders: Vec<_> = ["corpus", "corpus-2"].map(|name| corpus.join(name)).into_iter().collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = folder.read_dir() else { continue };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.metadata().is_ok_and(|file| file.len() < 8 << 20)
                && path.file_name() != Some(".metadata".as_ref())
            {
                // A path of `.metadata` stands for the folder around it, which a source does not have.
                files.push(path);
            }
        }
    }
    for path in files {
        let source: Arc<dyn Source> = Arc::new(of_file(&path));
        let local = inspect(&InspectOptions::new(&path), &());
        let remote = inspect(&InspectOptions::new(Arc::clone(&source)), &());
        match (local, remote) {
            (Ok(local), Ok(mut remote)) => {
                remote.file.clone_from(&local.file);
                let text = |report| serde_json::to_string(report).expect("a report");
                assert_eq!(text(&local), text(&remote), "{}", path.display());
            }
            (Err(_), Err(_)) => {}
            (local, remote) => panic!("{}: {local:?} {remote:?}", path.display()),
        }
        let (local, remote) =
            (Scan::file(&path, ScanDepth::Checksums, &()), Scan::source(&source, ScanDepth::Checksums, &()));
        assert_eq!(
            format!("{local:?}"),
            format!("{remote:?}").replace("remote.pth", "x"),
            "{}",
            path.display()
        );
        if let (Ok(local), Ok(remote)) =
            (Scan::file(&path, ScanDepth::Everything, &()), Scan::source(&source, ScanDepth::Everything, &()))
        {
            assert_eq!(
                (local.count, local.pickles.len(), local.findings.len()),
                (remote.count, remote.pickles.len(), remote.findings.len()),
                "{}",
                path.display()
            );
        }
    }
}

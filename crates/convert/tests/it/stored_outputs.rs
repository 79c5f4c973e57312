//! Batches whose outputs are in a store: what the next batch skips, and that it replaces nothing of another program.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use byte_source::{BufferSource, Listing, Location, Source, Stat, Store, Upload};
use convert::{
    BatchItem, BatchOptions, ConvertOptions, Problem, Resume, SafetensorsOptions, TorchOptions, convert,
    convert_each,
};
use open::{Cast, CastFrom};
use output::{Destination, IfExists};
use tensor::Dtype;

/// Where the record of the first input's output is.
const RECORD: &str = "s3://bucket/out/.torch2carton.outputs/a.pth.json";

/// A store in memory that may be down.
#[derive(Debug, Default)]
struct MemoryStore {
    objects: byte_source::MemoryStore,
    /// True if no object can be looked at.
    is_down: AtomicBool,
    /// True if the last byte of each object is another one when it is read.
    is_damaged: AtomicBool,
}

impl MemoryStore {
    /// Puts an object of another program, or of this one.
    fn put(&self, path: &str, bytes: &[u8], is_own: bool) {
        if is_own {
            let mut upload = self.objects.create(Path::new(path), 0).expect("memory");
            upload.write_all(bytes).expect("memory");
            upload.complete(&byte_source::Replaced::Anything).expect("memory");
        } else {
            self.objects.insert(Arc::new(BufferSource::new(path, bytes.to_vec())));
        }
    }

    fn get(&self, path: &str) -> Option<Vec<u8>> {
        let source = Location::new(Arc::new(self.objects.clone()), path).open().ok()?;
        Some(source.read_range(0..source.len()).expect("memory").to_vec())
    }

    fn names(&self) -> Vec<String> {
        let bucket = Location::new(Arc::new(self.objects.clone()), "s3://bucket");
        let names = bucket.files_below().expect("memory");
        names.iter().map(|name| format!("s3://bucket/{name}")).collect()
    }
}

impl Store for MemoryStore {
    fn list(&self, folder: &Path) -> io::Result<Listing> {
        self.objects.list(folder)
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.objects.stat(path)
    }

    fn open(&self, files: &[PathBuf]) -> Result<Vec<Arc<dyn Source>>, byte_source::Error> {
        let opened = self.objects.open(files)?;
        if !self.is_damaged.load(Ordering::Relaxed) {
            return Ok(opened);
        }
        let damage = |source: Arc<dyn Source>| {
            let mut bytes = source.read_range(0..source.len())?.to_vec();
            *bytes.last_mut().expect("it is not empty") ^= 1;
            Ok(Arc::new(BufferSource::new(source.path(), bytes)) as Arc<dyn Source>)
        };
        opened.into_iter().map(damage).collect()
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Box<dyn Upload>> {
        self.objects.create(path, len)
    }
}

/// A store, and a folder with inputs.
struct Place {
    store: Arc<MemoryStore>,
    _folder: tempfile::TempDir,
    inputs: Vec<PathBuf>,
}

impl Place {
    fn new(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let input = test_support::safetensors([("w", "F32", [2], [7; 8])]);
        let write = |name: &&str| {
            let path = folder.path().join(name);
            std::fs::write(&path, &input).expect("a temporary folder");
            path
        };
        let inputs = names.iter().map(write).collect();
        Self { store: Arc::default(), _folder: folder, inputs }
    }

    fn options(&self) -> ConvertOptions {
        let mut options = ConvertOptions::from_inputs(self.inputs.clone());
        options.output = Some(PathBuf::from("s3://bucket/out/"));
        options.target = TorchOptions::default().into();
        options.destination = Destination::with_store(Arc::<MemoryStore>::clone(&self.store));
        options
    }
}

/// Converts the inputs, and returns the first letter of what became of each: converted, skipped or failed.
fn run(options: &ConvertOptions, resume: Resume) -> String {
    let mut results = String::new();
    let mut done = |item| {
        results.push(match item {
            BatchItem::Converted(_) => 'c',
            BatchItem::Pipeline(_) => 'p',
            BatchItem::Skipped { .. } => 's',
            BatchItem::Failed { .. } => 'f',
            BatchItem::LeftOut { .. } => 'l',
        });
        Ok(())
    };
    convert_each(options, BatchOptions::from(resume), &(), &mut done).expect("inputs fail on their own");
    results
}

#[test]
fn a_batch_goes_on_from_the_records_in_the_store() {
    let place = Place::new(&["a.safetensors", "b.safetensors"]);
    let (store, options) = (&place.store, place.options());
    assert_eq!(run(&options, Resume::SkipComplete), "cc");
    let names = store.names();
    let expected = [".torch2carton.outputs/a.pth.json", ".torch2carton.outputs/b.pth.json", "a.pth", "b.pth"];
    assert_eq!(names, expected.map(|name| format!("s3://bucket/out/{name}")));
    for resume in [Resume::SkipComplete, Resume::SkipVerified] {
        assert_eq!(run(&options, resume), "ss");
    }
    assert_eq!(run(&options, Resume::ConvertAll), "cc");
    assert_eq!(run(&options, Resume::SkipComplete), "ss", "the records are those of the last batch");

    store.objects.remove(Path::new("s3://bucket/out/b.pth"));
    assert_eq!(run(&options, Resume::SkipComplete), "sc");
    // The same bytes, but from another run, whose options nobody knows.
    let a = store.get("s3://bucket/out/a.pth").expect("it was written");
    store.put("s3://bucket/out/a.pth", &a, true);
    assert_eq!(run(&options, Resume::SkipComplete), "cs");

    let input = place.inputs.first().expect("two inputs");
    let mut bytes = std::fs::read(input).expect("it was written");
    *bytes.last_mut().expect("it is not empty") = 8;
    std::fs::write(input, bytes).expect("a temporary folder");
    assert_eq!(run(&options, Resume::SkipComplete), "cs");
    let mut others = options.clone();
    others.casts = vec![Cast { from: CastFrom::FloatingPoint, to: Dtype::Float16 }].into();
    assert_eq!(run(&others, Resume::SkipComplete), "cc");
    assert_eq!(run(&others, Resume::SkipComplete), "ss");
}

#[test]
fn a_damaged_object_is_found_if_all_of_it_is_read() {
    let place = Place::new(&["a.safetensors"]);
    let options = place.options();
    assert_eq!(run(&options, Resume::SkipComplete), "c");
    place.store.is_damaged.store(true, Ordering::Relaxed);
    assert_eq!(run(&options, Resume::SkipVerified), "c");
    place.store.is_damaged.store(false, Ordering::Relaxed);
    assert_eq!(run(&options, Resume::SkipVerified), "s");
}

#[test]
fn what_another_program_wrote_stays() {
    let place = Place::new(&["a.safetensors"]);
    let (store, options) = (&place.store, place.options());
    // An object in the place of the record: the output is written, and is made again by the next batch.
    store.put(RECORD, b"theirs", false);
    for _ in 0..2 {
        assert_eq!(run(&options, Resume::SkipComplete), "c");
        assert_eq!(store.get(RECORD).as_deref(), Some(&b"theirs"[..]));
    }
    // A record that is not one is replaced.
    store.put(RECORD, b"{}", true);
    assert_eq!(run(&options, Resume::SkipComplete), "c");
    assert_eq!(run(&options, Resume::SkipComplete), "s");
    // An object in the place of the output, which the record does not make ours.
    let a = store.get("s3://bucket/out/a.pth").expect("it was written");
    store.put("s3://bucket/out/a.pth", &a, false);
    assert_eq!(run(&options, Resume::SkipComplete), "f");
    // A record that names a file elsewhere.
    let record = String::from_utf8(store.get(RECORD).expect("it was written")).expect("JSON");
    store.put("s3://bucket/b.pth", &a, true);
    store.put(RECORD, record.replace(r#""path":"a.pth""#, r#""path":"../b.pth""#).as_bytes(), true);
    assert_eq!(run(&options, Resume::SkipComplete), "f");
}

#[test]
fn nothing_is_recorded_by_a_dry_run_or_read_without_need() {
    let place = Place::new(&["a.safetensors"]);
    let mut options = place.options();
    options.dry_run = true;
    assert_eq!(run(&options, Resume::SkipComplete), "c");
    assert_eq!(place.store.names(), [""; 0]);
    options.dry_run = false;
    place.store.is_down.store(true, Ordering::Relaxed);
    let mut errors = Vec::new();
    let mut done = |item| {
        if let BatchItem::Failed { error, .. } = item {
            errors.push(error);
        }
        Ok(())
    };
    convert_each(&options, BatchOptions::from(true), &(), &mut done).expect("inputs fail on their own");
    let [error] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!(error.location().path.as_deref(), Some(Path::new("s3://bucket/out/a.pth")));
}

#[test]
fn files_of_another_model_in_the_folder_of_an_output_are_refused() {
    let place = Place::new(&["a.safetensors"]);
    let (store, mut options) = (&place.store, place.options());
    options.output = Some(PathBuf::from("s3://bucket/out"));
    options.target = SafetensorsOptions::default().max_shard_size(1000).into();
    store.put("s3://bucket/out/notes.txt", b"theirs", false);
    convert(&options, &()).expect("the folder has notes, and no other model");
    options.if_exists = IfExists::Replace;
    convert(&options, &()).expect("it replaces its own files");
    let other = "s3://bucket/out/model-00001-of-00002.safetensors";
    store.put(other, b"theirs", false);
    let error = convert(&options, &()).expect_err("it would be mistaken for a part of the output");
    assert!(
        matches!(error.detail(), Some(Problem::OtherModelInFolder { path }) if path == Path::new(other)),
        "{error:?}"
    );
}

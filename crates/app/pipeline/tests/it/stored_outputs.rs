//! Batches whose outputs are in a store: what the next batch skips, and that it replaces nothing of another program.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use byte_source::{BufferSource, OutputStore, ReadError, Replaced, Source, StoredFile, Upload};
use pipeline::{
    BatchItem, BatchOptions, Cast, CastFrom, ConvertOptions, Destination, Dtype, Error, IfExists, OutputKind,
    Resume, SafetensorsOptions, Target, convert, convert_each,
};

/// Where the record of the first input's output is.
const RECORD: &str = "s3://bucket/out/.torch2carton.outputs/a.pth.json";

/// An object: its bytes, and whether this program wrote it.
#[derive(Clone, Debug)]
struct Object {
    bytes: Vec<u8>,
    is_own: bool,
    etag: u64,
}

type Objects = Arc<Mutex<BTreeMap<PathBuf, Object>>>;

/// A store in memory, which counts the entity tags.
#[derive(Debug, Default)]
struct MemoryStore {
    objects: Objects,
    /// True if no object can be looked at.
    is_down: Mutex<bool>,
}

impl MemoryStore {
    fn put(&self, path: &str, bytes: &[u8], is_own: bool) {
        put(&self.objects, Path::new(path), bytes.to_vec(), is_own);
    }

    fn get(&self, path: &str) -> Option<Vec<u8>> {
        lock(&self.objects).get(Path::new(path)).map(|object| object.bytes.clone())
    }

    fn names(&self) -> Vec<String> {
        lock(&self.objects).keys().map(|path| path.display().to_string()).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn put(objects: &Objects, path: &Path, bytes: Vec<u8>, is_own: bool) {
    let mut objects = lock(objects);
    let etag = objects.values().map(|object| object.etag).max().unwrap_or(0).saturating_add(1);
    objects.insert(path.to_owned(), Object { bytes, is_own, etag });
}

fn stored(object: &Object) -> StoredFile {
    let (len, etag) = (object.bytes.len() as u64, Some(object.etag.to_string()));
    StoredFile { len, is_own: object.is_own, etag, version: None }
}

impl OutputStore for MemoryStore {
    fn find(&self, target: &Path) -> io::Result<Option<StoredFile>> {
        if *lock(&self.is_down) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(lock(&self.objects).get(target).map(stored))
    }

    fn files_in(&self, folder: &Path) -> io::Result<Vec<String>> {
        let objects = lock(&self.objects);
        let inside = objects.keys().filter(|path| path.parent() == Some(folder));
        Ok(inside.map(|path| output::file_name(path)).collect())
    }

    fn open(&self, target: &Path) -> Result<Arc<dyn Source>, ReadError> {
        let object = lock(&self.objects).get(target).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(BufferSource::new(target, object.bytes)))
    }

    fn create(&self, target: &Path, _: u64) -> io::Result<Box<dyn Upload>> {
        let (objects, target) = (Arc::clone(&self.objects), target.to_owned());
        Ok(Box::new(MemoryUpload { objects, target, bytes: Vec::new() }))
    }
}

#[derive(Debug)]
struct MemoryUpload {
    objects: Objects,
    target: PathBuf,
    bytes: Vec<u8>,
}

impl Write for MemoryUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for MemoryUpload {
    fn complete(self: Box<Self>, replaced: &Replaced) -> io::Result<()> {
        let found = lock(&self.objects).get(&self.target).map(stored);
        let is_allowed = match replaced {
            Replaced::Anything => true,
            Replaced::Nothing => found.is_none(),
            Replaced::Version(version) => found.as_ref() == Some(version),
        };
        if !is_allowed {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        put(&self.objects, &self.target, self.bytes, true);
        Ok(())
    }

    fn abort_handle(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::new(|| {})
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
        options.target = Target::from(OutputKind::Torch);
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
            BatchItem::Skipped { .. } => 's',
            BatchItem::Failed { .. } => 'f',
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

    lock(&store.objects).remove(Path::new("s3://bucket/out/b.pth"));
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
    {
        let mut objects = lock(&place.store.objects);
        let object = objects.get_mut(Path::new("s3://bucket/out/a.pth")).expect("it was written");
        *object.bytes.last_mut().expect("it is not empty") ^= 1;
    }
    assert_eq!(run(&options, Resume::SkipComplete), "s");
    assert_eq!(run(&options, Resume::SkipVerified), "c");
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
    *lock(&place.store.is_down) = true;
    let mut errors = Vec::new();
    let mut done = |item| {
        if let BatchItem::Failed { error, .. } = item {
            errors.push(error);
        }
        Ok(())
    };
    convert_each(&options, BatchOptions::from(true), &(), &mut done).expect("inputs fail on their own");
    let [Error::Io { path, .. }] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!(path, Path::new("s3://bucket/out/a.pth"));
}

#[test]
fn files_of_another_model_in_the_folder_of_an_output_are_refused() {
    let place = Place::new(&["a.safetensors"]);
    let (store, mut options) = (&place.store, place.options());
    options.output = Some(PathBuf::from("s3://bucket/out"));
    options.target = Target::Safetensors(SafetensorsOptions::default().max_shard_size(1000));
    store.put("s3://bucket/out/notes.txt", b"theirs", false);
    convert(&options, &()).expect("the folder has notes, and no other model");
    options.if_exists = IfExists::Replace;
    convert(&options, &()).expect("it replaces its own files");
    let other = "s3://bucket/out/model-00001-of-00002.safetensors";
    store.put(other, b"theirs", false);
    let error = convert(&options, &()).expect_err("it would be mistaken for a part of the output");
    assert!(matches!(&error, Error::OtherModelInFolder { path } if path == Path::new(other)), "{error:?}");
}

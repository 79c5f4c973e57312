//! Planning and committing: a plan reads no weight and creates nothing, and a commit leaves all files of an output or none.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use byte_source::{MappedFile, Notice, Observer, ProgressUpdate};
use convert::{
    CartonOptions, ConvertOptions, InvalidOption, Note, OutputFormat, PlannedConversion, SafetensorsOptions,
    Target, TorchOptions, TritonOptions, convert,
};
use open::{Cast, CastFrom, TargetLayout};
use tensor::Dtype;

/// A folder with `llama`, a small model.
fn llama() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let checkpoint =
        test_support::tiny_llama::write(&folder.path().join("llama")).expect("it can be written");
    (folder, checkpoint)
}

/// One of each kind of output, and those that are folders.
fn targets() -> Vec<(&'static str, Target)> {
    let shards = SafetensorsOptions::default().max_shard_size(100_000);
    vec![
        ("x.carton", CartonOptions::default().self_test().into()),
        ("x.safetensors", SafetensorsOptions::default().into()),
        ("shards", shards.into()),
        ("x.pth", TorchOptions::default().into()),
        ("hf", TorchOptions::default().target_layout(TargetLayout::HuggingFace).into()),
        ("models", TritonOptions::default().into()),
    ]
}

/// The conversion of `folder`/llama, with float32 weights: a self test has logits then.
fn options(folder: &Path, (output, target): (&str, Target)) -> ConvertOptions {
    let mut options = ConvertOptions::new(folder.join("llama"));
    options.output = Some(folder.join(output));
    options.target = target;
    options.casts = vec![Cast { from: CastFrom::FloatingPoint, to: Dtype::Float32 }].into();
    options
}

/// Changes a byte of each storage, so that its checksum tells when it is read.
fn damage(checkpoint: &Path) {
    let file = MappedFile::open(checkpoint).expect("it was written");
    let index = zip_format::ZipIndex::read(&file).expect("a zip file");
    let mut bytes = file.bytes().to_vec();
    let storages = index.entries.iter().filter(|entry| entry.name.contains("/data/"));
    let mut count = 0;
    for storage in storages {
        let byte =
            bytes.get_mut(usize::try_from(storage.data.start).expect("small")).expect("it is in the file");
        *byte ^= 1;
        count += 1;
    }
    assert!(count > 20, "{count} storages");
    std::fs::write(checkpoint, bytes).expect("it can be written");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().expect("a folder").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Collects the notes, and stops the work once `at` bytes are done.
struct Watcher {
    at: u64,
    done: Mutex<u64>,
    notes: Mutex<Vec<Note>>,
}

impl Watcher {
    fn new(at: u64) -> Self {
        Self { at, done: Mutex::new(0), notes: Mutex::new(Vec::new()) }
    }
}

impl Observer for Watcher {
    fn progress(&self, step: ProgressUpdate<'_>) {
        *self.done.lock().expect("nothing panicked") = step.done;
    }

    fn note(&self, note: &dyn Notice) {
        let note: &dyn Any = note;
        let note = note.downcast_ref::<Note>().expect("a conversion has notes of its crate");
        self.notes.lock().expect("nothing panicked").push(note.clone());
    }

    fn is_cancelled(&self) -> bool {
        *self.done.lock().expect("nothing panicked") >= self.at
    }
}

#[test]
fn a_dry_run_reads_no_weight_and_creates_nothing() {
    let (folder, checkpoint) = llama();
    damage(&checkpoint);
    for target in targets() {
        let output = target.0;
        let mut options = options(folder.path(), target);
        let error = convert(&options, &()).expect_err("its weights are damaged");
        assert!(error.to_string().contains("is damaged: "), "{output}: {error}");
        options.dry_run = true;
        let observer = Watcher::new(u64::MAX);
        let report = convert(&options, &observer).expect("no weight is read");
        assert!(!report.written && report.nbytes > 100_000, "{output}: {report:?}");
        assert_eq!(*observer.done.lock().expect("nothing panicked"), 0, "{output}");
        assert_eq!(names(folder.path()), ["llama"], "{output}");
    }
}

#[test]
fn a_dry_run_reports_the_size_of_the_output() {
    let (folder, _) = llama();
    for target in targets() {
        let mut options = options(folder.path(), target);
        options.dry_run = true;
        let expected = convert(&options, &()).expect("it can be converted").nbytes;
        options.dry_run = false;
        let report = convert(&options, &()).expect("it can be converted");
        let output = Path::new(&report.output);
        let (mut folders, mut nbytes) = (vec![output.to_owned()], 0);
        while let Some(path) = folders.pop() {
            if path.is_dir() {
                folders.extend(path.read_dir().expect("a folder").flatten().map(|entry| entry.path()));
            } else {
                nbytes += path.metadata().expect("it was written").len();
            }
        }
        assert_eq!((report.nbytes, nbytes), (expected, expected), "{}", report.output);
    }
}

#[test]
fn a_cancelled_commit_leaves_neither_files_nor_folders() {
    let (folder, _) = llama();
    for target in targets() {
        let output = target.0;
        let options = options(folder.path(), target);
        for at in [1, 300_000] {
            let error = convert(&options, &Watcher::new(at)).expect_err("it was cancelled");
            assert!(error.is_cancelled(), "{output} at {at}: {error}");
            assert_eq!(names(folder.path()), ["llama"], "{output} at {at}");
        }
    }
}

#[test]
fn progress_of_several_files_grows_to_the_bytes_of_the_weights() {
    let (folder, _) = llama();
    let target = targets().swap_remove(2);
    let observer = Watcher::new(u64::MAX);
    let report = convert(&options(folder.path(), target), &observer).expect("it can be converted");
    let files = names(&folder.path().join("shards"));
    let is_weights = |name: &&String| Path::new(name).extension().is_some_and(|it| it == "safetensors");
    let len = |name: &String| folder.path().join("shards").join(name).metadata().expect("a file").len();
    let weights: Vec<u64> = files.iter().filter(is_weights).map(len).collect();
    assert!(weights.len() > 1, "{files:?}");
    assert_eq!(*observer.done.lock().expect("nothing panicked"), weights.iter().sum::<u64>());
    assert_eq!(report.nbytes, files.iter().map(len).sum::<u64>());
}

#[test]
fn the_observer_and_the_report_have_the_same_notes() {
    let (folder, _) = llama();
    for target in targets() {
        let mut options = options(folder.path(), target);
        options.casts = vec![Cast { from: CastFrom::Dtype(Dtype::Int8), to: Dtype::Int16 }].into();
        let observer = Watcher::new(u64::MAX);
        let report = convert(&options, &observer).expect("it can be converted");
        assert!(!report.notes.is_empty(), "{}", report.output);
        assert_eq!(observer.notes.into_inner().expect("nothing panicked"), report.notes);
    }
}

#[test]
fn a_plan_names_the_output_and_opens_no_input() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let input = folder.path().join("net.pth.tar");
    std::fs::write(&input, "not a checkpoint").expect("a temporary folder");
    let output = |target: Target| {
        let mut options = ConvertOptions::new(&input);
        options.target = target;
        let output = PlannedConversion::plan(&options).expect("there is a file").output().to_owned();
        output.strip_prefix(folder.path()).expect("it is next to the input").to_owned()
    };
    for (name, expected) in [
        ("carton", "net.carton"),
        ("safetensors", "net.safetensors"),
        ("pth", "net.pth"),
        ("triton", "net-triton"),
    ] {
        let format = OutputFormat::named(name).expect("a format");
        assert_eq!(output(format.target()), Path::new(expected));
    }
    let shards = SafetensorsOptions::default().max_shard_size(1);
    assert_eq!(output(shards.into()), Path::new("net-safetensors"));
    let missing = PlannedConversion::plan(&ConvertOptions::new(folder.path().join("missing.pth")));
    let missing = missing.expect_err("there is no such file");
    assert!(matches!(missing.detail(), Some(open::files::Problem::NotFound { .. })), "{missing:?}");
}

#[test]
fn the_extension_of_a_path_names_the_target() {
    let kind = |path: &str| Target::from_path(Path::new(path)).map(|target| target.format().name());
    assert_eq!(kind("a.SafeTensors"), Ok("safetensors"));
    assert_eq!(kind("a.ckpt"), Ok("pth"));
    assert_eq!(kind("llama-3.1"), Ok("carton"));
    assert_eq!(kind("a.gguf"), Ok("gguf"));
    for foreign in ["a.onnx", "a.pte", "a.npz", "a.H5", "a.pkl"] {
        kind(foreign).expect_err("another program writes it");
    }
    for (typed, extension) in [
        ("a.safetensor", "safetensors"),
        ("a.saftensers", "safetensors"),
        ("a.catron", "carton"),
        ("a.ggfu", "gguf"),
    ] {
        let path = typed.into();
        assert_eq!(kind(typed), Err(InvalidOption::SimilarExtension { path, extension }), "{typed}");
    }
    for name in ["a.tensors", "a.p", "a.bit"] {
        assert_eq!(kind(name), Ok("carton"), "{name}");
    }
    let options = ConvertOptions::new("a.pth").with_output("b.triton").expect("a kind of output");
    assert_eq!((options.target.format().name(), options.output), ("triton", Some("b.triton".into())));
}

//! Progress and cancellation: a cancelled call stops within one window, returns an error, and removes its unfinished file.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use convert::Error;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use byte_source::{Action, Observer, ProgressUpdate, WINDOW};
use convert::{BatchItem, ConvertOptions, Resume, convert, convert_each};
use inspect::{InspectOptions, ScanOptions, inspect, scan};
use output::IfExists;
use test_support::{safetensors, stored_zip};

const MIB: usize = WINDOW;

fn write_safetensors(path: &Path, lengths: &[usize]) {
    let bytes = |len| (0..len).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect::<Vec<_>>();
    let tensors =
        lengths.iter().enumerate().map(|(index, len)| (format!("t{index}"), "U8", [*len], bytes(*len)));
    std::fs::write(path, safetensors(tensors)).expect("a temporary folder");
}

/// A folder with `m.safetensors`, which has 12 MiB in two tensors.
fn checkpoint() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("m.safetensors");
    write_safetensors(&path, &[7 * MIB + 3, 5 * MIB]);
    (folder, path)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().expect("a folder");
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// What an observer saw.
#[derive(Clone, Debug)]
struct Seen {
    name: String,
    action: Action,
    done: u64,
    total: Option<u64>,
}

/// Stops the work once `at` bytes are done, and remembers each step.
#[derive(Default)]
struct StopAt {
    at: u64,
    steps: Mutex<Vec<Seen>>,
}

impl StopAt {
    fn new(at: u64) -> Self {
        Self { at, ..Self::default() }
    }

    fn steps(self) -> Vec<Seen> {
        self.steps.into_inner().expect("nothing panicked")
    }
}

impl Observer for StopAt {
    fn progress(&self, step: ProgressUpdate<'_>) {
        let ProgressUpdate { name, action, done, total } = step;
        let step = Seen { name: name.to_owned(), action, done, total };
        self.steps.lock().expect("nothing panicked").push(step);
    }

    fn is_cancelled(&self) -> bool {
        let steps = self.steps.lock().expect("nothing panicked");
        steps.last().is_some_and(|step| step.done >= self.at)
    }
}

/// Stops the work when it is asked for the Nth time, counted from 1.
struct StopWhenAsked {
    at: usize,
    asked: AtomicUsize,
}

impl StopWhenAsked {
    fn new(at: usize) -> Self {
        Self { at, asked: AtomicUsize::new(0) }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Observer for StopWhenAsked {
    fn is_cancelled(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1 >= self.at
    }
}

#[test]
fn progress_grows_to_the_total() {
    let (folder, path) = checkpoint();
    let observer = StopAt::new(u64::MAX);
    let report = convert(&ConvertOptions::new(&path), &observer).expect("it can be converted");
    let steps = observer.steps();
    assert!(steps.len() > 12, "{} steps", steps.len());
    assert!(steps.iter().all(|step| {
        step.name == "m.carton" && step.action == Action::Write && step.total == Some(report.nbytes)
    }));
    let done: Vec<u64> = steps.iter().map(|step| step.done).collect();
    assert!(done.is_sorted_by(|a, b| a < b), "{done:?}");
    let widest = done.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(widest <= Some(MIB as u64), "{widest:?} bytes in one step");
    assert_eq!(done.last(), Some(&report.nbytes));
    assert_eq!(report.nbytes, folder.path().join("m.carton").metadata().expect("it was written").len());
}

#[test]
fn a_cancelled_conversion_leaves_nothing() {
    let (folder, path) = checkpoint();
    let options = ConvertOptions::new(&path);
    let total = convert(&options, &()).expect("it can be converted").nbytes;
    let carton = folder.path().join("m.carton");
    std::fs::remove_file(&carton).expect("it was written");
    // At the first step, in the middle, and after the last byte.
    for at in [0, 1, 100_000, MIB as u64, 5 << 20, total - 1, total] {
        let observer = StopAt::new(at);
        let error = convert(&options, &observer).expect_err("it was cancelled");
        assert!(error.is_cancelled(), "at {at}: {error}");
        assert_eq!(names(folder.path()), ["m.safetensors"], "at {at}");
        let steps = observer.steps();
        let last = steps.last().expect("a step").done;
        assert!(last <= at + 2 * MIB as u64, "asked to stop at {at}, stopped at {last}");
        let after = steps.iter().filter(|step| step.done >= at).count();
        assert_eq!(after, 1, "at {at}: the step that cancelled is the last");
    }
    // A file that exists stays as it is.
    std::fs::write(&carton, "older").expect("a temporary folder");
    let mut forced = options;
    forced.if_exists = IfExists::Replace;
    assert!(convert(&forced, &StopAt::new(1)).is_err_and(|error| error.is_cancelled()));
    assert_eq!(std::fs::read(&carton).expect("it is there"), b"older");
    assert_eq!(names(folder.path()), ["m.carton", "m.safetensors"]);
}

#[test]
fn a_conversion_can_be_cancelled_before_it_begins() {
    let (folder, path) = checkpoint();
    let observer = StopWhenAsked::new(1);
    assert!(convert(&ConvertOptions::new(&path), &observer).is_err_and(|error| error.is_cancelled()));
    assert_eq!((names(folder.path()), observer.asked()), (vec!["m.safetensors".to_owned()], 1));
}

#[test]
fn a_set_of_shards_can_be_cancelled() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let set = folder.path().join("set");
    std::fs::create_dir(&set).expect("a temporary folder");
    for number in 1..=2 {
        let path = set.join(format!("model-0000{number}-of-00002.safetensors"));
        let lengths: &[usize] = if number == 1 { &[2 * MIB] } else { &[0, 2 * MIB] };
        write_safetensors(&path, lengths);
        // Each name is in one shard.
        if number == 2 {
            let bytes = std::fs::read(&path).expect("it was written");
            let text = bytes.windows(4).position(|bytes| bytes == b"\"t0\"").expect("a name");
            let mut bytes = bytes;
            bytes[text + 2] = b'9';
            std::fs::write(&path, bytes).expect("it can be written");
        }
    }
    let options = ConvertOptions::new(&set);
    let total = convert(&options, &()).expect("it can be converted").nbytes;
    std::fs::remove_file(folder.path().join("set.carton")).expect("it was written");
    for at in [1, total / 2, total] {
        assert!(convert(&options, &StopAt::new(at)).is_err_and(|error| error.is_cancelled()));
        assert_eq!(names(folder.path()), ["set"]);
    }
}

#[test]
fn a_cancelled_batch_stops() {
    let (folder, path) = checkpoint();
    let (second, out) = (folder.path().join("n.safetensors"), folder.path().join("out"));
    write_safetensors(&second, &[3]);
    std::fs::create_dir(&out).expect("a temporary folder");
    let mut options = ConvertOptions::new(&path);
    options.inputs.push(second.into());
    options.output = Some(out.clone());
    let mut done = Vec::new();
    let error = convert_each(&options, Resume::ConvertAll.into(), &StopAt::new(3 << 20), &mut |result| {
        done.push(matches!(result, BatchItem::Failed { .. }));
        Ok(())
    });
    assert!(error.as_ref().is_err_and(Error::is_cancelled), "{error:?}");
    assert_eq!((done.as_slice(), names(&out)), (&[][..], Vec::new()));
    // What is finished stays.
    options.inputs.reverse();
    let mut done = 0;
    let error = convert_each(&options, Resume::ConvertAll.into(), &StopAt::new(3 << 20), &mut |_| {
        done += 1;
        Ok(())
    });
    assert!(error.as_ref().is_err_and(Error::is_cancelled), "{error:?}");
    assert_eq!((done, names(&out)), (1, [".torch2carton.outputs", "n.carton"].map(str::to_owned).to_vec()));
}

#[test]
fn reading_an_output_of_an_earlier_batch_can_be_cancelled() {
    let (folder, path) = checkpoint();
    let mut options = ConvertOptions::new(&path);
    options.output = Some(folder.path().join("out"));
    let resume = |resume: Resume, observer: &dyn Observer| {
        convert_each(&options, resume.into(), observer, &mut |_| Ok(()))
            .map(|report| (report.converted, report.skipped))
    };
    assert_eq!(resume(Resume::SkipComplete, &()).expect("nothing stops it"), (1, 0));
    let observer = StopWhenAsked::new(usize::MAX);
    assert_eq!(resume(Resume::SkipVerified, &observer).expect("nothing stops it"), (0, 1));
    let asked = observer.asked();
    assert!(asked >= 24, "asked {asked} times in 12 MiB that are read twice");
    for at in [1, asked / 2] {
        let error = resume(Resume::SkipVerified, &StopWhenAsked::new(at)).expect_err("it was cancelled");
        assert!(error.is_cancelled(), "{error}");
    }
    assert_eq!(resume(Resume::SkipComplete, &()).expect("nothing stops it"), (0, 1));
}

/// A file without checksums that is too large to be read is recognised by its times.
#[cfg(unix)]
#[test]
fn a_large_input_that_was_written_again_is_converted_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("m.safetensors");
    write_safetensors(&path, &[17 << 20]);
    let mut options = ConvertOptions::new(&path);
    options.output = Some(folder.path().join("out"));
    let resume = || {
        let report = convert_each(&options, Resume::SkipComplete.into(), &(), &mut |_| Ok(()))
            .expect("it can be converted");
        (report.converted, report.skipped)
    };
    assert_eq!((resume(), resume()), ((1, 0), (0, 1)));
    let modified = path.metadata().and_then(|metadata| metadata.modified()).expect("it is there");
    let mut bytes = std::fs::read(&path).expect("it was written");
    *bytes.last_mut().expect("it has bytes") ^= 1;
    std::fs::write(&path, bytes).expect("it can be written");
    let file = std::fs::File::options().write(true).open(&path).expect("it is there");
    file.set_modified(modified).expect("it can be set");
    assert_eq!((resume(), resume()), ((1, 0), (0, 1)), "the time was set back");
}

#[test]
fn hashing_can_be_cancelled() {
    let (_folder, path) = checkpoint();
    let mut options = InspectOptions::new(&path);
    options.sha256 = true;
    let observer = StopWhenAsked::new(usize::MAX);
    let report = inspect(&options, &observer).expect("it can be read");
    assert_eq!(report.tensors.len(), 2);
    let asked = observer.asked();
    assert!(asked >= 12, "asked {asked} times in 12 MiB");
    // Each thread asks for itself, and those that hash at this moment ask once more.
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for at in [1, 2, asked / 2, asked] {
        let observer = StopWhenAsked::new(at);
        let error = inspect(&options, &observer).expect_err("it was cancelled");
        assert!(error.kind() == byte_source::ErrorKind::Cancelled, "{error}");
        assert!(
            (at..=at + threads).contains(&observer.asked()),
            "asked {} times, not {at}",
            observer.asked()
        );
    }
}

/// Writes a `.pth` file with one storage of 12 MiB that no tensor uses.
fn archive(path: &Path) {
    let storage = vec![7; 12 * MIB];
    let records: [(&str, &[u8]); 3] =
        [("a/data.pkl", b"\x80\x02}."), ("a/version", b"3\n"), ("a/data/0", &storage)];
    std::fs::write(path, stored_zip(records)).expect("a temporary folder");
}

#[test]
fn a_scan_can_be_cancelled_between_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["a.pkl", "b.pkl", "c.pkl"] {
        std::fs::write(folder.path().join(name), b"\x80\x02}.").expect("a temporary folder");
    }
    let options = ScanOptions::new(vec![folder.path().to_owned()]);
    let scan_until = |observer: &StopWhenAsked| {
        let mut files = 0;
        let result = scan(&options, observer, &mut |_| {
            files += 1;
            Ok(())
        });
        (result, files)
    };
    let observer = StopWhenAsked::new(usize::MAX);
    let (summary, files) = scan_until(&observer);
    assert_eq!((summary.expect("it can be scanned").clean, files), (3, 3));
    let mut finished = Vec::new();
    for at in 1..=observer.asked() {
        let (result, files) = scan_until(&StopWhenAsked::new(at));
        assert!(
            result.as_ref().is_err_and(|error| error.kind() == byte_source::ErrorKind::Cancelled),
            "{result:?}"
        );
        finished.push(files);
    }
    assert!(finished.is_sorted(), "{finished:?}");
    finished.dedup();
    assert_eq!(finished, [0, 1, 2]);
}

/// Comparing checksums reads the whole file, which may be a hundred gigabytes.
#[test]
fn a_scan_can_be_cancelled_inside_a_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.pth");
    archive(&path);
    let mut options = ScanOptions::new(vec![path]);
    options.checksums = true;
    let observer = StopWhenAsked::new(usize::MAX);
    let summary = scan(&options, &observer, &mut |_| Ok(())).expect("it can be scanned");
    assert_eq!(summary.files(), 1, "{summary:?}");
    let asked = observer.asked();
    assert!(asked >= 12, "asked {asked} times in 12 MiB");
    let observer = StopWhenAsked::new(asked / 2);
    let result = scan(&options, &observer, &mut |_| Ok(()));
    assert!(
        result.as_ref().is_err_and(|error| error.kind() == byte_source::ErrorKind::Cancelled),
        "{result:?}"
    );
    assert_eq!(observer.asked(), asked / 2);
}

/// A server keeps what it opened, and passes it to its threads.
#[test]
fn what_callers_hold_is_static_and_can_be_shared() {
    const fn is_shared<T: 'static + Send + Sync>() {}
    is_shared::<torch_import::Checkpoint>();
    is_shared::<torch_import::Container>();
    is_shared::<torch_import::CompoundItem>();
    is_shared::<tensor::Tensor>();
    is_shared::<tensor::Storage>();
    is_shared::<byte_source::MappedFile>();
    is_shared::<byte_source::Window>();
    is_shared::<open::files::CheckpointSources>();
    is_shared::<torchscript::Module>();
    is_shared::<carton_format::Carton>();
    is_shared::<convert::ConvertOptions>();
    is_shared::<convert::ConvertReport>();
    is_shared::<convert::BatchItem>();
    is_shared::<convert::BatchReport>();
    is_shared::<inspect::InspectOptions>();
    is_shared::<inspect::InspectReport>();
    is_shared::<inspect::ScanOptions>();
    is_shared::<inspect::FileScan>();
    is_shared::<inspect::ScanSummary>();
    is_shared::<inspect::TraceOptions>();
    is_shared::<open::Model>();
    is_shared::<convert::Note>();
    is_shared::<convert::Error>();
}

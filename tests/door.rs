//! The library as a program would use that depends on `torch2carton` alone.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use tempfile::TempDir;
use torch2carton::{
    Carton, CartonFields, CartonOptions, CastFrom, Checkpoint, ConvertOptions, Dtype, Error, ErrorKind,
    Notice, Observer, ProgressUpdate, RunnableKind, SafetensorsOptions, Selection, Storage, Tensor, Tensors,
    TraceListing, TraceView, Verdict, containers, convert, inspect, pack, register_container, run, scan,
    shrink, trace, unpack, verify,
};

#[path = "../examples/toy_container.rs"]
#[expect(dead_code, reason = "the program of the example")]
mod toy_container;

const MIB: usize = 1 << 20;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// A safetensors file with one float32 tensor of `len` bytes, called `w`.
fn safetensors(path: &Path, len: usize) {
    let header = format!(r#"{{"w":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{len}]}}}}"#, len / 4);
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![64; len]].concat();
    std::fs::write(path, bytes).expect("a temporary folder");
}

/// A file of the golden tests.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The carton of a small model.
fn llama(folder: &Path) -> PathBuf {
    let checkpoint = test_support::tiny_llama::write(folder).expect("a temporary folder");
    let output = folder.join("llama.carton");
    let report = convert(checkpoint).output(&output).run(&()).expect("a whole checkpoint");
    assert!(report.carton().is_some_and(|carton| carton.is_model() && carton.manifest_sha256.is_some()));
    output
}

#[test]
fn a_model_is_converted_and_run() {
    let folder = folder();
    let carton = llama(folder.path());
    let tokens = Storage::owned([1_i64, 2, 3].into_iter().flat_map(i64::to_le_bytes).collect());
    let tokens = Tensor::new(Dtype::Int64, vec![1, 3], vec![3, 1], 0, tokens).expect("it fits its storage");
    let outputs = run(&carton).threads(1).verify().input("tokens", tokens.clone()).run(&()).expect("a model");
    let logits = outputs.get("logits").expect("a model returns logits");
    assert_eq!(logits.shape().get(..2), Some(&[1, 3][..]));
    let model = run(&carton).open(&()).expect("a model");
    assert!(matches!(model.kind(), RunnableKind::Decoder(_)));
    let again = model.infer(&[("tokens".to_owned(), tokens)], None).expect("the same model");
    assert!(again.iter().any(|(name, _)| name == "logits"));
    let session = model.session().expect("a model");
    assert!(session.is_empty());
}

#[test]
fn options_choose_what_is_written() {
    let folder = folder();
    let root = folder.path();
    let input = root.join("model.safetensors");
    safetensors(&input, 8);
    let by_name = convert(&input).output(root.join("a.pth")).run(&()).expect("a tensor");
    assert_eq!(by_name.to, "pth");
    let options = SafetensorsOptions::default().max_shard_size(1 << 30);
    let small =
        convert(&input).to(options).output(root.join("out")).dtype(Dtype::BFloat16).rename("^w", "weight");
    let report = small.run(&()).expect("a tensor");
    assert_eq!((report.to, report.casts.len()), ("safetensors", 1));
    let checkpoint = Checkpoint::open(root.join("out")).expect("it was written");
    let tensor = checkpoint.tensors().get("weight").expect("it was renamed");
    assert_eq!((tensor.dtype(), tensor.shape()), (Dtype::BFloat16, &[2][..]));
    let carton = CartonOptions::default().fields(CartonFields::default().license("MIT"));
    let dry = convert(&input).to(carton).dry_run().run(&()).expect("a tensor");
    assert!(!dry.written && !root.join("model.carton").exists());
}

#[test]
fn a_folder_of_checkpoints_is_converted_one_by_one() {
    let folder = folder();
    let root = folder.path();
    let (good, out) = (root.join("good.safetensors"), root.join("out"));
    safetensors(&good, 4);
    let all = convert(&good).input(golden("hostile/cut.pth")).output(&out);
    let mut seen = 0;
    let report = all.run_each(true, &(), &mut |_| seen += 1).expect("a failure is not an error");
    assert_eq!((report.converted, report.failed, seen), (1, 1, 2));
    let report = all.run_each(true, &(), &mut |_| ()).expect("the same");
    assert_eq!((report.skipped, report.failed), (1, 1));
}

#[test]
fn a_checkpoint_is_inspected_scanned_and_traced() {
    let path = golden("checkpoints/plain.pth");
    let report = inspect(&path).sha256().values().run(&()).expect("a checkpoint");
    let checkpoint = Checkpoint::open(&path).expect("a checkpoint");
    let names: Vec<&str> = report.tensors.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(checkpoint.tensors().names().collect::<Vec<_>>(), names);
    assert!(checkpoint.tensors().get("not there").is_none() && !checkpoint.tensors().is_empty());
    assert_eq!((checkpoint.files(), checkpoint.notes().len()), (&[path.clone()][..], 0));
    let found = scan(&path).input(golden("malicious")).run(&()).expect("files of this machine");
    assert_eq!(found.verdict(), Verdict::Unsafe);
    assert_eq!(found.files.first().map(|file| file.verdict), Some(Verdict::Clean));
    let lines = |trace: torch2carton::Trace| {
        let mut out = Vec::new();
        trace.run(&mut out).expect("a checkpoint");
        String::from_utf8(out).expect("text").lines().count()
    };
    assert!(lines(trace(&path).view(TraceView::Lines).limit(3)) < lines(trace(&path).view(TraceView::Lines)));
    assert!(lines(trace(&path).listing(TraceListing::Disassembly)) > 1);
}

#[test]
fn a_set_of_shards_is_one_checkpoint() {
    let folder = folder();
    let model = test_support::tiny_llama::write(folder.path()).expect("a temporary folder");
    let whole =
        Checkpoint::open(model.parent().expect("it is in a folder")).expect("a checkpoint in a folder");
    assert_eq!(whole.tensors().len(), Checkpoint::open(&model).expect("a file").tensors().len());
    let root = folder.path().join("split");
    std::fs::create_dir(&root).expect("a temporary folder");
    let to = SafetensorsOptions::default().max_shard_size(100_000);
    convert(&model).to(to).output(&root).run(&()).expect("a checkpoint");
    let joined = Checkpoint::open(&root).expect("a set");
    assert_eq!(joined.tensors().len(), whole.tensors().len());
    assert!(joined.files().len() > 1);
    let (first, all) = (joined.files().first().expect("several"), joined.files());
    assert_eq!(kind(Checkpoint::open(first)).0, ErrorKind::Input);
    assert!(Checkpoint::open_shard(first).expect("a file").tensors().len() < joined.tensors().len());
    assert_eq!(Checkpoint::open_shards(all).expect("all of them").tensors().len(), joined.tensors().len());
    assert_eq!(kind(Checkpoint::open(golden("shards/missing"))).0, ErrorKind::Input);
}

#[test]
fn a_container_of_another_crate_is_a_checkpoint() {
    static TOY: toy_container::Toy = toy_container::Toy;
    let folder = folder();
    let root = folder.path();
    let path = root.join("model.toy");
    std::fs::write(&path, toy_container::FILE).expect("a temporary folder");
    register_container(&TOY);
    assert!(!register_container(&TOY) && containers().any(|format| format.name() == "toy"));
    let report = inspect(root).values().run(&()).expect("a folder with one checkpoint");
    let names: Vec<&str> = report.tensors.iter().map(|row| row.name.as_str()).collect();
    assert_eq!((report.format, &names[..], report.value_count), ("toy", &["bias", "scale"][..], 1));
    let written = convert(&path).to(SafetensorsOptions::default()).run(&()).expect("a whole file");
    assert_eq!(written.output, root.join("model.safetensors").display().to_string());
    let copy = Checkpoint::open(root.join("model.safetensors")).expect("it was written");
    let bias = copy.tensors().get("bias").expect("a tensor of the file");
    assert_eq!(bias.mapped_bytes(), Some(&[0, 0, 0x80, 0x3f, 0, 0, 0, 0x40][..]));
    let scanned = scan(&path).run(&()).expect("a file of this machine");
    assert_eq!(scanned.verdict(), Verdict::Clean);
    std::fs::write(&path, &toy_container::FILE[..30]).expect("a temporary folder");
    assert_eq!(kind(Checkpoint::open(&path)).0, ErrorKind::Damaged);
    let scanned = scan(&path).run(&()).expect("a file of this machine");
    assert_eq!(scanned.verdict(), Verdict::Incomplete);
    std::fs::write(&path, b"TOY1\na 1\na\n\n\0\0\0\0\0\0\0\0").expect("a temporary folder");
    let (_, text) = kind(Checkpoint::open(&path));
    assert!(text.ends_with("the header is damaged: two tensors have the name `a`"), "{text}");
}

#[test]
fn a_carton_is_read_and_verified() {
    let folder = folder();
    let root = folder.path();
    let path = llama(root);
    let carton = Carton::open(&path).expect("a carton");
    assert_eq!(carton.config().runner.runner_name, "torchscript");
    let tensors = carton.tensors(&()).expect("a model");
    let contents = carton.contents().expect("a carton");
    assert_eq!((tensors.len(), carton.manifest_sha256()), (contents.tensors.len(), contents.manifest_sha256));
    assert!(carton.verify(&()).expect("it can be read").ok);
    let out = root.join("unpacked");
    assert!(unpack(&path).output(&out).run(&()).expect("a carton").files > 2);
    let packed = pack(&out).output(root.join("again.carton")).run(&()).expect("a folder");
    assert_eq!(Some(packed.manifest_sha256), carton.manifest_sha256());
    let small = root.join("small.carton");
    let report =
        shrink(&path, &small, "https://example.org/", root.join("blobs")).run(&()).expect("a carton");
    assert!(report.moved_files > 0);
    let one = Selection::default().include("norm.weight");
    let error = verify(&path).select(one).run(&()).expect_err("there is nothing to compare with");
    assert_eq!(error.kind(), ErrorKind::Option);
}

#[test]
fn what_callers_hold_can_be_kept_and_sent() {
    fn kept<T: Send + Sync + 'static>() {}
    kept::<Carton>();
    kept::<Checkpoint>();
    kept::<Tensors>();
    kept::<Error>();
    kept::<torch2carton::Runnable>();
    kept::<torch2carton::Convert>();
}

/// Acts once, when the first bytes are done.
struct Acting<F> {
    act: F,
    steps: AtomicUsize,
    stop: bool,
}

impl<F: Fn() + Sync> Observer for Acting<F> {
    fn progress(&self, _: ProgressUpdate<'_>) {
        if self.steps.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.act)();
        }
    }

    fn note(&self, note: &dyn Notice) {
        assert!(!note.to_string().is_empty());
    }

    fn is_cancelled(&self) -> bool {
        self.stop && self.steps.load(Ordering::Relaxed) > 0
    }
}

fn kind(result: torch2carton::Result<impl Sized>) -> (ErrorKind, String) {
    let error = result.err().expect("it fails");
    (error.kind(), error.to_string())
}

#[test]
fn each_kind_of_error_comes_through() {
    let folder = folder();
    let root = folder.path();
    let (input, carton) = (root.join("model.safetensors"), root.join("model.carton"));
    safetensors(&input, 4 * MIB);
    std::fs::write(root.join("text.pth"), "not a checkpoint").expect("a temporary folder");
    convert(&input).run(&()).expect("a tensor");
    let file = || File::options().append(true).open(&input).expect("it was written");
    file().set_modified(UNIX_EPOCH).expect("it is ours");
    let change = Acting {
        act: || file().write_all(b"x").expect("it is ours"),
        steps: AtomicUsize::new(0),
        stop: false,
    };
    let stop = Acting { act: || (), steps: AtomicUsize::new(0), stop: true };
    let other = || root.join("other.carton");
    for (expected, found) in [
        (ErrorKind::Io, kind(convert(root.join("absent.pth")).run(&()))),
        (ErrorKind::Io, kind(verify(root.join("absent.carton")).run(&()))),
        (ErrorKind::Io, kind(run(root.join("absent.carton")).run(&()))),
        (ErrorKind::Io, kind(trace(root.join("absent.pkl")).run(&mut Vec::new()))),
        (ErrorKind::Io, kind(inspect(root.join("absent.pth")).run(&()))),
        (ErrorKind::Io, kind(Checkpoint::open(root.join("absent.pth")))),
        (ErrorKind::Io, kind(Carton::open(root.join("absent.carton")))),
        (ErrorKind::Input, kind(inspect(root.join("text.pth")).run(&()))),
        (ErrorKind::Input, kind(Carton::open(&input))),
        (ErrorKind::Input, kind(run(&carton).output("none").run(&()))),
        (ErrorKind::Io, kind(inspect("https://example.org/a.pth").run(&()))),
        (ErrorKind::Unsupported, kind(Checkpoint::open(golden("hostile/encrypted.pth")))),
        (ErrorKind::Damaged, kind(convert(golden("hostile/cut.pth")).output(other()).run(&()))),
        (ErrorKind::Damaged, kind(Checkpoint::open(golden("hostile/bad_crc_pickle.pth")))),
        (ErrorKind::Option, kind(convert(&input).output(root.join("x.onnx")).run(&()))),
        (
            ErrorKind::Option,
            kind(
                convert(&input)
                    .to(CartonOptions::default())
                    .cast(CastFrom::FloatingPoint, Dtype::Int8)
                    .run(&()),
            ),
        ),
        (ErrorKind::Option, kind(convert(&input).select(Selection::default().exclude("*")).run(&()))),
        (ErrorKind::Cancelled, kind(convert(&input).output(other()).run(&stop))),
        (ErrorKind::Cancelled, kind(Carton::open(&carton).and_then(|_| verify(&carton).run(&stop)))),
        (ErrorKind::Changed, kind(convert(&input).output(other()).run(&change))),
    ] {
        assert_eq!(found.0, expected, "{}", found.1);
    }
    assert!(!other().exists(), "a failed conversion leaves no output");
}

#[test]
fn an_error_has_the_problem_that_its_crate_gave() {
    let error = convert("absent.pth").run(&()).expect_err("there is no such file");
    let problem = error.detail::<torch2carton::crates::open::files::Problem>();
    assert!(matches!(problem, Some(torch2carton::crates::open::files::Problem::NotFound { .. })));
    assert_eq!(error.code(), "open::NotFound");
    assert_eq!(ErrorKind::Damaged.to_string(), "damaged");
}

#[test]
fn json_becomes_a_conversion() {
    let folder = folder();
    let input = folder.path().join("x.safetensors");
    safetensors(&input, 8);
    let output = folder.path().join("y.safetensors");
    let object = |text: &str| torch2carton::crates::serde_json::from_str(text).expect("an object");
    let options = format!(r#"{{ "dtype": "bfloat16", "output": {:?} }}"#, output.display().to_string());
    let mut options = ConvertOptions::from_json(object(&options)).expect("options of convert");
    options.inputs = vec![input.into()];
    let report = torch2carton::Convert::from(options).run(&()).expect("a whole file");
    assert_eq!((report.tensors, output.is_file()), (1, true));
    let refused =
        |text: &str| ConvertOptions::from_json(object(text)).expect_err("these do not fit").to_string();
    assert!(refused(r#"{ "nonsense": 1 }"#).contains("nonsense"));
    assert!(refused(r#"{ "to": "pth", "license": "MIT" }"#).contains("license"));
}

#[test]
fn an_error_says_what_it_is_about() {
    let folder = folder();
    let path = folder.path().join("broken.pkl");
    std::fs::write(&path, b"\x80\x02]K\x01K\x02s.").expect("a temporary folder");
    let location = Checkpoint::open(&path).expect_err("a list has no items by key").location();
    assert_eq!((location.path, location.offset), (Some(path), Some(7)));
    let absent = folder.path().join("absent.pth");
    let location = convert(&absent).run(&()).expect_err("no such file").location();
    assert_eq!((location.path, location.offset, location.tensor), (Some(absent), None, None));
}

#[test]
fn a_program_reads_the_objects_of_a_pickle_and_their_storages() {
    use torch2carton::crates::torch_import::{Container, PersistentObject, PickledObjects};

    let folder = folder();
    let checkpoint = test_support::tiny_llama::write(folder.path()).expect("a temporary folder");
    let container = Container::open(&checkpoint).expect("a checkpoint");
    let objects = PickledObjects::read(&container).expect("a whole pickle").expect("a pickle");
    let entries = objects.heap().entries(objects.root()).expect("the root is a dict");
    assert!(!entries.is_empty());
    let persistent = objects.heap().persistent_objects();
    for id in persistent {
        let found = objects.persistent(*id).expect("a storage of the file");
        let PersistentObject::Storage(found) = found else { panic!("a storage") };
        assert_eq!((found.location.as_str(), found.view), ("cpu", None));
        let region = found.storage.region().expect("the file has the bytes as they are");
        assert_eq!(region.range().end - region.range().start, found.storage.len());
        assert!(region.source().file().is_some());
        assert!(Storage::owned(vec![1]).region().is_none());
    }
    let header = folder.path().join("x.safetensors");
    safetensors(&header, 8);
    let container = Container::open(&header).expect("a safetensors file");
    assert!(PickledObjects::read(&container).expect("a whole file").is_none());
    assert_eq!(container.tied_names().count(), 0);
}

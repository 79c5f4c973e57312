//! What a conversion, a trace and a listing choose among the parts of their input, and what they say about the choice.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{BufferSource, Location, MemoryStore, Source, Stores};
use convert::{
    ArchitectureChoice, BatchOptions, CartonOptions, ConvertOptions, Error, ModelOptions, NoModelReason,
    Note, Problem, Resume, SafetensorsOptions, Target, TorchOptions, TritonOptions, convert, convert_each,
};
use inspect::{InspectOptions, inspect, open_pickles};
use open::files::FilesNote;
use open::{Cast, CastFrom, CastOptions, WeightedPath};
use tensor::Dtype;
use test_support::stored_zip;

use crate::checkpoints::{TENSOR, float_safetensors, torch_file};

fn folder_with(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it is in the folder")).expect("a temporary folder");
        std::fs::write(path, bytes).expect("a temporary folder");
    }
    folder
}

/// A path in the source tree.
fn checked_in(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn options(input: impl Into<Location>, target: impl Into<Target>, output: &Path) -> ConvertOptions {
    let mut options = ConvertOptions::new(input);
    options.target = target.into();
    options.output = Some(output.to_owned());
    options
}

fn refused(options: &ConvertOptions) -> Error {
    convert(options, &()).expect_err("it cannot be converted")
}

fn floats_to(to: Dtype) -> CastOptions {
    vec![Cast { from: CastFrom::FloatingPoint, to }].into()
}

#[test]
fn a_script_without_tensors_becomes_no_other_format() {
    let out = tempfile::tempdir().expect("a temporary folder");
    let refused = |target: Target| {
        let mut options = options(checked_in("tests/golden/scripts/words.pt"), target, &out.path().join("x"));
        // Code whose tensors change is not kept.
        options.casts = floats_to(Dtype::Float16);
        refused(&options)
    };
    let error = refused(TritonOptions::default().into());
    assert!(matches!(error.detail(), Some(Problem::ScriptToServe { why: None })), "{error:?}");
    let error = refused(SafetensorsOptions::default().into());
    assert!(matches!(error.detail(), Some(open::Problem::NoTensors { .. })), "{error:?}");
}

#[test]
fn an_archive_whose_code_does_not_run_is_refused_for_its_tensors_first() {
    let with_code = |pickle: String| {
        let (code, pickle) = ("class M(Module):\n  __parameters__ = []\n", pickle.as_bytes());
        let records = [
            ("x/data.pkl", pickle),
            ("x/code/__torch__.py", code.as_bytes()),
            ("x/constants.pkl", b"\x80\x02)."),
            ("x/data/0", &[0; 8]),
            ("x/version", b"3\n"),
        ];
        let folder = folder_with(&[("x.pt", &stored_zip(records))]);
        refused(&options(
            folder.path().join("x.pt"),
            CartonOptions::default(),
            &folder.path().join("x.carton"),
        ))
    };
    let error = with_code("}.".to_owned());
    assert!(matches!(error.detail(), Some(Problem::NotScript { .. })), "{error:?}");
    let error = with_code(format!("}}(Vmodel\n}}(Vw\n{TENSOR}uVema\n}}(Vw\n{TENSOR}uu."));
    assert!(matches!(error.detail(), Some(open::Problem::SeveralKeys { .. })), "{error:?}");
}

#[test]
fn triton_needs_the_code_of_a_script() {
    let out = tempfile::tempdir().expect("a temporary folder");
    let script = checked_in("tests/golden/scripts/float16.pt");
    let mut options = options(script, TritonOptions::default(), &out.path().join("models"));
    options.casts = floats_to(Dtype::Float32);
    let error = refused(&options);
    assert!(matches!(error.detail(), Some(Problem::ScriptToServe { why: None })), "{error:?}");
    options.casts = CastOptions::default();
    let weights = ModelOptions::new(ArchitectureChoice::Weights);
    options.target = convert::TritonOptions::default().model(weights).into();
    let error = refused(&options);
    assert!(matches!(error.detail(), Some(Problem::NothingToServe { why: None })), "{error:?}");
}

#[test]
fn a_shard_alone_is_converted_to_weights() {
    let file = float_safetensors(&[("w", &[2])]);
    let folder = folder_with(&[("model-00001-of-00002.safetensors", &file), ("model.safetensors", &file)]);
    let why = |name: &str| {
        let mut options = options(
            folder.path().join(name),
            CartonOptions::default(),
            &folder.path().join(name).with_extension("carton"),
        );
        options.single = true;
        let report = convert(&options, &()).expect("it can be converted");
        report.carton().expect("a carton").why_weights.clone()
    };
    assert_eq!(why("model-00001-of-00002.safetensors"), Some(NoModelReason::OneShard));
    assert_ne!(why("model.safetensors"), Some(NoModelReason::OneShard));
}

#[test]
fn an_architecture_that_does_not_fit_quantized_weights_names_the_method() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = checked_in("crates/model/quantization/tests/models/gptq_4_v1");
    let mut options = options(model, CartonOptions::default(), &folder.path().join("x.carton"));
    options.target = CartonOptions::default()
        .model(ModelOptions::new(ArchitectureChoice::Named("llama".to_owned())))
        .into();
    let error = refused(&options);
    let Some(Problem::QuantizedInput { method, reason }) = error.detail() else { panic!("{error:?}") };
    assert_eq!(method, "gptq");
    assert!(matches!(reason.detail(), Some(Problem::Model { .. })), "{reason:?}");
}

#[test]
fn only_bfloat16_is_computed_without_a_second_cast() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = checked_in("crates/model/quantization/tests/models/fp8_ragged");
    for (to, computed) in [(Dtype::BFloat16, "bfloat16"), (Dtype::Float16, "float32")] {
        let mut options =
            options(&model, SafetensorsOptions::default(), &folder.path().join("x.safetensors"));
        (options.dequantize, options.dry_run, options.casts) = (true, true, floats_to(to));
        let report = convert(&options, &()).expect("it can be converted");
        let dtypes: Vec<_> = report.dequantized.iter().map(|report| report.to).collect();
        assert_eq!(dtypes, [computed], "{to}");
    }
}

#[test]
fn weights_next_to_a_dict_of_averages_are_the_weights() {
    let pickle = format!("}}(Vmodel\n}}(Vw\n{TENSOR}Vema\n}}(Vw\n{TENSOR}uuVstep\n{TENSOR}u.");
    let folder = folder_with(&[("x.pth", &torch_file(pickle.as_bytes()))]);
    let options = options(
        folder.path().join("x.pth"),
        SafetensorsOptions::default(),
        &folder.path().join("x.safetensors"),
    );
    let report = convert(&options, &()).expect("it can be converted");
    // The root has a name of no characters.
    let left_out = vec![(String::new(), 1, 8)];
    let expected = Note::Open(open::Note::UsingKey { key: "model".to_owned(), tensors: 2, left_out });
    assert!(report.notes.contains(&expected), "{:?}", report.notes);
}

#[test]
fn the_change_by_dora_is_known_once_the_weights_were_read() {
    let base = float_safetensors(&[("q.weight", &[3, 2])]);
    let adapter = float_safetensors(&[
        ("base_model.model.q.lora_A.weight", &[1, 2]),
        ("base_model.model.q.lora_B.weight", &[3, 1]),
        ("base_model.model.q.lora_magnitude_vector", &[3]),
    ]);
    let config = br#"{"peft_type":"LORA","r":1,"lora_alpha":2,"use_dora":true}"#;
    let folder = folder_with(&[
        ("base.safetensors", &base),
        ("lora/adapter_model.safetensors", &adapter),
        ("lora/adapter_config.json", config),
    ]);
    let mut options = options(
        folder.path().join("base.safetensors"),
        SafetensorsOptions::default(),
        &folder.path().join("x.safetensors"),
    );
    options.adapters = vec![WeightedPath { path: folder.path().join("lora"), weight: 1.0 }];
    let norms = |options: &ConvertOptions| {
        let report = convert(options, &()).expect("it can be merged");
        report.adapters.iter().flat_map(|it| it.merged.iter().map(|row| row.norm)).collect::<Vec<_>>()
    };
    options.dry_run = true;
    assert_eq!(norms(&options), [None]);
    options.dry_run = false;
    let norms = norms(&options);
    assert!(matches!(norms.as_slice(), [Some(norm)] if *norm > 0.0), "{norms:?}");
}

#[cfg(unix)]
#[test]
fn a_document_that_is_a_link_is_noted_where_documents_would_be_kept() {
    let elsewhere = folder_with(&[("config.json", b"{}")]);
    let folder = folder_with(&[("m/model.safetensors", &float_safetensors(&[("w", &[2])]))]);
    let config = folder.path().join("m/config.json");
    std::os::unix::fs::symlink(elsewhere.path().join("config.json"), config).expect("it can be made");
    let is_noted = |input: &str, target: Target| {
        let mut options = ConvertOptions::new(folder.path().join(input));
        options.target = target;
        let report = convert(&options, &()).expect("it can be converted");
        report
            .notes
            .iter()
            .any(|note| matches!(note, Note::Open(open::Note::Sources(FilesNote::LinkLeftOut { .. }))))
    };
    assert!(is_noted("m/model.safetensors", CartonOptions::default().into()));
    assert!(is_noted("m", TorchOptions::default().into()), "a folder is converted with its documents");
    assert!(!is_noted("m/model.safetensors", TorchOptions::default().into()));
}

#[test]
fn a_dry_run_of_a_batch_leaves_the_records_as_they_are() {
    let folder = folder_with(&[("w.safetensors", &float_safetensors(&[("w", &[2])]))]);
    let mut options =
        options(folder.path().join("w.safetensors"), TorchOptions::default(), &folder.path().join("out"));
    let run = |options: &ConvertOptions| {
        let batch = BatchOptions::from(Resume::SkipComplete);
        let report = convert_each(options, batch, &(), &mut |_| Ok(())).expect("inputs fail on their own");
        (report.converted, report.skipped, report.failed)
    };
    assert_eq!(run(&options), (1, 0, 0));
    let path = folder.path().join("out/.torch2carton.outputs");
    let line = std::fs::read_to_string(&path).expect("it was written");
    let repeated = line.repeat(100);
    std::fs::write(&path, &repeated).expect("it is a file");
    options.dry_run = true;
    assert_eq!(run(&options), (0, 1, 0));
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), repeated);
    options.dry_run = false;
    assert_eq!(run(&options), (0, 1, 0));
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), line);
}

#[test]
fn inputs_of_a_batch_elsewhere_are_opened_when_their_turn_comes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = folder.path().join("out");
    let run = |name: &str| {
        let inputs = ["x/a.pth", "y/a.pth", "gone.pth"].map(|file| PathBuf::from("https://far").join(file));
        let mut options = ConvertOptions::from_inputs(inputs);
        options.output = Some(output.clone());
        let file = torch_file(format!("}}(V{name}\n{TENSOR}u.").as_bytes());
        options.stores = Stores::with_addresses(move |path| {
            if path.ends_with("gone.pth") {
                return Err(byte_source::Error::from(std::io::ErrorKind::NotFound));
            }
            let source: Arc<dyn Source> = Arc::new(BufferSource::new(path, file.clone()));
            Ok(Some(source.into()))
        });
        let mut done = |_| Ok(());
        let report = convert_each(&options, BatchOptions::from(true), &(), &mut done);
        let report = report.expect("inputs fail on their own");
        (report.converted, report.skipped, report.failed)
    };
    assert_eq!(run("v"), (2, 0, 1));
    // Equal names keep the folders of their addresses.
    assert!(output.join("x/a.carton").is_file() && output.join("y/a.carton").is_file());
    assert_eq!(run("v"), (0, 2, 1));
    assert_eq!(run("w"), (2, 0, 1), "the files are others");
}

#[test]
fn a_folder_elsewhere_has_one_pickle_to_trace() {
    let open = |names: &[&str]| {
        let file = torch_file(format!("}}(Vw\n{TENSOR}u.").as_bytes());
        let source = |name: &&str| {
            Arc::new(BufferSource::new(Path::new("far://m").join(name), file.clone())) as Arc<dyn Source>
        };
        let store = names.iter().map(source).collect::<MemoryStore>();
        open_pickles(&Location::new(Arc::new(store), "far://m")).map(|(path, _)| path)
    };
    let path = open(&["pytorch_model.bin"]).expect("one pickle");
    assert_eq!(path, Path::new("far://m/pytorch_model.bin"));
    let shards = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"];
    let error = open(&shards).expect_err("two pickles");
    let expected = PathBuf::from("far://m").join(shards[0]);
    assert!(
        matches!(error.detail(), Some(inspect::Problem::SeveralPickles { first, .. }) if *first == expected),
        "{error:?}"
    );
}

#[test]
fn the_folder_of_a_trainer_has_a_pickle_to_trace() {
    let folder = checked_in("crates/import/open/tests/data/dcp");
    let (path, _) = open_pickles(&folder.clone().into()).expect("it describes the checkpoint");
    assert_eq!(path, folder.join(".metadata"));
}

#[test]
fn a_row_of_a_tree_leads_to_its_first_tensor() {
    let file = float_safetensors(&[("a", &[2]), ("b.x", &[2]), ("b.y", &[3])]);
    let folder = folder_with(&[("x.safetensors", &file)]);
    let mut options = InspectOptions::new(folder.path().join("x.safetensors"));
    options.tree = true;
    let report = inspect(&options, &()).expect("it is a checkpoint");
    let tree = report.tree.expect("it was asked for");
    let rows: Vec<_> = tree.iter().map(|row| (row.name.as_str(), row.first_tensor)).collect();
    assert_eq!(rows, [("a", 0), ("b", 1), ("x", 1), ("y", 2)]);
}

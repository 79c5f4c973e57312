//! Whether `verify` compares the code of a model, not only its tensors.
//!
//! Facts: `torch.jit.load` runs `__setstate__`, finds a record below `CODE/` as one below `code/`, and reads the attributes
//! of modules from `data.pkl`; tried with PyTorch 2.0.1 and 2.15.

use std::path::{Path, PathBuf};

use carton_tools::{
    CodeStatus, IfExists, PackOptions, UnpackOptions, VerifyOptions, VerifyReport, pack, unpack,
};
use convert::{ArchitectureChoice, CartonOptions, ConvertOptions, ModelOptions, TorchOptions, convert};
use open::{Cast, CastFrom};
use tempfile::TempDir;
use tensor::Dtype;

use crate::verify;

const CODE: &str = "model/code/__torch__/torch2carton.py";
const SET_STATE: &str = "  def __setstate__(self, state: Tensor) -> NoneType:\n    return None\n";

/// A folder with a small model, and the carton that is made from it.
fn converted(architecture: ArchitectureChoice, keep_extra: bool) -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let checkpoint = test_support::tiny_llama::write(folder.path()).expect("it can be written");
    let mut options = ConvertOptions::new(&checkpoint);
    options.output = Some(folder.path().join("m.carton"));
    let mut model = ModelOptions::new(architecture);
    model.keep_extra = keep_extra;
    options.target = CartonOptions::default().model(model).into();
    let carton = convert(&options, &()).expect("it can be converted").output;
    (folder, checkpoint, carton.into())
}

fn against(carton: &Path, checkpoint: &Path) -> VerifyReport {
    let mut options = VerifyOptions::new(carton);
    options.against = vec![checkpoint.into()];
    verify(&options, &()).expect("a carton")
}

/// Replaces the records of the model in `carton`, and packs it again, so that all hashes match.
fn change(carton: &Path, change: impl Fn(&str, &[u8]) -> Vec<(String, Vec<u8>)>) {
    let folder = PathBuf::from(unpack(&UnpackOptions::new(carton), &()).expect("a carton").output);
    let model = folder.join("model/model.pt");
    let file = byte_source::MappedFile::open(&model).expect("it was written");
    let index = zip_format::ZipIndex::read(&file).expect("a zip file");
    let records = index.entries.iter().flat_map(|entry| change(&entry.name, entry.stored(file.bytes())));
    std::fs::write(&model, test_support::stored_zip(records)).expect("a temporary folder");
    let mut options = PackOptions::new(&folder);
    // A test may have written the carton back as it was.
    options.if_exists = IfExists::Replace;
    pack(&options, &()).expect("it can be packed");
    std::fs::remove_dir_all(&folder).expect("a temporary folder");
}

/// Appends `text` to the record `name`.
fn appended<'a>(name: &'a str, text: &'a str) -> impl Fn(&str, &[u8]) -> Vec<(String, Vec<u8>)> + 'a {
    move |found, bytes| {
        let more = if found == name { text } else { "" };
        vec![(found.to_owned(), [bytes, more.as_bytes()].concat())]
    }
}

#[test]
fn the_code_of_a_conversion_is_equal() {
    for (architecture, keep_extra) in [
        (ArchitectureChoice::Auto, false),
        (ArchitectureChoice::Auto, true),
        (ArchitectureChoice::Weights, false),
    ] {
        let (_folder, checkpoint, carton) = converted(architecture, keep_extra);
        let report = against(&carton, &checkpoint);
        assert!(report.ok, "{:?}", report.findings);
        let notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
        assert_eq!(report.code, Some(CodeStatus::Equal), "{notes:?}");
        assert!(!notes.iter().any(|note| note.contains("stored values")), "{notes:?}");
        change(&carton, |name, bytes| vec![(name.to_owned(), bytes.to_vec())]);
        assert_eq!(against(&carton, &checkpoint).code, Some(CodeStatus::Equal));
    }
}

#[test]
fn other_code_is_a_note_that_names_the_record() {
    for architecture in [ArchitectureChoice::Auto, ArchitectureChoice::Weights] {
        let (_folder, checkpoint, carton) = converted(architecture, false);
        let original = std::fs::read(&carton).expect("it was written");
        for (record, text) in [
            ("code/__torch__/torch2carton.py", "\ndef f(x: int) -> int:\n  return 1\n"),
            // What follows the pickle is not read.
            ("data.pkl", "."),
            ("constants.pkl", "."),
            ("version", " "),
        ] {
            std::fs::write(&carton, &original).expect("a temporary folder");
            change(&carton, appended(&format!("model/{record}"), text));
            let report = against(&carton, &checkpoint);
            // A carton of another version is not damaged.
            assert!(report.ok, "{:?}", report.findings);
            assert_eq!(report.code, Some(CodeStatus::Other), "{record}");
            let note = report.notes.last().map(ToString::to_string).unwrap_or_default();
            assert!(
                note.starts_with("only the stored values") && note.contains(&format!("`{record}`")),
                "{note}"
            );
        }
    }
}

#[test]
fn only_code_of_a_conversion_may_run_when_the_model_is_loaded() {
    let (folder, checkpoint, _) = converted(ArchitectureChoice::Auto, false);
    let mut options = ConvertOptions::new(&checkpoint);
    options.output = Some(folder.path().join("half.pth"));
    options.target = TorchOptions::default().into();
    options.casts = vec![Cast { from: CastFrom::FloatingPoint, to: Dtype::Float16 }].into();
    let half = PathBuf::from(convert(&options, &()).expect("it can be cast").output);
    let carton =
        PathBuf::from(convert(&ConvertOptions::new(&half), &()).expect("it can be converted").output);
    assert_eq!(against(&carton, &half).code, Some(CodeStatus::Equal));
    change(&carton, appended(CODE, "\n"));
    assert_eq!(against(&carton, &half).code, Some(CodeStatus::RunsWhenLoaded));
}

#[test]
fn a_record_that_no_conversion_writes_is_other_code() {
    let (_folder, checkpoint, carton) = converted(ArchitectureChoice::Weights, false);
    change(&carton, |name, bytes| {
        let more = (name == CODE).then(|| ("model/extra/a.txt".to_owned(), b"text".to_vec()));
        [(name.to_owned(), bytes.to_vec())].into_iter().chain(more).collect()
    });
    let report = against(&carton, &checkpoint);
    assert_eq!((report.ok, report.code), (true, Some(CodeStatus::Other)));
    let note = report.notes.last().map(ToString::to_string).unwrap_or_default();
    assert!(note.contains("`extra/a.txt`"), "{note}");
}

#[test]
fn code_that_runs_when_the_model_is_loaded_is_a_finding() {
    let (_folder, checkpoint, carton) = converted(ArchitectureChoice::Weights, false);
    let original = std::fs::read(&carton).expect("it was written");
    let finding = |report: VerifyReport| {
        assert_eq!((report.ok, report.code), (false, Some(CodeStatus::RunsWhenLoaded)));
        report.findings.into_iter().map(|finding| finding.what).collect::<Vec<_>>().join("; ")
    };
    change(&carton, appended(CODE, SET_STATE));
    let text = finding(against(&carton, &checkpoint));
    assert!(text.starts_with("the code has a `__setstate__`, which runs when the model is loaded"), "{text}");
    // In another record, which PyTorch finds under this name, too.
    std::fs::write(&carton, &original).expect("a temporary folder");
    change(&carton, |name, bytes| {
        let more = (name == CODE).then(|| ("model/CODE/__torch__/M.PY".to_owned(), SET_STATE.into()));
        [(name.to_owned(), bytes.to_vec())].into_iter().chain(more).collect()
    });
    finding(against(&carton, &checkpoint));
}

#[test]
fn without_a_comparison_nothing_is_said_about_code() {
    let (_folder, _, carton) = converted(ArchitectureChoice::Weights, false);
    let report = verify(&VerifyOptions::new(&carton), &()).expect("a carton");
    assert_eq!((report.ok, report.code), (true, None));
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

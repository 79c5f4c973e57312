//! Options as callers of the library set them, and reports as they read them.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use convert::{
    ArchitectureChoice, BatchItem, BatchOptions, CartonFields, CartonOptions, ConvertOptions, InputContent,
    InvalidOption, ModelOptions, Note, OnInvalidInput, RequiredTorch, Resume, ScriptOptions, Target,
    TorchOptions, TritonOptions, convert, convert_each, expected_output, inputs_digest,
};
use inspect::{FileScan, ScanOptions, ScanOutcome, scan};
use output::IfExists;
use test_support::safetensors;

/// A safetensors file with one tensor of 2 bytes.
fn one_tensor(dtype: &str, bytes: [u8; 2]) -> Vec<u8> {
    let len = match dtype {
        "U16" => 1,
        _ => 2,
    };
    safetensors([("w", dtype, [len], bytes)])
}

fn folder_with(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("it can be written");
    (folder, path)
}

#[test]
fn each_option_of_a_carton_leaves_the_others_as_they_are() {
    let model = || ModelOptions::new(ArchitectureChoice::Weights).keep_extra();
    let script = || {
        let mut script = ScriptOptions::default();
        script.output_names.push("y".to_owned());
        script
    };
    let fields = || CartonFields::default().name("n").description("d").license("MIT").homepage("h");
    let one = CartonOptions::default().fields(fields()).config("c").misc("m").without_values().self_test();
    let one = one.torch(RequiredTorch::Newest).model(model()).require_model();
    let one = one.errors(OnInvalidInput::Raise).script(script());
    let other = CartonOptions::default().script(script()).errors(OnInvalidInput::Raise).require_model();
    let other = other.model(model()).torch(RequiredTorch::Newest).self_test().without_values();
    let other = other
        .misc("m")
        .config("c")
        .fields(CartonFields::default().homepage("h").license("MIT").description("d").name("n"));
    assert_eq!(one, other);
    let CartonOptions { no_values, self_test, torch, require_model, errors, .. } = one;
    assert_eq!((no_values, self_test, torch), (true, true, RequiredTorch::Newest));
    assert_eq!((require_model, errors), (true, OnInvalidInput::Raise));
    assert_eq!((one.model.clone(), one.script.clone()), (model(), script()));
    assert_eq!(
        (one.config.as_deref(), one.misc.as_slice()),
        (Some(Path::new("c")), &[PathBuf::from("m")][..])
    );
    let texts = [&one.fields.name, &one.fields.description, &one.fields.license, &one.fields.homepage];
    assert_eq!(texts.map(|text| text.as_deref()), [Some("n"), Some("d"), Some("MIT"), Some("h")]);
    assert_eq!(Target::from(one.clone()).options(), Some(&one));
}

#[test]
fn a_batch_expects_each_output_where_it_is_written() {
    let input = Path::new("llama-7b/model.pth");
    let mut options = ConvertOptions::new(input);
    let folder = Path::new("out");
    assert_eq!(expected_output(input, &options, None), Path::new("llama-7b/model.carton"));
    assert_eq!(expected_output(input, &options, Some(folder)), Path::new("out/model.carton"));
    options.output = Some("x.carton".into());
    assert_eq!(expected_output(input, &options, Some(folder)), Path::new("x.carton"));
    // A repository has a folder for each model.
    options.target = TritonOptions::default().into();
    assert_eq!(expected_output(input, &options, None), Path::new("x.carton/llama-7b"));
    assert_eq!(expected_output(input, &options, Some(folder)), Path::new("out/llama-7b"));
    options.output = None;
    assert_eq!(expected_output(input, &options, None), Path::new("llama-7b/llama-7b"));
    options.target = TritonOptions::default().name("m").into();
    assert_eq!(expected_output(input, &options, Some(folder)), Path::new("out/m"));
}

#[test]
fn an_empty_name_of_a_model_is_refused() {
    let (folder, path) = folder_with("w.safetensors", &one_tensor("I8", [1, 2]));
    let mut options = ConvertOptions::new(path);
    options.output = Some(folder.path().join("w.carton"));
    options.target = CartonOptions::default().fields(CartonFields::default().name("")).into();
    let error = convert(&options, &()).expect_err("a carton needs a name");
    assert_eq!(error.to_string(), InvalidOption::EmptyName.to_string());
    assert!(!folder.path().join("w.carton").exists());
}

#[test]
fn a_carton_with_the_extension_of_another_format_is_noted() {
    let (folder, path) = folder_with("w.safetensors", &one_tensor("I8", [1, 2]));
    let is_noted = |name: &str, target: Target| {
        let mut options = ConvertOptions::new(&path);
        options.output = Some(folder.path().join(name));
        options.target = target;
        let report = convert(&options, &()).expect("it can be converted");
        report.notes.contains(&Note::CartonByDefault { output: name.to_owned() })
    };
    let assumed = |name: &str| Target::from_path(Path::new(name)).expect("a carton by default");
    assert!(is_noted("x.weights", assumed("x.weights")));
    assert!(!is_noted("llama-3.1", assumed("llama-3.1")), "a number is not an extension");
    assert!(!is_noted("y.weights", CartonOptions::default().into()), "the caller asked for a carton");
}

#[test]
fn a_dtype_that_older_versions_of_pytorch_lack_is_noted() {
    let notes = |dtype: &str| {
        let (folder, path) = folder_with("w.safetensors", &one_tensor(dtype, [1, 2]));
        let mut options = ConvertOptions::new(path);
        options.output = Some(folder.path().join("w.pth"));
        options.target = TorchOptions::default().into();
        convert(&options, &()).expect("it can be converted").notes
    };
    let newer = Note::NewerTorch { tensors: vec![("w".to_owned(), "uint16".to_owned())], count: 1 };
    assert_eq!(notes("U16"), [newer]);
    assert_eq!(notes("I8"), []);
}

#[test]
fn a_torch_output_of_an_earlier_batch_is_skipped_if_it_is_whole() {
    let (folder, path) = folder_with("w.safetensors", &one_tensor("I8", [1, 2]));
    let output = folder.path().join("out/w.pth");
    let mut options = ConvertOptions::new(path);
    options.output = Some(folder.path().join("out"));
    options.target = TorchOptions::default().into();
    options.if_exists = IfExists::Replace;
    let batch = BatchOptions::from(Resume::SkipComplete).jobs(NonZeroUsize::MIN);
    let counts = || {
        let mut done = |item: BatchItem| {
            assert!(!matches!(item, BatchItem::Failed { .. }), "{item:?}");
            Ok(())
        };
        let report = convert_each(&options, batch, &(), &mut done).expect("it can be converted");
        assert_eq!(report.schema_version, 1);
        (report.converted, report.skipped)
    };
    assert_eq!(counts(), (1, 0));
    assert_eq!(counts(), (0, 1));
    let whole = std::fs::read(&output).expect("it was written");
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    std::fs::write(&output, changed).expect("it is ours");
    assert_eq!(counts(), (1, 0));
    assert_eq!(std::fs::read(&output).expect("it was written again"), whole);
}

#[test]
fn a_digest_of_an_archive_relies_on_checksums_only_if_there_are_some() {
    let checkpoints = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/checkpoints");
    let changes_with_a_weight = |name: &str| {
        let mut bytes = std::fs::read(checkpoints.join(name)).expect("it is checked in");
        let file = byte_source::BufferSource::new(name, bytes.clone());
        let index = zip_format::ZipIndex::read(&file).expect("a zip file");
        let weight = index.entries.iter().find(|entry| entry.name.ends_with("data/0")).expect("it has one");
        let at = usize::try_from(weight.data.start).expect("small");
        let digest = |bytes: &[u8]| {
            let (_folder, path) = folder_with("x.pth", bytes);
            inputs_digest("test", &[path.into()], InputContent::Tensors).expect("it exists")
        };
        let before = digest(&bytes);
        bytes[at] ^= 1;
        digest(&bytes) != before
    };
    assert!(changes_with_a_weight("crc_zero.pth"));
    assert!(!changes_with_a_weight("plain.pth"), "the checksum of the record tells");
}

#[cfg(unix)]
#[test]
fn what_a_folder_without_checkpoints_has_is_counted() {
    let (elsewhere, root) = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder")).into();
    let mut reasons = Vec::new();
    for name in ["a", "b"] {
        std::os::unix::fs::symlink(elsewhere.path(), root.path().join(name)).expect("it can be made");
        let options = ScanOptions::new(vec![root.path().to_owned()]);
        let mut take = |file: &FileScan| {
            if let ScanOutcome::NotScanned { reason } = &file.outcome
                && file.file == root.path()
            {
                reasons.push(reason.clone());
            }
            Ok(())
        };
        scan(&options, &(), &mut take).expect("it can be listed");
    }
    let only = "there is no checkpoint and no pickle in the folder, only";
    assert_eq!(reasons, [format!("{only} 1 link to a folder"), format!("{only} 2 links to folders")]);
}

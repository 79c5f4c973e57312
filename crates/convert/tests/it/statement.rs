//! Statements of conversions: the same bytes wherever a conversion runs, and a repeated conversion that finds every change.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use byte_source::Location;
use convert::{
    BatchItem, BatchOptions, ConvertOptions, Problem, Resume, SafetensorsOptions, StatementOptions,
    StatementReport, convert, convert_each, verify_statement,
};
use serde_json::{Value as Json, json};
use test_support::safetensors;

/// Writes a checkpoint of two tensors, whose numbers begin with `first`.
fn write_checkpoint(path: &Path, first: u8) {
    let bytes = |count: u8| {
        (0..count).flat_map(|n| f32::from(first.wrapping_add(n)).to_le_bytes()).collect::<Vec<_>>()
    };
    let tensors = [("a", "F32", &[2_usize, 4][..], bytes(8)), ("b", "F32", &[4][..], bytes(4))];
    write(path, &safetensors(tensors));
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a temporary folder");
    fs::write(path, bytes).expect("a temporary folder");
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A folder with a model, one to add to it, and two outputs with their statements.
struct Made {
    root: tempfile::TempDir,
}

impl Made {
    fn new() -> Self {
        let made = Self { root: tempfile::tempdir().expect("a temporary folder") };
        write_checkpoint(&made.at("model/model.safetensors"), 1);
        write(&made.at("model/config.json"), b"{\"architectures\": [\"X\"]}");
        write(&made.at("model/LICENSE"), b"MIT");
        write_checkpoint(&made.at("tuned/tuned.safetensors"), 9);
        let mut options = ConvertOptions::new(made.at("model"));
        options.target = SafetensorsOptions::default().max_shard_size(20).into();
        options.output = Some(made.at("out"));
        options.sum.add = vec!["tuned=0.5".parse().expect("a weight")];
        options.stores.insert("tuned", made.at("tuned").into());
        options.statement = Some(made.at("out.json"));
        assert_eq!(
            convert(&options, &()).expect("it fits").statement,
            Some(made.at("out.json").display().to_string())
        );
        let mut options = ConvertOptions::new(made.at("model/model.safetensors"));
        options.output = Some(made.at("x.carton"));
        options.statement = Some(made.at("x.json"));
        convert(&options, &()).expect("it fits");
        made
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn verify(&self, statement: &str, output: &str) -> byte_source::Result<StatementReport> {
        let mut options = StatementOptions::new(self.at(statement), self.at("model"), self.at(output));
        options.inputs.push(Location::from(&self.at("tuned")));
        verify_statement(&options, &())
    }

    /// The files and texts of the findings on the folder.
    fn findings(&self) -> Vec<(String, Option<u64>, String)> {
        let report = self.verify("out.json", "out").expect("it can be judged");
        assert_eq!(report.ok, report.findings.is_empty());
        report.findings.into_iter().map(|it| (it.file, it.offset, it.what)).collect()
    }

    fn statement(&self) -> Json {
        serde_json::from_slice(&read(&self.at("out.json"))).expect("it is JSON")
    }

    fn change_statement(&self, change: impl FnOnce(&mut Json)) {
        let mut statement = self.statement();
        change(&mut statement);
        write(&self.at("out.json"), statement.to_string().as_bytes());
    }
}

#[test]
fn two_runs_in_two_folders_write_the_same() {
    let [one, two] = [1, 8].map(|threads| {
        byte_source::set_core_share(NonZeroUsize::new(threads).expect("not zero"));
        Made::new()
    });
    for file in ["out.json", "out/model-00001-of-00002.safetensors", "x.carton"] {
        assert!(read(&one.at(file)) == read(&two.at(file)), "{file}");
    }
    let text = String::from_utf8(read(&one.at("out.json"))).expect("it is text");
    assert!(!text.contains(one.root.path().to_str().expect("UTF-8")), "{text}");
    let statement = one.statement();
    let names =
        |list: &Json| list.as_array().expect("a list").iter().map(|it| it["name"].clone()).collect::<Json>();
    assert_eq!(
        names(&statement["subject"]),
        json!([
            "LICENSE",
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json"
        ])
    );
    let definition = &statement["predicate"]["buildDefinition"];
    assert_eq!(
        names(&definition["resolvedDependencies"]),
        json!(["@add-1/tuned.safetensors", "LICENSE", "config.json", "model.safetensors", "."])
    );
    assert_eq!(
        definition["externalParameters"],
        json!({ "inputs": ["."], "output": ".", "to": "safetensors", "add": [{ "path": "@add-1", "weight": 0.5 }],
            "max_shard_size": 20 })
    );
}

#[test]
fn inputs_are_found_under_any_names() {
    let made = Made::new();
    for (from, to) in [
        ("model/model.safetensors", "model/below/weights"),
        ("model/config.json", "model/c"),
        ("model/LICENSE", "tuned/d"),
        ("tuned/tuned.safetensors", "model/e.bin"),
        ("out", "moved"),
        ("x.carton", "y.carton"),
    ] {
        write(&made.at("model/below/x"), b"another file");
        fs::rename(made.at(from), made.at(to)).expect("both are ours");
    }
    let before = read(&made.at("model/below/weights"));
    for (statement, output, files) in [("out.json", "moved", 5), ("x.json", "y.carton", 1)] {
        let report = made.verify(statement, output).expect("it can be judged");
        assert!(report.ok && report.files == files, "{report:?}");
    }
    assert!(before == read(&made.at("model/below/weights")));
}

#[test]
fn names_and_links_are_those_of_the_input() {
    let made = Made::new();
    let model = read(&made.at("model/model.safetensors"));
    for (input, name) in [("@x.safetensors", "./@x.safetensors"), ("@/x.safetensors", "x.safetensors")] {
        write(&made.at(input), &model);
        let mut options = ConvertOptions::new(made.at(input));
        (options.output, options.statement) = (Some(made.at("y.pth")), Some(made.at("out.json")));
        options.if_exists = output::IfExists::Replace;
        convert(&options, &()).expect("it fits");
        let definition = &made.statement()["predicate"]["buildDefinition"];
        assert_eq!(definition["externalParameters"]["inputs"], json!([name]));
        assert!(made.verify("out.json", "y.pth").expect("it can be judged").ok, "{input}");
    }
    #[cfg(unix)]
    {
        for name in ["model.safetensors", "config.json", "LICENSE"] {
            fs::create_dir_all(made.at("links")).expect("a temporary folder");
            let target = format!("../model/{name}");
            std::os::unix::fs::symlink(target, made.at("links").join(name)).expect("a temporary folder");
        }
        let mut options = ConvertOptions::new(made.at("links"));
        options.target = SafetensorsOptions::default().into();
        (options.output, options.statement) = (Some(made.at("linked")), Some(made.at("out.json")));
        options.if_exists = output::IfExists::Replace;
        convert(&options, &()).expect("it fits");
        assert!(!made.at("linked/config.json").exists(), "a link out of the folder");
        let definition = &made.statement()["predicate"]["buildDefinition"];
        assert_eq!(definition["internalParameters"], json!({ "left_out": ["config.json"] }));
        let report = made.verify("out.json", "linked").expect("it can be judged");
        assert!(report.ok, "{report:?}");
    }
}

#[test]
fn every_change_of_the_output_is_found() {
    let shard = "out/model-00001-of-00002.safetensors";
    let finding = |file: &str, offset, what: &str| {
        (file.trim_start_matches("out/").to_owned(), offset, what.to_owned())
    };
    let made = Made::new();
    assert_eq!(made.findings(), []);
    let whole = read(&made.at(shard));
    let last = whole.len().checked_sub(1).expect("it has bytes");
    let mut other = whole.clone();
    *other.last_mut().expect("it has bytes") ^= 1;
    write(&made.at(shard), &other);
    assert_eq!(made.findings(), [finding(shard, Some(last as u64), "differs")]);
    // The digest in the statement is changed with the file.
    let hash = |bytes: &[u8]| byte_source::hex(&byte_source::Sha256::of(bytes));
    let unchanged = read(&made.at("out.json"));
    made.change_statement(|statement| statement["subject"][2]["digest"]["sha256"] = hash(&other).into());
    assert_eq!(made.findings(), [finding(shard, Some(last as u64), "differs")]);
    write(&made.at(shard), &whole);
    assert_eq!(made.findings().len(), 1, "the statement alone is changed");
    write(&made.at("out.json"), &unchanged);
    write(&made.at(shard), whole.get(..last).expect("it has bytes"));
    assert_eq!(made.findings(), [finding(shard, Some(last as u64), "ends too early")]);
    write(&made.at(shard), &[&whole[..], b"x"].concat());
    assert_eq!(made.findings(), [finding(shard, Some(whole.len() as u64), "is too long")]);
    fs::remove_file(made.at(shard)).expect("it is there");
    assert_eq!(made.findings(), [finding(shard, None, "is missing")]);
    write(&made.at("out/renamed.safetensors"), &whole);
    let missing = finding(shard, None, "is missing");
    assert_eq!(made.findings(), [missing, finding("renamed.safetensors", None, "is not part of the output")]);
    fs::remove_file(made.at("out/renamed.safetensors")).expect("it is there");
    // Two files are swapped.
    let second = "out/model-00002-of-00002.safetensors";
    write(&made.at(shard), &read(&made.at(second)));
    write(&made.at(second), &whole);
    assert_eq!(made.findings().len(), 2);
}

/// What no program of this kind writes is found, too, without an end in folders that lead to themselves.
#[cfg(target_os = "linux")]
#[test]
fn links_and_special_files_are_not_part_of_an_output() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    let made = Made::new();
    symlink("nowhere", made.at("out/dangling")).expect("a link");
    symlink(".", made.at("out/loop")).expect("a link");
    symlink("..", made.at("out/up")).expect("a link");
    fs::write(made.at("out").join(OsStr::from_bytes(b"\xff.py")), b"").expect("a temporary folder");
    let status = std::process::Command::new("mkfifo").arg(made.at("out/pipe")).status();
    assert!(status.expect("each Linux has it").success());
    let names = ["dangling", "loop", "pipe", "up", "\u{fffd}.py"];
    assert_eq!(
        made.findings(),
        names.map(|name| (name.to_owned(), None, "is not part of the output".to_owned()))
    );
}

#[test]
fn every_change_of_a_statement_is_found() {
    type Tampering = (&'static str, fn(&mut Json));
    let definition = "/predicate/buildDefinition";
    let changes: [Tampering; 8] = [
        ("/subject/0/name", |json| *json = "LICENCE".into()),
        ("/subject", |json| drop(json.as_array_mut().expect("a list").pop())),
        ("/subject", |json| {
            json.as_array_mut().expect("a list").push(json!({ "name": "x", "digest": { "sha256": "" } }));
        }),
        ("/predicate/buildDefinition/resolvedDependencies", |json| {
            drop(json.as_array_mut().expect("a list").remove(2));
        }),
        ("/predicate/buildDefinition/resolvedDependencies", |json| {
            drop(json.as_array_mut().expect("a list").remove(3));
        }),
        ("/predicate/buildDefinition/resolvedDependencies/4/digest/torch2carton_digest", |json| {
            *json = "00".into();
        }),
        ("/predicate/buildDefinition/externalParameters/add/0/weight", |json| *json = 0.25.into()),
        ("/predicate/buildDefinition/externalParameters", |json| json["dtype"] = "float16".into()),
    ];
    for (number, (place, change)) in changes.into_iter().enumerate() {
        let made = Made::new();
        made.change_statement(|statement| {
            change(statement.pointer_mut(place).unwrap_or_else(|| panic!("{place}")));
        });
        assert!(!made.findings().is_empty(), "{number}: {place}");
    }
    let made = Made::new();
    made.change_statement(|json| json.pointer_mut(definition).expect("it is there")["x"] = 1.into());
    assert!(made.verify("out.json", "out").is_err(), "an unknown member");
}

#[test]
fn an_input_that_changed_is_a_finding_and_a_missing_one_an_error() {
    let made = Made::new();
    write(&made.at("model/config.json"), b"{}");
    assert_eq!(made.findings(), [("config.json".to_owned(), None, "the input changed".to_owned())]);
    fs::remove_file(made.at("model/config.json")).expect("it is there");
    let error = made.verify("out.json", "out").expect_err("it is missing");
    assert!(
        matches!(error.detail(), Some(Problem::StatementInput { name, .. }) if name == "config.json"),
        "{error}"
    );
}

#[test]
fn what_is_no_statement_of_this_version_is_an_error() {
    let made = Made::new();
    let text = made.statement().to_string();
    made.change_statement(|json| {
        json["predicate"]["runDetails"]["builder"]["version"] = json!({ "torch2carton": "0.0.9" });
    });
    let error = made.verify("out.json", "out").expect_err("another version");
    assert!(
        matches!(error.detail(), Some(Problem::StatementVersion { version }) if version == "0.0.9"),
        "{error}"
    );
    let mut options = StatementOptions::new(made.at("out.json"), made.root.path(), made.at("out"));
    options.any_version = true;
    assert!(verify_statement(&options, &()).expect("it is tried").ok);
    for text in
        ["", "{}", "[1]", r#"{"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://x"}"#]
    {
        write(&made.at("out.json"), text.as_bytes());
        assert!(made.verify("out.json", "out").is_err(), "{text}");
    }
    // Which of two members of one name counts is not the same in all readers.
    let twice = text.replace("\"max_shard_size\"", "\"max_shard_size\": 21, \"max_shard_size\"");
    let unknown = text.replace("max_shard_size", "max_shard");
    for text in [twice, unknown] {
        write(&made.at("out.json"), text.as_bytes());
        let error = made.verify("out.json", "out").expect_err("it cannot be read");
        assert!(matches!(error.detail(), Some(Problem::Statement { .. })), "{error}");
    }
    fs::remove_file(made.at("out.json")).expect("it is there");
    assert!(made.verify("out.json", "out").is_err());
}

#[test]
fn a_failed_conversion_leaves_no_statement() {
    let made = Made::new();
    let mut options = ConvertOptions::new(made.at("model/model.safetensors"));
    (options.output, options.statement) = (Some(made.at("y.pth")), Some(made.at("y.json")));
    options.selection.include = vec!["none".to_owned()];
    assert!(convert(&options, &()).is_err() && !made.at("y.json").exists());
    options.selection.include.clear();
    options.dry_run = true;
    assert!(convert(&options, &()).is_ok() && !made.at("y.json").exists());
    options.dry_run = false;
    write(&made.at("y.json"), b"mine");
    assert!(convert(&options, &()).is_err() && !made.at("y.pth").exists());
    assert_eq!(read(&made.at("y.json")), b"mine");
}

#[test]
fn each_output_of_a_batch_has_a_statement() {
    let made = Made::new();
    write_checkpoint(&made.at("many/a.safetensors"), 3);
    write_checkpoint(&made.at("many/b.safetensors"), 4);
    let mut options = ConvertOptions::new(made.at("many/a.safetensors"));
    options.inputs.push(Location::from(&made.at("many/b.safetensors")));
    options.target = convert::TorchOptions::default().into();
    (options.output, options.statement) = (Some(made.at("each")), Some(made.at("statements")));
    let run = || {
        let mut skipped = 0;
        let resume = BatchOptions::from(Resume::SkipComplete);
        let report = convert_each(&options, resume, &(), &mut |item| {
            skipped += usize::from(matches!(item, BatchItem::Skipped { .. }));
            Ok(())
        });
        assert_eq!(report.expect("a folder").failed, 0);
        skipped
    };
    assert_eq!(run(), 0);
    for name in ["a.pth", "b.pth"] {
        let statement = format!("statements/{name}.intoto.json");
        let options = StatementOptions::new(made.at(&statement), made.at("many"), made.at("each").join(name));
        assert!(verify_statement(&options, &()).expect("it can be judged").ok, "{name}");
    }
    fs::remove_file(made.at("statements/a.pth.intoto.json")).expect("it is there");
    assert_eq!(run(), 1, "an output without its statement is made again");
    assert!(made.at("statements/a.pth.intoto.json").exists());
}

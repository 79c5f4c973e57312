//! Models for NVIDIA Triton. tests/conformance has Triton's own types read the configuration, and PyTorch run the module.

use std::path::Path;

use serde_json::json;

use crate::carton_tools::{names, ok, refused, run, scratch, write};
use crate::cli::json as report;
use crate::made::{dict, tensor, write_pth};
use crate::program::folder;

/// A copy of the small LLaMA.
pub(crate) fn llama(root: &Path) {
    let from = folder().join("checkpoints/llama_tiny");
    for name in ["consolidated.00.pth", "params.json"] {
        write(root.join("llama").join(name), std::fs::read(from.join(name)).expect("it is checked in"));
    }
}

/// The archive, in whose code, which is stored, a word is another one.
fn other_code(archive: &[u8]) -> Vec<u8> {
    let word = b"torch.silu";
    let at = archive.windows(word.len()).position(|found| found == word).expect("it is in the code");
    let (before, rest) = archive.split_at(at);
    let after = rest.strip_prefix(word).expect("it is there");
    [before, b"torch.relu", after].concat()
}

#[test]
fn a_model_gets_a_folder_in_the_repository() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    let planned = report(root, &["llama", "--to", "triton", "-o", "models", "--json", "--dry-run"]);
    assert!(!root.join("models").exists());
    let text = ok(root, &["llama", "--to", "triton", "-o", "models"]);
    let stable: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("size ")).collect();
    insta::assert_snapshot!(stable.join("\n"));
    assert_eq!(names(&root.join("models/llama")), ["1", "config.pbtxt"]);
    assert_eq!(names(&root.join("models/llama/1")), ["model.pt"]);
    let config = std::fs::read_to_string(root.join("models/llama/config.pbtxt")).expect("it was written");
    insta::assert_snapshot!("config", config);
    let len =
        |name: &str| std::fs::metadata(root.join("models/llama").join(name)).expect("it was written").len();
    assert_eq!(
        (&planned["nbytes"], &planned["written"]),
        (&json!(len("1/model.pt").saturating_add(len("config.pbtxt"))), &json!(false))
    );
    for (member, value) in [
        ("to", json!("triton")),
        ("model", json!("llama")),
        ("module", json!("llama")),
        ("files", json!(["llama/config.pbtxt", "llama/1/model.pt"])),
    ] {
        assert_eq!(planned[member], value, "{member}");
    }
    // Without -o, the repository is next to the input.
    ok(root, &["llama", "--to", "triton", "--name", "other", "-q"]);
    assert_eq!(names(&root.join("llama-triton")), ["other"]);
}

#[test]
fn each_model_gets_a_folder_in_one_repository() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    std::fs::rename(root.join("llama"), root.join("a")).expect("it was written");
    llama(root);
    let each = ["--each", "a", "llama", "--to", "triton", "-o", "models", "-q"];
    ok(root, &each);
    assert_eq!(names(&root.join("models")), [".torch2carton.outputs", "a", "llama"]);
    let model = std::fs::read(root.join("models/a/1/model.pt")).expect("it was written");
    std::fs::remove_file(root.join("models/llama/1/model.pt")).expect("it was written");
    let resumed = [&each[..], &["--resume", "--json"]].concat();
    let text = run(root, &resumed).1;
    let skipped = text.lines().filter(|line| line.contains(r#""output":"models/a","skipped":true"#)).count();
    assert_eq!((skipped, text.lines().count()), (1, 2), "{text}");
    assert_eq!(std::fs::read(root.join("models/llama/1/model.pt")).expect("it was written"), model);
    insta::assert_snapshot!(
        run(root, &["--each", "-q", "a", "llama/../a", "--to", "triton", "-o", "models"]).1
    );
}

#[test]
fn a_model_that_is_in_a_carton_becomes_the_same_model() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    let model = || std::fs::read(root.join("models/m/1/model.pt")).expect("it was written");
    let written = |input: &str, more: &[&str]| {
        ok(root, &[&[input, "--to", "triton", "-o", "models", "--name", "m", "-q"], more].concat());
        model()
    };
    let expected = written("llama", &[]);
    let single = written("llama", &["--dtype", "float64"]);
    ok(root, &["llama", "-q", "-o", "x.carton"]);
    ok(root, &["unpack", "x.carton", "-o", "unpacked", "-q"]);
    ok(root, &["pack", "unpacked", "--compression", "zstd", "-o", "packed.carton", "-q"]);
    std::fs::copy(root.join("x.carton"), root.join("named.zip")).expect("a temporary folder");
    // Documents next to a carton are not its own.
    write(root.join("params.json"), "{}");
    for input in ["x.carton", "unpacked", "packed.carton", "named.zip"] {
        assert_eq!(written(input, &[]), expected, "{input}");
        assert_eq!(written(input, &["--dtype", "float64"]), single, "{input}");
    }
    let each = ["--each", "x.carton", "unpacked", "--to", "triton", "-o", "all", "-q"];
    ok(root, &each);
    assert_eq!(names(&root.join("all")), [".torch2carton.outputs", "unpacked", "x"]);
    // Without -o, the repository is next to the carton.
    ok(root, &["x.carton", "--to", "triton", "-q"]);
    assert_eq!(names(&root.join("x-triton")), ["x"]);
}

#[test]
fn the_archive_of_a_carton_becomes_the_same_model() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    ok(root, &["llama", "-q", "-o", "x.carton"]);
    ok(root, &["unpack", "x.carton", "-o", "unpacked", "-q"]);
    for (input, name) in [("x.carton", "a"), ("unpacked/model/model.pt", "b")] {
        ok(root, &[input, "--to", "triton", "-o", "models", "--name", name, "-q"]);
    }
    let model = |name: &str| {
        std::fs::read(root.join("models").join(name).join("1/model.pt")).expect("it was written")
    };
    assert_eq!(model("a"), model("b"));
}

#[test]
fn advice_is_about_models_for_triton() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    ok(root, &["llama", "-q", "-o", "x.carton"]);
    ok(root, &["unpack", "x.carton", "-q"]);
    ok(root, &["llama", "-q", "-o", "weights.carton", "--arch", "weights"]);
    ok(root, &["unpack", "weights.carton", "-q"]);
    ok(root, &["llama", "--to", "triton", "-o", "models", "-q"]);
    std::fs::remove_file(root.join("llama/params.json")).expect("it was written");
    let model = std::fs::read(root.join("x/model/model.pt")).expect("it was unpacked");
    write(root.join("script.pt"), other_code(&model));
    let mut texts = String::new();
    for args in [
        &["llama", "-o", "new models"][..],
        &["llama", "-o", "new models", "--arch", "llama"],
        &["llama", "--n-heads", "4"],
        &["script.pt", "-o", "new"],
        &["weights/model/model.pt", "-o", "new"],
        &["models/llama/1/model.pt", "-o", "new"],
        &["x/model/model.pt", "-o", "new", "--n-heads", "4"],
        &["llama", "-o", "new", "--arch", "weights"],
    ] {
        let text = refused(root, &[args, &["--to", "triton"]].concat());
        texts = format!("{texts}$ {}\n{text}", args.join(" "));
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn a_carton_without_a_model_of_ours_is_refused() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    ok(root, &["llama", "-q", "-o", "x.carton"]);
    ok(root, &["llama", "-q", "-o", "weights.carton", "--arch", "weights"]);
    let base = "https://example.org/blobs";
    let shrink =
        ["x.carton", "--base", base, "--blobs", "blobs", "--min-size", "1", "-o", "links.carton", "-q"];
    ok(root, &[&["shrink"], &shrink[..]].concat());
    let whole = std::fs::read(root.join("x.carton")).expect("it was written");
    write(root.join("cut.carton"), &whole[..whole.len().saturating_sub(9)]);
    ok(root, &["unpack", "x.carton", "-o", "other", "-q"]);
    let model = std::fs::read(root.join("other/model/model.pt")).expect("it was unpacked");
    write(root.join("other/model/model.pt"), other_code(&model));
    std::fs::remove_file(root.join("other/MANIFEST")).expect("it was unpacked");
    let mut texts = String::new();
    for args in [
        &["weights.carton"][..],
        &["links.carton"],
        &["cut.carton"],
        &["other"],
        &["x.carton", "--arch", "weights"],
        &["x.carton", "--exclude", "rope.freqs"],
        &["x.carton", "--rename", "a=b"],
        &["x.carton", "--n-heads", "2"],
    ] {
        let text = refused(root, &[args, &["--to", "triton", "-o", "models"]].concat());
        texts = format!("{texts}$ {}\n{text}", args.join(" "));
    }
    insta::assert_snapshot!(texts);
    assert!(!root.join("models").exists());
}

#[test]
fn what_triton_cannot_serve_is_refused_and_nothing_is_left() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    write_pth(&root.join("weights.pth"), &dict(&[("w", tensor(1))]));
    write(root.join("file"), "");
    write(root.join("models/used/config.pbtxt"), "platform: \"onnxruntime_onnx\"\n");
    write(root.join("models/file"), "");
    let mut texts = String::new();
    for args in [
        &["weights.pth", "--to", "triton", "-o", "new"][..],
        &["llama", "--to", "triton", "-o", "new", "--arch", "weights"],
        &["llama", "--to", "triton", "-o", "new", "--name", "a/b"],
        &["llama", "--to", "triton", "-o", "new", "--name", ".."],
        &["llama", "--to", "triton", "-o", "new", "--license", "MIT"],
        &["llama", "--to", "triton", "-o", "new", "--names", "hf"],
        &["llama", "--to", "triton", "-o", "new", "--misc", "file"],
        &["llama", "--to", "triton", "-o", "file"],
        &["llama", "--to", "triton", "-o", "models", "--name", "used"],
        &["llama", "--to", "triton", "-o", "models", "--name", "file"],
        &["llama", "--to", "triton", "-o", "models/used", "--name", "a"],
        &["llama", "--to", "triton", "-o", "new.carton"],
        &["llama", "--to", "safetensors", "-o", "new", "--name", "a"],
        &["llama", "--to", "safetensors", "-o", "new", "--require-model"],
    ] {
        let text = refused(root, args);
        texts = format!("{texts}$ {}\n{text}", args.join(" "));
    }
    insta::assert_snapshot!(texts);
    assert_eq!(names(root), ["file", "llama", "models", "weights.pth"]);
    assert_eq!(names(&root.join("models/used")), ["config.pbtxt"]);
}

#[test]
fn a_carton_of_a_script_becomes_the_model_of_its_script() {
    let scratch = scratch();
    let root = scratch.path();
    let script = folder().join("scripts/attention.pt").display().to_string();
    ok(root, &[&script, "-q", "-o", "s.carton"]);
    ok(root, &["unpack", "s.carton", "-q"]);
    let text = refused(root, &["s.carton", "--to", "triton", "-o", "models"]);
    assert!(text.contains("; add, with the right ones, --input "), "{text}");
    let typed = ["--input", "x=float32[4,8]", "--output-type", "output=float32[4,8]", "-q"];
    for (input, name) in [(script.as_str(), "a"), ("s.carton", "b"), ("s", "c"), ("s/model/model.pt", "d")] {
        let args = [input, "--to", "triton", "-o", "models", "--name", name];
        ok(root, &[&args[..], &typed].concat());
    }
    let model = |name: &str| {
        crate::cli::json(root, &["inspect", "--sha256", "--json", &format!("models/{name}/1/model.pt")])
    };
    for name in ["b", "c", "d"] {
        assert_eq!(model(name)["tensors"], model("a")["tensors"], "{name}");
        let config = |name: &str| {
            let text = std::fs::read_to_string(root.join("models").join(name).join("config.pbtxt"));
            text.expect("it was written").lines().skip(1).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(config(name), config("a"));
    }
    // Options that change tensors drop the code, and say so with their own names.
    let args = ["s.carton", "--to", "triton", "-o", "models", "--name", "e", "--dtype", "float16"];
    let text = refused(root, &[&args[..], &typed].concat());
    assert!(
        text.contains(
            "which is not kept if its tensors change (--dtype, --cast); leave out one or the other"
        ),
        "{text}"
    );
}

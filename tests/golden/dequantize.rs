//! `--dequantize`: each output has the numbers that the method's own library computes.
//!
//! `tests/conformance/quantized/cases.py` made the models in `quantized/`, and `expected.json` next to each, with the
//! versions of the libraries in docs/quantized.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::carton_tools::{ok, run, scratch, write};
use crate::casts::floats;

/// Dtype, shape and SHA-256 of each tensor, by its name.
type Described = BTreeMap<String, (String, Vec<u64>, String)>;

pub(crate) fn models() -> impl Iterator<Item = PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/model/quantization/tests/models");
    let mut models: Vec<PathBuf> =
        folder.read_dir().expect("it is checked in").map(|entry| entry.expect("an entry").path()).collect();
    models.sort();
    assert!(models.len() > 20, "the models are there");
    models.into_iter()
}

pub(crate) fn model(name: &str) -> PathBuf {
    models().find(|path| path.ends_with(name)).expect("the case exists")
}

fn parse(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("it exists")).expect("it is JSON")
}

fn expected(model: &Path) -> Described {
    let described: BTreeMap<String, (String, Vec<u64>, String)> =
        serde_json::from_value(parse(&model.join("expected.json"))).expect("dtype, shape and hash");
    described
}

/// Describes the tensors of an output.
fn found(root: &Path, output: &str) -> Described {
    let text = ok(root, &["inspect", "--sha256", "--json", output]);
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let text = |row: &Value, key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let list =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let rows = list(&report, "tensors").into_iter().map(|row| {
        let shape = list(&row, "shape").iter().filter_map(Value::as_u64).collect();
        (text(&row, "name"), (text(&row, "dtype"), shape, text(&row, "sha256")))
    });
    rows.collect()
}

fn arg(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn numbers_are_those_of_the_library() {
    let scratch = scratch();
    let root = scratch.path();
    // The files of ComfyUI have no documents.
    for model in models().filter(|model| model.join("config.json").exists()) {
        let out = model.file_name().expect("a name").to_str().expect("UTF-8");
        ok(root, &[arg(&model), "--dequantize", "--to", "safetensors", "-o", out]);
        assert_eq!(found(root, out), expected(&model), "{out}");
        let config = parse(&root.join(out).join("config.json"));
        let is_described =
            ["quantization_config", "quantization"].iter().any(|key| config.get(*key).is_some());
        let stored = parse(&model.join("config.json"));
        assert!(!is_described && config["model_type"] == stored["model_type"], "{out}");
        let documents =
            root.join(out).read_dir().expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut documents: Vec<String> = documents.map(|name| name.to_string_lossy().into_owned()).collect();
        documents.sort();
        assert_eq!(documents, ["config.json", "model.safetensors"], "{out}");
    }
}

#[test]
fn every_output_has_the_same_numbers() {
    let scratch = scratch();
    let root = scratch.path();
    for name in ["fp8_block", "mxfp4", "gptq_order"] {
        let model = model(name);
        for output in ["x.pth", "x.safetensors", "x.carton"] {
            ok(root, &[arg(&model), "--dequantize", "-o", output, "--force"]);
        }
        ok(root, &["unpack", "x.carton", "-o", name]);
        for output in ["x.pth", "x.safetensors"] {
            assert_eq!(found(root, output), expected(&model), "{name} {output}");
        }
        let hashes = |found: Described| {
            let mut values: Vec<_> = found.into_values().collect();
            values.sort();
            values.dedup();
            values
        };
        // A module has names of its own for its tensors.
        let module = found(root, &format!("{name}/model/model.pt"));
        assert_eq!(hashes(module), hashes(expected(&model)), "{name}");
        // The copy of config.json in the carton does not describe a quantization.
        let config = parse(&root.join(name).join("misc/config.json"));
        assert!(config.get("quantization_config").is_none(), "{name}");
    }
}

#[test]
fn numbers_are_cast_once() {
    let scratch = scratch();
    let root = scratch.path();
    let model = model("fp8_ragged");
    // The configuration says float32, so these are the library's numbers.
    ok(root, &[arg(&model), "--dequantize", "-o", "all.safetensors"]);
    for dtype in ["bfloat16", "float16", "float64"] {
        ok(root, &["all.safetensors", "--dtype", dtype, "-o", "cast.safetensors", "--force"]);
        ok(root, &[arg(&model), "--dequantize", "--dtype", dtype, "-o", "direct.safetensors", "--force"]);
        assert_eq!(found(root, "direct.safetensors"), found(root, "cast.safetensors"), "{dtype}");
    }
    let two = ["--cast", "float32=bfloat16", "--cast", "bfloat16=float16"];
    ok(root, &[&[arg(&model), "--dequantize", "-o", "two.safetensors"][..], &two].concat());
    ok(root, &["all.safetensors", "--dtype", "bfloat16", "-o", "cast.safetensors", "--force"]);
    assert_eq!(found(root, "two.safetensors"), found(root, "cast.safetensors"));
}

#[test]
fn codes_are_never_cast() {
    let scratch = scratch();
    let root = scratch.path();
    let model = model("fp8_block");
    for cast in [&["--dtype", "bfloat16"][..], &["--cast", "float8_e4m3fn=float16"]] {
        let (code, text) = run(root, &[&[arg(&model), "-o", "x.safetensors"][..], cast].concat());
        assert_eq!(code, Some(1), "{text}");
        let reason = "tensor `a.weight`: its float8_e4m3fn numbers are codes, which `a.weight_scale_inv` gives a meaning";
        assert!(text.contains(reason) && text.contains("; --dequantize computes the weights"), "{text}");
        assert!(!root.join("x.safetensors").exists());
    }
}

#[test]
fn the_configuration_names_the_dtype_that_was_written() {
    let scratch = scratch();
    let root = scratch.path();
    let folder = root.join("hf");
    std::fs::create_dir(&folder).expect("a new folder");
    floats(&folder.join("model.safetensors"), &[("a", &[1.0, 2.0])]);
    let config = "{\"dtype\": \"float32\",\n \"vision_config\": {\"torch_dtype\": \"float32\"}}";
    write(folder.join("config.json"), config);
    let written = |name: &str| std::fs::read_to_string(root.join(name).join("config.json")).expect("a copy");
    ok(root, &["hf", "--dtype", "bfloat16", "--to", "safetensors", "-o", "half"]);
    let half: Value = serde_json::from_str(&written("half")).expect("JSON");
    assert_eq!(half, serde_json::json!({"dtype": "bfloat16", "vision_config": {"torch_dtype": "bfloat16"}}));
    ok(root, &["hf", "--dtype", "float32", "--to", "safetensors", "-o", "same"]);
    assert_eq!(written("same"), config);
    ok(root, &["hf", "--to", "safetensors", "-o", "plain"]);
    assert_eq!(written("plain"), config);
}

#[test]
fn patterns_select_by_the_names_of_the_numbers() {
    let scratch = scratch();
    let root = scratch.path();
    let model = model("fp8_block");
    ok(root, &[arg(&model), "--dequantize", "--include", "a.weight", "-o", "x.safetensors"]);
    assert_eq!(found(root, "x.safetensors").into_keys().collect::<Vec<_>>(), ["a.weight"]);
    let (code, text) =
        run(root, &[arg(&model), "--dequantize", "--include", "b", "-o", "x.safetensors", "--force"]);
    assert!(code != Some(0) && text.contains("the patterns exclude every tensor"), "{text}");
}

#[test]
fn listings_show_numbers_or_their_parts() {
    let scratch = scratch();
    let root = scratch.path();
    let model = model("gptq_order");
    let text = ok(root, &["inspect", arg(&model)]);
    assert!(text.contains("model.layers.0.q_proj.weight  bfloat16  [32, 64]"), "{text}");
    assert!(text.contains("GPTQ, 4 bits, groups of 32, activation order; "), "{text}");
    assert!(text.contains(" bits a weight") && !text.contains("g_idx"), "{text}");
    let text = ok(root, &["inspect", "--packed", arg(&model)]);
    assert!(text.contains("model.layers.0.q_proj.g_idx") && !text.contains("GPTQ"), "{text}");
    let report: Value = serde_json::from_str(&ok(root, &["inspect", "--json", arg(&model)])).expect("JSON");
    let rows = report["tensors"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["name"] == "model.layers.0.q_proj.weight").expect("numbers");
    assert_eq!(row["quantization"]["method"], "gptq");
    assert_eq!(row["quantization"]["stored"][0], "model.layers.0.q_proj.qweight");
}

#[test]
fn an_output_without_a_place_for_codes_names_the_method_and_the_flag() {
    let scratch = scratch();
    let root = scratch.path();
    for (name, method) in [
        ("ct_float_channel", "compressed-tensors"),
        ("ct_nvfp4", "compressed-tensors"),
        ("fp8_block", "fp8"),
        ("modelopt_nvfp4", "modelopt"),
    ] {
        let (status, text) = run(root, &[arg(&model(name)), "-o", "x.carton"]);
        assert!(status == Some(1) && text.contains(&format!("quantized with {method}: ")), "{name}: {text}");
        assert!(text.contains("; --dequantize computes the numbers that they stand for"), "{name}: {text}");
    }
    let text = ok(root, &[arg(&model("fp8_block")), "--dequantize", "--dry-run", "-o", "x.safetensors"]);
    assert!(text.contains("FP8, blocks of 128 × 128: 1 tensor to bfloat16"), "{text}");
    ok(root, &[arg(&model("fp8_block")), "--dequantize", "-o", "x.safetensors"]);
    let (status, text) = run(root, &["x.safetensors", "--dequantize", "-o", "y.safetensors"]);
    assert!(status == Some(1) || status == Some(2), "{text}");
    assert!(text.contains("its weights are not quantized; convert it without --dequantize"), "{text}");
}

#[test]
fn weights_that_are_written_as_they_are_stored_have_a_note() {
    let scratch = scratch();
    let root = scratch.path();
    for (name, method) in [("mxfp4", "mxfp4"), ("gptq_order", "gptq"), ("hqq_pickle_scales", "hqq")] {
        for output in ["x.safetensors", "x.pth"] {
            let (status, text) = run(root, &[arg(&model(name)), "--force", "-o", output]);
            let note = format!(
                "note: the weights are quantized with {method} and written as they are stored; \
                 --dequantize computes the numbers that they stand for"
            );
            assert!(status == Some(0) && text.contains(&note), "{name}: {text}");
        }
    }
    let (_, text) = run(root, &[arg(&model("mxfp4")), "--dequantize", "--force", "-o", "x.safetensors"]);
    assert!(!text.contains("as they are stored") && text.contains("  dequantized MXFP4"), "{text}");
}

#[test]
fn listings_of_subclasses_and_of_descriptions_show_numbers() {
    let scratch = scratch();
    let root = scratch.path();
    let text = ok(root, &["inspect", arg(&model("torchao_pickled"))]);
    assert!(text.contains("torchao, FP8, a scale for each channel; 8.50 bits a weight"), "{text}");
    assert!(!text.contains("qdata"), "{text}");
    let text = ok(root, &["inspect", "--packed", arg(&model("torchao_pickled"))]);
    assert!(text.contains("int8.weight.qdata"), "{text}");
    let text = ok(root, &["inspect", "--all", arg(&model("hqq_pickle_meta"))]);
    assert!(text.contains("HQQ, 4 bits, groups of 64") && !text.contains("nbits"), "{text}");
    let text = ok(root, &["inspect", "--all", "--packed", arg(&model("hqq_pickle_meta"))]);
    assert!(text.contains("model.layers.0.q_proj.meta.meta_scale.nbits"), "{text}");
    // PyTorch's own dtypes stay, and several integers in a byte have the shape of the numbers.
    let text = ok(root, &["inspect", arg(&model("pytorch"))]);
    assert!(text.contains("qint8, per_channel_affine; ") && text.contains("quint2x4  [6, 35]"), "{text}");
}

#[test]
fn diff_and_digest_see_the_numbers() {
    let scratch = scratch();
    let root = scratch.path();
    for model in models() {
        let name = model.file_name().expect("a name").to_str().expect("UTF-8");
        ok(root, &[arg(&model), "--dequantize", "-o", "x.safetensors", "--force"]);
        let lines = ok(root, &["digest", "-q", "--dequantize", arg(&model), "x.safetensors"]);
        let digests: Vec<&str> = lines.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(matches!(digests.as_slice(), [a, b] if a == b && a.len() == 64), "{name}: {lines}");
        let stored = ok(root, &["digest", "-q", arg(&model)]);
        assert!(!stored.starts_with(digests[0]), "{name}: {stored}");
        let compare = ["diff", "--no-values", arg(&model), "x.safetensors"];
        let (status, text) = run(root, &compare);
        assert_eq!(status, Some(1), "{name}: {text}");
        let (status, text) = run(root, &[&compare[..], &["--dequantize"]].concat());
        assert_eq!(status, Some(0), "{name}: {text}");
    }
}

#[test]
fn a_listing_tells_why_it_has_stored_parts() {
    let scratch = scratch();
    let root = scratch.path();
    let shard = model("fp8_block").join("model-00001-of-00003.safetensors");
    let (status, text) = run(root, &["inspect", arg(&shard)]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("the quantized weights are listed as they are stored: "), "{text}");
    let report: Value = serde_json::from_str(&ok(root, &["inspect", "--json", arg(&shard)])).expect("JSON");
    assert!(report["notes"].to_string().contains("a.weight"), "{report}");
    let (_, text) = run(root, &["inspect", "--packed", arg(&shard)]);
    assert!(!text.contains("listed as they are stored"), "{text}");
}

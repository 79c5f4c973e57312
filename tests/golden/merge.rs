//! `--merge`: adapters in the summary and the report, and those that do not fit. Their numbers are compared with peft's in
//! `tests/conformance`.

use std::path::Path;

use crate::carton_tools::{ok, run, scratch, write};
use crate::cli::json;
use crate::program::folder;

/// A safetensors file of float32 tensors whose numbers count up.
pub(crate) fn floats(path: &Path, tensors: &[(&str, &[usize])]) {
    let numbers =
        |shape: &[usize]| (0_u16..).take(shape.iter().product()).map(|number| f32::from(number) / 8.0);
    let bytes = |shape: &[usize]| numbers(shape).flat_map(f32::to_le_bytes).collect::<Vec<_>>();
    let tensors = tensors.iter().map(|(name, shape)| (name, "F32", shape, bytes(shape)));
    write(path.to_owned(), test_support::safetensors(tensors));
}

/// Returns the last number of a tensor that is followed by `after` other numbers.
pub(crate) fn number_before(path: &Path, after: usize) -> f32 {
    let bytes = std::fs::read(path).expect("it was written");
    let numbers: Vec<[u8; 4]> =
        bytes.rchunks_exact(4).map(|number| number.try_into().expect("four bytes")).collect();
    numbers.get(after).map(|number| f32::from_le_bytes(*number)).expect("there are more numbers")
}

const LAYERS: [&str; 2] = ["model.layers.0.q", "model.layers.1.q"];

fn base(root: &Path) {
    floats(
        &root.join("base.safetensors"),
        &[("model.layers.0.q.weight", &[3, 2]), ("model.layers.1.q.weight", &[3, 2]), ("norm.weight", &[2])],
    );
}

/// An adapter with these tensors.
fn adapter(root: &Path, config: &str, tensors: &[(&str, &[usize])]) {
    let names: Vec<String> = tensors.iter().map(|(name, _)| format!("base_model.model.{name}")).collect();
    let tensors: Vec<(&str, &[usize])> =
        names.iter().map(String::as_str).zip(tensors.iter().map(|(_, shape)| *shape)).collect();
    floats(&root.join("lora/adapter_model.safetensors"), &tensors);
    write(root.join("lora/adapter_config.json"), config);
}

const CONFIG: &str = r#"{"peft_type":"LORA","r":1,"lora_alpha":2}"#;

fn adapt_both(root: &Path) {
    let names: Vec<[String; 2]> = LAYERS
        .iter()
        .map(|layer| [format!("{layer}.lora_A.weight"), format!("{layer}.lora_B.weight")])
        .collect();
    let tensors: Vec<(&str, &[usize])> =
        names.iter().flat_map(|[a, b]| [(a.as_str(), &[1, 2][..]), (b.as_str(), &[3, 1][..])]).collect();
    adapter(root, CONFIG, &tensors);
}

#[test]
fn what_was_merged_is_in_the_summary_and_the_report() {
    let scratch = scratch();
    let root = scratch.path();
    base(root);
    adapt_both(root);
    let text = ok(root, &["base.safetensors", "--merge", "lora=0.5", "-o", "out.safetensors"]);
    let text: Vec<&str> = text.lines().map(|line| line.split(" in 0.").next().unwrap_or_default()).collect();
    insta::assert_snapshot!(text.join("\n"), @"
    out.safetensors
      tensors   3, 14 parameters
      size      320 B
      merged    lora, times 0.5: 2 tensors changed by 4 adapter tensors
                  model.layers.{0..1}.q.weight: rank 1, scale 1, norm of the change 0.0349
    ");
    // W[2, 1] + 0.5 · (2 / 1) · B[2] · A[1]
    let expected = 5.0_f32 / 8.0 + 2.0 / 8.0 / 8.0;
    assert!((number_before(&root.join("out.safetensors"), 2) - expected).abs() < 1e-6);
    let report =
        json(root, &["base.safetensors", "--merge", "lora", "-o", "x.safetensors", "--dry-run", "--json"]);
    let row = &report["adapters"][0]["merged"][1];
    assert_eq!(
        row.to_string(),
        r#"{"name":"model.layers.1.q.weight","kind":"low_rank","rank":1,"scale":2.0,"norm":0.06987712429686843}"#
    );
}

#[test]
fn an_adapter_that_does_not_fit_is_refused_by_the_name_of_its_tensor() {
    let scratch = scratch();
    let root = scratch.path();
    base(root);
    let refused = |config: &str, tensors: &[(&str, &[usize])]| {
        adapter(root, config, tensors);
        let (status, text) = run(root, &["base.safetensors", "--merge", "lora", "-o", "out.safetensors"]);
        assert_eq!(status, Some(1), "{text}");
        assert!(!root.join("out.safetensors").exists());
        text.lines().filter(|line| line.starts_with("error")).collect::<Vec<_>>().join("\n")
    };
    let a = ("model.layers.0.q.lora_A.weight", &[1, 2][..]);
    let b = ("model.layers.0.q.lora_B.weight", &[3, 1][..]);
    let texts = [
        refused(CONFIG, &[a]),
        refused(CONFIG, &[a, ("model.layers.0.q.lora_B.weight", &[4, 1])]),
        refused(
            CONFIG,
            &[("model.layers.0.q.lora_A.weight", &[2, 2]), ("model.layers.0.q.lora_B.weight", &[3, 2])],
        ),
        refused(
            CONFIG,
            &[a, b, ("model.layers.7.q.lora_A.weight", &[1, 2]), ("model.layers.7.q.lora_B.weight", &[3, 1])],
        ),
        refused(CONFIG, &[a, b, ("model.norm.bias", &[2])]),
        refused(
            r#"{"peft_type":"LORA","r":1,"use_dora":true}"#,
            &[a, b, ("model.layers.0.q.lora_magnitude_vector", &[4])],
        ),
        refused(CONFIG, &[a, b, ("model.layers.0.q.lora_magnitude_vector", &[3])]),
        refused(r#"{"peft_type":"LORA","r":1,"use_dora":true}"#, &[a, b]),
        refused(r#"{"peft_type":"LORA","r":0}"#, &[a, b]),
        refused(r#"{"peft_type":"LORA","r":1,"lora_alpha":1e308}"#, &[a, b]),
        refused(
            CONFIG,
            &[("model.blocks.0.q.lora_A.weight", &[1, 2]), ("model.blocks.0.q.lora_B.weight", &[3, 1])],
        ),
        refused(r#"{"peft_type":"LOHA"}"#, &[a, b]),
    ];
    insta::assert_snapshot!(texts.join("\n"), @"
    error: lora: `base_model.model.model.layers.0.q.lora_A.weight` has no lora_B next to it
    error: lora: `base_model.model.model.layers.0.q.lora_B.weight` has shape [4, 1], expected 3 rows for `model.layers.0.q.weight` of shape [3, 2]
    error: lora: `base_model.model.model.layers.0.q.lora_A.weight` has shape [2, 2], expected 1 row, the rank of adapter_config.json, for `model.layers.0.q.weight` of shape [3, 2]
    error: lora: `base_model.model.model.layers.7.q.lora_A.weight` changes `model.layers.7.q.weight`, which the base does not have
    error: lora: `base_model.model.model.norm.bias` changes `model.norm.bias`, which the base does not have
    error: lora: `base_model.model.model.layers.0.q.lora_magnitude_vector` cannot be used: it has shape [4], expected 3 numbers
    error: lora: `base_model.model.model.layers.0.q.lora_magnitude_vector` cannot be used: adapter_config.json does not say that the adapter uses DoRA (use_dora)
    error: lora: `base_model.model.model.layers.0.q.lora_A.weight` has no lora_magnitude_vector next to it
    error: lora: `base_model.model.model.layers.0.q.lora_A.weight` cannot be used: adapter_config.json says that its rank is 0
    error: lora: `base_model.model.model.layers.0.q.lora_B.weight` cannot be used: some of its numbers are infinite or not numbers, or those of the factor next to it, or the scale 1e308
    error: lora: `base_model.model.model.blocks.0.q.lora_A.weight` changes `model.blocks.0.q.weight`, which the base does not have
    error: lora: the adapter is of type LOHA, and only LORA can be merged
    ");
}

/// Also by another path.
#[test]
fn an_adapter_that_is_given_twice_is_refused() {
    let scratch = scratch();
    let root = scratch.path();
    base(root);
    adapt_both(root);
    let twice = ["--merge", "lora", "--merge", "./lora/adapter_model.safetensors=0.5"];
    let args = [&["base.safetensors"], &twice[..], &["-o", "out.safetensors"]].concat();
    let (status, text) = run(root, &args);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("./lora/adapter_model.safetensors is given twice; give it once"), "{text}");
}

/// No flag lets an output replace the adapter.
#[test]
fn an_output_over_the_adapter_is_refused() {
    let scratch = scratch();
    let root = scratch.path();
    base(root);
    adapt_both(root);
    let file = "lora/adapter_model.safetensors";
    let before = std::fs::read(root.join(file)).expect("it was written");
    let (status, text) = run(root, &["base.safetensors", "--merge", "lora", "--force", "-o", file]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("the output lora/adapter_model.safetensors is the input"), "{text}");
    assert!(before == std::fs::read(root.join(file)).expect("it is still there"));
}

#[test]
fn a_folder_without_an_adapter_is_named() {
    let scratch = scratch();
    let root = scratch.path();
    base(root);
    std::fs::create_dir(root.join("lora")).expect("a temporary folder");
    let (status, text) = run(root, &["base.safetensors", "--merge", "lora", "-o", "out.safetensors"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("lora: no adapter_config.json with adapter_model.safetensors"), "{text}");
}

/// A module that keeps its code would ignore the adapter.
#[test]
fn an_adapter_changes_a_torchscript_module_or_is_refused() {
    let scratch = scratch();
    let root = scratch.path();
    adapt_both(root);
    std::fs::copy(folder().join("scripts/float16.pt"), root.join("script.pt")).expect("it can be copied");
    let (status, text) = run(root, &["script.pt", "--merge", "lora", "-o", "out.carton"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("`base_model.model.model.layers.0.q.lora_A.weight` changes"), "{text}");
    assert!(!root.join("out.carton").exists());
}

#[test]
fn adapters_of_other_programs_are_named() {
    let scratch = scratch();
    let root = scratch.path();
    base(root);
    for (name, form) in [
        ("lora_unet_mid.lora_down.weight", "a LoRA with the names of kohya-ss"),
        ("layers.0.lora_a.weight", "a LoRA with the names of torchtune"),
        ("layers.0.lora_a", "a LoRA with the names of MLX"),
        ("layers.0.lokr_w1", "a LoKr adapter"),
        ("layers.0.hada_w1_a", "a LoHa adapter"),
        ("model.q.lora_A.default.weight", "a LoRA with the names of peft"),
    ] {
        floats(&root.join("other.safetensors"), &[(name, &[1, 2])]);
        let text = ok(root, &["other.safetensors", "-o", "x.pth", "--force"]);
        let note = format!(
            "note: it has factors of {form}, which change the weights of a base only when they are merged; "
        );
        assert!(text.contains(&note), "{text}");
        let (status, text) =
            run(root, &["base.safetensors", "--merge", "other.safetensors", "-o", "y.safetensors"]);
        assert_eq!(status, Some(1), "{text}");
        assert!(
            text.contains(&format!(
                "it is {form}; expected the folder of an adapter of peft, with its adapter_config.json"
            )),
            "{text}"
        );
    }
}

#[test]
fn weights_next_to_an_adapter_are_named() {
    let scratch = scratch();
    let root = scratch.path();
    base(root);
    adapt_both(root);
    write(root.join("lora/non_lora_trainables.bin"), "");
    write(root.join("lora/optimizer.pt"), "");
    let text = ok(root, &["base.safetensors", "--merge", "lora", "-o", "out.safetensors"]);
    assert!(text.starts_with("note: lora/non_lora_trainables.bin is not used\n"), "{text}");
}

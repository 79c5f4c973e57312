//! What a folder lacks, from names and shapes alone. What the families have is compared with transformers in `tests/conformance`.

use families::{LayoutId, MadeTensor, Model, ModelComparison, Recipe};

const MIXTRAL: &str = r#"{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_hidden_layers": 3, "hidden_size": 8,
    "intermediate_size": 6, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10, "num_local_experts": 12}"#;

/// Names and shapes of a model, in one of its layouts.
type Tensors = Vec<(String, Vec<u64>)>;

fn released(model: &Model) -> Tensors {
    model.released().map(|(name, shape)| (name, shape.to_vec())).collect()
}

fn modules(model: &Model) -> Tensors {
    model.modules().map(|(name, shape)| (name, shape.to_vec())).collect()
}

fn compare(model: &Model, tensors: &Tensors) -> ModelComparison {
    let tensors: Vec<(&str, &[u64])> =
        tensors.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())).collect();
    model.compare(&tensors)
}

fn model(config: &str) -> Model {
    Model::from_config(config).expect("a configuration")
}

fn without(tensors: &Tensors, is_gone: impl Fn(&str) -> bool) -> Tensors {
    tensors.iter().filter(|(name, _)| !is_gone(name)).cloned().collect()
}

#[test]
fn both_layouts_are_whole_and_named() {
    let model = model(MIXTRAL);
    let (files, memory) = (released(&model), modules(&model));
    assert!(files.iter().any(|(name, _)| name == "model.layers.2.block_sparse_moe.experts.11.w2.weight"));
    assert!(memory.contains(&("model.layers.0.mlp.experts.gate_up_proj".to_owned(), vec![12, 12, 8])));
    for (tensors, layout) in [(&files, "released"), (&memory, "modules")] {
        let found = compare(&model, tensors);
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(found.layout, layout);
    }
}

#[test]
fn missing_tensors_are_grouped() {
    let model = model(MIXTRAL);
    let files = released(&model);
    let gone = without(&files, |name| {
        name.starts_with("model.layers.1.")
            || name.contains("layers.0.block_sparse_moe.experts.10.")
            || name == "model.norm.weight"
    });
    let found = compare(&model, &gone);
    let groups: Vec<_> =
        found.groups.iter().map(|group| (group.name.as_str(), group.tensors, group.is_all)).collect();
    assert_eq!(
        groups,
        [
            ("layers 1", 43, true),
            ("model.layers.0.block_sparse_moe.experts.10.w1.weight", 1, false),
            ("model.layers.0.block_sparse_moe.experts.10.w3.weight", 1, false),
            ("model.layers.0.block_sparse_moe.experts.10.w2.weight", 1, false),
            ("model.norm.weight", 1, false),
        ]
    );
    assert_eq!(found.missing.len(), 47);
    let many = compare(&model, &without(&files, |name| name.contains(".w1.")));
    assert_eq!(many.groups[0].name, "model.layers.{0-2}.block_sparse_moe.experts.{0-11}.w1.weight");
}

#[test]
fn a_tensor_in_another_layout_is_no_unexpected_one() {
    let model = model(MIXTRAL);
    let mut tensors = released(&model);
    tensors.push(("model.layers.0.mlp.experts.gate_up_proj".to_owned(), vec![12, 12, 8]));
    tensors.push(("model.layers.0.mlp.extra".to_owned(), vec![1]));
    let found = compare(&model, &tensors);
    assert_eq!(found.other_layout, ["model.layers.0.mlp.experts.gate_up_proj"]);
    assert_eq!(found.unexpected, ["model.layers.0.mlp.extra"]);
}

#[test]
fn of_tied_tensors_one_is_enough() {
    let tied = model(&MIXTRAL.replace("\"num_hidden", "\"tie_word_embeddings\": true, \"num_hidden"));
    let files = released(&tied);
    for kept in ["lm_head.weight", "model.embed_tokens.weight"] {
        let gone = without(&files, |name| {
            name != kept && (name.ends_with("embed_tokens.weight") || name == "lm_head.weight")
        });
        assert!(compare(&tied, &gone).is_empty());
    }
    let none = compare(&tied, &without(&files, |name| name.contains("embed") || name.contains("lm_head")));
    assert_eq!(none.missing.len(), 1);
    let untied = model(MIXTRAL);
    let gone = compare(&untied, &without(&files, |name| name == "lm_head.weight"));
    assert_eq!(
        (gone.missing[0].name.as_str(), gone.missing[0].shape.as_slice()),
        ("lm_head.weight", [10, 8].as_slice())
    );
}

#[test]
fn heads_that_predict_several_tokens_are_declared() {
    let config = r#"{"model_type": "qwen3_next", "num_hidden_layers": 4, "mtp_num_hidden_layers": 1, "num_experts": 2}"#;
    let declared = model(config);
    let files = released(&declared);
    let mtp: Vec<&String> =
        files.iter().map(|(name, _)| name).filter(|name| name.starts_with("mtp.")).collect();
    assert!(
        mtp.contains(&&"mtp.layers.0.mlp.experts.1.up_proj.weight".to_owned())
            && mtp.contains(&&"mtp.fc.weight".to_owned())
    );
    let gone = compare(&declared, &without(&files, |name| name.starts_with("mtp.")));
    assert_eq!((gone.absent.as_slice(), gone.missing.len()), (["mtp"].as_slice(), mtp.len()));
    let silent = model(&config.replace("\"mtp_num_hidden_layers\": 1, ", ""));
    assert!(compare(&silent, &files).is_empty());
    // A class without a head for language declares them as well.
    for (class, start) in
        [("DeepseekV3Model", "layers.2."), ("DeepseekV3ForSequenceClassification", "model.layers.2.")]
    {
        let config = format!(
            r#"{{"model_type": "deepseek_v3", "architectures": ["{class}"], "num_hidden_layers": 2, "num_nextn_predict_layers": 1}}"#
        );
        let declared = model(&config);
        let gone = compare(&declared, &without(&released(&declared), |name| name.starts_with(start)));
        assert_eq!(gone.absent, ["mtp"], "{class}");
    }
}

#[test]
fn quantized_weights_have_their_companions() {
    let fp8 = MIXTRAL.replace("\"num_hidden", "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [4, 4], \"modules_to_not_convert\": [\"lm_head\", \"model.layers.0.self_attn\"]}, \"num_hidden");
    let found: Tensors = released(&model(&fp8));
    let shape = |name: &str| found.iter().find(|(found, _)| found == name).map(|(_, shape)| shape.as_slice());
    assert_eq!(shape("model.layers.1.self_attn.k_proj.weight_scale_inv"), Some([1, 2].as_slice()));
    assert_eq!(shape("model.layers.0.self_attn.k_proj.weight_scale_inv"), None);
    assert_eq!(shape("model.layers.0.self_attn.k_proj.weight"), Some([4, 8].as_slice()));
    assert_eq!(
        shape("model.layers.0.block_sparse_moe.experts.3.w2.weight_scale_inv"),
        Some([2, 2].as_slice())
    );
    assert_eq!(shape("lm_head.weight_scale_inv"), None);
    let gptq = MIXTRAL.replace(
        "\"num_hidden",
        "\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 4}, \"num_hidden",
    );
    let found: Tensors = released(&model(&gptq));
    let shape = |name: &str| found.iter().find(|(found, _)| found == name).map(|(_, shape)| shape.as_slice());
    assert_eq!(shape("model.layers.1.self_attn.q_proj.qweight"), Some([1, 8].as_slice()));
    assert_eq!(shape("model.layers.1.self_attn.q_proj.scales"), Some([2, 8].as_slice()));
    assert_eq!(shape("model.layers.1.self_attn.q_proj.weight"), None);
}

#[test]
fn configurations_that_say_nothing_are_refused() {
    let error = |config: &str| Model::from_config(config).expect_err("no model").to_string();
    assert!(error("[]").starts_with("it is no JSON object: "));
    assert_eq!(error("{}"), "it has no `model_type`, which says what tensors a model needs");
    assert!(error(r#"{"model_type": "unheard_of"}"#).contains("`unheard_of`"));
    assert!(
        error(r#"{"model_type": "llama", "architectures": ["LlamaForHearing"]}"#)
            .contains("`LlamaForHearing`")
    );
    let many = error(r#"{"model_type": "llama", "num_hidden_layers": 4000000000}"#);
    assert_eq!(many, "its value of `num_hidden_layers` is missing or makes no model");
}

fn views(tensors: &Tensors) -> Vec<(&str, &[u64])> {
    tensors.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())).collect()
}

/// Returns the names and shapes of tensors that are made of others.
#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a mistake fails the test")]
fn made(made: Vec<MadeTensor>, from: &Tensors) -> Tensors {
    let shape = |tensor: &MadeTensor| {
        let mut shape = from[tensor.from[0]].1.clone();
        match tensor.recipe {
            Recipe::Stacked { parts } => {
                assert!(tensor.from.iter().all(|place| from[*place].1 == shape));
                shape[0] *= parts as u64;
                shape.insert(0, (tensor.from.len() / parts) as u64);
            }
            Recipe::Part { parts, .. } => {
                shape.remove(0);
                shape[0] /= parts as u64;
            }
            Recipe::Transposed => {
                let last = shape.len() - 1;
                shape.swap(last - 1, last);
            }
            Recipe::Same => {}
        }
        shape
    };
    made.into_iter().map(|tensor| (tensor.name.clone(), shape(&tensor))).collect()
}

fn sorted(mut tensors: Tensors) -> Tensors {
    tensors.sort();
    tensors
}

const FP8: &str =
    r#""quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 4]}, "num_hidden"#;

#[test]
fn released_names_become_those_in_memory_and_come_back() {
    let fp8 = model(&MIXTRAL.replace("\"num_hidden", FP8));
    let mut files = released(&fp8);
    // What the model does not have follows the modules above it, or stays.
    let extra = [
        ("mtp.layers.0.mlp.experts.0.gate_proj.weight", "mtp.layers.0.mlp.experts.0.gate_proj.weight"),
        ("model.layers.1.block_sparse_moe.gate.bias", "model.layers.1.mlp.gate.bias"),
        (
            "model.layers.0.block_sparse_moe.experts.3.w1.input_scale",
            "model.layers.0.mlp.experts.3.w1.input_scale",
        ),
        ("other", "other"),
    ];
    files.extend(extra.map(|(name, _)| (name.to_owned(), vec![1])));
    let (layout, known) = fp8.layout_of(&views(&files));
    assert_eq!((layout, known), (LayoutId::RELEASED, files.len() - extra.len()));
    let there = fp8.to_modules(layout, &views(&files)).expect("all experts are there");
    // Experts in the order of their numbers, gates before the others.
    let stack = there
        .iter()
        .find(|tensor| tensor.name == "model.layers.2.mlp.experts.gate_up_proj")
        .expect("a stack");
    let parts: Vec<&str> = stack.from.iter().map(|place| files[*place].0.as_str()).collect();
    assert_eq!(stack.recipe, Recipe::Stacked { parts: 2 });
    assert_eq!(parts.len(), 24);
    assert_eq!(parts[21], "model.layers.2.block_sparse_moe.experts.10.w3.weight");
    let memory = made(there, &files);
    let mut expected = modules(&fp8);
    expected.extend(extra.map(|(_, name)| (name.to_owned(), vec![1])));
    assert_eq!(sorted(memory.clone()), sorted(expected));
    assert!(fp8.is_modules(fp8.layout_of(&views(&memory)).0));
    let back = fp8.from_modules(LayoutId::RELEASED, &views(&memory)).expect("stacks of the model");
    assert_eq!(sorted(made(back, &memory)), sorted(files));
}

#[test]
fn scales_follow_experts_whose_last_word_changes() {
    let config = r#"{"model_type": "granitemoe", "num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 8,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10, "num_local_experts": 3}"#;
    let fp8 = model(&config.replace("\"num_hidden", FP8));
    let files = released(&fp8);
    let scales = "model.layers.0.block_sparse_moe.input_linear.weight_scale_inv";
    assert!(files.iter().any(|(name, _)| name == scales), "{files:?}");
    let memory = made(fp8.to_modules(LayoutId::RELEASED, &views(&files)).expect("stacks"), &files);
    assert_eq!(sorted(memory.clone()), sorted(modules(&fp8)));
    let back = fp8.from_modules(LayoutId::RELEASED, &views(&memory)).expect("stacks");
    assert_eq!(sorted(made(back, &memory)), sorted(files));
}

#[test]
fn a_stack_needs_all_its_parts() {
    let model = model(MIXTRAL);
    let name = "model.layers.1.block_sparse_moe.experts.10.w3.weight";
    let error = model.to_modules(LayoutId::RELEASED, &views(&without(&released(&model), |it| it == name)));
    let error = error.expect_err("an expert is missing").to_string();
    assert_eq!(
        error,
        format!("there is no tensor `{name}`, which another layout of the model stacks with others")
    );
    let stack = ("model.layers.1.mlp.experts.down_proj".to_owned(), vec![11, 8, 6]);
    let error =
        model.from_modules(LayoutId::RELEASED, &views(&vec![stack])).expect_err("11 of 12").to_string();
    assert!(error.starts_with("`model.layers.1.mlp.experts.down_proj` has the shape [11, 8, 6]"), "{error}");
}

//! Each flag of a block, against the formulas in f64.

use std::sync::atomic::{AtomicUsize, Ordering};

use byte_source::Observer;
use decoder::LayoutOwner;
use forward::{ForwardModel, LogitPositions};
use serde_json::{Value, json};
use tensor::Dtype;

use super::reference::{Kind, Random, VOCAB};
use super::{ON, largest_difference, logits, model, past, tokens};

/// LLaMA.
fn plain() -> Kind {
    Kind {
        layout: LayoutOwner::HuggingFace,
        rotated: 6,
        ropes: json!([{"theta": 10000.0, "scaling": null}]),
        rope_of_layer: Value::Null,
        windows: json!({"size": null, "layers": "All"}),
        has_biases: false,
        block: json!({}),
        is_turned: false,
    }
}

fn block(block: Value) -> Kind {
    Kind { block, ..plain() }
}

fn without_ropes(other: Value) -> Kind {
    Kind { rope_of_layer: json!([null, null]), ..block(other) }
}

fn rope(scaling: &Value) -> Kind {
    Kind { ropes: json!([{"theta": 100.0, "scaling": scaling}]), ..plain() }
}

/// The flags of eight experts, changed by `other`.
fn experts(other: Value) -> Value {
    let mut experts = json!({
        "count": 8, "per_token": 3, "hidden": 20, "softmax": "BeforeChoice", "renormalised": false, "biases": false,
        "interleaved": false, "shared": null, "layers": [true, true],
    });
    if let (Some(all), Value::Object(other)) = (experts.as_object_mut(), other) {
        all.extend(other);
    }
    json!({ "experts": experts })
}

fn sigmoid([groups, chosen_groups]: [u64; 2]) -> Value {
    json!({"Sigmoid": {"groups": groups, "chosen_groups": chosen_groups, "factor": 2.5}})
}

fn delta_net(fused: bool) -> Value {
    let activation = if fused { "GeluTanh" } else { "Silu" };
    json!({"activation": activation, "head_norm": "Head", "norm": "RmsPlusOne", "gated_attention": true, "delta_net": {
        "key_heads": 2, "value_heads": 4, "key_dim": 5, "value_dim": 3, "kernel": 4, "fused": fused,
        "layers": [fused, !fused]
    }})
}

/// Layers of two kinds, of which the one with a window comes first if there is one.
fn mixed(has_window: bool, other: &Value) -> Kind {
    let proportional = json!({"theta": 100.0, "scaling": {"Proportional": {"part": 0.5, "factor": 2.0}}});
    let mut block = json!({
        "head_norm": "Head", "norms": "Both", "scores": {"scale": 1.0}, "activation": "GeluTanh", "mixed_heads": {
            "head_dim": 10, "kv_heads": 1, "keys_are_values": has_window, "first_shared": 1 + u64::from(has_window),
            "doubles_hidden": true,
    }});
    if let (Some(all), Some(other)) = (block.as_object_mut(), other.as_object()) {
        all.extend(other.clone());
    }
    Kind {
        ropes: json!([proportional, {"theta": 10000.0, "scaling": null}]),
        rope_of_layer: json!([u64::from(has_window), 0]),
        windows: json!({"size": 5, "layers": {"Listed": [has_window, false]}}),
        block,
        ..plain()
    }
}

fn kinds() -> Vec<(&'static str, Kind)> {
    let long = json!({"LongRope": {"short": [1.0, 1.5, 2.0], "long": [1.5, 3.0, 7.0], "old": 30.0, "magnitude": 1.2}});
    let dynamic = json!({"Dynamic": {"factor": 3.0, "old": 20.0}});
    let yarn = json!({"Yarn": {
        "factor": 4.0, "fast": 8.0, "slow": 1.0, "old": 64.0, "magnitude": 1.3, "truncate": true
    }});
    let clamped = json!({"ClampedSwiglu": {"alpha": 1.702, "limit": 0.9}});
    let mut interleaved = experts(json!({"softmax": "AfterChoice", "biases": true, "interleaved": true}));
    interleaved["activation"] = clamped.clone();
    vec![
        ("weights plus one, norms before and after", block(json!({"norm": "RmsPlusOne", "norms": "Both"}))),
        ("norms after", block(json!({"norms": "After"}))),
        ("layer norms", block(json!({"norm": "Layer"}))),
        ("layer norms after", block(json!({"norm": "Layer", "norms": "After"}))),
        ("parallel", block(json!({"norm": "Layer", "parallel": true, "head_norm": "EachHead"}))),
        ("norm of heads", block(json!({"head_norm": "Head", "norm": "RmsPlusOne"}))),
        (
            "layer norm of heads with biases",
            Kind { has_biases: true, ..block(json!({"head_norm": "Head", "norm": "Layer"})) },
        ),
        ("norm of each head", block(json!({"head_norm": "EachHead"}))),
        ("norm of projections", block(json!({"head_norm": "Projection", "norms": "After"}))),
        ("scale of scores", block(json!({"scores": {"scale": 0.7}}))),
        ("cap of scores", block(json!({"scores": {"soft_cap": 0.8, "scale": 0.9}}))),
        ("sinks", block(json!({"scores": {"sinks": true}}))),
        ("layer norms without biases", block(json!({"norm": "LayerWithoutBias", "head_norm": "Heads"}))),
        ("norm of heads after the rotation", block(json!({"head_norm": "Head", "head_norm_last": true}))),
        ("limit of queries, keys and values", block(json!({"qkv_limit": 0.7, "head_norm": "Projection"}))),
        ("scale of queries", block(json!({"query_scale": {"beta": 0.4, "old": 3.0}}))),
        ("learned positions", without_ropes(json!({"learned_positions": {"count": 512, "offset": 2}}))),
        ("ALiBi", without_ropes(json!({"alibi": "AfterScale", "fused_heads": true, "embedding_norm": true}))),
        ("ALiBi that is scaled", without_ropes(json!({"alibi": "BeforeScale", "norm": "Layer"}))),
        ("queries, keys and values by head", block(json!({"fused_heads": true}))),
        ("norms of embeddings", block(json!({"embedding_norm": true, "norm": "Layer"}))),
        ("rows that are added to norms", block(json!({"adds_to_norms": true}))),
        ("parallel with two norms", block(json!({"parallel": true, "parallel_norms": true}))),
        ("heads of two sizes", mixed(true, &json!({"layer_scalars": true}))),
        ("shared keys and values", mixed(false, &json!({"layer_inputs": {"width": 5, "vocab": VOCAB + 3}}))),
        (
            "experts next to dense layers",
            mixed(true, &experts(json!({"softmax": "Scaled", "renormalised": true, "beside_dense": true}))),
        ),
        ("DeltaNet", block(delta_net(false))),
        ("fused DeltaNet", block(delta_net(true))),
        ("ReLU", block(json!({"activation": "Relu"}))),
        (
            "squared ReLU without a gate",
            Kind { has_biases: true, ..block(json!({"activation": "ReluSquared", "feed_forward": "Plain"})) },
        ),
        ("xIELU", block(json!({"activation": "Xielu", "feed_forward": "Plain"}))),
        ("sparsemixer", block(experts(json!({"per_token": 2, "softmax": {"Sparsemixer": {"jitter": 0.1}}})))),
        ("sigmoid router", block(experts(json!({"softmax": sigmoid([1, 1]), "renormalised": true})))),
        ("sigmoid router with groups", block(experts(json!({"softmax": sigmoid([4, 2])})))),
        ("GELU", block(json!({"activation": "Gelu"}))),
        ("GELU with tanh", block(json!({"activation": "GeluTanh"}))),
        ("clamped SwiGLU", block(json!({ "activation": clamped }))),
        (
            "scales",
            block(
                json!({"scales": {"embedding": 2.5, "residual": 0.4, "logits": 0.3, "logits_soft_cap": 0.5}}),
            ),
        ),
        ("scale of logits", block(json!({"scales": {"logits": 0.3}}))),
        ("cap of logits", block(json!({"scales": {"logits_soft_cap": 0.5}}))),
        ("part of a head", Kind { rotated: 4, has_biases: true, ..plain() }),
        ("part of a head, neighbours", Kind { rotated: 4, layout: LayoutOwner::Meta, ..plain() }),
        ("linear", rope(&json!({"Linear": {"factor": 2.0}}))),
        ("dynamic", rope(&dynamic)),
        ("dynamic, neighbours", Kind { layout: LayoutOwner::Meta, rotated: 4, ..rope(&dynamic) }),
        ("yarn", rope(&yarn)),
        ("longrope", rope(&long)),
        ("no positions in one layer", Kind { rope_of_layer: json!([0, null]), ..plain() }),
        (
            "two bases and a window",
            Kind {
                ropes: json!([{"theta": 10000.0, "scaling": null}, {"theta": 50.0, "scaling": null}]),
                rope_of_layer: json!([1, 0]),
                windows: json!({"size": 5, "layers": {"Listed": [true, false]}}),
                ..plain()
            },
        ),
        ("experts", block(experts(json!({})))),
        ("renormalised experts", block(experts(json!({"renormalised": true, "layers": [false, true]})))),
        ("softmax of the chosen experts", block(experts(json!({"softmax": "AfterChoice", "biases": true})))),
        ("a shared expert", block(experts(json!({"shared": {"hidden": 11, "gated": false}})))),
        ("a gated shared expert", block(experts(json!({"shared": {"hidden": 11, "gated": true}})))),
        ("interleaved experts", block(interleaved.clone())),
        ("interleaved experts by columns", Kind { is_turned: true, ..block(interleaved) }),
    ]
}

/// Returns a model of each kind of block.
pub(crate) fn models() -> impl Iterator<Item = (&'static str, ForwardModel)> {
    kinds().into_iter().map(|(name, kind)| (name, model(&Random::from_record(&kind, Dtype::BFloat16, 15), 2)))
}

/// The largest difference, relative to the largest number.
fn error(found: &[f32], expected: &[Vec<f64>]) -> f64 {
    let expected: Vec<f64> = expected.concat();
    assert_eq!(found.len(), expected.len());
    let most = expected.iter().fold(0.0, |most: f64, number| most.max(number.abs()));
    let differences =
        found.iter().zip(expected).map(|(found, expected)| (f64::from(*found) - expected).abs());
    // Not a maximum of `f64::max`, which ignores what is not a number.
    differences.fold(0.0, |most, it| if it <= most { most } else { it }) / most
}

#[test]
fn each_flag_is_what_its_formula_says() {
    for (name, kind) in kinds() {
        // Products of more rows would round to bfloat16 what they multiply weights of that dtype with.
        for (dtype, count, tolerance) in [
            (Dtype::Float64, 70, 2e-7),
            (Dtype::Float32, 70, 2e-5),
            (Dtype::Float16, 70, 2e-5),
            (Dtype::BFloat16, 8, 2e-5),
        ] {
            let random = Random::from_record(&kind, dtype, 11);
            let tokens = tokens(count, 3);
            let error = error(&logits(&model(&random, 2), &tokens), &random.logits(&tokens));
            assert!(error < tolerance, "{name} in {dtype}: {error}");
        }
    }
}

#[test]
fn each_flag_changes_the_logits() {
    let run = |kind: &Kind| {
        let random = Random::from_record(kind, Dtype::Float64, 11);
        random.logits(&tokens(70, 3)).concat()
    };
    let llama = run(&plain());
    for (name, kind) in kinds() {
        let differences = run(&kind).into_iter().zip(&llama).map(|(a, b)| (a - b).abs());
        assert!(differences.fold(0.0, f64::max) > 1e-3, "{name}");
    }
}

#[test]
fn calls_with_a_cache_are_what_the_formulas_say() {
    let parts = [25, 1, 1, 9, 1, 1, 68, 1, 1];
    for (name, kind) in kinds() {
        let random = Random::from_record(&kind, Dtype::Float32, 12);
        let model = model(&random, 2);
        let sequences = [tokens(108, 4), tokens(108, 9)];
        let mut cache = model.cache(2).expect("a few bytes");
        let expected = sequences.each_ref().map(|tokens| random.logits_of_parts(tokens, &parts));
        let mut first = 0;
        for (number, part) in parts.into_iter().enumerate() {
            let ids: Vec<i64> = sequences.iter().flat_map(|it| &it[first..first + part]).copied().collect();
            let found = model.forward(&ids, 2, &mut cache, LogitPositions::All, ON).expect("known ids");
            for (found, expected) in found.chunks(part * VOCAB).zip(&expected) {
                let error = error(found, &expected[first..first + part]);
                assert!(error < 3e-5, "{name}, {part} tokens after {first}: {error}");
            }
            first += part;
            if number % 4 == 3 {
                // As a client that sends the outputs back.
                cache = model.cache_from_tensors(2, &past(&cache)).expect("its own");
            }
        }
    }
}

#[test]
fn a_text_that_goes_through_the_layers_in_pieces_has_the_angles_of_its_length() {
    // More tokens than go through the layers at once.
    for (name, kind) in kinds().into_iter().filter(|(name, _)| ["dynamic", "longrope"].contains(name)) {
        let random = Random::from_record(&kind, Dtype::Float64, 13);
        let tokens = tokens(700, 5);
        let error = error(&logits(&model(&random, 2), &tokens), &random.logits(&tokens));
        assert!(error < 2e-7, "{name}: {error}");
    }
}

#[test]
fn the_last_rows_and_other_numbers_of_threads_are_the_same() {
    for (name, kind) in kinds() {
        let random = Random::from_record(&kind, Dtype::Float32, 14);
        let tokens = tokens(90, 6);
        let run = |threads, rows| {
            let model = model(&random, threads);
            let mut cache = model.cache(2).expect("a few bytes");
            model.forward(&tokens, 2, &mut cache, rows, ON).expect("known ids")
        };
        let all = run(1, LogitPositions::All);
        assert_eq!(run(2, LogitPositions::All), all, "{name}");
        assert_eq!(run(5, LogitPositions::All), all, "{name}");
        for (all, last) in all.chunks(45 * VOCAB).zip(run(2, LogitPositions::Last).chunks(VOCAB)) {
            assert!(largest_difference(&all[44 * VOCAB..], last) < 2e-5, "{name}");
        }
    }
}

#[test]
fn tokens_beyond_the_learned_positions_are_refused() {
    let kind = Kind {
        rope_of_layer: json!([null, null]),
        ..block(json!({"learned_positions": {"count": 8, "offset": 2}}))
    };
    let model = model(&Random::from_record(&kind, Dtype::Float32, 3), 1);
    let mut cache = model.cache(1).expect("a few bytes");
    let mut run = |count| {
        let result = model.forward(&tokens(count, 1), 1, &mut cache, LogitPositions::Last, ON);
        (result.map(|_| ()).map_err(|error| error.to_string()), cache.len())
    };
    assert_eq!(run(6), (Ok(()), 6));
    assert_eq!(run(3), (Err("there are 9 tokens, and the model has positions for 8".to_owned()), 6));
    assert_eq!(run(2), (Ok(()), 8));
}

/// Stops after this number of layers.
struct StopAfter {
    layers: usize,
    seen: AtomicUsize,
}

impl StopAfter {
    fn new(layers: usize) -> Self {
        Self { layers, seen: AtomicUsize::new(0) }
    }
}

impl Observer for StopAfter {
    fn is_cancelled(&self) -> bool {
        self.seen.fetch_add(1, Ordering::Relaxed) >= self.layers
    }
}

#[test]
fn a_call_that_is_stopped_leaves_the_cache_as_it_was() {
    for (name, kind) in kinds() {
        let random = Random::from_record(&kind, Dtype::Float64, 15);
        let (model, tokens) = (model(&random, 2), tokens(35, 7));
        let mut cache = model.cache(1).expect("a few bytes");
        model.forward(&tokens[..25], 1, &mut cache, LogitPositions::Last, ON).expect("known ids");
        let stopped = model.forward(&tokens[20..], 1, &mut cache, LogitPositions::All, &StopAfter::new(1));
        assert!(stopped.is_err_and(|error| error.is_cancelled()) && cache.len() == 25, "{name}");
        let found = model.forward(&tokens[25..], 1, &mut cache, LogitPositions::All, ON).expect("known ids");
        let expected = random.logits_of_parts(&tokens, &[25, 10]);
        let error = error(&found, &expected[25..]);
        assert!(error < 2e-7, "{name}: {error}");
    }
}

#[test]
fn a_call_that_is_stopped_after_its_first_piece_leaves_the_cache_as_it_was() {
    for dtype in [Dtype::Float32, Dtype::Float64] {
        let model = model(&Random::from_record(&plain(), dtype, 16), 2);
        let mut cache = model.cache(1).expect("a few bytes");
        model.forward(&tokens(3, 8), 1, &mut cache, LogitPositions::Last, ON).expect("known ids");
        // Each piece of 512 tokens goes through two layers.
        let stopped = model.forward(&tokens(700, 8), 1, &mut cache, LogitPositions::Last, &StopAfter::new(3));
        assert!(stopped.is_err_and(|error| error.is_cancelled()) && cache.len() == 3, "{}", cache.len());
    }
}

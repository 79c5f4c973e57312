//! Tests of decoder modules: their ports, their text, and the storage of their tensors.

#[path = "../../../../../model/decoder/tests/it/fixtures/mod.rs"]
pub(super) mod fixtures;

use decoder::{DecoderOptions, LayerPart, LayoutOwner, ModelDocuments, Weight};
use tensor::Tensor;

use crate::{
    Module, ModuleCode, ModulePort, OnInvalidInput, decoder_module, detect_module, positional_decoder_module,
};
use fixtures::{name, tensors, zeros};

fn params() -> DecoderOptions {
    let text =
        r#"{"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "multiple_of": 8, "vocab_size": -1}"#;
    let documents = ModelDocuments { params: Some(text.to_owned()), ..ModelDocuments::default() };
    DecoderOptions { documents, ..DecoderOptions::default() }
}

fn config(text: &str) -> DecoderOptions {
    let documents = ModelDocuments { config: Some(text.to_owned()), ..ModelDocuments::default() };
    DecoderOptions { documents, ..DecoderOptions::default() }
}

fn meta_tensors() -> Vec<(String, Tensor)> {
    let mut all = tensors(LayoutOwner::Meta, 1);
    all.push(zeros("rope.freqs", &[2]));
    all
}

fn code(converted: &Module) -> String {
    String::from_utf8(converted.archive.code().to_vec()).expect("it was text")
}

#[test]
fn metas_names_make_a_module_from_tokens_to_logits() {
    let converted = detect_module(&meta_tensors().clone().into(), &params(), OnInvalidInput::Return)
        .expect("params and shapes agree");
    assert_eq!((converted.code.name(), converted.notes.len()), ("llama", 0));
    let ports = |ports: &[ModulePort]| {
        ports.iter().map(|port| (port.name.clone(), port.shape.len(), port.optional)).collect::<Vec<_>>()
    };
    let port = |name: &str, dims, optional| (name.to_owned(), dims, optional);
    assert_eq!(
        ports(&converted.inputs),
        [
            port("tokens", 2, false),
            port("last_only", 0, true),
            port("use_cache", 0, true),
            port("past_key", 5, true),
            port("past_value", 5, true)
        ]
    );
    assert_eq!(
        ports(&converted.outputs.ports(&[].to_vec().into()).collect::<Vec<_>>()),
        [port("logits", 3, false), port("present_key", 5, true), port("present_value", 5, true)]
    );
    let code = code(&converted);
    // No template marker is left, and the text does not depend on the number of layers.
    for rest in ["Self", "{ns}", "{_}", "{linear", "{split}", "{dim}"] {
        assert!(!code.contains(rest), "{rest}: {code}");
    }
    assert!(!code.contains("\"bq\"") && code.matches("torch.linear(").count() == 16, "{code}");
}

#[test]
fn hugging_faces_names_rotate_halves() {
    let all = tensors(LayoutOwner::HuggingFace, 1);
    let options = config(r#"{"model_type": "llama", "num_attention_heads": 4}"#);
    let converted = detect_module(&all.clone().into(), &options, OnInvalidInput::Return)
        .expect("config and shapes agree");
    assert_eq!((converted.code.name(), converted.notes.len()), ("llama", 0));
    assert!(code(&converted).contains("torch.select(y, -2, 0)"));
    let named =
        decoder_module("llama", &all.clone().into(), &options, OnInvalidInput::Return).expect("it is one");
    assert_eq!(code(&named), code(&converted));
}

#[test]
fn a_positional_forward_takes_tokens_and_returns_logits() {
    let converted = detect_module(&meta_tensors().clone().into(), &params(), OnInvalidInput::Return)
        .expect("params and shapes agree");
    let ModuleCode::Decoder(decoder) = &converted.code else { panic!("it runs") };
    let positional =
        positional_decoder_module(decoder, &meta_tensors().clone().into(), false).expect("it was a model");
    let names = |ports: &[ModulePort]| ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&positional.inputs), ["tokens"]);
    assert_eq!(names(&positional.outputs.ports(&[].to_vec().into()).collect::<Vec<_>>()), ["logits"]);
    // Only a module that takes a dict has an object that Python calls.
    let has_entry = |module: &Module| module.archive.data_pkl().windows(6).any(|window| window == b"Entry\n");
    assert_eq!((has_entry(&positional), has_entry(&converted)), (false, true));
    let (before, after) = (code(&converted), code(&positional));
    let signature = "  def forward(self: __torch__.torch2carton.Llama,\n    tokens: Tensor) -> Tensor:\n";
    assert!(after.contains(signature), "{after}");
    // The computation is the same.
    let computed = |code: &str| {
        let class = code.split_once("class Llama(").expect("it has one").1;
        let methods = class.split_once("\ndef ").expect("functions follow").0;
        methods[methods.find("  def infer(").expect("it has one")..].to_owned()
    };
    assert_eq!(computed(&before), computed(&after));
}

#[test]
fn wrong_inputs_are_returned_or_raised() {
    let made = |errors| {
        code(
            &detect_module(&meta_tensors().clone().into(), &params(), errors)
                .expect("params and shapes agree"),
        )
    };
    let (returned, raised) = (made(OnInvalidInput::Return), made(OnInvalidInput::Raise));
    let (statement, other) = ("torch._set_item(out, \"error\", wrong)", "ops.prim.RaiseException(wrong)");
    assert_eq!((returned.matches(statement).count(), returned.matches("RaiseException").count()), (2, 0));
    assert_eq!(returned.replace(statement, other), raised);
}

#[test]
fn biases_are_added_to_the_products() {
    let mut all = tensors(LayoutOwner::HuggingFace, 1);
    for layer in 0..2 {
        for (part, size) in [(LayerPart::Wq, 16), (LayerPart::Wk, 8), (LayerPart::Wv, 8)] {
            all.push(zeros(&name(LayoutOwner::HuggingFace, Weight::Bias { layer, part }), &[size]));
        }
    }
    let options = config(r#"{"model_type": "qwen2", "num_attention_heads": 4}"#);
    let code = code(
        &decoder_module("qwen2", &all.clone().into(), &options, OnInvalidInput::Return)
            .expect("all is there"),
    );
    assert_eq!(code.matches(".weight(weights[\"bq\"], i, x)").count(), 2, "{code}");
    assert!(!code.contains("\"bo\""), "{code}");
}

#[test]
fn unused_tensors_are_kept_and_tied_ones_are_stored_once() {
    let mut all = tensors(LayoutOwner::Meta, 1);
    all.retain(|(name, _)| name != "output.weight");
    all.push(zeros("lora", &[1]));
    let kept = detect_module(
        &all.clone().into(),
        &DecoderOptions { keep_extra: true, ..params() },
        OnInvalidInput::Return,
    )
    .expect("it is kept");
    assert_eq!(kept.archive.records().len(), all.len());
    assert_eq!(kept.notes.len(), 2);
}

#[test]
fn weights_without_documents_have_a_reason_and_a_note() {
    let converted = detect_module(
        &tensors(LayoutOwner::Meta, 1).clone().into(),
        &DecoderOptions::default(),
        OnInvalidInput::Return,
    )
    .expect("weights");
    let ModuleCode::Weights { why } = converted.code else { panic!("a model") };
    assert_eq!(why, Some(decoder::NoModelReason::NoDocuments));
    assert_eq!(converted.notes, [crate::ModuleNote::Decoder(decoder::DecoderNote::LlamaNames)]);
}

#[test]
fn names_of_tensors_do_not_collide_with_the_modules_own() {
    let mut all = meta_tensors();
    all.extend(["__tensors__", "vocab", "vocab_"].map(|name| zeros(name, &[1])));
    let code = code(
        &detect_module(
            &all.clone().into(),
            &DecoderOptions { keep_extra: true, ..params() },
            OnInvalidInput::Return,
        )
        .expect("they are kept"),
    );
    assert!(code.contains("  vocab__ : int\n") && code.contains("self.__tensors____\n"), "{code}");
}

#[test]
fn dynamic_frequencies_grow_with_a_power_of_the_base() {
    let options = config(
        r#"{"model_type": "llama", "num_attention_heads": 2, "max_position_embeddings": 8,
            "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}"#,
    );
    let all = tensors(LayoutOwner::HuggingFace, 1);
    let converted =
        detect_module(&all.into(), &options, OnInvalidInput::Return).expect("config and shapes agree");
    let ModuleCode::Decoder(_) = &converted.code else { panic!("weights") };
    // -2 * pair / (dim - 2) for the four pairs of a head of 8 numbers.
    let exponents = [-0.0, -2.0 / 6.0, -4.0 / 6.0, -6.0 / 6.0_f64];
    // A module holds the bits of its numbers, as long integers.
    let long = |number: &f64| [&b"\x8a\x08"[..], &number.to_le_bytes()].concat();
    let pickled: Vec<u8> = exponents.iter().flat_map(long).collect();
    let pickle = converted.archive.data_pkl();
    assert!(pickle.windows(pickled.len()).any(|window| window == pickled));
}

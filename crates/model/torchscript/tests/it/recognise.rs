//! Archives that this project writes are recognised, whatever the order of the checkpoint, and changed ones are not.

use byte_source::{Blob, MappedFile};
use decoder::{DecoderOptions, LayerPart, LayoutOwner, ModelDocuments, Weight};
use proptest::prelude::*;
use tensor::{Dtype, Storage, Tensor};
use torch_import::{Checkpoint, Container};
use torchscript::{
    Module, OnInvalidInput, Recognised, RecognisedModel, detect_module, recognise, weights_module,
};

use crate::fixtures::{name, tensors, zeros};

/// What the archive at `path` is.
fn recognised(path: &std::path::Path) -> Recognised {
    let container = Container::open(path).expect("an archive");
    let checkpoint = Checkpoint::read(&container).expect("its objects");
    let tensors = checkpoint.to_tensors();
    recognise(&container.records_besides_storages(), tensors)
}

/// The same of an archive that is written to a file.
fn written(converted: &Module) -> Recognised {
    changed(converted, |_, bytes| bytes.to_vec(), &[])
}

/// The same, its records changed by `change` and with `more` records. All checksums are right: a hostile writer computes them.
fn changed(
    converted: &Module,
    change: impl Fn(&str, &[u8]) -> Vec<u8>,
    more: &[(&str, &[u8])],
) -> Recognised {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, other) = (folder.path().join("model.pt"), folder.path().join("other.pt"));
    let mut bytes: Vec<u8> = Vec::new();
    converted.archive.write_to(&mut bytes).expect("memory takes it");
    std::fs::write(&path, bytes).expect("a temporary folder");
    let file = MappedFile::open(&path).expect("it was written");
    let index = zip_format::ZipIndex::read(&file).expect("a zip file");
    let records = index.entries.iter().map(|entry| {
        let bytes = entry.stored(file.bytes());
        (entry.name.clone(), change(entry.name.strip_prefix("model/").expect("the root folder"), bytes))
    });
    let more = more.iter().map(|(name, bytes)| (format!("model/{name}"), bytes.to_vec()));
    std::fs::write(&other, test_support::stored_zip(records.chain(more))).expect("a temporary folder");
    recognised(&other)
}

fn config(text: &str) -> DecoderOptions {
    let documents = ModelDocuments { config: Some(text.to_owned()), ..ModelDocuments::default() };
    DecoderOptions { documents, keep_extra: true, ..DecoderOptions::default() }
}

fn params() -> DecoderOptions {
    let text = r#"{"dim": 16, "n_layers": 2, "n_heads": 4, "vocab_size": -1, "use_scaled_rope": true, "rope_theta": 5e5}"#;
    let documents = ModelDocuments { params: Some(text.to_owned()), ..ModelDocuments::default() };
    DecoderOptions { documents, keep_extra: true, ..DecoderOptions::default() }
}

fn qwen2() -> (Vec<(String, Tensor)>, DecoderOptions) {
    let mut all = tensors(LayoutOwner::HuggingFace, 1);
    for layer in 0..2 {
        for (part, size) in [(LayerPart::Wq, 16), (LayerPart::Wk, 8), (LayerPart::Wv, 8)] {
            all.push(zeros(&name(LayoutOwner::HuggingFace, Weight::Bias { layer, part }), &[size]));
        }
    }
    let text = r#"{"model_type": "qwen2", "num_attention_heads": 4, "use_sliding_window": true, "sliding_window": 7,
                   "max_window_layers": 1, "rms_norm_eps": 0.001}"#;
    (all, config(text))
}

fn decoder(found: Recognised) -> RecognisedModel {
    match found {
        Recognised::Decoder(model) => *model,
        Recognised::Weights { .. } => panic!("only weights"),
        Recognised::Other { record } => panic!("another {record}"),
    }
}

#[test]
fn all_facts_about_a_decoder_come_back() {
    let (all, options) = qwen2();
    let converted = detect_module(&all.clone().into(), &options, OnInvalidInput::Return)
        .expect("documents and shapes agree");
    let RecognisedModel { decoder, assignment, tensors } = decoder(written(&converted));
    assert_eq!(decoder.architecture().name(), "qwen2");
    assert_eq!((decoder.dim(), decoder.n_layers(), decoder.n_heads(), decoder.n_kv_heads()), (16, 2, 4, 2));
    assert_eq!((decoder.head_dim(), decoder.hidden(), decoder.vocab()), (4, 48, 32));
    assert_eq!((decoder.norm_eps().to_bits(), &decoder.rope().scaling), (0.001_f64.to_bits(), &None));
    assert_eq!([0, 1].map(|layer| decoder.windows().window_of(layer)), [None, Some(7)]);
    assert!(decoder.biases().qkv && !decoder.biases().output && !decoder.biases().feed_forward);
    assert!(decoder.rotates_halves());
    let detected = decoder::detect(&tensors, &options).expect("the same tensors");
    let decoder::Detected::Model(detected) = detected else { panic!("weights") };
    let places = |assignment: &decoder::Assignment| {
        assignment.weights.iter().map(|assigned| (assigned.weight, assigned.index)).collect::<Vec<_>>()
    };
    assert_eq!(places(&assignment), places(&detected.assign(&tensors, true).expect("the same")));
    assert_eq!(
        tensors.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        all.iter().map(|(name, _)| name).collect::<Vec<_>>()
    );

    let converted = detect_module(&tensors_of_meta().clone().into(), &params(), OnInvalidInput::Raise)
        .expect("documents and shapes agree");
    let model = self::decoder(written(&converted));
    assert!(!model.decoder.rotates_halves());
    assert_eq!(
        model.decoder.rope().scaling,
        Some(decoder::RopeScaling::Llama3(decoder::Llama3::with_factor(8.0)))
    );
    assert_eq!(model.tensors.len(), tensors_of_meta().len());
}

/// With a tied output, tensors of the module's own names, and one that the model does not use.
fn tensors_of_meta() -> Vec<(String, Tensor)> {
    let mut all = tensors(LayoutOwner::Meta, 1);
    all.retain(|(name, _)| name != "output.weight");
    all.extend(["__tensors__", "window", "cat_dim", "rope.freqs"].map(|name| zeros(name, &[2])));
    all
}

#[test]
fn blocks_come_back_as_their_numbers() {
    // A LLaMA of twice the width, whose matrices are blocks, and whose output is tied.
    let widened = |(name, tensor): (String, Tensor)| {
        let shape: Vec<u64> = tensor.shape().iter().map(|size| 2 * size).collect();
        let &[rows, columns] = shape.as_slice() else { return zeros(&name, &shape) };
        let row = columns / 32 * 34;
        let bytes = (0..rows * row).map(|number| u8::try_from(number % 57).expect("it is small")).collect();
        let blocks = Tensor::new(Dtype::UInt8, vec![rows, row], vec![row, 1], 0, Storage::owned(bytes));
        let numbers = Tensor::from_q8_0_blocks(&blocks.expect("it has all bytes"));
        (name, numbers.expect("whole blocks"))
    };
    let mut all: Vec<_> = tensors(LayoutOwner::HuggingFace, 1).into_iter().map(widened).collect();
    all[2].1 = all[0].1.clone();
    let options = config(r#"{"model_type": "llama", "num_attention_heads": 4}"#);
    let converted = detect_module(&all.clone().into(), &options, OnInvalidInput::Return)
        .expect("documents and shapes agree");
    let found = decoder(written(&converted));
    let bytes = |tensor: &Tensor| {
        let mut bytes: Vec<u8> = Vec::new();
        tensor.gathered().write_to(&mut bytes).expect("it can be read");
        bytes
    };
    for (name, tensor) in &all {
        let found = found.tensors.get(name).expect("it is there");
        assert_eq!((found.dtype(), found.shape()), (tensor.dtype(), tensor.shape()), "{name}");
        assert_eq!(found.kept_q8_0_blocks().is_some(), tensor.shape().len() == 2, "{name}");
        assert_eq!(bytes(found), bytes(tensor), "{name}");
    }
    let id = |place: usize| found.tensors.get(&all[place].0).map(Tensor::view_id);
    assert_eq!(id(0), id(2));
    // 34 bytes for 32 numbers, the tied ones once.
    let stored = converted.archive.records().iter().map(|record| record.storage().len());
    let numbers = all.iter().skip(1).filter(|(_, tensor)| tensor.shape().len() == 2);
    let expected: u64 = numbers.map(|(_, tensor)| tensor.numel() / 32 * 34).sum();
    assert_eq!(stored.filter(|len| *len != 2 * 64 * 64).sum::<u64>(), expected);
    let code = |name: &str, bytes: &[u8]| match name {
        "code/__torch__/torch2carton.py" => {
            String::from_utf8_lossy(bytes).replace("[-1, 34]", "[-1, 68]").into_bytes()
        }
        _ => bytes.to_vec(),
    };
    assert!(matches!(changed(&converted, code, &[]), Recognised::Other { .. }));
}

#[test]
fn tensors_that_share_a_storage_are_recognised() {
    let (mut all, options) = qwen2();
    let output = all.iter().position(|(name, _)| name == "lm_head.weight").expect("it is there");
    let embedding =
        all.iter().find(|(name, _)| name == "model.embed_tokens.weight").expect("it is there").1.clone();
    // As `state_dict()` has them: the output last.
    all.remove(output);
    all.push(("lm_head.weight".to_owned(), embedding));
    let converted = detect_module(&all.clone().into(), &options, OnInvalidInput::Return)
        .expect("documents and shapes agree");
    let RecognisedModel { assignment, tensors, .. } = decoder(written(&converted));
    let place = |name: &str| tensors.iter().position(|(found, _)| found == name).expect("it is there");
    assert_eq!(assignment.weights[0].index, place("model.embed_tokens.weight"));
    assert_eq!(assignment.weights[2].index, place("lm_head.weight"));
}

#[test]
fn weights_are_recognised_in_the_order_of_the_checkpoint() {
    for names in [vec!["b.w", "a.w", "top", "b.0", "__tensors__"], vec!["a.b", "a", "x.training"], vec![]] {
        let all: Vec<_> = names.iter().map(|name| zeros(name, &[2, 3])).collect();
        for errors in [OnInvalidInput::Return, OnInvalidInput::Raise] {
            let found = written(&weights_module(&all.clone().into(), errors).expect("plain names"));
            let Recognised::Weights { tensors } = found else { panic!("{found:?}") };
            assert_eq!(tensors.iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
        }
    }
}

/// The bytes with the texts `from` and `to` in each other's places.
fn swapped(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    const NEITHER: &str = "\u{100}";
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    assert!(text.contains(from), "{from}");
    let text = text.replace(from, NEITHER).replace(to, from).replace(NEITHER, to);
    text.chars().map(|byte| u8::try_from(byte).expect("each was a byte")).collect()
}

const CODE: &str = "code/__torch__/torch2carton.py";

/// The first record in which what is written now differs from an archive.
fn difference(now: &Module, path: &std::path::Path) -> Option<String> {
    let container = Container::open(path).expect("an archive");
    now.archive.first_difference(&container.records_besides_storages()).map(|difference| difference.record)
}

/// A qwen2 of width 16 with a window of 6 in the second of two layers, as a carton holds it.
#[test]
fn a_stored_decoder_is_recognised_and_written_again() {
    let path = stored("decoder.pt");
    let RecognisedModel { decoder, assignment, tensors } = decoder(recognised(&path));
    assert_eq!([0, 1].map(|layer| decoder.windows().window_of(layer)), [None, Some(6)]);
    assert_eq!((decoder.hidden(), tensors.len()), (24, 27));
    let queries = assignment.weights[3].index;
    assert_eq!(tensors.as_slice()[queries].0, "model.layers.0.self_attn.q_proj.weight");
    let document = r#"{"model_type": "qwen2", "rope_theta": 10000.0, "num_attention_heads": 4,
                       "use_sliding_window": true, "sliding_window": 6, "max_window_layers": 1, "rms_norm_eps": 1e-6}"#;
    let now = detect_module(&tensors, &config(document), OnInvalidInput::Return).expect("documents agree");
    assert_eq!(difference(&now, &path), None);
}

/// Weights with dtypes that are converted, a transposed tensor and a tensor that is called like the module's own attribute;
/// and pairs of 4-bit floats.
#[test]
fn stored_weights_are_recognised_and_written_again() {
    const NAMES: &[&str] = &["b.w", "a.w", "top", "b.0", "__tensors__"];
    for (name, names) in [("weights.pt", NAMES), ("float4.pt", &["x"])] {
        let path = stored(name);
        let found = recognised(&path);
        let Recognised::Weights { tensors } = found else { panic!("{name}: {found:?}") };
        assert_eq!(tensors.iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
        let returns = weights_module(&tensors, OnInvalidInput::Return).expect("plain names");
        assert_eq!(difference(&returns, &path), None, "{name}");
        let raises = weights_module(&tensors, OnInvalidInput::Raise).expect("plain names");
        let text = |module: &Module| String::from_utf8(module.archive.code().to_vec()).expect("it was text");
        let (statement, other) = ("torch._set_item(out, \"error\", wrong)", "ops.prim.RaiseException(wrong)");
        assert_eq!(text(&returns).replace(statement, other), text(&raises), "{name}");
    }
}

#[test]
fn a_decoder_with_an_unknown_number_is_not_recognised() {
    let (all, options) = qwen2();
    let converted = detect_module(&all.clone().into(), &options, OnInvalidInput::Return)
        .expect("documents and shapes agree");
    for number in [3, 6] {
        let other = format!("\"code_version\":{number}");
        let change = |name: &str, bytes: &[u8]| match name {
            "data.pkl" => swapped(bytes, "\"code_version\":5", &other),
            _ => bytes.to_vec(),
        };
        let found = changed(&converted, change, &[]);
        assert!(matches!(&found, Recognised::Other { record } if record == "data.pkl"), "{found:?}");
    }
}

/// An archive that is stored.
fn stored(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/written").join(name)
}

#[test]
fn a_changed_archive_is_not_recognised() {
    let (all, options) = qwen2();
    let converted = detect_module(&all.clone().into(), &options, OnInvalidInput::Return)
        .expect("documents and shapes agree");
    let other = |record: &str, from: &str, to: &str| {
        let change = |name: &str, bytes: &[u8]| {
            if name == record { swapped(bytes, from, to) } else { bytes.to_vec() }
        };
        match changed(&converted, change, &[]) {
            Recognised::Other { record } => record,
            found => panic!("{from}: {found:?}"),
        }
    };
    assert_eq!(other(CODE, "silu", "relu"), CODE);
    // A number that is not a fact about the model, then the lists of keys and values, which have equal shapes.
    assert_eq!(other("data.pkl", "cat_dimK\x01", "cat_dimK\x02"), "data.pkl");
    assert_eq!(other("data.pkl", "\x02\0\0\0wk", "\x02\0\0\0wv"), "data.pkl");
    assert_eq!(other("data.pkl", "Qwen2", "Llama"), "data.pkl");
    // What the module records about the decoder.
    assert_eq!(other("data.pkl", "\"dim\":16,\"n_layers\":2", "\"n_layers\":2,\"dim\":16"), "data.pkl");
    assert_eq!(other("data.pkl", "Silu", "Gelu"), CODE);
    assert_eq!(other("data.pkl", "\"parallel\"", "\"parallax\""), "data.pkl");
    assert_eq!(other("version", "10", "11"), "version");
    assert_eq!(other("constants.pkl", ")", "N"), "constants.pkl");
    let returned = weights_module(&all.clone().into(), OnInvalidInput::Return).expect("plain names");
    let raises = |name: &str, bytes: &[u8]| {
        if name == CODE {
            swapped(bytes, "torch._set_item(out, \"error\", wrong)", "torch.clear(out)")
        } else {
            bytes.to_vec()
        }
    };
    let found = changed(&returned, raises, &[]);
    assert!(matches!(&found, Recognised::Other { record } if record == CODE), "{found:?}");
    for more in ["code/__torch__/more.py", "extra", ".data/version"] {
        let found = changed(&converted, |_, bytes| bytes.to_vec(), &[(more, b"")]);
        let Recognised::Other { record } = found else { panic!("{more}: {found:?}") };
        assert_eq!(record, more);
    }
}

#[test]
fn archives_of_other_programs_are_not_recognised() {
    for tensors in [Vec::new(), vec![zeros("w", &[1, 2])]] {
        let found = recognise(&[("data.pkl".to_owned(), Some(b"\x80\x02}."[..].into()))], tensors.into());
        assert!(matches!(&found, Recognised::Other { record } if record == "data.pkl"), "{found:?}");
    }
    let none = recognise(&[], Vec::new().into());
    assert!(matches!(&none, Recognised::Other { record } if record == "data.pkl"), "{none:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_tensors_is_recognised(order in Just((0..26_usize).collect::<Vec<_>>()).prop_shuffle()) {
        let (all, options) = qwen2();
        let shuffled: Vec<_> = order.iter().filter_map(|place| all.get(*place).cloned()).collect();
        let rest = all.into_iter().enumerate().filter(|(place, _)| !order.contains(place)).map(|(_, named)| named);
        let shuffled: Vec<_> = shuffled.into_iter().chain(rest).collect();
        let converted = detect_module(&shuffled.clone().into(), &options, OnInvalidInput::Return).expect("documents and shapes agree");
        decoder(written(&converted));
    }
}

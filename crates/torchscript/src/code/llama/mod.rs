//! LLaMA as Meta lays it out: its tensors' names and shapes, and the tree of modules that runs them.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0, for names, shapes and the order of operations.

mod params;
mod text;

use std::collections::HashMap;
use std::fmt::Write;

use tensor::{Dtype, Tensor};

use params::Config;
pub use params::LlamaParams;

use crate::archive::Archive;
use crate::module::{ModuleId, TensorId, Tree, Value};
use crate::{Converted, Dim, Error, Kind, Port, Result};

/// Llama 1 and 2 carry the frequencies of their positions along. They are computed anew, and kept.
const ROPE_FREQS: &str = "rope.freqs";

/// Whether these are the names of a LLaMA, as Meta gives them.
pub fn is_llama(tensors: &[(String, Tensor<'_>)]) -> bool {
    ["tok_embeddings.weight", "layers.0.attention.wq.weight", "norm.weight"]
        .iter()
        .all(|wanted| tensors.iter().any(|(name, _)| name == wanted))
}

/// The number of model-parallel shards, when the shapes are those of one of several: their attention has
/// one of so many parts of the width that `params` ask for.
pub fn shard_of(tensors: &[(String, Tensor<'_>)], params: &LlamaParams) -> Option<usize> {
    let shape = |wanted: &str| match tensors.iter().find(|(name, _)| name == wanted)?.1.shape() {
        [rows, columns] => Some((*rows, *columns)),
        _ => None,
    };
    // wq is cut across its rows, wo across its columns; the other dimension of each is the model's.
    let (part, dim) = shape("layers.0.attention.wq.weight")?;
    let whole = params.attention_width(dim)?;
    let of = whole.checked_div(part)?;
    let exact = of.checked_mul(part)? == whole && shape("layers.0.attention.wo.weight")? == (dim, part);
    (exact && of > 1).then(|| usize::try_from(of).ok()).flatten()
}

/// A module that runs: `tokens` int64 [batch, seq] → `logits` float32 [batch, seq, vocab].
///
/// # Errors
/// When `params` lack what the shapes do not tell or disagree with them, tensors are missing or left over,
/// or a weight is no floating-point number.
pub fn llama<'a>(tensors: &[(String, Tensor<'a>)], params: &LlamaParams) -> Result<Converted<'a>> {
    let mut by_name = HashMap::with_capacity(tensors.len());
    let mut ids = HashMap::with_capacity(tensors.len());
    for (i, (name, tensor)) in tensors.iter().enumerate() {
        if by_name.insert(name.as_str(), tensor).is_some() {
            return Err(Error::Duplicate { name: name.clone() });
        }
        ids.insert(name.as_str(), TensorId(i));
    }
    let config = Config::new(params, &by_name)?;
    let mut unexpected = by_name.clone();
    for Weight { name, shape, why } in config.weights() {
        let Some(tensor) = unexpected.remove(name.as_str()) else {
            return Err(Error::MissingTensor { name, n_layers: config.n_layers });
        };
        check(&name, tensor, &shape, why, &config)?;
    }
    if let Some(tensor) = unexpected.remove(ROPE_FREQS) {
        check(ROPE_FREQS, tensor, &[config.head_dim / 2], "head_dim", &config)?;
    }
    if !unexpected.is_empty() {
        let names = tensors.iter().map(|(name, _)| name);
        let names = names.filter(|name| unexpected.contains_key(name.as_str())).cloned().collect();
        return Err(Error::UnexpectedTensors { names });
    }

    let mut notes: Vec<String> =
        params.unused().map(|key| format!("params.json: `{key}` is not used")).collect();
    if let Some(factor) = config.rope_factor {
        notes.push(format!("positions are scaled by {factor}, as Llama 3.1 and 3.2 do"));
    }
    let mut build = Build { tree: Tree::default(), ids, config: &config };
    let root = build.llama();
    let archive = Archive::new(&build.tree, root, tensors)?;
    notes.extend(archive.left_behind());
    let (inputs, outputs) = ports(&config);
    Ok(Converted { archive, inputs, outputs, notes, kind: Kind::Llama })
}

fn ports(config: &Config) -> (Vec<Port>, Vec<Port>) {
    let symbol = |name: &str| Dim::Symbol(name.to_owned());
    let tokens = Port {
        name: "tokens".to_owned(),
        dtype: Dtype::Int64,
        shape: vec![symbol("batch"), symbol("seq")],
        description: Some(format!("token ids, each below {}", config.vocab)),
    };
    let logits = Port {
        name: "logits".to_owned(),
        dtype: Dtype::Float32,
        shape: vec![symbol("batch"), symbol("seq"), Dim::Size(config.vocab)],
        description: Some("of the token that follows each".to_owned()),
    };
    (vec![tokens], vec![logits])
}

/// A tensor that a LLaMA has.
struct Weight {
    name: String,
    shape: Vec<u64>,
    /// The keys of `params.json` that the shape follows from.
    why: &'static str,
}

fn check(name: &str, tensor: &Tensor<'_>, shape: &[u64], why: &str, config: &Config) -> Result<()> {
    if tensor.shape() != shape {
        let values = why.split(", ").map(|key| match key {
            "n_heads" => format!("n_heads {} (of {} each)", config.n_heads, config.head_dim),
            "n_kv_heads" => format!("n_kv_heads {} (of {} each)", config.n_kv_heads, config.head_dim),
            "hidden_dim" => format!("a feed-forward width of {}", config.hidden),
            "vocab_size" => format!("vocab_size {}", config.vocab),
            "head_dim" => format!("head_dim {}", config.head_dim),
            _ => format!("dim {}", config.dim),
        });
        return Err(Error::Shape {
            tensor: name.to_owned(),
            found: tensor.shape().to_vec(),
            expected: shape.to_vec(),
            why: values.collect::<Vec<_>>().join(" and "),
        });
    }
    match tensor.dtype() {
        Dtype::Float64 | Dtype::Float32 | Dtype::Float16 | Dtype::BFloat16 => Ok(()),
        dtype => Err(Error::NotFloat { tensor: name.to_owned(), dtype }),
    }
}

impl Config {
    /// All tensors but `rope.freqs`, layer by layer; as many as `n_layers` asks for, so look at one before
    /// asking for the next.
    fn weights(&self) -> impl Iterator<Item = Weight> {
        let (dim, hidden, vocab) = (self.dim, self.hidden, self.vocab);
        let q = self.n_heads.saturating_mul(self.head_dim);
        let kv = self.n_kv_heads.saturating_mul(self.head_dim);
        let weight =
            |name: &str, shape: &[u64], why| Weight { name: name.to_owned(), shape: shape.to_vec(), why };
        let outer = [
            weight("tok_embeddings.weight", &[vocab, dim], "vocab_size, dim"),
            weight("norm.weight", &[dim], "dim"),
            weight("output.weight", &[vocab, dim], "vocab_size, dim"),
        ];
        let layer = move |number: u64| {
            [
                ("attention.wq", vec![q, dim], "n_heads, dim"),
                ("attention.wk", vec![kv, dim], "n_kv_heads, dim"),
                ("attention.wv", vec![kv, dim], "n_kv_heads, dim"),
                ("attention.wo", vec![dim, q], "dim, n_heads"),
                ("feed_forward.w1", vec![hidden, dim], "hidden_dim, dim"),
                ("feed_forward.w2", vec![dim, hidden], "dim, hidden_dim"),
                ("feed_forward.w3", vec![hidden, dim], "hidden_dim, dim"),
                ("attention_norm", vec![dim], "dim"),
                ("ffn_norm", vec![dim], "dim"),
            ]
            .map(|(name, shape, why)| Weight {
                name: format!("layers.{number}.{name}.weight"),
                shape,
                why,
            })
        };
        outer.into_iter().chain((0..self.n_layers).flat_map(layer))
    }
}

/// Makes the modules, those inside first.
struct Build<'t, 'c> {
    tree: Tree,
    ids: HashMap<&'t str, TensorId>,
    config: &'c Config,
}

impl Build<'_, '_> {
    fn llama(&mut self) -> ModuleId {
        let config = self.config;
        let mut attributes = vec![
            ("rope_theta".to_owned(), Value::Float(config.rope_theta)),
            ("rope_scaled".to_owned(), Value::Bool(config.rope_factor.is_some())),
            ("rope_factor".to_owned(), Value::Float(config.rope_factor.unwrap_or(1.0))),
            ("rope_low".to_owned(), Value::Float(1.0)),
            ("rope_high".to_owned(), Value::Float(4.0)),
            ("rope_old".to_owned(), Value::Float(8192.0)),
            ("head_dim".to_owned(), int(config.head_dim)),
            self.linear("tok_embeddings", "Embedding", text::EMBEDDING),
            self.layers(),
            self.norm("norm"),
            self.linear("output", "Linear", text::LINEAR),
        ];
        if let Some(freqs) = self.ids.get(ROPE_FREQS) {
            let freqs = vec![("freqs".to_owned(), Value::Buffer(*freqs))];
            attributes.push(self.module("rope", "Rope", "", freqs));
        }
        let (_, root) = self.module("", "Llama", text::LLAMA, attributes);
        self.tree.functions(text::FUNCTIONS);
        match root {
            Value::Module(root) => root,
            _ => unreachable!("`module` makes modules"),
        }
    }

    fn layers(&mut self) -> (String, Value) {
        let layers = (0..self.config.n_layers).map(|number| {
            let block = self.block(number);
            (number.to_string(), block)
        });
        let layers = layers.collect();
        let text = self.unrolled().expect("memory takes any text");
        self.module("layers", "Layers", &text, layers)
    }

    /// Calls one layer after the other. A loop over modules would be unrolled by torch anyway.
    fn unrolled(&self) -> Result<String, std::fmt::Error> {
        let mut out = text::LAYERS_BEGIN.to_owned();
        let mut h = "h".to_owned();
        for i in 0..self.config.n_layers {
            writeln!(
                out,
                "    h{i}, k{i}, v{i}, = (getattr(self, \"{i}\")).forward({h}, cos, sin, mask, \
                 {{ns}}.pick(pk, {i}), {{ns}}.pick(pv, {i}), )"
            )?;
            writeln!(
                out,
                "    if keep:\n      _ = torch.append(ks, k{i})\n      _ = torch.append(vs, v{i})"
            )?;
            h = format!("h{i}");
        }
        writeln!(out, "    return ({h}, ks, vs)")?;
        Ok(out)
    }

    fn block(&mut self, number: u64) -> Value {
        let config = self.config;
        let path = |part: &str| format!("layers.{number}.{part}");
        let mut attention = vec![
            ("n_heads".to_owned(), int(config.n_heads)),
            ("n_kv_heads".to_owned(), int(config.n_kv_heads)),
            ("head_dim".to_owned(), int(config.head_dim)),
            // No constant in the text: that would let the fuser of 2.0.1 take the concatenation.
            ("cat_dim".to_owned(), Value::Int(1)),
        ];
        for part in ["wq", "wk", "wv", "wo"] {
            attention.push(self.linear(&path(&format!("attention.{part}")), "Linear", text::LINEAR));
        }
        let ffn = ["w1", "w2", "w3"]
            .map(|part| self.linear(&path(&format!("feed_forward.{part}")), "Linear", text::LINEAR));
        let parts = vec![
            self.module("attention", "Attention", text::ATTENTION, attention),
            self.module("feed_forward", "FeedForward", text::FEED_FORWARD, ffn.into()),
            self.norm(&path("attention_norm")),
            self.norm(&path("ffn_norm")),
        ];
        self.module("", "TransformerBlock", text::TRANSFORMER_BLOCK, parts).1
    }

    fn norm(&mut self, path: &str) -> (String, Value) {
        let attributes = vec![self.weight(path), ("eps".to_owned(), Value::Float(self.config.norm_eps))];
        self.module(path, "RMSNorm", text::RMS_NORM, attributes)
    }

    /// A module that has one tensor, its weight.
    fn linear(&mut self, path: &str, class: &'static str, methods: &str) -> (String, Value) {
        let attributes = vec![self.weight(path)];
        self.module(path, class, methods, attributes)
    }

    fn weight(&self, path: &str) -> (String, Value) {
        let id = self.ids.get(format!("{path}.weight").as_str()).expect("`llama` looked for every weight");
        ("weight".to_owned(), Value::Parameter(*id))
    }

    /// The module at `path`, and its name in the module that holds it.
    fn module(
        &mut self,
        path: &str,
        class: &'static str,
        methods: &str,
        mut attributes: Vec<(String, Value)>,
    ) -> (String, Value) {
        attributes.push(("training".to_owned(), Value::Bool(false)));
        let name = path.rsplit('.').next().unwrap_or_default().to_owned();
        (name, Value::Module(self.tree.add(Some(class), methods, attributes)))
    }
}

fn int(size: u64) -> Value {
    Value::Int(i64::try_from(size).expect("`llama` compared it with a tensor's shape"))
}

#[cfg(test)]
mod tests {
    use tensor::Storage;

    use super::*;

    const PARAMS: &str =
        r#"{"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "multiple_of": 8, "vocab_size": -1}"#;

    fn params(text: &str) -> LlamaParams {
        LlamaParams::from_json(text).expect("right")
    }

    fn zeros(name: &str, shape: &[u64]) -> (String, Tensor<'static>) {
        let mut stride = vec![1; shape.len()];
        if let [.., columns] = shape {
            stride[..shape.len().saturating_sub(1)].fill(*columns);
        }
        let bytes = vec![0; 2 * 64 * 64];
        let tensor = Tensor::new(Dtype::BFloat16, shape.to_vec(), stride, 0, Storage::owned(bytes));
        (name.to_owned(), tensor.expect("4096 elements are enough"))
    }

    /// The tensors that [`PARAMS`] describe, of `of` shards one.
    fn tensors(of: u64) -> Vec<(String, Tensor<'static>)> {
        let part = |size: u64| size.checked_div(of).expect("at least one shard");
        let mut all = vec![
            zeros("tok_embeddings.weight", &[32, 16]),
            zeros("norm.weight", &[16]),
            zeros("output.weight", &[part(32), 16]),
            zeros("rope.freqs", &[2]),
        ];
        for layer in 0..2 {
            for (name, shape) in [
                ("attention.wq", vec![part(16), 16]),
                ("attention.wk", vec![part(8), 16]),
                ("attention.wv", vec![part(8), 16]),
                ("attention.wo", vec![16, part(16)]),
                ("feed_forward.w1", vec![part(48), 16]),
                ("feed_forward.w2", vec![16, part(48)]),
                ("feed_forward.w3", vec![part(48), 16]),
                ("attention_norm", vec![16]),
                ("ffn_norm", vec![16]),
            ] {
                all.push(zeros(&format!("layers.{layer}.{name}.weight"), &shape));
            }
        }
        all
    }

    #[test]
    fn metas_layout_becomes_tokens_to_logits() {
        let tensors = tensors(1);
        assert!(is_llama(&tensors));
        assert_eq!(shard_of(&tensors, &params(PARAMS)), None);
        let converted = llama(&tensors, &params(PARAMS)).expect("params and shapes agree");
        assert_eq!((converted.kind.to_string().as_str(), converted.notes.len()), ("llama", 0));
        let ports = |ports: &[Port]| {
            ports.iter().map(|port| (port.name.clone(), port.shape.len())).collect::<Vec<_>>()
        };
        assert_eq!(ports(&converted.inputs), [("tokens".to_owned(), 2)]);
        assert_eq!(ports(&converted.outputs), [("logits".to_owned(), 3)]);
        let code = String::from_utf8(converted.archive.code().to_vec()).expect("it was text");
        // One class a kind of module, and nothing of the templates left.
        assert_eq!(code.matches("class ").count(), 9);
        assert_eq!(code.matches("getattr(self, ").count(), 2);
        assert!(!code.contains("Self") && !code.contains("{ns}"), "{code}");
    }

    #[test]
    fn shards_are_told_by_their_shapes() {
        for of in [2, 4] {
            let shard = tensors(of);
            assert_eq!(shard_of(&shard, &params(PARAMS)), usize::try_from(of).ok());
            assert!(llama(&shard, &params(PARAMS)).is_err());
        }
        assert_eq!(shard_of(&tensors(1), &params(r#"{"n_heads": 4, "head_dim": 8}"#)), Some(2));
        assert_eq!(shard_of(&tensors(1), &params("{}")), None);
        assert_eq!(shard_of(&[], &params(PARAMS)), None);
    }

    #[test]
    fn disagreements_say_which_and_how() {
        let changed = |from: &str, to: &str| {
            let params = params(&PARAMS.replace(from, to));
            llama(&tensors(1), &params).expect_err(to).to_string()
        };
        for (from, to, expected) in [
            (r#""n_heads": 4, "#, "", "params.json has no `n_heads`, which the shapes do not tell"),
            (
                r#""n_layers": 2"#,
                r#""n_layers": 3"#,
                "params.json: `n_layers` is 3, expected 2, the checkpoint's layers",
            ),
            (
                r#""n_heads": 4"#,
                r#""n_heads": 3"#,
                "params.json: `n_heads` is 3, expected a divisor of dim 16",
            ),
            (
                "-1",
                "31",
                "tensor `tok_embeddings.weight`: shape [32, 16], expected [31, 16] by vocab_size 31 and dim 16",
            ),
            (
                r#""n_kv_heads": 2"#,
                r#""n_kv_heads": 4"#,
                "tensor `layers.0.attention.wk.weight`: shape [8, 16], expected [16, 16] by n_kv_heads 4 (of 4 each) and dim 16",
            ),
            (
                r#""multiple_of": 8"#,
                r#""multiple_of": 64"#,
                "tensor `layers.0.feed_forward.w1.weight`: shape [48, 16], expected [64, 16] by a feed-forward width of 64 and dim 16",
            ),
        ] {
            assert_eq!(changed(from, to), expected);
        }
    }

    #[test]
    fn no_tensor_is_missing_or_left_over() {
        let error = |tensors: &[(String, Tensor<'_>)]| {
            llama(tensors, &params(PARAMS)).expect_err("wrong").to_string()
        };
        let mut all = tensors(1);
        let last = all.pop().expect("it has some");
        assert_eq!(
            error(&all),
            "there is no tensor `layers.1.ffn_norm.weight`, which a LLaMA of 2 layers has"
        );
        all.extend([last, zeros("lora\x1b", &[1])]);
        assert_eq!(error(&all), r"no part of this LLaMA: `lora\u{1b}`");
        all.pop();
        all.push(zeros("norm.weight", &[16]));
        assert_eq!(error(&all), "two tensors are called `norm.weight`");
    }
}

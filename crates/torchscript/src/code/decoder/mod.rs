//! What LLaMA and its like have in common: a decoder of tokens, its sizes, and the module that runs it.
//!
//! An architecture says what its document means ([`Said`]); this infers from the shapes what is left open,
//! compares the rest with them, and writes the module.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0 and `modeling_llama.py` in Hugging Face's `transformers`
//! 5.23, for names, shapes and the order of operations.

pub(super) mod config;
mod layout;
mod ports;
pub(super) mod rope;
mod text;

use std::collections::HashMap;

use tensor::{Dtype, Tensor};

use crate::code::{Architecture, Asked, state};
use crate::module::{TensorId, Value};
use crate::{Converted, Error, Fact, Result};
pub(super) use layout::{HUGGING_FACE, Layout, META};
use rope::Rope;

/// The parts of a layer: the list that holds their weights in the module, and what their shape follows from.
const PARTS: [(&str, [Size; 2]); 9] = [
    ("wq", [Size::Queries, Size::Dim]),
    ("wk", [Size::Keys, Size::Dim]),
    ("wv", [Size::Keys, Size::Dim]),
    ("wo", [Size::Dim, Size::Queries]),
    ("w1", [Size::Hidden, Size::Dim]),
    ("w2", [Size::Dim, Size::Hidden]),
    ("w3", [Size::Hidden, Size::Dim]),
    ("attention_norm", [Size::Dim, Size::None]),
    ("ffn_norm", [Size::Dim, Size::None]),
];

/// A dimension of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// No dimension.
    None,
    Dim,
    /// All heads of queries.
    Queries,
    /// All heads of keys, or of values.
    Keys,
    Hidden,
    Vocab,
    /// Half a head.
    Pairs,
}

/// What is said of a decoder beside its tensors; of what is open, the shapes tell.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) dim: Option<u64>,
    pub(super) n_layers: Option<u64>,
    pub(super) n_heads: Option<u64>,
    pub(super) n_kv_heads: Option<u64>,
    pub(super) head_dim: Option<u64>,
    /// The width of the feed-forward layers.
    pub(super) hidden: Option<u64>,
    pub(super) vocab: Option<u64>,
    pub(super) norm_eps: f64,
    pub(super) rope: Rope,
    /// Whether the embeddings are the output's matrix where that has no tensor.
    pub(super) tied: bool,
    /// Whether there is a document.
    pub(super) document: bool,
    /// Whether only a person says how many heads there are.
    pub(super) heads_asked: bool,
    pub(super) windows: Windows,
    pub(super) biases: Biases,
    /// What a user should know.
    pub(super) notes: Vec<String>,
}

/// How far attention looks back.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    /// Tokens, itself among them; `None` for all.
    pub(super) size: Option<u64>,
    pub(super) layers: Windowed,
}

/// Which layers have a window.
#[derive(Clone, Debug, Default)]
pub(super) enum Windowed {
    #[default]
    All,
    /// From this layer on.
    From(u64),
    Listed(Vec<bool>),
}

impl Windowed {
    fn at(&self, layer: u64) -> bool {
        match self {
            Self::All => true,
            Self::From(first) => layer >= *first,
            Self::Listed(layers) => usize::try_from(layer).ok().and_then(|at| layers.get(at)) == Some(&true),
        }
    }
}

/// Which matrices have biases.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Biases {
    pub(super) qkv: bool,
    pub(super) output: bool,
    pub(super) feed_forward: bool,
}

impl Biases {
    fn of(self, part: &str) -> bool {
        match part {
            "wq" | "wk" | "wv" => self.qkv,
            "wo" => self.output,
            "w1" | "w2" | "w3" => self.feed_forward,
            _ => false,
        }
    }
}

/// A tensor that the decoder has.
struct Expected {
    name: String,
    shape: Vec<Size>,
    /// The list that it belongs to.
    list: String,
}

/// A decoder whose document and shapes agree.
pub(super) struct Decoder {
    layout: &'static Layout,
    said: Said,
    dim: u64,
    n_layers: u64,
    n_heads: u64,
    n_kv_heads: u64,
    head_dim: u64,
    hidden: u64,
    vocab: u64,
}

impl Decoder {
    /// What is said, and what it leaves open and the shapes tell.
    pub(super) fn new(
        layout: &'static Layout,
        said: Said,
        tensors: &HashMap<&str, &Tensor<'_>>,
    ) -> Result<Self> {
        let (file, keys) = (layout.file, &layout.keys);
        let wrong = |key: &str, found: u64, expected: String| Error::Param {
            file: said.document.then_some(file),
            key: key.to_owned(),
            found: found.to_string(),
            expected,
        };
        let layers =
            tensors.keys().filter_map(|name| layout.layer_of(name)).max().map_or(0, |n| n.saturating_add(1));
        let n_layers = said.n_layers.unwrap_or(layers);
        if n_layers != layers {
            return Err(wrong(keys.n_layers, n_layers, format!("{layers}, the checkpoint's layers")));
        }
        let size = |name: String, dimension: usize| {
            let tensor = tensors.get(name.as_str());
            let size = tensor.and_then(|tensor| tensor.shape().get(dimension).copied());
            size.ok_or(Error::MissingTensor { name, n_layers })
        };
        let embedding = || format!("{}.weight", layout.embedding);
        let dim = said.dim.map_or_else(|| size(embedding(), 1), Ok)?;
        let queries = size(layout.part(0, 0), 0)?;
        let heads = said.head_dim.and_then(|head_dim| queries.checked_div(head_dim));
        let Some(n_heads) = said.n_heads.or(heads) else {
            return Err(Error::Missing { file, there: said.document, facts: vec![Fact::Heads] });
        };
        let asked = |expected: String| Error::Heads { found: n_heads, expected };
        let head_dim = said.head_dim.or_else(|| dim.checked_div(n_heads)).unwrap_or(0);
        if said.head_dim.is_none() && head_dim.checked_mul(n_heads) != Some(dim) {
            let expected = format!("a divisor of {} {dim}", keys.dim);
            return Err(if said.heads_asked {
                asked(expected)
            } else {
                wrong(keys.n_heads, n_heads, expected)
            });
        }
        if head_dim == 0 || !head_dim.is_multiple_of(2) {
            return Err(if said.heads_asked && said.head_dim.is_none() {
                asked(format!("heads of an even size, whose halves are rotated, and not of {head_dim}"))
            } else {
                wrong(keys.head_dim, head_dim, "an even size, whose halves are rotated".to_owned())
            });
        }
        let wk = || size(layout.part(0, 1), 0).map(|rows| rows.checked_div(head_dim).unwrap_or(0));
        let n_kv_heads = said.n_kv_heads.map_or_else(wk, Ok)?;
        if n_kv_heads == 0 || n_heads.checked_rem(n_kv_heads) != Some(0) {
            return Err(if !said.heads_asked {
                wrong(keys.n_kv_heads, n_kv_heads, format!("a divisor of {} {n_heads}", keys.n_heads))
            } else if n_kv_heads == 0 {
                asked(format!("heads no larger than the first dimension of `{}`", layout.part(0, 1)))
            } else {
                asked(format!("a multiple of {} {n_kv_heads}", keys.n_kv_heads))
            });
        }
        let hidden = said.hidden.map_or_else(|| size(layout.part(0, 4), 0), Ok)?;
        let vocab = said.vocab.map_or_else(|| size(embedding(), 0), Ok)?;
        if let Windowed::Listed(listed) = &said.windows.layers
            && listed.len() as u64 != n_layers
        {
            return Err(wrong("layer_types", listed.len() as u64, format!("as many as {n_layers} layers")));
        }
        Ok(Self { layout, said, dim, n_layers, n_heads, n_kv_heads, head_dim, hidden, vocab })
    }

    /// A module that runs: `tokens` int64 [batch, seq] → `logits` float32 [batch, seq, vocab]. With
    /// `keep_extra`, tensors that it has no use for stay in its `state_dict`.
    pub(super) fn module<'a>(
        self,
        architecture: &Architecture,
        tensors: &[(String, Tensor<'a>)],
        keep_extra: bool,
    ) -> Result<Converted<'a>> {
        let mut notes = self.said.notes.clone();
        let lists = self.lists(tensors, keep_extra, &mut notes)?;
        let scaling = self.said.rope.scaling;
        let scaled = scaling.unwrap_or(rope::Scaling::by(1.0));
        let windows = &self.said.windows;
        let windowed = |layer| i64::from(windows.size.is_some() && windows.layers.at(layer));
        let number = |name: &str, value| (name.to_owned(), Value::Float(value));
        let size = |name: &str, value: u64| {
            let value = i64::try_from(value)
                .map_err(|_| Error::TooLarge { tensor: name.to_owned(), number: value })?;
            Ok::<_, Error>((name.to_owned(), Value::Int(value)))
        };
        let own = vec![
            ("__tensors__".to_owned(), Value::Lists(lists)),
            size("vocab", self.vocab)?,
            size("head_dim", self.head_dim)?,
            size("n_kv_heads", self.n_kv_heads)?,
            number("norm_eps", self.said.norm_eps),
            number("rope_theta", self.said.rope.theta),
            ("rope_scaled".to_owned(), Value::Bool(scaling.is_some())),
            number("rope_factor", scaled.factor),
            number("rope_low", scaled.low),
            number("rope_high", scaled.high),
            number("rope_old", scaled.old),
            size("window", windows.size.unwrap_or(0))?,
            ("windowed".to_owned(), Value::Ints((0..self.n_layers).map(windowed).collect())),
            // No constant in the text: that would let the fuser of 2.0.1 take the concatenation.
            size("cat_dim", 1)?,
        ];
        let class = architecture.class;
        let (archive, more) = state::archive(tensors, class, &self.forward(), &self.functions(), own)?;
        let (inputs, outputs) = self.ports();
        notes.extend(more);
        Ok(Converted { archive, inputs, outputs, notes, kind: architecture.kind(), why: None })
    }

    fn forward(&self) -> String {
        let mut out = text::FORWARD.to_owned();
        for (part, _) in PARTS {
            for x in ["x", "y", "o", "g"] {
                let call = text::linear(part, x, self.said.biases.of(part));
                out = out.replace(&format!("{{linear {part} {x}}}"), &call);
            }
        }
        out
    }

    fn functions(&self) -> String {
        let (split, dim) = if self.layout.halves { ("2, -1", "-2") } else { ("-1, 2", "-1") };
        text::FUNCTIONS.replace("{split}", split).replace("{dim}", dim)
    }

    /// The tensors that the module's lists hold, after a look at all of them.
    fn lists(
        &self,
        tensors: &[(String, Tensor<'_>)],
        keep_extra: bool,
        notes: &mut Vec<String>,
    ) -> Result<Vec<(String, Vec<TensorId>)>> {
        let mut left: HashMap<&str, (TensorId, &Tensor<'_>)> = HashMap::with_capacity(tensors.len());
        for (i, (name, tensor)) in tensors.iter().enumerate() {
            if left.insert(name, (TensorId(i), tensor)).is_some() {
                return Err(Error::Duplicate { name: name.clone() });
            }
        }
        let output = format!("{}.weight", self.layout.output);
        let tied = self.said.tied && !left.contains_key(output.as_str());
        let mut lists: Vec<(String, Vec<TensorId>)> = Vec::new();
        let mut embedding = None;
        for Expected { name, shape, list } in self.expected() {
            let id = match left.remove(name.as_str()) {
                Some((id, tensor)) => {
                    self.check(&name, tensor, &shape)?;
                    id
                }
                None if tied && name == output => {
                    notes.push(format!("there is no `{output}`: the embeddings are the output's matrix too"));
                    embedding.ok_or(Error::MissingTensor { name, n_layers: self.n_layers })?
                }
                None => return Err(Error::MissingTensor { name, n_layers: self.n_layers }),
            };
            embedding = embedding.or(Some(id));
            match lists.iter_mut().find(|(known, _)| *known == list) {
                Some((_, ids)) => ids.push(id),
                None => lists.push((list, vec![id])),
            }
        }
        for (name, tensor) in tensors {
            if Layout::is_frequencies(name) && left.remove(name.as_str()).is_some() {
                self.check(name, tensor, &[Size::Pairs])?;
            }
        }
        let extra: Vec<String> = tensors
            .iter()
            .map(|(name, _)| name)
            .filter(|name| left.contains_key(name.as_str()))
            .cloned()
            .collect();
        match extra.len() {
            0 => {}
            more if keep_extra => notes.push(format!(
                "{more} tensors are no part of the model and ride along: {}",
                crate::error::few(&extra)
            )),
            _ => return Err(Error::UnexpectedTensors { names: extra }),
        }
        if let Some(scaling) = self.said.rope.scaling {
            notes.push(format!("positions are scaled by {}, as Llama 3.1 and 3.2 do", scaling.factor));
        }
        Ok(lists)
    }

    /// All tensors but frequencies, the embedding first; as many as the layers ask for, so look at one
    /// before asking for the next.
    fn expected(&self) -> impl Iterator<Item = Expected> {
        let outer = |name: &str, shape: &[Size]| Expected {
            name: format!("{name}.weight"),
            shape: shape.to_vec(),
            list: "outer".to_owned(),
        };
        let outer = [
            outer(self.layout.embedding, &[Size::Vocab, Size::Dim]),
            outer(self.layout.norm, &[Size::Dim]),
            outer(self.layout.output, &[Size::Vocab, Size::Dim]),
        ];
        let layer = move |number: u64| {
            PARTS.iter().enumerate().flat_map(move |(at, (list, shape))| {
                let name = self.layout.part(number, at);
                let bias = self.said.biases.of(list).then(|| Expected {
                    name: name.strip_suffix("weight").map_or_else(String::new, |path| format!("{path}bias")),
                    shape: shape.iter().take(1).copied().collect(),
                    list: list.replacen('w', "b", 1),
                });
                let shape = shape.iter().filter(|size| **size != Size::None).copied().collect();
                [Some(Expected { name, shape, list: (*list).to_owned() }), bias].into_iter().flatten()
            })
        };
        outer.into_iter().chain((0..self.n_layers).flat_map(layer))
    }

    fn size(&self, size: Size) -> u64 {
        match size {
            Size::None => 1,
            Size::Dim => self.dim,
            Size::Queries => self.n_heads.saturating_mul(self.head_dim),
            Size::Keys => self.n_kv_heads.saturating_mul(self.head_dim),
            Size::Hidden => self.hidden,
            Size::Vocab => self.vocab,
            Size::Pairs => self.head_dim.checked_div(2).unwrap_or(0),
        }
    }

    /// What a size follows from.
    fn why(&self, size: Size) -> String {
        let (keys, each) = (&self.layout.keys, self.head_dim);
        match size {
            Size::None | Size::Dim => format!("{} {}", keys.dim, self.dim),
            Size::Queries => format!("{} {} (of {each} each)", keys.n_heads, self.n_heads),
            Size::Keys => format!("{} {} (of {each} each)", keys.n_kv_heads, self.n_kv_heads),
            Size::Hidden => format!("a feed-forward width of {}", self.hidden),
            Size::Vocab => format!("{} {}", keys.vocab, self.vocab),
            Size::Pairs => format!("{} {each}", keys.head_dim),
        }
    }

    fn check(&self, name: &str, tensor: &Tensor<'_>, shape: &[Size]) -> Result<()> {
        let expected: Vec<u64> = shape.iter().map(|size| self.size(*size)).collect();
        if tensor.shape() != expected {
            return Err(Error::Shape {
                tensor: name.to_owned(),
                found: tensor.shape().to_vec(),
                expected,
                why: shape.iter().map(|size| self.why(*size)).collect::<Vec<_>>().join(" and "),
            });
        }
        match tensor.dtype() {
            Dtype::Float64 | Dtype::Float32 | Dtype::Float16 | Dtype::BFloat16 => Ok(()),
            dtype => Err(Error::NotFloat { tensor: name.to_owned(), dtype }),
        }
    }
}

/// What frequencies of positions tell of the size of a head where the layout's document is missing, and an
/// error when neither they nor a person tell what a model needs.
pub(super) fn without_document(
    layout: &'static Layout,
    tensors: &HashMap<&str, &Tensor<'_>>,
    asked: &Asked,
) -> Result<Option<u64>> {
    let frequencies = tensors.iter().find(|(name, _)| Layout::is_frequencies(name));
    let head_dim = frequencies.and_then(|(_, tensor)| tensor.shape().first()?.checked_mul(2));
    let needed = |fact: Fact| fact != Fact::RopeFactor && (fact != Fact::Heads || head_dim.is_none());
    let missing = asked.said().into_iter().filter(|(fact, said)| said.is_none() && needed(*fact));
    let facts: Vec<Fact> = missing.map(|(fact, _)| fact).collect();
    if facts.is_empty() {
        return Ok(head_dim);
    }
    Err(Error::Missing { file: layout.file, there: false, facts })
}

#[cfg(test)]
pub(super) mod tests {
    use tensor::Storage;

    use crate::{About, Port, auto, model};

    use super::*;

    const PARAMS: &str =
        r#"{"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "multiple_of": 8, "vocab_size": -1}"#;

    pub(in crate::code) fn zeros(name: &str, shape: &[u64]) -> (String, Tensor<'static>) {
        let mut stride = vec![1; shape.len()];
        if let [.., columns] = shape {
            stride[..shape.len().saturating_sub(1)].fill(*columns);
        }
        let bytes = vec![0; 2 * 64 * 64];
        let tensor = Tensor::new(Dtype::BFloat16, shape.to_vec(), stride, 0, Storage::owned(bytes));
        (name.to_owned(), tensor.expect("4096 elements are enough"))
    }

    /// The tensors that [`PARAMS`] describe, of `of` shards one, with the names of `layout`.
    pub(in crate::code) fn tensors(layout: &Layout, of: u64) -> Vec<(String, Tensor<'static>)> {
        let part = |size: u64| size.checked_div(of).expect("at least one shard");
        let outer = |name: &str, shape: &[u64]| zeros(&format!("{name}.weight"), shape);
        let mut all = vec![
            outer(layout.embedding, &[32, 16]),
            outer(layout.norm, &[16]),
            outer(layout.output, &[part(32), 16]),
        ];
        for layer in 0..2 {
            for (at, shape) in [
                vec![part(16), 16],
                vec![part(8), 16],
                vec![part(8), 16],
                vec![16, part(16)],
                vec![part(48), 16],
                vec![16, part(48)],
                vec![part(48), 16],
                vec![16],
                vec![16],
            ]
            .iter()
            .enumerate()
            {
                all.push(zeros(&layout.part(layer, at), shape));
            }
        }
        all
    }

    fn metas(of: u64) -> Vec<(String, Tensor<'static>)> {
        let mut all = tensors(&META, of);
        all.push(zeros("rope.freqs", &[2]));
        all
    }

    fn params(text: &str) -> About {
        About { params: Some(text.to_owned()), ..About::default() }
    }

    pub(in crate::code) fn code(converted: &Converted<'_>) -> String {
        String::from_utf8(converted.archive.code().to_vec()).expect("it was text")
    }

    #[test]
    fn metas_layout_becomes_tokens_to_logits() {
        let converted = auto(&metas(1), &params(PARAMS)).expect("params and shapes agree");
        assert_eq!((converted.kind.to_string().as_str(), converted.notes.len()), ("llama", 0));
        let ports = |ports: &[Port]| {
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
            ports(&converted.outputs),
            [port("logits", 3, false), port("present_key", 5, true), port("present_value", 5, true)]
        );
        let code = code(&converted);
        // Nothing of the templates is left, and no layer stands in the text.
        for rest in ["Self", "{ns}", "{_}", "{linear", "{split}", "{dim}"] {
            assert!(!code.contains(rest), "{rest}: {code}");
        }
        assert!(!code.contains("_bias") && code.matches("torch.linear(").count() == 8, "{code}");
    }

    #[test]
    fn shards_are_told_by_their_shapes() {
        let of = |tensors: &[_], text: &str| match auto(tensors, &params(text)) {
            Err(Error::Shard { of }) => Some(of),
            _ => None,
        };
        assert_eq!([1, 2, 4].map(|count| of(&metas(count), PARAMS)), [None, Some(2), Some(4)]);
        assert_eq!(of(&metas(1), r#"{"n_heads": 4, "head_dim": 8}"#), Some(2));
        assert_eq!(of(&metas(1), "{}"), None);
    }

    #[test]
    fn disagreements_say_which_and_how() {
        let changed = |from: &str, to: &str| {
            auto(&metas(1), &params(&PARAMS.replace(from, to))).expect_err(to).to_string()
        };
        for (from, to, expected) in [
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
            (
                r#""n_heads": 4"#,
                r#""n_heads": 8"#,
                "tensor `layers.0.attention.wk.weight`: shape [8, 16], expected [4, 16] by n_kv_heads 2 (of 2 each) and dim 16",
            ),
        ] {
            assert_eq!(changed(from, to), expected);
        }
    }

    #[test]
    fn what_the_shapes_do_not_tell_is_asked_for() {
        let mut plain = metas(1);
        let error =
            |tensors: &[_], about: &About| model("llama", tensors, about).expect_err("untold").to_string();
        let nothing = About::default();
        let untold = "there is no params.json, and the shapes do not tell ";
        assert_eq!(error(&plain, &nothing), format!("{untold}`rope_theta` and `norm_eps`"));
        plain.pop();
        assert_eq!(error(&plain, &nothing), format!("{untold}`n_heads`, `rope_theta` and `norm_eps`"));
        assert_eq!(
            error(&plain, &params("{}")),
            "params.json has no `n_heads`, which the shapes do not tell"
        );
        let asked = crate::Asked {
            n_heads: Some(4),
            rope_theta: Some(1e4),
            norm_eps: Some(1e-5),
            ..crate::Asked::default()
        };
        let about = About { asked, ..About::default() };
        assert_eq!(auto(&plain, &about).expect("all is said").kind.to_string(), "llama");
        let asked = crate::Asked { n_heads: Some(4), ..crate::Asked::default() };
        let error = auto(&plain, &About { asked, ..About::default() }).expect_err("untold").to_string();
        assert_eq!(error, format!("{untold}`rope_theta` and `norm_eps`"));
        let error = auto(&[zeros("w", &[1])], &about).expect_err("no model").to_string();
        assert_eq!(error, "this is no model that runs: no known architecture");
    }

    #[test]
    fn a_person_says_only_what_params_json_leaves_open() {
        let whole = r#""dim": 16, "n_kv_heads": 2, "norm_eps": 1e-6, "rope_theta": 5e5"#;
        let heads = |n_heads| Asked { n_heads: Some(n_heads), ..Asked::default() };
        let factor = |factor| Asked { rope_factor: Some(factor), ..Asked::default() };
        let outcome = |more: &str, asked: Asked| {
            let about = About { asked, ..params(&format!("{{{whole}, {more}}}")) };
            auto(&tensors(&META, 1), &about).map(|converted| converted.archive.data_pkl().to_vec())
        };
        let four = r#""n_heads": 4"#;
        let unscaled = r#""n_heads": 4, "use_scaled_rope": false"#;
        let scaled = r#""n_heads": 4, "use_scaled_rope": true, "rope_scaling_factor": 8"#;
        let open = r#""n_heads": 4, "use_scaled_rope": true"#;
        for (more, asked, expected) in [
            (four, heads(2), "--n-heads is 2, but params.json says 4"),
            (
                four,
                Asked { rope_theta: Some(1e4), ..Asked::default() },
                "--rope-theta is 10000, but params.json says 500000",
            ),
            (
                four,
                Asked { norm_eps: Some(1e-5), ..Asked::default() },
                "--norm-eps is 1e-5, but params.json says 1e-6",
            ),
            (unscaled, factor(8.0), "--rope-factor is 8, but params.json says `use_scaled_rope` false"),
            (scaled, factor(32.0), "--rope-factor is 32, but params.json says 8"),
        ] {
            assert_eq!(outcome(more, asked).expect_err("two answers").to_string(), expected);
        }
        let same = outcome(scaled, Asked::default()).expect("right");
        for more in [scaled, open, four] {
            assert_eq!(outcome(more, factor(8.0)).expect("agreed"), same, "{more}");
        }
        let same = outcome(four, Asked::default()).expect("right");
        assert_ne!(same, outcome(scaled, Asked::default()).expect("right"));
        for more in [four, r#""n_heads": null"#] {
            assert_eq!(outcome(more, heads(4)).expect("agreed"), same, "{more}");
        }
    }

    #[test]
    fn heads_that_only_a_person_says_are_blamed_on_no_document() {
        let asked = |n_heads| Asked {
            n_heads: Some(n_heads),
            rope_theta: Some(1e4),
            norm_eps: Some(1e-5),
            ..Asked::default()
        };
        let error = |tensors: &[_], about: About| {
            let error = model("llama", tensors, &about).expect_err("no such heads");
            assert_eq!(error.document(), None, "{error}");
            error.to_string()
        };
        let plain = tensors(&META, 1);
        let of = |n_heads| About { asked: asked(n_heads), ..About::default() };
        assert_eq!(error(&plain, of(5)), "--n-heads is 5, expected a divisor of dim 16");
        assert_eq!(
            error(&plain, of(16)),
            "--n-heads is 16, expected heads of an even size, whose halves are rotated, and not of 1"
        );
        assert_eq!(
            error(&plain, of(1)),
            "--n-heads is 1, expected heads no larger than the first dimension of `layers.0.attention.wk.weight`"
        );
        let open = r#"{"norm_eps": 1e-5, "n_kv_heads": 3}"#;
        assert_eq!(
            error(&plain, About { asked: asked(4), ..params(open) }),
            "--n-heads is 4, expected a multiple of n_kv_heads 3"
        );
        let hf = tensors(&HUGGING_FACE, 1);
        assert_eq!(error(&hf, of(5)), "--n-heads is 5, expected a divisor of hidden_size 16");
        // Frequencies of heads without elements tell nothing.
        let mut empty = tensors(&META, 1);
        empty.push(zeros("rope.freqs", &[0]));
        let about = About { asked: Asked { n_heads: None, ..asked(1) }, ..About::default() };
        assert_eq!(error(&empty, about), "there is no params.json, and the shapes do not tell `n_heads`");
    }

    #[test]
    fn no_tensor_is_missing_or_left_over() {
        let error =
            |tensors: &[(String, Tensor<'_>)]| auto(tensors, &params(PARAMS)).expect_err("wrong").to_string();
        let mut all = tensors(&META, 1);
        let last = all.pop().expect("it has some");
        assert_eq!(
            error(&all),
            "there is no tensor `layers.1.ffn_norm.weight`, which a model of 2 layers has"
        );
        all.extend([last, zeros("lora\x1b", &[1])]);
        assert_eq!(error(&all), r"no part of this model: `lora\u{1b}`");
        let about = About { keep_extra: true, ..params(PARAMS) };
        let kept = auto(&all, &about).expect("it rides along");
        assert_eq!(kept.archive.records().len(), all.len());
        assert_eq!(kept.notes, [r"1 tensors are no part of the model and ride along: `lora\u{1b}`"]);
        all.pop();
        all.push(zeros("norm.weight", &[16]));
        assert_eq!(error(&all), "two tensors are called `norm.weight`");
    }

    #[test]
    fn an_output_without_a_tensor_is_the_embeddings() {
        let mut all = tensors(&META, 1);
        all.retain(|(name, _)| name != "output.weight");
        let converted = auto(&all, &params(PARAMS)).expect("tied");
        assert_eq!(
            converted.notes,
            ["there is no `output.weight`: the embeddings are the output's matrix too"]
        );
        assert_eq!(converted.archive.records().len(), all.len());
    }

    #[test]
    fn names_of_tensors_do_not_collide_with_the_modules_own() {
        let mut all = metas(1);
        all.extend(["__tensors__", "window", "window_"].map(|name| zeros(name, &[1])));
        let about = About { keep_extra: true, ..params(PARAMS) };
        let code = code(&auto(&all, &about).expect("they ride along"));
        assert!(code.contains("  window__ : int\n") && code.contains("self.__tensors____\n"), "{code}");
    }
}

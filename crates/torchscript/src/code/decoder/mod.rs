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
mod said;
#[cfg(test)]
pub(super) mod tests;
mod text;

use std::collections::HashMap;

use tensor::{Dtype, Tensor};

use crate::code::{Architecture, Asked, state};
use crate::module::{TensorId, Value};
use crate::{Converted, Error, Fact, Result};
pub(super) use layout::{HUGGING_FACE, Layout, META};
pub(super) use said::{Biases, Said, Windowed, Windows};

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
    pub(super) fn new(layout: &'static Layout, said: Said, tensors: &HashMap<&str, &Tensor>) -> Result<Self> {
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
    pub(super) fn module(
        self,
        architecture: &Architecture,
        tensors: &[(String, Tensor)],
        keep_extra: bool,
    ) -> Result<Converted> {
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
        tensors: &[(String, Tensor)],
        keep_extra: bool,
        notes: &mut Vec<String>,
    ) -> Result<Vec<(String, Vec<TensorId>)>> {
        let mut left: HashMap<&str, (TensorId, &Tensor)> = HashMap::with_capacity(tensors.len());
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

    fn check(&self, name: &str, tensor: &Tensor, shape: &[Size]) -> Result<()> {
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
    tensors: &HashMap<&str, &Tensor>,
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

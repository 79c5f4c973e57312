//! The sizes of a decoder, and which tensor is which weight.
//!
//! An architecture translates its document into [`Facts`]. [`Decoder::new`] infers from the shapes what the
//! facts leave open and checks the rest against them; [`Decoder::assign`] checks every tensor.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0 and `modeling_llama.py` in Hugging Face's `transformers`
//! 5.23, for names and shapes.

use std::collections::HashMap;
use std::fmt::Display;

use tensor::{Dtype, Tensor};

use crate::architecture::Architecture;
use crate::block::Block;
use crate::facts::{Biases, Facts, Windowed, Windows};
use crate::frequencies::Frequencies;
use crate::layout::Layout;
use crate::rope::{Llama3, Rope, Scaling, THETA};
use crate::weight::{Part, Weight};
use crate::{Error, Fact, Given, Note, Result};

/// A decoder whose documents and shapes agree.
#[derive(Clone, Debug)]
pub struct Decoder {
    architecture: &'static Architecture,
    layout: &'static Layout,
    dim: u64,
    n_layers: u64,
    n_heads: u64,
    n_kv_heads: u64,
    head_dim: u64,
    hidden: u64,
    vocab: u64,
    norm_eps: f64,
    rotated: u64,
    ropes: Vec<Rope>,
    rope_of_layer: Vec<Option<usize>>,
    windows: Windows,
    biases: Biases,
    block: Block,
    tied: bool,
    notes: Vec<Note>,
}

/// Which tensor is which weight.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The embeddings, the last norm and the output first, then the layers in order.
    pub weights: Vec<Assigned>,
    /// What a user should know about the documents and the tensors.
    pub notes: Vec<Note>,
}

/// A weight and where it is.
#[derive(Clone, Debug)]
pub struct Assigned {
    /// The weight.
    pub weight: Weight,
    /// The index of its tensor. Tied weights, and those that are parts of one tensor, have the same.
    pub index: usize,
    /// The part of the tensor that is the weight, as a view; `None` means all of it.
    pub view: Option<Tensor>,
}

impl Assigned {
    /// The weight's numbers. `tensors` are those that it was assigned from.
    pub fn tensor<'t>(&'t self, tensors: &'t [(String, Tensor)]) -> Option<&'t Tensor> {
        self.view.as_ref().or_else(|| tensors.get(self.index).map(|(_, tensor)| tensor))
    }
}

impl Decoder {
    /// A decoder of these facts; the shapes tell those that are missing.
    ///
    /// # Errors
    /// When the facts contradict each other or the shapes, or neither states the number of heads.
    pub(crate) fn new(
        architecture: &'static Architecture,
        layout: &'static Layout,
        facts: Facts,
        tensors: &HashMap<&str, &Tensor>,
    ) -> Result<Self> {
        let (file, keys) = (layout.file, &layout.keys);
        let wrong = |key: &str, found: &dyn Display, expected: String| Error::Param {
            file: facts.has_document.then_some(file),
            key: key.to_owned(),
            found: found.to_string(),
            expected,
        };
        let layers = tensors
            .keys()
            .filter_map(|name| layout.layer_number(name))
            .max()
            .map_or(0, |n| n.saturating_add(1));
        let n_layers = facts.n_layers.unwrap_or(layers);
        if n_layers != layers {
            return Err(wrong(
                keys.n_layers,
                &n_layers,
                format!("{layers}, the number of layers in the checkpoint"),
            ));
        }
        let size = |name: String, dimension: usize| {
            let tensor = tensors.get(name.as_str());
            let size = tensor.and_then(|tensor| tensor.shape().get(dimension).copied());
            size.ok_or(Error::MissingTensor { name, n_layers })
        };
        let embedding = || format!("{}.weight", layout.embedding);
        let dim = facts.dim.map_or_else(|| size(embedding(), 1), Ok)?;
        let queries = size(layout.weight(0, Part::Wq), 0)?;
        let heads = facts.head_dim.and_then(|head_dim| queries.checked_div(head_dim));
        let Some(n_heads) = facts.n_heads.or(heads) else {
            let has_document = facts.has_document;
            return Err(Error::MissingFacts { file, has_document, facts: vec![Fact::Heads] });
        };
        let given = |expected: String| Error::Heads { found: n_heads, expected };
        let head_dim = facts.head_dim.or_else(|| dim.checked_div(n_heads)).unwrap_or(0);
        if facts.head_dim.is_none() && head_dim.checked_mul(n_heads) != Some(dim) {
            let expected = format!("a divisor of {} {dim}", keys.dim);
            return Err(if facts.heads_given {
                given(expected)
            } else {
                wrong(keys.n_heads, &n_heads, expected)
            });
        }
        if head_dim == 0 || !head_dim.is_multiple_of(2) {
            return Err(if facts.heads_given && facts.head_dim.is_none() {
                given(format!("a number that makes the size of a head even, not {head_dim}"))
            } else {
                wrong(keys.head_dim, &head_dim, "an even number, because RoPE rotates pairs".to_owned())
            });
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "transformers rounds the product of the two down"
        )]
        let rotated = facts.partial.map_or(head_dim, |part| ((head_dim as f64 * part) as u64).min(head_dim));
        let wk = layout.weight(0, Part::Wk);
        let kv_heads = || size(wk.clone(), 0).map(|rows| rows.checked_div(head_dim).unwrap_or(0));
        let n_kv_heads = facts.n_kv_heads.map_or_else(kv_heads, Ok)?;
        if n_kv_heads == 0 || n_heads.checked_rem(n_kv_heads) != Some(0) {
            return Err(if !facts.heads_given {
                wrong(keys.n_kv_heads, &n_kv_heads, format!("a divisor of {} {n_heads}", keys.n_heads))
            } else if n_kv_heads == 0 {
                given(format!("a number that makes a head no larger than the first dimension of `{wk}`"))
            } else {
                given(format!("a multiple of {} {n_kv_heads}", keys.n_kv_heads))
            });
        }
        let hidden = facts.hidden.map_or_else(|| size(layout.weight(0, Part::W1), 0), Ok)?;
        let vocab = facts.vocab.map_or_else(|| size(embedding(), 0), Ok)?;
        if let Windowed::Listed(listed) = &facts.windows.layers
            && listed.len() as u64 != n_layers
        {
            let found = format!("a list of {}", listed.len());
            return Err(wrong("layer_types", &found, format!("one entry for each of {n_layers} layers")));
        }
        Ok(Self {
            architecture,
            layout,
            dim,
            n_layers,
            n_heads,
            n_kv_heads,
            head_dim,
            hidden,
            vocab,
            norm_eps: facts.norm_eps,
            rotated,
            ropes: [vec![facts.rope], facts.more_ropes].concat(),
            rope_of_layer: facts.rope_of_layer.unwrap_or_else(|| (0..n_layers).map(|_| Some(0)).collect()),
            windows: facts.windows,
            biases: facts.biases,
            block: facts.block,
            tied: facts.tied,
            notes: facts.notes,
        })
    }

    /// The architecture.
    pub fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    /// How its tensors are named.
    pub fn layout(&self) -> &'static Layout {
        self.layout
    }

    /// The width of the model.
    pub fn dim(&self) -> u64 {
        self.dim
    }

    /// The number of layers.
    pub fn n_layers(&self) -> u64 {
        self.n_layers
    }

    /// The number of query heads.
    pub fn n_heads(&self) -> u64 {
        self.n_heads
    }

    /// The number of heads of keys and values; a divisor of [`n_heads`](Self::n_heads).
    pub fn n_kv_heads(&self) -> u64 {
        self.n_kv_heads
    }

    /// The size of a head; even.
    pub fn head_dim(&self) -> u64 {
        self.head_dim
    }

    /// The width of the feed-forward layers.
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// The number of tokens that the model knows.
    pub fn vocab(&self) -> u64 {
        self.vocab
    }

    /// The epsilon of the norms.
    pub fn norm_eps(&self) -> f64 {
        self.norm_eps
    }

    /// What its layers compute.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The rotary positions that layers have, at least one.
    pub fn ropes(&self) -> &[Rope] {
        &self.ropes
    }

    /// Which of [`ropes`](Self::ropes) a layer has; `None` means no positions.
    pub fn rope_of(&self, layer: u64) -> Option<usize> {
        self.rope_of_layer.get(usize::try_from(layer).ok()?).copied().flatten()
    }

    /// The rotary positions of layers that have no other.
    pub fn rope(&self) -> &Rope {
        static NONE: Rope = Rope { theta: THETA, scaling: None };
        self.ropes.first().unwrap_or(&NONE)
    }

    /// How many numbers of each head are rotated, the first ones; even.
    pub fn rotated(&self) -> u64 {
        self.rotated
    }

    /// The frequencies of positions, as tensors of checkpoints have them.
    pub(crate) fn frequencies(&self) -> Frequencies {
        Frequencies { theta: self.rope().theta, head_dim: self.head_dim }
    }

    /// How far attention looks back.
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Which matrices have biases.
    pub fn biases(&self) -> Biases {
        self.biases
    }

    /// Finds and checks the tensor of each weight. With `keep_extra`, tensors that the model does not use are
    /// reported in a note.
    ///
    /// # Errors
    /// When two tensors have one name, a tensor is missing, has the wrong shape or a dtype that is not a
    /// floating-point number, or is not used and `keep_extra` is false.
    pub fn assign(&self, tensors: &[(String, Tensor)], keep_extra: bool) -> Result<Assignment> {
        let mut notes = self.notes.clone();
        let mut left: HashMap<&str, (usize, &Tensor)> = HashMap::with_capacity(tensors.len());
        for (index, (name, tensor)) in tensors.iter().enumerate() {
            if left.insert(name, (index, tensor)).is_some() {
                return Err(Error::Duplicate { name: name.clone() });
            }
        }
        let mut weights: Vec<Assigned> = Vec::new();
        let mut embedding = None;
        for Expected { weight, name, shape } in self.expected() {
            let index = match left.remove(name.as_str()) {
                Some((index, tensor)) => {
                    self.check(&name, tensor, &shape)?;
                    index
                }
                None => match embedding.filter(|_| self.tied && weight == Weight::Output) {
                    Some(embedding) => {
                        notes.push(Note::TiedOutput { name });
                        embedding
                    }
                    None => return Err(Error::MissingTensor { name, n_layers: self.n_layers }),
                },
            };
            embedding = embedding.or(Some(index));
            weights.push(Assigned { weight, index, view: None });
        }
        for (name, tensor) in tensors {
            if Layout::is_frequencies(name) && left.remove(name.as_str()).is_some() {
                self.check(name, tensor, &[Size::Pairs])?;
            }
        }
        let extra = tensors.iter().map(|(name, _)| name).filter(|name| left.contains_key(name.as_str()));
        let names: Vec<String> = extra.cloned().collect();
        match names.len() {
            0 => {}
            _ if keep_extra => notes.push(Note::ExtraTensors { names }),
            _ => return Err(Error::UnexpectedTensors { names }),
        }
        if let Some(Scaling::Llama3(Llama3 { factor, .. })) = self.rope().scaling {
            notes.push(Note::ScaledPositions { factor });
        }
        Ok(Assignment { weights, notes })
    }

    /// All tensors but frequencies, the embeddings first. Their number is the document's claim, so a caller
    /// looks at each one before it asks for the next.
    fn expected(&self) -> impl Iterator<Item = Expected> {
        let outer = |weight, path: &str, shape: &[Size]| Expected {
            weight,
            name: format!("{path}.weight"),
            shape: shape.to_vec(),
        };
        let outer = [
            outer(Weight::Embedding, self.layout.embedding, &[Size::Vocab, Size::Dim]),
            outer(Weight::Norm, self.layout.norm, &[Size::Dim]),
            outer(Weight::Output, self.layout.output, &[Size::Vocab, Size::Dim]),
        ];
        let layer = move |layer: u64| {
            Part::ALL.into_iter().flat_map(move |part| {
                let shape = shape(part);
                let bias = self.biases.contains(part).then(|| Expected {
                    weight: Weight::Bias { layer, part },
                    name: self.layout.bias(layer, part),
                    shape: shape.iter().take(1).copied().collect(),
                });
                let weight = Expected {
                    weight: Weight::Layer { layer, part },
                    name: self.layout.weight(layer, part),
                    shape: shape.to_vec(),
                };
                [Some(weight), bias].into_iter().flatten()
            })
        };
        outer.into_iter().chain((0..self.n_layers).flat_map(layer))
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

    fn size(&self, size: Size) -> u64 {
        match size {
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
            Size::Dim => format!("{} {}", keys.dim, self.dim),
            Size::Queries => format!("{} {} (of {each} each)", keys.n_heads, self.n_heads),
            Size::Keys => format!("{} {} (of {each} each)", keys.n_kv_heads, self.n_kv_heads),
            Size::Hidden => format!("a feed-forward width of {}", self.hidden),
            Size::Vocab => format!("{} {}", keys.vocab, self.vocab),
            Size::Pairs => format!("{} {each}", keys.head_dim),
        }
    }
}

/// A tensor that the decoder has.
struct Expected {
    weight: Weight,
    name: String,
    shape: Vec<Size>,
}

/// A dimension of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
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

/// What the shape of a layer's weight follows from.
fn shape(part: Part) -> &'static [Size] {
    match part {
        Part::Wq => &[Size::Queries, Size::Dim],
        Part::Wk | Part::Wv => &[Size::Keys, Size::Dim],
        Part::Wo => &[Size::Dim, Size::Queries],
        Part::W1 | Part::W3 => &[Size::Hidden, Size::Dim],
        Part::W2 => &[Size::Dim, Size::Hidden],
        _ => &[Size::Dim],
    }
}

/// The size of a head if tensors with the frequencies of positions show it, for checkpoints without the
/// layout's document.
///
/// # Errors
/// When a number that the model needs is neither given nor shown by the shapes.
pub(crate) fn head_dim_without_document(
    layout: &'static Layout,
    tensors: &HashMap<&str, &Tensor>,
    given: &Given,
) -> Result<Option<u64>> {
    let frequencies = tensors.iter().find(|(name, _)| Layout::is_frequencies(name));
    let head_dim = frequencies.and_then(|(_, tensor)| tensor.shape().first()?.checked_mul(2));
    let needed = |fact: Fact| fact != Fact::RopeFactor && (fact != Fact::Heads || head_dim.is_none());
    let missing = given.numbers().into_iter().filter(|(fact, number)| number.is_none() && needed(*fact));
    let facts: Vec<Fact> = missing.map(|(fact, _)| fact).collect();
    if facts.is_empty() {
        return Ok(head_dim);
    }
    Err(Error::MissingFacts { file: layout.file, has_document: false, facts })
}

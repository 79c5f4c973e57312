//! Translates Megatron's model into Hugging Face's layout: fused matrices are divided, stacks of layers and experts are taken
//! apart, and the padding of the vocabulary is cut off.
//!
//! Facts: `get_query_key_value_tensors` in `attention.py`, `mlp.py`, `transformer_block.py` and `moe/experts.py` of megatron-core
//! 0.16.1; `saver_llama_mistral.py` and `loader_llama_mistral.py` in `tools/checkpoint` of Megatron-LM. The rows of queries,
//! keys and values are those of one group after another; the gate's rows come before those of the up matrix.

use tensor::{Tensor, Tensors};

use crate::detect::{DecoderOptions, find_architecture};
use crate::documents::config::ConfigJson;
use crate::layout::{LayoutOwner, TensorNames};
use crate::megatron_names::{MegatronName, MegatronPart};
use crate::weight::{LayerPart, Weight};
use crate::{DecoderNote, Error, Problem, Result};

/// Architectures whose arithmetic Megatron's modules have without further arguments.
const LLAMA_FAMILY: &[&str] = &["llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe"];
/// Largest number of layers or experts in a stack.
const STACK_MAX: u64 = 1 << 16;

#[derive(Debug)]
pub(crate) struct FromMegatron {
    pub(crate) tensors: Tensors,
    /// Position of each tensor in the old list.
    pub(crate) origins: Vec<Option<usize>>,
    pub(crate) notes: Vec<DecoderNote>,
}

struct Sizes {
    vocab: u64,
    heads: u64,
    groups: u64,
    names: TensorNames,
}

pub(crate) fn is_megatron(tensors: &Tensors) -> bool {
    let part = |name: &str| MegatronName::parse(name).map(|name| name.part);
    let has = |wanted: MegatronPart| tensors.names().any(|name| part(name) == Some(wanted));
    has(MegatronPart::Embedding) && has(MegatronPart::Qkv)
}

/// Translates the tensors into the Hugging Face layout of the architecture in config.json.
///
/// # Errors
/// When there is no config.json, its architecture is not of the LLaMA family, a tensor has no name in the layout, or the
/// shapes are not those of the config.json.
pub(crate) fn translate_megatron(tensors: &Tensors, options: &DecoderOptions) -> Result<FromMegatron> {
    let Some(text) = &options.documents.config else {
        return Err(Problem::NoConfig { architecture: "Megatron" }.into());
    };
    let sizes = Sizes::read(&ConfigJson::from_json(text)?)?;
    let mut made = FromMegatron { tensors: Tensors::default(), origins: Vec::new(), notes: Vec::new() };
    let mut unknown = Vec::new();
    for (index, (name, tensor)) in tensors.iter().enumerate() {
        let Some(parsed) = MegatronName::parse(name) else {
            unknown.push(name.clone());
            continue;
        };
        if parsed.part == MegatronPart::Ignored {
            continue;
        }
        let before = made.tensors.len();
        sizes.translate(name, parsed, tensor, &mut made)?;
        made.origins.extend((before..made.tensors.len()).map(|_| Some(index)));
    }
    if !unknown.is_empty() {
        return Err(Problem::NoName { owner: LayoutOwner::HuggingFace.name(), names: unknown }.into());
    }
    Ok(made)
}

impl Sizes {
    fn read(config: &ConfigJson) -> Result<Self> {
        let model_type = config.text("model_type")?.unwrap_or("llama");
        let architecture =
            LLAMA_FAMILY.contains(&model_type).then(|| find_architecture(|it| it.name == model_type));
        let names = architecture.flatten().and_then(|architecture| architecture.forms().into_iter().next());
        let Some(names) = names else {
            let expected = format!("one of {}", LLAMA_FAMILY.join(", "));
            return Err(config.invalid_value("model_type", &format!("{model_type:?}"), expected));
        };
        let keys = names.owner.keys();
        let required = |key: &'static str| {
            let missing =
                || Problem::MissingKey { file: LayoutOwner::HuggingFace.file(), key: key.to_owned() };
            Ok::<_, Error>(config.size(key)?.ok_or_else(missing)?)
        };
        let heads = required(keys.n_heads)?;
        let groups = config.size(keys.n_kv_heads)?.unwrap_or(heads);
        if heads.checked_rem(groups) != Some(0) {
            return Err(config.invalid_value(keys.n_kv_heads, &groups, format!("a divisor of {heads}")));
        }
        Ok(Self { vocab: required(keys.vocab)?, heads, groups, names })
    }

    fn translate(
        &self,
        name: &str,
        parsed: MegatronName,
        tensor: &Tensor,
        made: &mut FromMegatron,
    ) -> Result<()> {
        if matches!(parsed.part, MegatronPart::Embedding | MegatronPart::Output) {
            let weight =
                if parsed.part == MegatronPart::Embedding { Weight::Embedding } else { Weight::Output };
            let rows = tensor.shape().first().copied().unwrap_or(0);
            let cut = if rows > self.vocab {
                View::new(name, tensor).rows(0, self.vocab)?.tensor()?
            } else {
                tensor.clone()
            };
            if rows > self.vocab {
                let (tensor, kept) = (name.to_owned(), self.vocab);
                made.notes.push(DecoderNote::VocabularyCut { tensor, found: rows, kept });
            }
            return self.push(name, weight, cut, made);
        }
        if parsed.part == MegatronPart::Norm {
            return self.push(name, Weight::Norm, tensor.clone(), made);
        }
        let (first_layer, layers, stacked) = match parsed.layer {
            Some(layer) => (layer, 1, false),
            None => (0, tensor.shape().first().copied().unwrap_or(0), true),
        };
        if layers > STACK_MAX {
            return Err(unexpected(name, tensor.shape(), "at most 65536 layers"));
        }
        for at in 0..layers {
            let view = View::new(name, tensor);
            let view = if stacked { view.select(at)? } else { view };
            let layer = first_layer.saturating_add(at);
            if !parsed.experts {
                self.translate_layer(&parsed, layer, None, view, made)?;
            } else if let Some(expert) = parsed.expert {
                self.translate_layer(&parsed, layer, Some(expert), view, made)?;
            } else {
                let experts = view.shape.first().copied().unwrap_or(0);
                if experts > STACK_MAX {
                    return Err(unexpected(name, tensor.shape(), "at most 65536 experts"));
                }
                for expert in 0..experts {
                    self.translate_layer(&parsed, layer, Some(expert), view.clone().select(expert)?, made)?;
                }
            }
        }
        Ok(())
    }

    fn translate_layer(
        &self,
        parsed: &MegatronName,
        layer: u64,
        expert: Option<u64>,
        view: View<'_>,
        made: &mut FromMegatron,
    ) -> Result<()> {
        let weight = |part| match (expert, parsed.bias) {
            (Some(expert), false) => Weight::Expert { layer, part, expert },
            (Some(expert), true) => Weight::ExpertBias { layer, part, expert },
            (None, false) => Weight::Layer { layer, part },
            (None, true) => Weight::Bias { layer, part },
        };
        let name = view.name;
        match parsed.part {
            MegatronPart::Qkv => {
                let in_group = self.heads.checked_div(self.groups).unwrap_or(1);
                let parts = [
                    (LayerPart::Wq, 0, in_group),
                    (LayerPart::Wk, in_group, 1),
                    (LayerPart::Wv, in_group.saturating_add(1), 1),
                ];
                for (part, start, heads) in parts {
                    let rows =
                        view.clone().head_rows(self.groups, in_group.saturating_add(2), start, heads)?;
                    self.push(name, weight(part), rows, made)?;
                }
                Ok(())
            }
            MegatronPart::GateUp { gate, up } => {
                for (half, part) in [(0, gate), (1, up)] {
                    let rows = view.clone().half(half)?;
                    self.push(name, weight(part), rows, made)?;
                }
                Ok(())
            }
            MegatronPart::Layer(part) => self.push(name, weight(part), view.tensor()?, made),
            _ => {
                Err(Problem::NoName { owner: LayoutOwner::HuggingFace.name(), names: vec![name.to_owned()] }
                    .into())
            }
        }
    }

    fn push(&self, old: &str, weight: Weight, tensor: Tensor, made: &mut FromMegatron) -> Result<()> {
        let place = self.names.places(weight).into_iter().next();
        let place = place.filter(|place| place.fused_parts.is_empty() && place.stack_index.is_none());
        let Some(place) = place else {
            return Err(Problem::NoName {
                owner: LayoutOwner::HuggingFace.name(),
                names: vec![old.to_owned()],
            }
            .into());
        };
        made.tensors.push(place.name, tensor);
        Ok(())
    }
}

/// View of one of Megatron's tensors, not yet checked.
#[derive(Clone)]
struct View<'t> {
    name: &'t str,
    tensor: &'t Tensor,
    shape: Vec<u64>,
    stride: Vec<u64>,
    offset: u64,
}

impl<'t> View<'t> {
    fn new(name: &'t str, tensor: &'t Tensor) -> Self {
        let (shape, stride) = (tensor.shape().to_vec(), tensor.stride().to_vec());
        Self { name, tensor, shape, stride, offset: tensor.storage_offset() }
    }

    /// Returns the view at an index of the first dimension.
    fn select(mut self, index: u64) -> Result<Self> {
        self = self.rows(index, 1)?;
        self.shape.remove(0);
        self.stride.remove(0);
        Ok(self)
    }

    fn rows(mut self, start: u64, count: u64) -> Result<Self> {
        let (Some(rows), Some(step)) = (self.shape.first_mut(), self.stride.first()) else {
            return Err(unexpected(self.name, self.tensor.shape(), "more dimensions"));
        };
        let end = start.checked_add(count).filter(|end| *end <= *rows);
        let skipped = end.and(start.checked_mul(*step)).and_then(|skipped| self.offset.checked_add(skipped));
        let Some(offset) = skipped else {
            return Err(unexpected(self.name, self.tensor.shape(), &format!("at least {count} rows")));
        };
        *rows = count;
        self.offset = offset;
        Ok(self)
    }

    /// Returns the first or the second half of the rows.
    fn half(self, half: u64) -> Result<Tensor> {
        let rows = self.shape.first().copied().unwrap_or(0);
        let Some(count) = rows.checked_div(2).filter(|count| rows > 0 && count.checked_mul(2) == Some(rows))
        else {
            return Err(unexpected(self.name, self.tensor.shape(), "an even number of rows"));
        };
        self.rows(count.saturating_mul(half), count)?.tensor()
    }

    /// Divides the rows into groups of `all` heads, and returns those of `heads` heads from `start` of each group.
    fn head_rows(self, groups: u64, all: u64, start: u64, heads: u64) -> Result<Tensor> {
        let rows = self.shape.first().copied().unwrap_or(0);
        let slots = groups.saturating_mul(all);
        let size = rows.checked_div(slots).filter(|size| *size > 0 && size.checked_mul(slots) == Some(rows));
        let (Some(size), Some(step)) = (size, self.stride.first().copied()) else {
            let expected = format!("a multiple of {slots} rows, for {groups} groups of {all} heads");
            return Err(unexpected(self.name, self.tensor.shape(), &expected));
        };
        let rest = self.shape.get(1..).unwrap_or_default();
        let grouped = step.checked_mul(size).and_then(|head| Some((head, head.checked_mul(all)?)));
        let grouped = grouped
            .and_then(|(head, group)| Some((group, self.offset.checked_add(head.checked_mul(start)?)?)));
        let Some((group_step, offset)) = grouped else {
            return Err(unexpected(self.name, self.tensor.shape(), "a smaller stride"));
        };
        let in_group = heads.saturating_mul(size);
        let shape = [groups, in_group].into_iter().chain(rest.iter().copied()).collect();
        let stride = [group_step, step]
            .into_iter()
            .chain(self.stride.get(1..).unwrap_or_default().iter().copied())
            .collect();
        let flat: Vec<u64> =
            std::iter::once(groups.saturating_mul(in_group)).chain(rest.iter().copied()).collect();
        let failed = |reason: tensor::Error| Error::from(reason).in_tensor(self.name);
        let view = Tensor::new(self.tensor.dtype(), shape, stride, offset, self.tensor.storage().clone());
        view.and_then(|view| view.reshaped(&flat)).map_err(failed)
    }

    fn tensor(self) -> Result<Tensor> {
        let failed = |reason: tensor::Error| Error::from(reason).in_tensor(self.name);
        let is_whole = self.shape == self.tensor.shape();
        if is_whole {
            return Ok(self.tensor.clone());
        }
        Tensor::new(self.tensor.dtype(), self.shape, self.stride, self.offset, self.tensor.storage().clone())
            .map_err(failed)
    }
}

fn unexpected(name: &str, found: &[u64], expected: &str) -> Error {
    Problem::MegatronShape { tensor: name.to_owned(), found: found.to_vec(), expected: expected.to_owned() }
        .into()
}

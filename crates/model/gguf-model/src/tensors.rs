//! Tensors as llama.cpp has them: its names, order, shapes and types.
//!
//! Facts: `prepare_tensors` and `modify_tensors` of its converter. Rows of queries and keys are permuted for architectures that rotate
//! adjacent dimensions, norms that are stored less 1 get it back, and the experts of a layer are one tensor, where the last one was.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use byte_source::Result;
use gguf_format::{GgmlType, GgufOutput};
use tensor::{Dtype, Tensor};

use crate::Problem;
use crate::architecture::{JoinedTensor, OutputRule, STACKED};
use crate::config::GgufConfig;
use crate::delta_net::DeltaNetHeads;
use crate::encode::encode_blocks;
use crate::file_type::FileType;
use crate::gemma4;
use crate::mapped::{mapped, single};
use crate::mxfp4::packed_experts;
use crate::names::{ModuleNames, SplitName, bare_end, language_name, numbered_mtp};
use crate::rope::extra_tensors;
use crate::views::{Heads, half, items};
use crate::xielu;

/// Weights of some experts or heads of a layer, by their numbers.
type ExpertParts = BTreeMap<u64, Tensor>;

/// Returns the tensors of a file, in its order. Embeddings after the first `tokens` are left out.
///
/// # Errors
/// When a tensor has no name in llama.cpp or another shape than its role, or experts are missing.
pub(crate) fn place(
    tensors: &[(String, Tensor)],
    config: &GgufConfig,
    file_type: FileType,
    tokens: Option<u64>,
) -> Result<Vec<GgufOutput>> {
    let layers = config.layers()?;
    let mut placing = Placing {
        config,
        names: ModuleNames::of(config.architecture),
        layers,
        transposes_experts: transposes_experts(config, tensors),
        delta_net: DeltaNetHeads::read(config.architecture, |key| config.count(key))?,
        file_type,
        tokens,
        parts: BTreeMap::new(),
        placed: Vec::new(),
    };
    let is_gemma4 = config.architecture.name == "gemma4";
    let extra = if is_gemma4 { gemma4::extra_tensors(config)? } else { extra_tensors(config)? };
    for (name, tensor) in extra {
        placing.put(&name, name.clone(), &tensor)?;
    }
    let is_gpt_oss = config.architecture.name == "gpt-oss";
    let (packed, used) =
        if is_gpt_oss { packed_experts(tensors, &placing.names, layers)? } else { Default::default() };
    placing.placed.extend(packed);
    let is_key = |name: &str| config.architecture.name == "apertus" && xielu::is_number(name);
    for (name, tensor) in tensors.iter().filter(|(name, _)| !used.contains(name.as_str()) && !is_key(name)) {
        if let Some(short) = language_name(name) {
            let numbered = placing
                .delta_net
                .and_then(|_| numbered_mtp(&short, layers.saturating_sub(config.mtp_layers)));
            let short = numbered.unwrap_or(short);
            placing.add(name, &short, tensor).map_err(|error| match error.detail::<Problem>() {
                Some(_) => error,
                None => error.in_tensor(name),
            })?;
        }
    }
    match placing.parts.into_iter().next() {
        None => Ok(placing.placed),
        Some(((layer, role), parts)) => {
            let expected = placing.config.part_count(&role)?;
            Err(Problem::Experts { layer, found: parts.len(), expected }.into())
        }
    }
}

struct Placing<'c> {
    config: &'c GgufConfig,
    names: ModuleNames,
    layers: u64,
    /// True if matrices of experts that are one tensor have their columns first.
    transposes_experts: bool,
    delta_net: Option<DeltaNetHeads>,
    file_type: FileType,
    /// Number of tokens, if the embeddings of others are left out.
    tokens: Option<u64>,
    /// Parts of tensors that are not complete, by layer and role.
    parts: BTreeMap<(u64, String), ExpertParts>,
    placed: Vec<GgufOutput>,
}

impl GgufConfig {
    /// Returns the number of experts, or of heads whose norms are separate.
    fn part_count(&self, role: &str) -> Result<u64> {
        match role {
            "attn_q_norm" => self.heads(),
            "attn_k_norm" => self.kv_heads(),
            _ => match self.find(&["num_local_experts", "num_experts", "n_routed_experts"]) {
                Some((key, _)) => self.count(key),
                None => self.count("num_experts"),
            },
        }
    }
}

impl Placing<'_> {
    fn add(&mut self, name: &str, short: &str, tensor: &Tensor) -> Result<()> {
        let architecture = self.config.architecture;
        let no_name = || Problem::NoName { tensor: name.to_owned(), architecture: architecture.name };
        let is_tied = || self.config.get("tie_word_embeddings") == Some(&true.into());
        match architecture.output {
            OutputRule::Dropped if short == "lm_head.weight" => return Ok(()),
            OutputRule::DroppedIfTied if short == "lm_head.weight" && is_tied() => return Ok(()),
            OutputRule::Unknown if short == "lm_head.weight" => return Err(no_name().into()),
            _ => {}
        }
        let split = self.names.split(short).ok_or_else(no_name)?;
        if split.layer.is_some_and(|layer| layer >= self.layers) {
            return Err(no_name().into());
        }
        let known = self.names.known(split);
        if let (Some(layer), Some((known, Some(number)))) = (split.layer, known) {
            if let Some(role) = expert_role(known) {
                return self.add_expert(split, layer, (number, role), tensor);
            }
            let parts = self.parts.entry((layer, known.to_owned())).or_default();
            parts.insert(number, tensor.clone());
            if parts.len() as u64 == self.config.part_count(known)? {
                let whole = self.take_parts(layer, known)?;
                self.put(name, split.in_layer(known, split.end), &whole)?;
            }
            return Ok(());
        }
        // The biases of gpt-oss have names without a dot.
        let (module, end) = match split.weight.strip_suffix("_bias") {
            Some(module) => (module, ".bias"),
            None => (split.weight, ".weight"),
        };
        let mut joined = architecture.joined.iter().chain(STACKED);
        if let Some(joined) = joined.find(|joined| joined.module == module) {
            return self.add_joined(name, split, (joined, end), tensor);
        }
        let (known, _) = known.ok_or_else(no_name)?;
        let end = bare_end(known).unwrap_or(split.end);
        if let (Some(delta_net), "linear_attn.in_proj_qkvz") = (self.delta_net, split.weight) {
            let (joined, gates) = delta_net.divided(tensor)?;
            self.put(name, split.in_layer(known, end), &joined)?;
            return self.put(name, split.in_layer("attn_gate", end), &gates);
        }
        let changed = self.changed(known, short, tensor)?;
        self.put(name, split.in_layer(known, end), &changed)
    }

    /// Permutes the rows of queries and keys, and adds 1 to norms, where the architecture does.
    fn changed(&self, known: &str, name: &str, tensor: &Tensor) -> Result<Tensor> {
        let architecture = self.config.architecture;
        if let (Some(tokens), "token_embd", [rows, _]) = (self.tokens, known, tensor.shape()) {
            return Ok(items(tensor, 0, (0, tokens.min(*rows), 1))?);
        }
        if architecture.shifts_norms && name.ends_with("norm.weight") && known != "ssm_norm" {
            return mapped(tensor, |number| number + 1.0).ok_or_else(|| no_numbers(name, tensor));
        }
        if let Some(delta_net) = self.delta_net {
            return delta_net.converted(known, tensor)?.ok_or_else(|| no_numbers(name, tensor));
        }
        if architecture.transposes(known) && tensor.shape().len() == 2 {
            return Ok(tensor.transpose(0, 1).unwrap_or_else(|| tensor.clone()));
        }
        if architecture.mixes_heads && known == "attn_qkv" {
            let heads = Heads { queries: self.config.heads()?, keys: self.config.kv_heads()? };
            let separated = heads.separated(tensor).ok_or_else(|| Problem::Shape {
                tensor: name.to_owned(),
                shape: tensor.shape().to_vec(),
                expected: format!("{} heads, and twice {}", heads.queries, heads.keys),
            })?;
            return Ok(separated?);
        }
        let heads = match known {
            "attn_q" if architecture.permutes => self.config.heads()?,
            "attn_k" if architecture.permutes => self.config.kv_heads()?,
            _ => return Ok(tensor.clone()),
        };
        let two = const { NonZeroU64::new(2).expect("it is not zero") };
        Ok(tensor.with_grid_transposed(heads, two)?)
    }

    fn add_expert(
        &mut self,
        split: SplitName<'_>,
        layer: u64,
        (number, role): (u64, &str),
        tensor: &Tensor,
    ) -> Result<()> {
        let count = self.config.part_count(role)?;
        self.parts.entry((layer, role.to_owned())).or_default().insert(number, tensor.clone());
        let order = self.config.architecture.experts;
        let is_complete = order.iter().all(|role| {
            self.parts.get(&(layer, (*role).to_owned())).is_some_and(|parts| parts.len() as u64 == count)
        });
        if is_complete {
            for role in order {
                let whole = self.take_parts(layer, role)?;
                let name = split.in_layer(&format!("ffn_{role}_exps"), ".weight");
                self.put(&name, name.clone(), &whole)?;
            }
        }
        Ok(())
    }

    /// Joins the parts of a role, whose numbers must be those from 0 on.
    fn take_parts(&mut self, layer: u64, role: &str) -> Result<Tensor> {
        let parts = self.parts.remove(&(layer, role.to_owned())).unwrap_or_default();
        let expected = parts.len() as u64;
        let found = parts.keys().filter(|number| **number < expected).count();
        if found as u64 != expected {
            return Err(Problem::Experts { layer, found, expected }.into());
        }
        let parts: Vec<Tensor> = parts.into_values().filter_map(|part| part.unsqueeze(0)).collect();
        Ok(Tensor::concat(0, &parts)?)
    }

    /// Adds the weights of all experts that are one tensor in `transformers`, too, and the matrices of an expert that are.
    fn add_joined(
        &mut self,
        name: &str,
        split: SplitName<'_>,
        (joined, end): (&JoinedTensor, &str),
        tensor: &Tensor,
    ) -> Result<()> {
        let is_gpt_oss = self.config.architecture.name == "gpt-oss";
        let wrong = |expected: &str| Problem::Shape {
            tensor: name.to_owned(),
            shape: tensor.shape().to_vec(),
            expected: expected.to_owned(),
        };
        let is_stack = joined.parts.iter().any(|part| part.ends_with("_exps"));
        let rank = if is_stack { 3 } else { 2 };
        let whole = match (end, tensor.shape().len()) {
            (".bias", 2) => Some(tensor.clone()),
            (".weight", 3) if self.transposes_experts => tensor.transpose(1, 2),
            (".weight", found) if found == rank => Some(tensor.clone()),
            _ => None,
        };
        let whole =
            whole.ok_or_else(|| wrong(if is_stack { "three dimensions" } else { "two dimensions" }))?;
        if let [known] = joined.parts {
            return self.put(name, split.in_layer(known, end), &whole);
        }
        let dim = usize::from(is_stack);
        if whole.shape().get(dim).is_none_or(|rows| !rows.is_multiple_of(2)) {
            return Err(wrong("an even number of rows").into());
        }
        for (part, known) in (0..).zip(joined.parts) {
            let half = half(&whole, dim, part, is_gpt_oss)?;
            self.put(name, split.in_layer(known, end), &half)?;
        }
        Ok(())
    }

    /// Adds a tensor with its name in llama.cpp, as the type that it has there.
    fn put(&mut self, from: &str, name: String, tensor: &Tensor) -> Result<()> {
        let architecture = self.config.architecture;
        if !is_stored(architecture.has, &name) {
            return Err(Problem::NoName { tensor: from.to_owned(), architecture: architecture.name }.into());
        }
        let kind = self.file_type.of_tensor(&name, tensor.shape());
        let kind = GgmlType::from_name(kind).ok_or_else(|| no_numbers(from, tensor))?;
        let data = match kind.dtype {
            Some(dtype) => cast(tensor, dtype),
            None => single(tensor).and_then(|tensor| encode_blocks(&tensor, kind)),
        };
        let data = data.ok_or_else(|| no_numbers(from, tensor))?;
        self.placed.push(GgufOutput { name, kind, shape: tensor.shape().to_vec(), data });
        Ok(())
    }
}

/// Returns true for gpt-oss, and for Qwen 3 VL as it is published. transformers saves the latter as it has it in memory.
fn transposes_experts(config: &GgufConfig, tensors: &[(String, Tensor)]) -> bool {
    let width = config.size("hidden_size").ok();
    let is_in_memory = |(name, tensor): &(String, Tensor)| {
        let size = |dim: usize| tensor.shape().get(dim).copied();
        name.ends_with(".experts.gate_up_proj") && size(1) != width
            || name.ends_with(".experts.down_proj") && size(2) != width
    };
    match config.architecture.name {
        "gpt-oss" => true,
        "qwen3vlmoe" => !tensors.iter().any(is_in_memory),
        _ => false,
    }
}

/// Returns the role of a matrix of experts, such as `gate`.
pub(crate) fn expert_role(known: &str) -> Option<&str> {
    known.strip_prefix("ffn_")?.strip_suffix("_exps")
}

/// Returns true for a weight outside of layers, of attention, or one that the layers of an architecture have.
fn is_stored(has: &[&[&str]], name: &str) -> bool {
    let Some((_, weight)) = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
        return true;
    };
    let weight = weight.rsplit_once('.').map_or(weight, |(weight, _)| weight);
    ["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output"].contains(&weight)
        || has.iter().any(|weights| weights.contains(&weight))
}

fn no_numbers(name: &str, tensor: &Tensor) -> byte_source::Error {
    Problem::Dtype { tensor: name.to_owned(), dtype: tensor.dtype() }.into()
}

fn cast(tensor: &Tensor, dtype: Dtype) -> Option<Tensor> {
    single(tensor)?.cast(dtype)
}

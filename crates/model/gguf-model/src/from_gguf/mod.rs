//! The way back: tensors of a GGUF file in the names of `transformers`, with the configuration that its keys describe.
//!
//! Each rule is that of the way out, undone: rows of queries and keys are permuted back, 1 is taken from norms, and the experts of a
//! layer are numbered. What no key says has the value that the class of `transformers` has by default.

mod config;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;

use byte_source::Result;
use families::ConfigClass;
use gguf_format::GgufValue;
use serde_json::{Map, Value, json};
use tensor::Tensor;

use crate::Problem;
use crate::architecture::{Architecture, JoinedTensor, of_name};
use crate::delta_net::DeltaNetHeads;
use crate::gemma4;
use crate::keys::GgufKeys;
use crate::mapped::mapped;
use crate::names::{ModuleNames, bare_end, numbered_mtp, qwen_mtp};
use crate::rope::{llama3_factors, numbers};
use crate::views::{Heads, items};
use crate::xielu;
use config::{config, set_sizes};

/// Tensors of a file, by their names.
type ByName<'t> = HashMap<&'t str, &'t Tensor>;

/// A model in the names of `transformers`.
#[derive(Debug)]
#[non_exhaustive]
pub struct HuggingFaceModel {
    pub tensors: Vec<(String, Tensor)>,
    /// Place of the tensor in the file of which each tensor is a part.
    pub places: Vec<usize>,
    /// The keys of `config.json`.
    pub config: Map<String, Value>,
    /// Names in the file of tensors that have no such name.
    pub unknown: Vec<String>,
    architecture: &'static Architecture,
    names: ModuleNames,
}

impl HuggingFaceModel {
    /// Returns the name of the architecture in llama.cpp.
    pub fn architecture(&self) -> &'static str {
        self.architecture.name
    }

    /// Returns what llama.cpp calls a tensor with a name of `transformers`; several experts have the same. `None` if it has no name for
    /// it.
    pub fn name_in_file(&self, name: &str) -> Option<String> {
        let layers = self.config.get("num_hidden_layers").and_then(Value::as_u64).unwrap_or_default();
        let numbered = numbered_mtp(name, layers);
        let split = self.names.split(numbered.as_deref().unwrap_or(name))?;
        let known = self.names.known(split)?.0;
        Some(split.in_layer(known, bare_end(known).unwrap_or(split.end)))
    }
}

/// Returns the tensors of a file in the names of `transformers`, and their configuration.
///
/// # Errors
/// When the architecture has no such class, a tensor has another shape than its role, or factors of rotary embeddings are
/// those of no configuration.
pub fn hugging_face_model(keys: &GgufKeys, tensors: &[(String, Tensor)]) -> Result<HuggingFaceModel> {
    let name = keys.get("general.architecture").and_then(GgufValue::text).unwrap_or_default();
    let architecture = of_name(&name, |key| keys.contains_key(&format!("{name}.{key}")))?;
    let class = ConfigClass::of(architecture.model_type);
    let mut config = config(keys, architecture, class);
    let by_name: ByName<'_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    set_sizes(&mut config, architecture.model_type, &by_name);
    if architecture.name == "gemma4" {
        gemma4::set_config(&mut config, keys, &by_name)?;
    }
    let names = ModuleNames::of(architecture);
    let delta_net = DeltaNetHeads::read(architecture, |key| size(&config, key))?;
    let mut back = Back { architecture, names, config, delta_net, tensors: Vec::new(), places: Vec::new() };
    back.set_parts(class, &by_name);
    let lists =
        if architecture.name == "apertus" { xielu::Lists::read(keys) } else { xielu::Lists::default() };
    let mut unknown = Vec::new();
    for (place, (name, tensor)) in tensors.iter().enumerate() {
        // The numbers of an activation come with a weight of their layer.
        if let Some(layer) = name.strip_prefix("blk.").and_then(|rest| rest.strip_suffix(".ffn_up.weight")) {
            for (module, number) in lists.of_layer(layer)? {
                back.push(place, format!("{}{module}", back.names.layer(layer)), number);
            }
        }
        match back.add(place, name, tensor, &by_name) {
            Err(error) if matches!(error.detail(), Some(Problem::NoOtherName { .. })) => {
                unknown.push(name.clone());
            }
            added => added?,
        }
    }
    let Back { mut tensors, places, mut config, names, .. } = back;
    if delta_net.is_some() {
        let layers = size(&config, "num_hidden_layers")?;
        for (name, _) in &mut tensors {
            *name = qwen_mtp(name, layers).unwrap_or_else(|| std::mem::take(name));
        }
    }
    if let Some(class) = class {
        config = config.into_iter().map(|(key, value)| (class.own_name(&key).to_owned(), value)).collect();
    }
    Ok(HuggingFaceModel { tensors, places, config, unknown, architecture, names })
}

struct Back {
    architecture: &'static Architecture,
    names: ModuleNames,
    config: Map<String, Value>,
    delta_net: Option<DeltaNetHeads>,
    tensors: Vec<(String, Tensor)>,
    places: Vec<usize>,
}

fn size(config: &Map<String, Value>, key: &str) -> Result<u64> {
    let found = config.get(key);
    let size = found.and_then(Value::as_u64).filter(|size| *size > 0);
    size.ok_or_else(|| crate::config::invalid(key, found, "a positive number"))
}

impl Back {
    fn push(&mut self, place: usize, name: String, tensor: Tensor) {
        self.tensors.push((name, tensor));
        self.places.push(place);
    }

    fn size(&self, key: &str) -> Result<u64> {
        size(&self.config, key)
    }

    /// Records which biases and norms there are, where the class needs to know.
    fn set_parts(&mut self, class: Option<ConfigClass>, tensors: &ByName<'_>) {
        let in_layers = tensors.keys().filter_map(|name| name.strip_prefix("blk.")?.split_once('.'));
        let weights: HashSet<&str> = in_layers.map(|(_, weight)| weight).collect();
        let has = |weight: &str| weights.contains(weight);
        // All layers of Phi have biases of their own.
        let Some(class) = class.filter(|_| self.architecture.model_type != "phi") else { return };
        let has_bias = has("attn_q.bias") || has("attn_qkv.bias");
        for (key, is_set) in [
            ("attention_bias", has_bias),
            ("use_bias", has_bias),
            ("bias", has_bias),
            ("qkv_bias", has_bias),
            ("use_qkv_bias", has_bias),
            ("attention_out_bias", has("attn_output.bias")),
            ("mlp_bias", has("ffn_up.bias")),
            ("lm_head_bias", tensors.contains_key("output.bias")),
            ("qk_layernorm", has("attn_q_norm.weight")),
            ("use_qk_norm", has("attn_q_norm.weight")),
        ] {
            if class.has(key) {
                self.config.insert(key.to_owned(), is_set.into());
            }
        }
    }

    fn add(&mut self, place: usize, name: &str, tensor: &Tensor, all: &ByName<'_>) -> Result<()> {
        let no_name =
            || Problem::NoOtherName { tensor: name.to_owned(), architecture: self.architecture.name };
        match name {
            // The configuration has them.
            "rope_freqs.weight" if self.architecture.name == "gemma4" => return Ok(()),
            "rope_freqs.weight" => return self.set_llama3(tensor),
            "rope_factors_long.weight" | "rope_factors_short.weight" => {
                let key = if name.contains("long") { "long_factor" } else { "short_factor" };
                let factors = numbers(tensor)?;
                let list: Vec<f64> = factors.iter().filter_map(|it| it.to_string().parse().ok()).collect();
                let scaling =
                    self.config.entry("rope_scaling").or_insert_with(|| json!({"rope_type": "longrope"}));
                if let Value::Object(scaling) = scaling {
                    scaling.insert(key.to_owned(), json!(list));
                }
                return Ok(());
            }
            _ => {}
        }
        let end = [".weight", ".bias"].into_iter().find(|end| name.ends_with(end)).unwrap_or_default();
        let known = name.strip_suffix(end).unwrap_or_default();
        let Some((layer, weight)) = known.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
            let module = self.names.module(known).ok_or_else(no_name)?;
            let (name, changed) = (format!("{module}{end}"), self.changed(known, tensor)?);
            self.push(place, name, changed);
            return Ok(());
        };
        let prefix = self.names.layer(layer);
        let joined = self.architecture.joined.iter().find(|joined| joined.parts.contains(&weight));
        if let Some(joined) = joined {
            return match joined.parts.iter().position(|part| *part == weight) {
                Some(0) => self.add_joined(place, (&prefix, layer), (joined, end), tensor, all),
                // It is added with the first part.
                _ => Ok(()),
            };
        }
        if end.is_empty() && bare_end(weight) != Some("") {
            return Err(no_name().into());
        }
        if weight == "attn_gate" && self.architecture.name == "qwen3next" {
            // It is added with the queries, keys and values.
            return Ok(());
        }
        let module = match weight {
            "attn_norm" if self.config.get("num_ln_in_parallel_attn") == Some(&2.into()) => "ln_mlp",
            _ => self.names.module(weight).ok_or_else(no_name)?,
        };
        let module = module.to_owned();
        if module.contains("{}") {
            for number in 0..tensor.shape().first().copied().unwrap_or_default() {
                let module = module.replacen("{}", &number.to_string(), 1);
                self.push(place, format!("{prefix}{module}{end}"), row(tensor, number)?);
            }
            return Ok(());
        }
        let end = if bare_end(weight).is_some() { "" } else { end };
        let changed = match (self.delta_net, weight) {
            (Some(delta_net), "attn_qkv") if self.architecture.name == "qwen3next" => {
                let partner = format!("blk.{layer}.attn_gate{end}");
                let gates = all
                    .get(partner.as_str())
                    .ok_or_else(|| Problem::NoPartner { tensor: name.to_owned(), partner })?;
                delta_net.joined(tensor, gates)?
            }
            _ => self.changed(weight, tensor)?,
        };
        self.push(place, format!("{prefix}{module}{end}"), changed);
        Ok(())
    }

    /// Permutes the rows of queries and keys back, and takes 1 from norms.
    fn changed(&self, known: &str, tensor: &Tensor) -> Result<Tensor> {
        if self.architecture.shifts_norms && known.ends_with("norm") && known != "ssm_norm" {
            return Ok(mapped(tensor, |number| number - 1.0).unwrap_or_else(|| tensor.clone()));
        }
        if let Some(delta_net) = self.delta_net {
            return Ok(delta_net.restored(known, tensor)?.unwrap_or_else(|| tensor.clone()));
        }
        if self.architecture.transposes(known) && tensor.shape().len() == 2 {
            return Ok(tensor.transpose(0, 1).unwrap_or_else(|| tensor.clone()));
        }
        if self.architecture.mixes_heads && known == "attn_qkv" {
            let queries = self.size("num_attention_heads")?;
            let keys = self.size("num_kv_heads").or_else(|_| self.size("num_key_value_heads"));
            let heads = Heads { queries, keys: keys.unwrap_or(queries) };
            let mixed = heads.mixed(tensor).ok_or_else(|| Problem::Shape {
                tensor: known.to_owned(),
                shape: tensor.shape().to_vec(),
                expected: format!("{} heads, and twice {}", heads.queries, heads.keys),
            })?;
            return Ok(mixed?);
        }
        let heads = match known {
            "attn_q" if self.architecture.permutes => "num_attention_heads",
            "attn_k" if self.architecture.permutes => "num_key_value_heads",
            _ => return Ok(tensor.clone()),
        };
        let heads = self.size(heads)?;
        let rows = tensor.shape().first().copied().unwrap_or_default();
        let half = rows.checked_div(heads.saturating_mul(2)).and_then(NonZeroU64::new);
        Ok(tensor.with_grid_transposed(heads, half.unwrap_or(NonZeroU64::MIN))?)
    }

    /// Joins the parts that are one tensor in the files of the class. Those of gpt-oss alternate, and their matrices are transposed.
    fn add_joined(
        &mut self,
        place: usize,
        (prefix, layer): (&str, &str),
        (joined, end): (&JoinedTensor, &str),
        tensor: &Tensor,
        all: &ByName<'_>,
    ) -> Result<()> {
        let is_gpt_oss = self.architecture.name == "gpt-oss";
        let module_end = match end {
            _ if !joined.module.contains("experts.") => end,
            ".bias" => "_bias",
            _ => "",
        };
        let wrong = |name: &str, tensor: &Tensor| Problem::Shape {
            tensor: name.to_owned(),
            shape: tensor.shape().to_vec(),
            expected: "those of experts".to_owned(),
        };
        let mut whole = tensor.clone();
        if let [_, second] = joined.parts {
            let partner = format!("blk.{layer}.{second}{end}");
            let up = all.get(partner.as_str()).copied();
            let pair = [tensor, up.ok_or_else(|| wrong(&partner, tensor))?];
            let dim = usize::from(second.ends_with("_exps"));
            let mut shape = tensor.shape().to_vec();
            shape.get_mut(dim).into_iter().for_each(|rows| *rows = rows.saturating_mul(2));
            whole = if is_gpt_oss {
                let pair: Option<Vec<Tensor>> = pair.iter().map(|part| part.unsqueeze(2)).collect();
                let pair = pair.ok_or_else(|| wrong(&partner, tensor))?;
                Tensor::concat(2, &pair)?.reshaped(&shape)?
            } else {
                Tensor::concat(dim, &pair.map(Clone::clone))?
            };
        }
        if is_gpt_oss && end != ".bias" {
            whole = whole.transpose(1, 2).ok_or_else(|| wrong(joined.module, tensor))?;
        }
        self.push(place, format!("{prefix}{}{module_end}", joined.module), whole);
        Ok(())
    }

    /// Finds the settings of Llama 3's scaling whose factors these are.
    fn set_llama3(&mut self, tensor: &Tensor) -> Result<()> {
        let found = numbers(tensor)?;
        let factor = found.iter().copied().fold(1.0_f32, f32::max);
        let theta = self.config.get("rope_theta").and_then(Value::as_f64).unwrap_or(10_000.0);
        let dim = (found.len() as u64).saturating_mul(2);
        let [low, high] = [1.0, 4.0];
        // That of all models by Meta first.
        let contexts = [8192_u32].into_iter().chain((5..21).map(|power| 1 << power));
        for context in contexts {
            let factors = llama3_factors(dim, theta, (f64::from(factor), low, high, context.into()));
            let is_close = |(ours, theirs): (&f32, &f32)| (ours - theirs).abs() <= theirs * 1e-5;
            if factors.iter().zip(&found).all(is_close) {
                let scaling = json!({
                    "rope_type": "llama3",
                    "factor": f64::from(factor),
                    "low_freq_factor": low,
                    "high_freq_factor": high,
                    "original_max_position_embeddings": context,
                });
                self.config.insert("rope_scaling".to_owned(), scaling);
                return Ok(());
            }
        }
        Err(Problem::Factors.into())
    }
}

/// Returns one item along the first dimension.
fn row(tensor: &Tensor, number: u64) -> Result<Tensor> {
    let item = items(tensor, 0, (number, 1, 1))?;
    Ok(item.reshaped(tensor.shape().get(1..).unwrap_or_default())?)
}

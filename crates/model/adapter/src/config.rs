//! `adapter_config.json`: the settings of an adapter.
//!
//! Facts: `LoraConfig` in `peft/tuners/lora/config.py`, and `get_pattern_key` in `peft/utils/other.py` of peft 0.21.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::module_patterns::{EXPRESSIONS_MAX, ModulePatterns};
use crate::{Problem, Result};

/// Settings of an adapter.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct AdapterConfig {
    /// Method, such as `LORA`.
    pub peft_type: String,
    /// Model that the adapter was trained on.
    #[serde(default)]
    pub base_model_name_or_path: Option<String>,
    /// Rank of all modules that `rank_pattern` does not name.
    #[serde(default = "default_rank")]
    pub r: u64,
    #[serde(default = "default_alpha")]
    lora_alpha: f64,
    #[serde(default)]
    use_rslora: bool,
    /// True if the vectors of the weights are rescaled (`DoRA`).
    #[serde(default)]
    pub use_dora: bool,
    #[serde(default)]
    pub(crate) fan_in_fan_out: bool,
    #[serde(default)]
    rank_pattern: Option<Map<String, Value>>,
    #[serde(skip)]
    ranks: ModulePatterns,
    #[serde(default)]
    alpha_pattern: Option<Map<String, Value>>,
    #[serde(skip)]
    alphas: ModulePatterns,
    #[serde(default)]
    target_modules: Value,
    #[serde(default)]
    pub(crate) target_parameters: Option<Vec<String>>,
    #[serde(default)]
    modules_to_save: Option<Vec<String>>,
    #[serde(default)]
    trainable_token_indices: Option<TokenIndices>,
    #[serde(default)]
    pub(crate) peft_version: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// Maximum number of patterns of an adapter. Adapters have one for each module at most, which can be an expert.
const PATTERNS_MAX: usize = 1 << 18;
/// Maximum number of comparisons of a tensor's name with a regular expression.
const COMPARISONS_MAX: usize = 1 << 22;
/// Maximum number of searches for a tensor's name among the names of a length that have their dots in the same places.
const SEARCHES_MAX: usize = 1 << 24;

/// Returns peft's default of `r`.
fn default_rank() -> u64 {
    8
}

/// Returns peft's default of `lora_alpha`.
fn default_alpha() -> f64 {
    8.0
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum TokenIndices {
    /// Rows of the input embeddings.
    Input(Vec<u64>),
    /// Rows by the names of the modules.
    ByModule(BTreeMap<String, Vec<u64>>),
}

/// Fields that change the result in a way that a sum of base and product does not have, and why.
const REFUSED: &[(&str, &str)] = &[
    ("layer_replication", "the adapted model has more layers than the base"),
    ("alora_invocation_tokens", "the adapter is active only after these tokens"),
    ("use_qalora", "its factors are for groups of inputs"),
    ("use_bdlora", "its factors are block diagonal"),
    ("arrow_config", "a router chooses among several adapters"),
    ("kasa_config", "its factors are scaled by singular values"),
    ("monteclora_config", "its factors are sampled"),
    ("velora_config", "it changes the computation, not only the weights"),
    ("megatron_config", "its factors are split among processes"),
];
/// Initialisations that also change the base weights, so that a merge needs those and not the original base.
const RESIDUAL_INITS: &[&str] = &["pissa", "olora", "corda", "loftq", "lora_ga", "mica"];

impl AdapterConfig {
    /// Reads the text of `adapter_config.json`.
    ///
    /// # Errors
    /// When the text is not such a document, or has settings that cannot be merged.
    pub fn from_json(text: &str) -> Result<Self> {
        let mut config: Self = serde_json::from_str(text).map_err(Problem::Config)?;
        if config.peft_type != "LORA" {
            return Err(Problem::Method { method: config.peft_type }.into());
        }
        for (field, reason) in REFUSED {
            if let Some(value) = config.rest.get(*field).filter(|value| is_set(value)) {
                return Err(Problem::Field { field, value: value.to_string(), reason }.into());
            }
        }
        if let Some(Value::String(init)) = config.rest.get("init_lora_weights")
            && RESIDUAL_INITS.iter().any(|name| init.to_lowercase().starts_with(name))
        {
            let reason = "it was trained on changed base weights; save it with path_initial_model_for_weight_conversion";
            return Err(Problem::Field { field: "init_lora_weights", value: init.clone(), reason }.into());
        }
        let (ranks, alphas) = (config.rank_pattern.take(), config.alpha_pattern.take());
        let count = [&ranks, &alphas].into_iter().flatten().map(Map::len).sum();
        if count > PATTERNS_MAX {
            return Err(Problem::Patterns { count, what: "patterns", limit: PATTERNS_MAX }.into());
        }
        config.ranks = ModulePatterns::from_json("rank_pattern", ranks)?;
        config.alphas = ModulePatterns::from_json("alpha_pattern", alphas)?;
        config.check_count(ModulePatterns::expression_count, "regular expressions", EXPRESSIONS_MAX)?;
        Ok(config)
    }

    /// Checks that the patterns are few enough to be compared with the names of `tensor_count` tensors.
    ///
    /// # Errors
    /// When the comparisons would take seconds.
    pub(crate) fn check_comparisons(&self, tensor_count: usize) -> Result<()> {
        let limit = |most: usize| most.checked_div(tensor_count).unwrap_or(most);
        self.check_count(ModulePatterns::expression_count, "regular expressions", limit(COMPARISONS_MAX))?;
        self.check_count(ModulePatterns::name_kind_count, "kinds of names", limit(SEARCHES_MAX))
    }

    fn check_count(
        &self,
        count: impl Fn(&ModulePatterns) -> usize,
        what: &'static str,
        limit: usize,
    ) -> Result<()> {
        let count = count(&self.ranks).saturating_add(count(&self.alphas));
        if count > limit { Err(Problem::Patterns { count, what, limit }.into()) } else { Ok(()) }
    }

    /// Returns the names of the modules that the adapter targets, as the document has them.
    pub fn targets(&self) -> Vec<String> {
        let modules = match &self.target_modules {
            Value::String(pattern) => vec![pattern.clone()],
            Value::Array(names) => names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            _ => Vec::new(),
        };
        let mut targets: Vec<String> =
            modules.into_iter().chain(self.target_parameters.iter().flatten().cloned()).collect();
        targets.sort();
        targets
    }

    pub(crate) fn rank_and_scale(&self, module: &str) -> (f64, f64) {
        #[expect(clippy::cast_precision_loss, reason = "ranks are small")]
        let rank = self.ranks.number(module).unwrap_or(self.r as f64);
        let alpha = self.alphas.number(module).unwrap_or(self.lora_alpha);
        (rank, alpha / if self.use_rslora { rank.sqrt() } else { rank })
    }

    /// Returns true if the module of this tensor was trained and saved as a whole.
    pub(crate) fn saves_module(&self, tensor: &str) -> bool {
        let module = tensor.rsplit_once('.').map_or(tensor, |(module, _)| module);
        let mut saved = self.modules_to_save.iter().flatten();
        saved.any(|name| is_name_of(name, module))
    }

    pub(crate) fn token_indices(&self, module: &str) -> Option<&[u64]> {
        match self.trainable_token_indices.as_ref()? {
            TokenIndices::Input(rows) => Some(rows),
            TokenIndices::ByModule(by_module) => {
                by_module.iter().find(|(name, _)| is_name_of(name, module)).map(|(_, rows)| rows.as_slice())
            }
        }
    }
}

/// Returns true if a module has the name, or the name at the end of a path.
fn is_name_of(name: &str, module: &str) -> bool {
    module.strip_suffix(name).is_some_and(|path| path.is_empty() || path.ends_with('.'))
}

fn is_set(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false)) && value.as_array().is_none_or(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose_rank_and_scale_as_peft_does() {
        let config = AdapterConfig::from_json(
            r#"{"peft_type":"LORA","r":8,"lora_alpha":16,"rank_pattern":{"q_proj":4,"layers.0.mlp":2,"^model.x":3},
                "alpha_pattern":{"q_proj":32}}"#,
        )
        .expect("valid");
        let found = |module| config.rank_and_scale(module);
        assert_eq!(found("model.layers.0.self_attn.q_proj"), (4.0, 8.0));
        assert_eq!(found("model.layers.0.self_attn.xq_proj"), (8.0, 2.0));
        assert_eq!(found("model.layers.0.mlp"), (2.0, 8.0));
        assert_eq!(found("model.x"), (3.0, 16.0 / 3.0));
    }

    #[test]
    fn patterns_are_few_enough_to_be_compared_with_each_tensor() {
        let with = |count: usize, end: &str| {
            let patterns: Vec<String> = (0..count).map(|i| format!(r#""m{i:06}{end}":1"#)).collect();
            let text = format!(
                r#"{{"peft_type":"LORA","rank_pattern":{{{}}},"alpha_pattern":{{"a+":1}}}}"#,
                patterns.join(",")
            );
            AdapterConfig::from_json(&text)
        };
        let text = |found: Result<AdapterConfig>| found.expect_err("too many").to_string();
        let most = with(EXPRESSIONS_MAX - 1, "+").expect("few enough");
        assert!(
            text(with(EXPRESSIONS_MAX, "+"))
                .contains("have 2049 regular expressions together, more than 2048")
        );
        most.check_comparisons(COMPARISONS_MAX / EXPRESSIONS_MAX).expect("few enough");
        let error =
            most.check_comparisons(COMPARISONS_MAX / EXPRESSIONS_MAX + 1).expect_err("too many").to_string();
        assert!(error.contains("have 2048 regular expressions together, more than 2047"), "{error}");
        assert!(text(with(PATTERNS_MAX, "")).contains("have 262145 patterns together, more than 262144"));
        // All of these names are of one kind.
        let names = with(100_000, "").expect("few enough");
        names.check_comparisons(1 << 22).expect("few enough");
        let kinds: Vec<String> = (0..200).map(|i| format!(r#""{}.a":1"#, "m".repeat(i))).collect();
        let kinds = format!(r#"{{"peft_type":"LORA","rank_pattern":{{{}}}}}"#, kinds.join(","));
        let kinds = AdapterConfig::from_json(&kinds).expect("few enough");
        kinds.check_comparisons(SEARCHES_MAX / 200).expect("few enough");
        let error = kinds.check_comparisons(SEARCHES_MAX / 200 + 1).expect_err("too many").to_string();
        assert!(error.contains("have 200 kinds of names together, more than 199"), "{error}");
        let large = AdapterConfig::from_json(r#"{"peft_type":"LORA","rank_pattern":{"a{60000}":1}}"#);
        assert!(large.expect_err("too large").to_string().contains("not a regular expression"));
    }

    #[test]
    fn the_name_of_a_module_is_a_whole_part_of_its_path() {
        assert!(
            is_name_of("head", "head")
                && is_name_of("head", "model.head")
                && is_name_of("a.head", "model.a.head")
        );
        assert!(!is_name_of("head", "model.ahead") && !is_name_of("head", "model.head.a"));
    }

    #[test]
    fn what_a_merge_cannot_have_is_refused() {
        for (text, expected) in [
            (r#"{"peft_type":"IA3"}"#, "of type IA3"),
            (r#"{"peft_type":"LORA","layer_replication":[[0,4]]}"#, "layer_replication"),
            (r#"{"peft_type":"LORA","init_lora_weights":"pissa_niter_16"}"#, "changed base weights"),
            (r#"{"peft_type":"LORA","rank_pattern":{"(":1}}"#, "not a regular expression"),
        ] {
            let error = AdapterConfig::from_json(text).expect_err("refused").to_string();
            assert!(error.contains(expected), "{error}");
        }
        AdapterConfig::from_json(r#"{"peft_type":"LORA","layer_replication":null,"use_qalora":false,"r":8}"#)
            .expect("nothing of this is set");
    }
}

//! Modules that know what their tensors are for: one file an architecture, over what [`decoder`] has in
//! common; and the choice between them.

mod decoder;
mod llama;
mod mistral;
mod qwen2;
mod state;
pub(crate) mod weights;

use std::collections::HashMap;
use std::fmt::Debug;

use tensor::Tensor;

use crate::{Converted, Error, Fact, Kind, Result};
use decoder::config::Config;
use decoder::{Decoder, HUGGING_FACE, META, Said};
use llama::params::LlamaParams;

/// An architecture that runs.
struct Architecture {
    /// What a person calls it, and `model_type` in its config.json.
    name: &'static str,
    /// The class of its module.
    class: &'static str,
    /// Whether the name and shape of its tensors say all of it where there is no config.json.
    plain: bool,
    /// What its config.json says.
    said: fn(&Config) -> Result<Said>,
}

/// All that `--arch` knows, and that config.json is looked up in.
static ARCHITECTURES: [&Architecture; 3] = [&llama::LLAMA, &mistral::MISTRAL, &qwen2::QWEN2];

/// The names of the architectures that run.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    ARCHITECTURES.iter().map(|architecture| architecture.name)
}

/// What a person says of a model. It may say what its document leaves open, and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked {
    /// Heads of queries.
    pub n_heads: Option<u64>,
    /// The base of the wavelengths of positions.
    pub rope_theta: Option<f64>,
    /// By how much Llama 3.1 and 3.2 stretch long wavelengths.
    pub rope_factor: Option<f64>,
    /// The epsilon of its norms.
    pub norm_eps: Option<f64>,
}

/// What is known of a checkpoint beside its tensors: the texts of the documents that lie there.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Meta's `params.json`.
    pub params: Option<String>,
    /// Hugging Face's `config.json`.
    pub config: Option<String>,
    /// `adapter_config.json`, of what only changes another model.
    pub adapter: Option<String>,
    /// What a person says.
    pub asked: Asked,
    /// Whether tensors that the model has no use for ride along.
    pub keep_extra: bool,
}

/// A module of the architecture `name`, whose `forward` takes tokens.
///
/// # Errors
/// When the names are not the architecture's, the documents lack what the shapes do not tell or disagree
/// with them, tensors are missing or left over, or a weight is no floating-point number.
pub fn model(name: &str, tensors: &[(String, Tensor)], about: &About) -> Result<Converted> {
    let known = ARCHITECTURES.iter().find(|architecture| architecture.name == name);
    let Some(architecture) = known else { return Err(Error::Architecture { name: name.to_owned() }) };
    if architecture.name == llama::LLAMA.name && META.lacks(tensors).is_none() {
        return meta(tensors, about);
    }
    architecture.hugging_face(tensors, about)
}

/// The module that the names and documents tell: a model, or the weights and the reason why not a model.
///
/// # Errors
/// As [`model`] and [`weights`](crate::weights).
pub fn auto(tensors: &[(String, Tensor)], about: &About) -> Result<Converted> {
    match choice(tensors, about)? {
        Ok(Choice::Meta) => meta(tensors, about),
        Ok(Choice::HuggingFace(architecture)) => architecture.hugging_face(tensors, about),
        Err(why) if about.asked != Asked::default() => Err(Error::NoModel { why }),
        Err(why) => {
            let mut converted = weights::weights(tensors)?;
            let alike = [&META, &HUGGING_FACE].iter().any(|layout| layout.lacks(tensors).is_none());
            if why == NOTHING_BESIDE && alike {
                converted
                    .notes
                    .push("a LLaMA has such names: `--arch llama` says what it needs to run".to_owned());
            }
            converted.why = Some(why);
            Ok(converted)
        }
    }
}

const NOTHING_BESIDE: &str = "no params.json or config.json beside it";
const NO_ARCHITECTURE: &str = "no known architecture";

enum Choice {
    Meta,
    HuggingFace(&'static Architecture),
}

/// What the checkpoint is, or why it is only weights.
fn choice(tensors: &[(String, Tensor)], about: &About) -> Result<Result<Choice, String>> {
    if let Some(adapter) = &about.adapter {
        let base = Config::from_json(adapter).ok();
        let base = base.as_ref().and_then(|adapter| adapter.text("base_model_name_or_path").ok().flatten());
        let base = base.map_or_else(|| "its base model".to_owned(), shortened);
        return Ok(Err(format!("an adapter: merge into {base} first to run")));
    }
    if META.lacks(tensors).is_none() && (about.params.is_some() || about.asked != Asked::default()) {
        return Ok(Ok(Choice::Meta));
    }
    let has = |wanted: &str| tensors.iter().any(|(name, _)| name == wanted);
    // Names of any transformer of Hugging Face's, whole or not, plain or quantized.
    let alike = tensors.iter().any(|(name, _)| name.contains("layers.0.self_attn."));
    let config = match &about.config {
        Some(text) => match Config::from_json(text) {
            Ok(config) => Some(config),
            Err(error) if alike => return Err(error),
            Err(_) => None,
        },
        None => None,
    };
    let Some(config) = config else {
        return Ok(Err(match META.lacks(tensors) {
            Some(lacks) if about.params.is_some() && !alike => format!("there is no tensor `{lacks}`"),
            _ if about.params.is_some() => "no config.json beside it".to_owned(),
            _ if alike || tensors.iter().any(|(name, _)| name.contains("layers.0.attention.w")) => {
                NOTHING_BESIDE.to_owned()
            }
            _ => NO_ARCHITECTURE.to_owned(),
        }));
    };
    let model_type = config.get("model_type").and_then(serde_json::Value::as_str);
    let class = class(&config);
    let named = |architecture: &&&Architecture| match model_type {
        Some(model_type) => model_type == architecture.name,
        None => class.is_some_and(|class| class.strip_suffix("ForCausalLM") == Some(architecture.class)),
    };
    let Some(architecture) = ARCHITECTURES.iter().find(named) else {
        return Ok(Err(match model_type {
            Some(model_type) => format!("model_type \"{}\" has no forward here", shortened(model_type)),
            None => "config.json has no model_type".to_owned(),
        }));
    };
    if alike && config.get("quantization_config").is_some() {
        return Err(config.unknown("quantization_config"));
    }
    if let Some(lacks) = HUGGING_FACE.lacks(tensors) {
        return Ok(Err(if has("embed_tokens.weight") && has("layers.0.self_attn.q_proj.weight") {
            format!("a bare {}Model: without an lm_head there are no logits", architecture.class)
        } else {
            format!("config.json says {}, but there is no tensor `{lacks}`", architecture.name)
        }));
    }
    let causal = class.is_none_or(|class| class.ends_with("ForCausalLM"));
    let output = format!("{}.weight", HUGGING_FACE.output);
    if !causal && !has(&output) {
        return Ok(Err(format!(
            "a {}: without an lm_head there are no logits",
            shortened(class.unwrap_or_default())
        )));
    }
    Ok(Ok(Choice::HuggingFace(architecture)))
}

/// The class that a config.json names first.
fn class(config: &Config) -> Option<&str> {
    config.get("architectures")?.as_array()?.first()?.as_str()
}

/// Text from a document, fit for a line.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 80;
    let short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

fn by_name(tensors: &[(String, Tensor)]) -> HashMap<&str, &Tensor> {
    tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect()
}

/// A LLaMA with Meta's names.
fn meta(tensors: &[(String, Tensor)], about: &About) -> Result<Converted> {
    let asked = &about.asked;
    let by_name = by_name(tensors);
    let mut params = match &about.params {
        Some(text) => LlamaParams::from_json(text)?,
        None => LlamaParams::of_heads(decoder::without_document(&META, &by_name, asked)?),
    };
    let heads_asked = params.ask(asked)?;
    if let Some(of) = params.shard_of(&by_name) {
        return Err(Error::Shard { of });
    }
    let said = Said { document: about.params.is_some(), heads_asked, ..params.said(&by_name) };
    Decoder::new(&META, said, &by_name)?.module(&llama::LLAMA, tensors, about.keep_extra)
}

impl Architecture {
    fn kind(&self) -> Kind {
        Kind::Model { name: self.name }
    }

    /// This architecture with Hugging Face's names.
    fn hugging_face(&self, tensors: &[(String, Tensor)], about: &About) -> Result<Converted> {
        if let Some(name) = HUGGING_FACE.lacks(tensors) {
            return Err(Error::Misnamed { architecture: self.name, name });
        }
        let by_name = by_name(tensors);
        let mut config = match &about.config {
            Some(text) => Config::from_json(text)?,
            None if self.plain => {
                Config::of_heads(decoder::without_document(&HUGGING_FACE, &by_name, &about.asked)?)
            }
            None => return Err(Error::NoConfig { architecture: self.name }),
        };
        if let Some(other) = config.text("model_type")?.filter(|model_type| *model_type != self.name) {
            return Err(config.wrong("model_type", &format!("{other:?}"), format!("{:?}", self.name)));
        }
        let heads_asked = config.ask(&about.asked)?;
        let document = about.config.is_some();
        let said = (self.said)(&config)?;
        let said = Said { document, heads_asked, tied: said.tied || !document, ..said };
        Decoder::new(&HUGGING_FACE, said, &by_name)?.module(self, tensors, about.keep_extra)
    }
}

impl Asked {
    /// What a person may say, and the numbers that are said, as text.
    pub fn said(&self) -> [(Fact, Option<String>); 4] {
        [
            (Fact::Heads, self.n_heads.map(text)),
            (Fact::RopeTheta, self.rope_theta.map(text)),
            (Fact::RopeFactor, self.rope_factor.map(text)),
            (Fact::NormEps, self.norm_eps.map(text)),
        ]
    }
}

/// What a person says where the document says nothing, and an error where that says something else.
fn agreed<T: Copy + PartialEq + Debug>(
    fact: Fact,
    file: &'static str,
    asked: Option<T>,
    said: Option<T>,
) -> Result<Option<T>> {
    match (asked, said) {
        (Some(asked), Some(said)) if asked != said => {
            Err(Error::Contradiction { fact, asked: text(asked), file, said: text(said) })
        }
        _ => Ok(said.or(asked)),
    }
}

/// A number as a person types it.
fn text(number: impl Debug) -> String {
    let text = format!("{number:?}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::decoder::rope::Rope;
    use super::decoder::tests::{code, tensors, zeros};
    use super::*;

    const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 32}"#;

    fn config(text: &str) -> About {
        About { config: Some(text.to_owned()), ..About::default() }
    }

    fn changed(from: &str, to: &str) -> About {
        assert!(CONFIG.contains(from), "{from}");
        config(&CONFIG.replace(from, to))
    }

    fn with(more: &str) -> About {
        changed("{", &format!("{{{more}, "))
    }

    #[test]
    fn hugging_faces_names_become_tokens_to_logits() {
        let mut all = tensors(&HUGGING_FACE, 1);
        all.push(zeros("model.layers.1.self_attn.rotary_emb.inv_freq", &[2]));
        let converted = auto(&all, &config(CONFIG)).expect("config and shapes agree");
        assert_eq!((converted.kind.to_string().as_str(), converted.notes.len()), ("llama", 0));
        assert!(code(&converted).contains("torch.select(y, -2, 0)"));
        let named = model("llama", &all, &config(CONFIG)).expect("it is one");
        assert_eq!(code(&named), code(&converted));
    }

    #[test]
    fn weights_say_why_they_are_only_weights() {
        let why = |tensors: &[_], about: &About| auto(tensors, about).expect("weights").why;
        let said = |text: &str| Some(text.to_owned());
        let hf = tensors(&HUGGING_FACE, 1);
        let nothing = About::default();
        assert_eq!(why(&hf, &nothing), said("no params.json or config.json beside it"));
        let shard = [zeros("layers.0.attention.wq.weight", &[1])];
        assert_eq!(why(&shard, &nothing), said("no params.json or config.json beside it"));
        assert_eq!(why(&[zeros("layer1.0.conv1.weight", &[1])], &nothing), said("no known architecture"));
        let gemma = changed("\"llama\"", "\"gemma2\"");
        assert_eq!(why(&hf, &gemma), said("model_type \"gemma2\" has no forward here"));
        assert_eq!(why(&hf, &config("{}")), said("config.json has no model_type"));
        let adapter = r#"{"base_model_name_or_path": "meta-llama/Llama-2-7b"}"#.to_owned();
        let adapter = About { adapter: Some(adapter), ..config(CONFIG) };
        assert_eq!(why(&hf, &adapter), said("an adapter: merge into meta-llama/Llama-2-7b first to run"));
        let bare: Vec<_> = hf
            .iter()
            .filter_map(|(name, tensor)| Some((name.strip_prefix("model.")?.to_owned(), tensor.clone())))
            .collect();
        assert_eq!(
            why(&bare, &config(CONFIG)),
            said("a bare LlamaModel: without an lm_head there are no logits")
        );
        let headless: Vec<_> = hf.iter().filter(|(name, _)| name != "lm_head.weight").cloned().collect();
        let classifier = with(r#""architectures": ["LlamaForSequenceClassification"]"#);
        assert_eq!(
            why(&headless, &classifier),
            said("a LlamaForSequenceClassification: without an lm_head there are no logits")
        );
        let lacks = "config.json says llama, but there is no tensor `model.layers.0.self_attn.q_proj.weight`";
        assert_eq!(why(&[zeros("w", &[1])], &config(CONFIG)), said(lacks));
        let meta = auto(&tensors(&META, 1), &nothing).expect("weights");
        assert_eq!(meta.why, said("no params.json or config.json beside it"));
        assert_eq!(meta.notes, ["a LLaMA has such names: `--arch llama` says what it needs to run"]);
        assert_eq!(why(&[zeros("w", &[1])], &config("[")), said("no known architecture"));
    }

    #[test]
    fn what_changes_the_result_is_an_error() {
        let hf = tensors(&HUGGING_FACE, 1);
        let error = |about: &About| auto(&hf, about).expect_err("wrong").to_string();
        for (more, expected) in [
            (
                r#""quantization_config": {"bits": 4}"#,
                "`quantization_config` changes the result, and no forward here knows it",
            ),
            (r#""hidden_act": "gelu""#, "`hidden_act` is \"gelu\", expected \"silu\""),
            (r#""head_dim": 3"#, "`head_dim` is 3, expected an even size, whose halves are rotated"),
            (
                r#""rope_scaling": {"type": "linear", "factor": 2.0}"#,
                "`rope_scaling.type` is \"linear\", expected \"default\" or \"llama3\"",
            ),
            (
                r#""rope_parameters": {"rope_type": "yarn", "factor": 2.0}"#,
                "`rope_parameters.rope_type` is \"yarn\", expected \"default\" or \"llama3\"",
            ),
            (
                r#""rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "max_position_embeddings": 64"#,
                "there is no `rope_scaling.low_freq_factor`",
            ),
            (
                r#""rope_parameters": {"full_attention": {"rope_type": "default"}}"#,
                "`rope_parameters.rope_type` changes the result, and no forward here knows it",
            ),
            (
                r#""partial_rotary_factor": 0.5"#,
                "`partial_rotary_factor` changes the result, and no forward here knows it",
            ),
            (r#""rope_theta": "10000""#, "`rope_theta` is \"10000\", expected a number above 0"),
        ] {
            assert_eq!(error(&with(more)), format!("config.json: {expected}"));
        }
        assert_eq!(
            error(&changed("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1")),
            "config.json: `num_hidden_layers` is 1, expected 2, the checkpoint's layers"
        );
        assert_eq!(
            error(&changed("\"vocab_size\": 32", "\"vocab_size\": 31")),
            "tensor `model.embed_tokens.weight`: shape [32, 16], expected [31, 16] by vocab_size 31 and hidden_size 16"
        );
        assert_eq!(
            error(&changed("\"num_attention_heads\": 4, ", "")),
            "config.json has no `num_attention_heads`, which the shapes do not tell"
        );
        assert!(error(&config("{")).starts_with("config.json: EOF while parsing"));
    }

    #[test]
    fn positions_are_said_in_many_ways() {
        let of = |more: &str| {
            let text = CONFIG.replacen('{', &format!("{{{more}, "), 1);
            let config = Config::from_json(&text).expect("right");
            config.said(&[]).expect("right").rope
        };
        let llama3 = r#"{"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192"#;
        assert_eq!(of(r#""rope_theta": 5e5"#), Rope { theta: 5e5, scaling: None });
        let older = of(&format!(r#""rope_theta": 5e5, "rope_scaling": {llama3}}}"#));
        let newer = of(&format!(r#""rope_parameters": {llama3}, "rope_theta": 5e5}}"#));
        assert_eq!(older, newer);
        assert_eq!(older.scaling.map(|scaling| scaling.factor), Some(32.0));
        assert_eq!(
            of(r#""rope_scaling": null, "rope_parameters": {"rope_theta": 7, "rope_type": "default"}"#),
            Rope { theta: 7.0, scaling: None }
        );
        assert_eq!(of(r#""rope_scaling": {}"#), Rope { theta: 10_000.0, scaling: None });
    }

    #[test]
    fn a_person_says_only_what_the_document_leaves_open() {
        let hf = tensors(&HUGGING_FACE, 1);
        let outcome = |more: &str, asked: Asked| {
            let about = About { asked, ..with(more) };
            auto(&hf, &about).map(|converted| converted.archive.data_pkl().to_vec())
        };
        let heads = |n_heads| Asked { n_heads: Some(n_heads), ..Asked::default() };
        let theta = |theta| Asked { rope_theta: Some(theta), ..Asked::default() };
        let factor = |factor| Asked { rope_factor: Some(factor), ..Asked::default() };
        let eps = |eps| Asked { norm_eps: Some(eps), ..Asked::default() };
        let base = r#""rope_theta": 5e5"#;
        let inner = r#""rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}"#;
        let untyped = r#""rope_parameters": {"rope_theta": 5e5}"#;
        let yarn = r#""rope_scaling": {"type": "yarn", "factor": 8}"#;
        let of = |factor: &str, theta: &str| {
            format!(
                r#""rope_scaling": {{"rope_type": "llama3", {factor}"low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}{theta}"#
            )
        };
        let scaled = of(r#""factor": 8, "#, "");
        for (more, asked, expected) in [
            (base, heads(2), "--n-heads is 2, but config.json says 4"),
            (base, theta(123.0), "--rope-theta is 123, but config.json says 500000"),
            (inner, theta(123.0), "--rope-theta is 123, but config.json says 500000"),
            (r#""rms_norm_eps": 1e-6"#, eps(1e-5), "--norm-eps is 1e-5, but config.json says 1e-6"),
            (&scaled, factor(32.0), "--rope-factor is 32, but config.json says 8"),
            (
                inner,
                factor(8.0),
                r#"--rope-factor is 8, but config.json says `rope_parameters.rope_type` "default""#,
            ),
            (yarn, factor(8.0), r#"--rope-factor is 8, but config.json says `rope_scaling.type` "yarn""#),
        ] {
            assert_eq!(outcome(more, asked).expect_err("two answers").to_string(), expected);
        }
        // An equal value changes nothing, and what is missing may be said either way.
        for (more, asked, same) in [
            (base, heads(4), base),
            (base, theta(5e5), base),
            (inner, theta(5e5), base),
            (r#""rms_norm_eps": 1e-5"#, eps(0.000_01), r#""rms_norm_eps": 1e-5"#),
            (r#""x": null"#, eps(1e-5), r#""rms_norm_eps": 1e-5"#),
            (r#""rope_theta": null"#, theta(5e5), base),
            (&scaled, factor(8.0), &scaled),
            (&of("", ""), factor(8.0), &scaled),
            (r#""rope_scaling": null"#, factor(8.0), &scaled),
            (untyped, factor(8.0), &of(r#""factor": 8, "#, r#", "rope_theta": 5e5"#)),
        ] {
            let nothing = Asked::default();
            assert_eq!(outcome(more, asked).expect(more), outcome(same, nothing).expect(same), "{more}");
        }
    }

    #[test]
    fn an_architecture_that_does_not_fit_is_an_error() {
        let hf = tensors(&HUGGING_FACE, 1);
        let error = |name: &str, about: &About| model(name, &hf, about).expect_err("wrong").to_string();
        assert_eq!(
            error("mistral", &config(CONFIG)),
            "config.json: `model_type` is \"llama\", expected \"mistral\""
        );
        assert_eq!(
            error("qwen2", &About::default()),
            "there is no config.json, and the shapes do not tell all of qwen2"
        );
        assert_eq!(
            error("llama", &About::default()),
            "there is no config.json, and the shapes do not tell `num_attention_heads`, `rope_theta` and `rms_norm_eps`"
        );
        assert_eq!(
            model("mistral", &tensors(&META, 1), &config(CONFIG)).expect_err("Meta's names").to_string(),
            "this is no mistral: there is no tensor `model.layers.0.self_attn.q_proj.weight`"
        );
        assert_eq!(error("gpt2", &About::default()), "there is no architecture `gpt2` here");
    }
}

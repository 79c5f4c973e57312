//! What the class of a model adds to its body: a prefix and a head.

use std::cell::RefCell;

use crate::config::Config;
use crate::family::{Body, Family};
use crate::size::Size;
use crate::tree::{Scope, Tie};

/// Kind of a class, by the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    None,
    Language,
    /// Language, and whether a sentence follows another.
    Pretraining,
    /// Whether a sentence follows another.
    Next,
    /// Language, by the decoder of a model that has an encoder, too.
    Decoder,
    /// The encoder of a model that has a decoder, too.
    Encoder,
    /// Language, and which of several texts goes on.
    Double,
    Sequence,
    Tokens,
    Question,
    Choice,
    Image,
    MaskedImage,
    Audio,
}

const ENDS: &[(&str, Head)] = &[
    ("ForCausalLM", Head::Language),
    ("LMHeadModel", Head::Language),
    ("ForConditionalGeneration", Head::Language),
    ("ForMaskedLM", Head::Language),
    ("ForPreTraining", Head::Pretraining),
    ("ForNextSentencePrediction", Head::Next),
    ("ForSequenceClassification", Head::Sequence),
    ("ForTokenClassification", Head::Tokens),
    ("ForQuestionAnswering", Head::Question),
    ("ForMultipleChoice", Head::Choice),
    ("ForImageClassification", Head::Image),
    ("ForMaskedImageModeling", Head::MaskedImage),
    ("ForAudioClassification", Head::Audio),
    ("T5EncoderModel", Head::Encoder),
    ("DoubleHeadsModel", Head::Double),
    ("Model", Head::None),
];
/// Ends of classes that are a part of a model and stand in no row above.
const OTHER_ENDS: &[&str] = &["EncoderModel", "DecoderModel"];
/// Types of an encoder with a decoder, whose causal class has the decoder alone.
const WITH_ENCODER: &[&str] = &["bart", "whisper"];

/// Types whose class for questions calls the body as older classes did.
const ANSWERING: &[&str] =
    &["arcee", "exaone4", "llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "seed_oss", "smollm3"];

impl Head {
    /// Returns the kind of a class of a model type.
    pub(crate) fn of(class: &str, model_type: &str) -> Option<Self> {
        if class.ends_with("ForCausalLM") && WITH_ENCODER.contains(&model_type) {
            return Some(Self::Decoder);
        }
        let (end, head) = ENDS.iter().find(|(end, _)| class.ends_with(end))?;
        let is_part = *end == "Model" && OTHER_ENDS.iter().any(|end| class.ends_with(end));
        (!is_part).then_some(*head)
    }

    /// Returns the modules of the body that classes of this kind do not have.
    fn left_out(self, model_type: &str) -> &'static [&'static str] {
        match (self, model_type) {
            (Self::Decoder, _) => &["encoder.", "shared."],
            (Self::Encoder | Self::Audio, _) | (Self::Tokens, "t5") => &["decoder."],
            _ => &[],
        }
    }
}

/// Adds the body and the head of a class. Returns the ties, or `None` if the family has no such class.
pub(crate) fn add(family: &Family, head: Head, c: &Config<'_>, s: &Scope<'_>) -> Option<Vec<Tie>> {
    let prefix = match (head, c.model_type.as_str()) {
        (Head::None | Head::Encoder | Head::Audio, _) => "",
        (Head::Sequence | Head::Tokens, "t5") => "transformer",
        (Head::Question, kind) if ANSWERING.contains(&kind) => "transformer",
        _ => family.prefix,
    };
    let body = s.at(prefix);
    let parts = RefCell::new(Vec::new());
    family.body.add(c, &Scope::new(&parts, body.path()));
    let left_out = head.left_out(&c.model_type);
    body.extend(parts.take(), |name| !left_out.iter().any(|module| name.starts_with(module)));
    let embedding = if prefix.is_empty() {
        family.embedding.to_owned()
    } else {
        format!("{prefix}.{}", family.embedding)
    };
    match c.model_type.as_str() {
        "bert" | "roberta" | "distilbert" => encoder(head, c, s, &body, &embedding),
        "vit" => {
            let hidden = c.size("hidden_size");
            match head {
                Head::None => body.linear(
                    "pooler.dense",
                    [c.number("pooler_output_size").unwrap_or(hidden), hidden],
                    true,
                ),
                Head::Image => s.linear("classifier", [c.labels(), hidden], true),
                Head::MaskedImage => {
                    body.tensor("embeddings.mask_token", &[Size(1), Size(1), hidden]);
                    let stride = c.size("encoder_stride");
                    let out = stride * stride * c.size("num_channels");
                    s.module("decoder.0", &[out, hidden, Size(1), Size(1)], true);
                }
                _ => return None,
            }
            Some(Vec::new())
        }
        "whisper" if head == Head::Audio => {
            let (hidden, width) = (c.size("d_model"), c.size("classifier_proj_size"));
            s.linear("projector", [width, hidden], true);
            s.linear("classifier", [c.labels(), width], true);
            if c.flag("use_weighted_layer_sum") {
                s.tensor("layer_weights", &[c.size("encoder_layers") + 1]);
            }
            Some(Vec::new())
        }
        "bart" | "whisper" if head == Head::Decoder => {
            s.linear(family.head, [c.size("vocab_size"), c.size("d_model")], false);
            Some(vec![vec![
                format!("{prefix}.decoder.embed_tokens.weight"),
                format!("{}.weight", family.head),
            ]])
        }
        "t5" | "bart" => {
            let mut tie: Tie = vec![embedding];
            tie.extend(["encoder", "decoder"].map(|part| match prefix {
                "" => format!("{part}.embed_tokens.weight"),
                _ => format!("{prefix}.{part}.embed_tokens.weight"),
            }));
            let (hidden, vocab) = (c.size("d_model"), c.size("vocab_size"));
            match head {
                Head::None | Head::Encoder => {}
                Head::Language => {
                    s.linear("lm_head", [vocab, hidden], false);
                    tie.push("lm_head.weight".to_owned());
                    if c.model_type == "bart" {
                        s.optional("final_logits_bias", &[Size(1), vocab]);
                    }
                }
                Head::Sequence => {
                    s.linear("classification_head.dense", [hidden, hidden], true);
                    s.linear("classification_head.out_proj", [c.labels(), hidden], true);
                }
                Head::Question => s.linear("qa_outputs", [c.labels(), hidden], true),
                Head::Tokens if c.model_type == "t5" => s.linear("classifier", [c.labels(), hidden], true),
                _ => return None,
            }
            Some(vec![tie])
        }
        _ => decoder(family, head, c, s, embedding),
    }
}

fn decoder(
    family: &Family,
    head: Head,
    c: &Config<'_>,
    s: &Scope<'_>,
    embedding: String,
) -> Option<Vec<Tie>> {
    let hidden = match family.body {
        Body::Built(_) => c.number("word_embed_proj_dim"),
        Body::Decoder(_) => None,
    };
    let hidden = hidden.unwrap_or_else(|| c.size("hidden_size"));
    let is_old = matches!(c.model_type.as_str(), "gpt2" | "gpt_neox" | "bloom" | "falcon");
    match head {
        Head::None => {}
        Head::Language | Head::Double => {
            if head == Head::Double && c.model_type != "gpt2" {
                return None;
            }
            if head == Head::Double && c.flag("summary_use_proj") {
                let out = if c.flag("summary_proj_to_labels") { Size(1) } else { hidden };
                s.linear("multiple_choice_head.summary", [out, hidden], true);
            }
            let bias = match c.model_type.as_str() {
                "phi" => true,
                "phimoe" => c.flag("lm_head_bias"),
                "ernie4_5_moe" => c.flag("use_bias"),
                _ => false,
            };
            s.linear(family.head, [c.size("vocab_size"), hidden], bias);
            if c.model_type != "nemotron_h" {
                return Some(vec![vec![embedding, format!("{}.weight", family.head)]]);
            }
        }
        Head::Sequence => s.linear("score", [c.labels(), hidden], false),
        Head::Tokens if is_old => s.linear("classifier", [c.labels(), hidden], true),
        Head::Tokens => s.linear("score", [c.labels(), hidden], true),
        Head::Question => s.linear("qa_outputs", [Size(2), hidden], true),
        _ => return None,
    }
    Some(Vec::new())
}

/// Adds the head of an encoder, whose layers for language have three forms.
fn encoder(head: Head, c: &Config<'_>, s: &Scope<'_>, body: &Scope<'_>, embedding: &str) -> Option<Vec<Tie>> {
    let (hidden, vocab, labels) = (c.size("hidden_size"), c.size("vocab_size"), c.labels());
    let kind = c.model_type.as_str();
    let has_pooler = match head {
        Head::None | Head::Pretraining | Head::Next | Head::Choice => true,
        Head::Sequence => kind == "bert",
        _ => false,
    };
    if has_pooler && kind != "distilbert" {
        body.linear("pooler.dense", [hidden, hidden], true);
    }
    let tie = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    match head {
        Head::None => {}
        Head::Language | Head::Pretraining if kind == "distilbert" => {
            s.linear("vocab_transform", [hidden, hidden], true);
            s.module("vocab_layer_norm", &[hidden], true);
            s.linear("vocab_projector", [vocab, hidden], true);
            return Some(vec![tie([embedding, "vocab_projector.weight"])]);
        }
        Head::Language | Head::Pretraining => {
            let (at, dense, norm) = match kind {
                "bert" => ("cls.predictions", "transform.dense", "transform.LayerNorm"),
                _ => ("lm_head", "dense", "layer_norm"),
            };
            let h = s.at(at);
            h.linear(dense, [hidden, hidden], true);
            h.module(norm, &[hidden], true);
            h.linear("decoder", [vocab, hidden], true);
            h.tensor("bias", &[vocab]);
            if head == Head::Pretraining {
                s.linear("cls.seq_relationship", [Size(2), hidden], true);
            }
            let names = ["decoder.weight", "decoder.bias", "bias"].map(|name| format!("{at}.{name}"));
            let [weight, decoder_bias, bias] = names;
            return Some(vec![tie([embedding, &weight]), tie([&decoder_bias, &bias])]);
        }
        Head::Next if kind == "bert" => s.linear("cls.seq_relationship", [Size(2), hidden], true),
        Head::Sequence if kind == "roberta" => {
            s.linear("classifier.dense", [hidden, hidden], true);
            s.linear("classifier.out_proj", [labels, hidden], true);
        }
        Head::Sequence | Head::Choice => {
            if kind == "distilbert" {
                s.linear("pre_classifier", [hidden, hidden], true);
            }
            let out = if head == Head::Choice { Size(1) } else { labels };
            s.linear("classifier", [out, hidden], true);
        }
        Head::Tokens => s.linear("classifier", [labels, hidden], true),
        Head::Question => s.linear("qa_outputs", [labels, hidden], true),
        _ => return None,
    }
    Some(Vec::new())
}

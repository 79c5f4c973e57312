//! What the class of a model adds to its body: a prefix and a head.

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
    Sequence,
    Tokens,
    Question,
    Choice,
    Image,
}

const ENDS: &[(&str, Head)] = &[
    ("ForCausalLM", Head::Language),
    ("LMHeadModel", Head::Language),
    ("ForConditionalGeneration", Head::Language),
    ("ForMaskedLM", Head::Language),
    ("ForPreTraining", Head::Pretraining),
    ("ForSequenceClassification", Head::Sequence),
    ("ForTokenClassification", Head::Tokens),
    ("ForQuestionAnswering", Head::Question),
    ("ForMultipleChoice", Head::Choice),
    ("ForImageClassification", Head::Image),
    ("Model", Head::None),
];
/// Ends of classes that are a part of a model, or have heads that no row above has.
const OTHER_ENDS: &[&str] = &["EncoderModel", "DoubleHeadsModel", "DecoderModel"];

/// Types whose class for questions calls the body as older classes did.
const ANSWERING: &[&str] =
    &["arcee", "exaone4", "llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "seed_oss", "smollm3"];

impl Head {
    /// Returns the kind of a class.
    pub(crate) fn of(class: &str) -> Option<Self> {
        let is_other = OTHER_ENDS.iter().any(|end| class.ends_with(end));
        ENDS.iter().find(|(end, _)| !is_other && class.ends_with(end)).map(|(_, head)| *head)
    }
}

/// Adds the body and the head of a class. Returns the ties, or `None` if the family has no such class.
pub(crate) fn add(family: &Family, head: Head, c: &Config<'_>, s: &Scope<'_>) -> Option<Vec<Tie>> {
    let prefix = match (head, c.model_type.as_str()) {
        (Head::None, _) => "",
        (Head::Sequence | Head::Tokens, "t5") => "transformer",
        (Head::Question, kind) if ANSWERING.contains(&kind) => "transformer",
        _ => family.prefix,
    };
    let body = s.at(prefix);
    family.body.add(c, &body);
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
                _ => return None,
            }
            Some(Vec::new())
        }
        "t5" | "bart" => {
            let mut tie: Tie = vec![embedding];
            tie.extend(["encoder", "decoder"].map(|part| match prefix {
                "" => format!("{part}.embed_tokens.weight"),
                _ => format!("{prefix}.{part}.embed_tokens.weight"),
            }));
            let (hidden, vocab) = (c.size("d_model"), c.size("vocab_size"));
            match head {
                Head::None => {}
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
    let is_old = matches!(c.model_type.as_str(), "gpt2" | "bloom" | "falcon");
    match head {
        Head::None => {}
        Head::Language => {
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
        Head::None | Head::Pretraining | Head::Choice => true,
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
        Head::Image => return None,
    }
    Some(Vec::new())
}

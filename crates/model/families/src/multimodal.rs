//! Models of a text model, towers, and what joins them.

use crate::built::Built;
use crate::config::Config;
use crate::families;
use crate::heads::Head;
use crate::parts::towers;
use crate::rule::{self, Rule, Scoped};
use crate::size::Size;
use crate::tree::{Scope, Tie};

/// Which configuration says that embeddings are tied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tied {
    Root,
    Text,
    /// One of them says so.
    Either,
    Never,
}

/// A composition: where its parts are.
#[derive(Clone, Copy, Debug)]
struct Multimodal {
    /// Module of all parts in classes with a head.
    base: &'static str,
    text: &'static str,
    vision: &'static str,
    head: &'static str,
    tied: Tied,
    join: fn(&PartConfigs<'_>, &Scope<'_>),
    rules: &'static [Rule],
    /// Rules of the class without a head.
    bare_rules: &'static [Rule],
}

/// Configurations of the model and its parts.
struct PartConfigs<'a> {
    root: &'a Config<'a>,
    vision: Option<&'a Config<'a>>,
    hidden: Size,
    /// Width of the tower.
    seen: Size,
}

const LLAVA: Multimodal = Multimodal {
    base: "model",
    text: "language_model",
    vision: "vision_tower",
    head: "lm_head",
    tied: Tied::Root,
    join: |p, s| two_layers(p, s, p.seen * features(p.root), p.hidden, p.hidden),
    rules: rule::LLAVA,
    bare_rules: rule::LLAVA_BARE,
};
const QWEN: Multimodal =
    Multimodal { vision: "visual", join: |_, _| {}, rules: &[], bare_rules: &[], ..LLAVA };
const IDEFICS: Multimodal = Multimodal {
    text: "text_model",
    vision: "vision_model",
    join: |p, s| {
        let factor = p.root.size("scale_factor");
        s.linear("connector.modality_projection.proj", [p.hidden, p.seen * factor * factor], false);
    },
    rules: &[],
    bare_rules: &[],
    ..LLAVA
};

const TABLE: &[(&[&str], Multimodal)] = &[
    (&["llava"], Multimodal { tied: Tied::Either, ..LLAVA }),
    (&["llava_next"], Multimodal { join: with_newline, ..LLAVA }),
    (&["llava_onevision"], Multimodal { join: with_newline, tied: Tied::Either, ..LLAVA }),
    (&["gemma3"], Multimodal { join: gemma3, ..LLAVA }),
    (&["mistral3"], Multimodal { join: mistral3, ..LLAVA }),
    (&["aya_vision"], Multimodal { join: aya, ..LLAVA }),
    (&["internvl"], Multimodal { join: internvl, ..LLAVA }),
    (
        &["paligemma"],
        Multimodal {
            join: |p, s| {
                s.linear("multi_modal_projector.linear", [p.root.size("projection_dim"), p.seen], true);
            },
            ..LLAVA
        },
    ),
    (&["lfm2_vl"], Multimodal { join: lfm2, rules: &[], bare_rules: &[], ..LLAVA }),
    (&["mllama"], Multimodal { vision: "vision_model", tied: Tied::Never, join: mllama, ..LLAVA }),
    (&["qwen2_vl", "qwen2_5_vl"], Multimodal { rules: rule::QWEN2_VL, tied: Tied::Either, ..QWEN }),
    (&["qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"], QWEN),
    (&["gemma4"], Multimodal { join: gemma4, rules: &[], bare_rules: &[], ..LLAVA }),
    (&["idefics3", "smolvlm"], IDEFICS),
    (
        &["llama4"],
        Multimodal {
            base: "",
            text: "language_model.model",
            vision: "vision_model",
            head: "language_model.lm_head",
            tied: Tied::Text,
            join: |p, s| {
                let seen = p.vision.map_or(Size(0), |vision| vision.size("vision_output_dim"));
                s.linear("multi_modal_projector.linear_1", [p.hidden, seen], false);
            },
            rules: &[],
            bare_rules: &[],
        },
    ),
];

/// Returns the model types that have several parts.
pub(crate) fn model_types() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|(types, _)| types.iter().copied()).chain(["clip"])
}

/// Number of layers of the tower whose outputs are joined.
fn features(c: &Config<'_>) -> Size {
    let layers =
        ["vision_feature_layer", "vision_feature_layers"].iter().find_map(|key| c.value(key)?.as_array());
    Size(layers.map_or(1, |layers| layers.len() as u64))
}

fn two_layers(p: &PartConfigs<'_>, s: &Scope<'_>, input: Size, middle: Size, second: Size) {
    let m = s.at("multi_modal_projector");
    let key = "multimodal_projector_bias";
    let bias = p.root.value(key).and_then(serde_json::Value::as_bool).unwrap_or(true);
    m.linear("linear_1", [middle, input], bias);
    m.linear("linear_2", [p.hidden, second], bias);
}

fn with_newline(p: &PartConfigs<'_>, s: &Scope<'_>) {
    s.tensor("image_newline", &[p.hidden]);
    (LLAVA.join)(p, s);
}

fn gemma3(p: &PartConfigs<'_>, s: &Scope<'_>) {
    let m = s.at("multi_modal_projector");
    m.tensor("mm_input_projection_weight", &[p.seen, p.hidden]);
    m.module("mm_soft_emb_norm", &[p.seen], false);
}

fn mistral3(p: &PartConfigs<'_>, s: &Scope<'_>) {
    let (m, side) = (s.at("multi_modal_projector"), p.root.size("spatial_merge_size"));
    m.module("norm", &[p.seen], false);
    m.linear("patch_merger.merging_layer", [p.seen, p.seen * side * side], false);
    two_layers(p, s, p.seen * features(p.root), p.hidden, p.hidden);
}

fn aya(p: &PartConfigs<'_>, s: &Scope<'_>) {
    let factor = p.root.size("downsample_factor");
    let (input, middle) =
        (p.seen * factor * factor, p.root.number("alignment_intermediate_size").unwrap_or(p.hidden));
    s.module("multi_modal_projector.layernorm", &[input], true);
    two_layers(p, s, input, middle, middle / 2);
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small ratio, as int() does")]
fn internvl(p: &PartConfigs<'_>, s: &Scope<'_>) {
    let ratio = p.root.value("downsample_ratio").and_then(serde_json::Value::as_f64).unwrap_or(0.5);
    let factor = Size((1.0 / ratio) as u64);
    let input = p.seen * factor * factor;
    s.module("multi_modal_projector.layer_norm", &[input], true);
    two_layers(p, s, input, p.hidden, p.hidden);
}

fn lfm2(p: &PartConfigs<'_>, s: &Scope<'_>) {
    let (m, factor) = (s.at("multi_modal_projector"), p.root.size("downsample_factor"));
    let (input, middle) = (p.seen * factor * factor, p.root.size("projector_hidden_size"));
    if p.root.flag("projector_use_layernorm") {
        m.module("layer_norm", &[input], true);
    }
    let bias = p.root.flag("projector_bias");
    m.linear("linear_1", [middle, input], bias);
    m.linear("linear_2", [p.hidden, middle], bias);
}

fn mllama(p: &PartConfigs<'_>, s: &Scope<'_>) {
    let seen = p.vision.map_or(Size(0), |vision| vision.size("vision_output_dim"));
    s.linear("multi_modal_projector", [p.hidden, seen], true);
}

fn gemma4(p: &PartConfigs<'_>, s: &Scope<'_>) {
    if p.vision.is_some() {
        s.linear("embed_vision.embedding_projection", [p.hidden, p.seen], false);
    }
}

fn clip(c: &Config<'_>, head: Head, s: &Scope<'_>) -> Option<()> {
    let (text, vision) = (c.part("text_config")?, c.part("vision_config")?);
    towers::add(&vision, &s.at("vision_model"))?;
    match head {
        Head::Image => {
            s.linear("classifier", [c.labels(), vision.size("hidden_size")], true);
            return Some(());
        }
        Head::None | Head::Language => {}
        _ => return None,
    }
    towers::add(&text, &s.at("text_model"))?;
    let width = c.size("projection_dim");
    s.linear("text_projection", [width, text.size("hidden_size")], false);
    s.linear("visual_projection", [width, vision.size("hidden_size")], false);
    s.tensor("logit_scale", &[]);
    Some(())
}

/// Where the text model is in memory, and how it ends.
pub(crate) struct TextPlace {
    /// Start of the names of its body, with a dot at its end.
    pub(crate) body: String,
    pub(crate) head: &'static str,
    pub(crate) is_tied: bool,
}

impl Multimodal {
    fn of(model_type: &str) -> Option<&'static Self> {
        TABLE.iter().find(|(types, _)| types.contains(&model_type)).map(|(_, model)| model)
    }

    fn is_tied(&self, root: &Config<'_>, text: &Config<'_>) -> bool {
        match self.tied {
            Tied::Root => root.flag("tie_word_embeddings"),
            Tied::Text => text.flag("tie_word_embeddings"),
            Tied::Either => root.flag("tie_word_embeddings") || text.flag("tie_word_embeddings"),
            Tied::Never => false,
        }
    }
}

/// Returns the place of the text model in a composition; `None` if the type is none.
pub(crate) fn text_place(c: &Config<'_>, text: &Config<'_>, head: Head) -> Option<TextPlace> {
    let model = Multimodal::of(&c.model_type)?;
    let base = if head == Head::None { "" } else { model.base };
    let dot = if base.is_empty() { "" } else { "." };
    let body = format!("{base}{dot}{}.", model.text);
    Some(TextPlace { body, head: model.head, is_tied: model.is_tied(c, text) })
}

/// Builds a composition. Returns `None` if the type or the class is none, or a part is of a type that is not known.
pub(crate) fn build(c: &Config<'_>, head: Head) -> Option<Built> {
    let entries = std::cell::RefCell::new(Vec::new());
    let s = Scope::new(&entries, "");
    if c.model_type == "clip" {
        clip(c, head, &s)?;
        return Some(Built { entries: entries.take(), ..Built::default() });
    }
    let model = Multimodal::of(&c.model_type)?;
    let base = match head {
        Head::None => s,
        Head::Language | Head::Sequence | Head::Tokens => s.at(model.base),
        _ => return None,
    };
    let text = c.part("text_config")?;
    let vision = c.part("vision_config");
    let audio = c.part("audio_config");
    let family = families::find(&text.model_type)?;
    let b = base.at(model.text);
    family.body.add(&text, &b);
    if let Some(vision) = &vision {
        towers::add(vision, &base.at(model.vision).part("vision"))?;
    }
    let seen = match &vision {
        Some(vision) if vision.model_type == "qwen2_vl_vision" => vision.size("embed_dim"),
        Some(vision) => vision.size("hidden_size"),
        None => Size(0),
    };
    let hidden = text.size("hidden_size");
    let parts = PartConfigs { root: c, vision: vision.as_ref(), hidden, seen };
    (model.join)(&parts, &base);
    if let Some(audio) = &audio {
        towers::add(audio, &base.at("audio_tower").part("audio"))?;
        let seen = audio.size("output_proj_dims");
        base.linear("embed_audio.embedding_projection", [hidden, seen], false);
    }
    let text_path = b.path().to_owned();
    let mut ties: Vec<Tie> = Vec::new();
    if head == Head::Language {
        Scope::new(&entries, "").linear(model.head, [text.size("vocab_size"), hidden], false);
        if model.is_tied(c, &text) {
            ties.push(vec![format!("{text_path}{}", family.embedding), format!("{}.weight", model.head)]);
        }
    }
    if matches!(head, Head::Sequence | Head::Tokens) {
        Scope::new(&entries, "").linear("score", [c.labels(), hidden], head == Head::Tokens);
    }
    let root = |rules: &'static [Rule]| -> Vec<Scoped> { vec![(String::new(), rules)] };
    let in_text = |rules: &'static [Rule]| -> Vec<Scoped> { vec![(text_path.clone(), rules)] };
    let experts = match text.model_type.as_str() {
        "qwen3_5_moe_text" => vec![in_text(rule::NUMBERED), Vec::new()],
        "qwen3_vl_moe_text" => vec![Vec::new(), in_text(rule::TRANSPOSED)],
        _ => vec![in_text(family.rules)],
    };
    let mut choices = vec![experts];
    choices.push(vec![root(if head == Head::None { model.bare_rules } else { model.rules })]);
    if matches!(&vision, Some(vision) if vision.model_type.starts_with("clip") || vision.model_type.starts_with("siglip"))
    {
        choices.push(vec![Vec::new(), root(rule::IN_VISION_MODEL)]);
    }
    Some(Built { entries: entries.take(), ties, choices })
}

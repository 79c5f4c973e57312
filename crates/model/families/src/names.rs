//! The names of a decoder's tensors by their roles, in each form that files have.

use std::cell::RefCell;

use serde_json::{Map, Value};

use crate::built::Built;
use crate::config::Config;
use crate::families;
use crate::family::Family;
use crate::heads::Head;
use crate::indices::Indices;
use crate::model::{forms, text_model};
use crate::multimodal;
use crate::roles::{EXPERTS, FUSED, LISTS, LayerPart, OUTER, PARTS, Role, WITH_EXPERTS};
use crate::tree::{HOLE, Kind, Origin, TensorPattern, filled};

/// Where a weight is: in a tensor, or in the tensors of all layers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorPlace {
    /// Name with a hole for each number: of the layer, and of the expert or the head.
    pattern: String,
    /// Matrices whose rows the tensor concatenates; empty for a single one.
    pub fused_parts: &'static [LayerPart],
    /// True for a matrix that is stored with its columns first.
    pub has_columns_first: bool,
    /// True for a tensor that stacks the matrices of all experts.
    pub is_stack: bool,
}

impl TensorPlace {
    /// Returns the name of the tensor that has these numbers: of the layer, and of the expert or the head. A stack has no number
    /// of an expert. Returns `None` for another count of numbers.
    pub fn name(&self, numbers: &[u64]) -> Option<String> {
        let numbers = if self.is_stack { numbers.get(..1)? } else { numbers };
        let numbers: Option<Vec<u32>> = numbers.iter().map(|number| u32::try_from(*number).ok()).collect();
        let numbers = numbers.filter(|numbers| self.pattern.matches(HOLE).count() == numbers.len())?;
        Some(filled(&self.pattern, &numbers))
    }
}

/// The names of a decoder's tensors in one form.
///
/// ```
/// use families::{DecoderNames, LayerPart, Role};
///
/// let names = DecoderNames::of("phi3");
/// let place = names[0].places(Role::Layer(LayerPart::Wk)).next().expect("a place");
/// assert_eq!(place.name(&[5]).as_deref(), Some("model.layers.5.self_attn.qkv_proj.weight"));
/// assert_eq!(place.fused_parts, [LayerPart::Wq, LayerPart::Wk, LayerPart::Wv]);
/// let meta = DecoderNames::meta();
/// let place = meta.places(Role::Layer(LayerPart::Wk)).next().expect("a place");
/// assert_eq!(place.name(&[5]).as_deref(), Some("layers.5.attention.wk.weight"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecoderNames {
    /// Start of the names of layers, before the number of a layer.
    pub layers: String,
    /// Part of a layer that each layer has, and that identifies a checkpoint: a matrix of attention if there is one in all layers.
    pub signature: LayerPart,
    /// Ends of names of tensors that files have and models do not use, or starts, which end with a dot.
    pub unread: &'static [&'static str],
    /// Places of each role, of which the first is usual.
    places: Vec<(Role, TensorPlace)>,
}

/// A tensor in memory that may have a role, and the matrices that it concatenates.
struct Candidate {
    role: Role,
    name: String,
    fused_parts: &'static [LayerPart],
    is_norm: bool,
}

impl DecoderNames {
    /// Returns the forms of the names that files of a model type have, the released one first; none if the type is not that of a
    /// decoder, or of a model with one.
    pub fn of(model_type: &str) -> Vec<Self> {
        Self::forms(model_type).unwrap_or_default()
    }

    /// Returns the names in Meta's files.
    pub fn meta() -> Self {
        let place = |role, path: &str, end| {
            let pattern = format!("{path}{end}");
            (role, TensorPlace { pattern, fused_parts: &[], has_columns_first: false, is_stack: false })
        };
        let outer = OUTER.iter().map(|(role, _, meta, _)| place(*role, meta, ""));
        let parts = PARTS.iter().filter(|row| !row.meta.is_empty());
        let parts =
            parts.map(|row| place(Role::Layer(row.part), &format!("layers.{HOLE}.{}", row.meta), ".weight"));
        let places = outer.chain(parts).filter(|(_, place)| !place.pattern.is_empty()).collect();
        Self { layers: "layers.".to_owned(), signature: LayerPart::Wq, unread: &[], places }
    }

    fn forms(model_type: &str) -> Option<Vec<Self>> {
        let mut body = Body::of(model_type)?;
        let layers = body.layers()?;
        let signature = body.signature(&layers);
        let (roles, unread) = (body.roles(&layers), body.family.unread);
        let forms = forms(body.built);
        let memory = forms.get(1)?;
        let mut all: Vec<Self> = Vec::new();
        for form in &forms {
            let mut places = Vec::new();
            for Candidate { role, name, fused_parts, .. } in &roles {
                let Some(entry) = memory.iter().position(|entry| entry.name == *name) else { continue };
                let is_stack = memory.get(entry).is_some_and(|entry| entry.kind == Kind::Stacked);
                let patterns = form.iter().filter(|pattern| pattern.origin.entry == entry);
                let found = patterns.filter_map(|pattern| place(*role, pattern, fused_parts, is_stack));
                places.extend(found.map(|place| (*role, place)));
            }
            let mut in_layers = places.iter().filter(|(role, _)| matches!(role, Role::Layer(_)));
            let start = in_layers.next().and_then(|(_, place)| place.pattern.split(HOLE).next());
            let names = Self { layers: start?.to_owned(), signature, unread, places };
            if !all.contains(&names) {
                all.push(names);
            }
        }
        // A file may have some of its tensors in another form.
        let mut mixed = all.clone();
        for names in &mut mixed {
            for other in all.iter().filter(|other| other.layers == names.layers) {
                let others = other.places.iter().filter(|place| !names.places.contains(place));
                let others: Vec<_> = others.cloned().collect();
                names.places.extend(others);
            }
        }
        Some(mixed)
    }

    /// Returns the modules of a layer, and those outside of layers, with the names that llama.cpp has for them, the usual ones first.
    /// The number of an expert or a head is `{}`. Tensors that stack the experts are not among them.
    pub fn gguf_modules(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.places.iter().filter(|(_, place)| !place.is_stack).filter_map(|(role, place)| {
            let rest =
                place.pattern.strip_prefix(self.layers.as_str()).and_then(|rest| rest.strip_prefix(HOLE));
            let module = rest.map_or(place.pattern.as_str(), |rest| rest.trim_start_matches('.'));
            let module = module.strip_suffix(".weight").unwrap_or(module);
            Some((module, role.gguf_name(place.fused_parts)?))
        })
    }

    /// Returns the places where a tensor with this role may be, the usual one first.
    pub fn places(&self, role: Role) -> impl Iterator<Item = &TensorPlace> {
        self.places.iter().filter(move |(known, _)| *known == role).map(|(_, place)| place)
    }
}

/// A decoder in memory, with all parts that a configuration of its class may give it.
struct Body {
    family: Family,
    built: Built,
    /// Start of the names of its body, with a dot at its end.
    start: String,
    head: &'static str,
    /// Number of layers.
    count: usize,
}

impl Body {
    fn of(model_type: &str) -> Option<Self> {
        let family = families::find(model_type);
        let flags = family.map_or(&[][..], |family| family.flags);
        let map: Map<String, Value> = flags.iter().map(|key| ((*key).to_owned(), true.into())).collect();
        let absent = RefCell::new(None);
        let c = Config::new(model_type, &map, &absent)?;
        if let Some(family) = family {
            let built = text_model(&family, Head::Language, &c)?;
            let start = format!("{}.", family.prefix);
            return Some(Self { family, built, start, head: family.head, count: c.layers().len() });
        }
        // A part has the flags of its own family.
        let flags = families::find(&c.part("text_config")?.model_type)?.flags;
        let flags = flags.iter().map(|key| ((*key).to_owned(), true.into())).collect();
        let map = Map::from_iter([("text_config".to_owned(), Value::Object(flags))]);
        let c = Config::new(model_type, &map, &absent)?;
        let text = c.part("text_config")?;
        let place = multimodal::text_place(&c, &text, Head::Language)?;
        let (family, built) = (families::find(&text.model_type)?, multimodal::build(&c, Head::Language)?);
        Some(Self { family, built, start: place.body, head: place.head, count: text.layers().len() })
    }

    fn entry(&self, name: &str) -> Option<&TensorPattern> {
        self.built.entries.iter().find(|entry| entry.name == name)
    }

    /// Returns the start of the names of layers, before the number of a layer.
    fn layers(&self) -> Option<String> {
        let starts = LISTS.iter().map(|list| format!("{}{list}.", self.start));
        let has = |start: &String| {
            self.built.entries.iter().any(|entry| entry.name.starts_with(&format!("{start}{HOLE}.")))
        };
        starts.into_iter().find(has)
    }

    /// Returns the part that identifies a layer.
    fn signature(&self, layers: &str) -> LayerPart {
        let candidates = of_layers(layers);
        let is_in_all = |part: &LayerPart| {
            let mut candidates = candidates.iter().filter(|it| it.role == Role::Layer(*part));
            candidates.any(|it| {
                let layers = self.entry(&it.name).and_then(|entry| entry.at.first());
                layers.is_some_and(|layers| layers.len() == self.count)
            })
        };
        let found = [LayerPart::Wq, LayerPart::Wqkv].into_iter().find(is_in_all);
        found.unwrap_or(LayerPart::AttentionNorm)
    }

    /// Returns the tensors that have roles, the usual ones first, and adds those that the class has with other configurations.
    fn roles(&mut self, layers: &str) -> Vec<Candidate> {
        let mut candidates = outer(&self.start, self.family.embedding, self.head);
        candidates.extend(of_layers(layers));
        // The norm of this name is that before the feed-forward layer, unless there is one after it.
        let [norm, after] = ["post_attention_layernorm", "post_feedforward_layernorm"]
            .map(|norm| format!("{layers}{HOLE}.{norm}.weight"));
        let is_after = self.entry(&after).is_some();
        let other = if is_after { LayerPart::FfnNorm } else { LayerPart::AttentionPostNorm };
        candidates.retain(|it| it.name != norm || it.role != Role::Layer(other));
        let (mut roles, others): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|it| self.entry(&it.name).is_some());
        // Another configuration of the class may have more parts, and norms of other names.
        let known: Vec<Role> = roles.iter().map(|it| it.role).collect();
        let is_possible =
            |it: &Candidate| it.fused_parts.is_empty() && (it.is_norm || !known.contains(&it.role));
        for candidate in others.into_iter().filter(is_possible) {
            self.built.entries.push(synthetic(&candidate.name));
            roles.push(candidate);
        }
        roles
    }
}

fn outer(body: &str, embedding: &str, head: &str) -> Vec<Candidate> {
    let at = |role, name| Candidate { role, name, fused_parts: &[], is_norm: false };
    let known = OUTER.iter().flat_map(|(role, modules, ..)| {
        modules.iter().map(move |module| at(*role, format!("{body}{module}")))
    });
    let own = [at(Role::Embedding, format!("{body}{embedding}")), at(Role::Output, format!("{head}.weight"))];
    own.into_iter().chain(known).collect()
}

fn of_layers(layers: &str) -> Vec<Candidate> {
    let layer = &format!("{layers}{HOLE}.");
    let mut all = Vec::new();
    for row in PARTS {
        let end = if row.part.is_bare() { "" } else { ".weight" };
        all.extend(row.modules.iter().map(|path| Candidate {
            role: Role::Layer(row.part),
            name: format!("{layer}{path}{end}"),
            fused_parts: &[],
            is_norm: row.part.is_norm(),
        }));
    }
    for row in FUSED {
        let of_path = |path: &'static str| {
            row.parts.iter().map(move |part| Candidate {
                role: Role::Layer(*part),
                name: format!("{layer}{path}.weight"),
                fused_parts: row.parts,
                is_norm: false,
            })
        };
        all.extend(row.modules.iter().copied().flat_map(of_path));
    }
    for (path, parts) in EXPERTS {
        for part in *parts {
            all.extend(WITH_EXPERTS.iter().map(|module| Candidate {
                role: Role::Expert(*part),
                name: format!("{layer}{module}{path}"),
                fused_parts: parts,
                is_norm: false,
            }));
        }
    }
    all
}

/// Returns a tensor that the class has only with another configuration.
fn synthetic(name: &str) -> TensorPattern {
    let at = vec![Indices::below(1); name.matches(HOLE).count()];
    TensorPattern {
        name: name.to_owned(),
        at,
        shape: Vec::new(),
        kind: Kind::Other,
        has_columns_first: false,
        is_required: false,
        tie: None,
        part: "",
        origin: Origin::default(),
    }
}

/// Returns the place of a tensor with a role in a form; `None` if the form has it in another tensor.
fn place(
    role: Role,
    pattern: &TensorPattern,
    parts: &'static [LayerPart],
    is_stack: bool,
) -> Option<TensorPlace> {
    let wanted = match role {
        Role::Layer(part) | Role::Expert(part) => Some(part),
        _ => None,
    };
    let (parts, is_stack) = match pattern.origin.stack {
        Some(_) => {
            let [part, count] = pattern.origin.part;
            let size = parts.len().checked_div(count).filter(|size| *size > 0)?;
            (parts.chunks(size).nth(part)?, false)
        }
        None => (parts, is_stack),
    };
    if !parts.is_empty() && !wanted.is_some_and(|wanted| parts.contains(&wanted)) {
        return None;
    }
    Some(TensorPlace {
        pattern: pattern.name.clone(),
        fused_parts: if parts.len() > 1 { parts } else { &[] },
        has_columns_first: pattern.has_columns_first,
        is_stack,
    })
}

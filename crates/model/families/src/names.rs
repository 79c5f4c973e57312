//! The names of a decoder's tensors by their roles, in each form that files have.

use std::cell::RefCell;

use serde_json::Map;

use crate::config::Config;
use crate::families;
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
        let outer = OUTER.iter().map(|(role, _, meta)| place(*role, meta, ""));
        let parts = PARTS.iter().filter(|row| !row.meta.is_empty());
        let parts =
            parts.map(|row| place(Role::Layer(row.part), &format!("layers.{HOLE}.{}", row.meta), ".weight"));
        let places = outer.chain(parts).filter(|(_, place)| !place.pattern.is_empty()).collect();
        Self { layers: "layers.".to_owned(), signature: LayerPart::Wq, unread: &[], places }
    }

    fn forms(model_type: &str) -> Option<Vec<Self>> {
        let (map, absent) = (Map::new(), RefCell::new(None));
        let c = Config::new(model_type, &map, &absent)?;
        let (family, text, mut built, body, head) = if let Some(family) = families::find(model_type) {
            let built = text_model(&family, Head::Language, &c)?;
            (family, None, built, format!("{}.", family.prefix), family.head)
        } else {
            let text = c.part("text_config")?;
            let place = multimodal::text_place(&c, &text, Head::Language)?;
            let built = multimodal::build(&c, Head::Language)?;
            (families::find(&text.model_type)?, Some(text), built, place.body, place.head)
        };
        let count = text.as_ref().unwrap_or(&c).layers().len();
        let entries = &mut built.entries;
        let is_list = |list: &&str| {
            let start = format!("{body}{list}.{HOLE}.");
            entries.iter().any(|entry| entry.name.starts_with(&start))
        };
        let layers = format!("{body}{}.", LISTS.into_iter().find(is_list)?);
        let mut candidates = outer(&body, family.embedding, head);
        candidates.extend(of_layers(&format!("{layers}{HOLE}.")));
        let signature = signature(entries, &format!("{layers}{HOLE}."), count);
        let own = entries.len();
        let position = |name: &str| entries.iter().position(|entry| entry.name == name);
        let mut roles: Vec<_> =
            candidates.iter().filter_map(|it| Some((it.role, position(&it.name)?, it.fused_parts))).collect();
        // Another configuration of the class may have more parts, and norms of other names.
        let known: Vec<Role> = roles.iter().map(|(role, ..)| *role).collect();
        for Candidate { role, name, fused_parts, is_norm } in candidates {
            let is_own = entries.iter().take(own).any(|entry| entry.name == name);
            if is_own || !fused_parts.is_empty() || (known.contains(&role) && !is_norm) {
                continue;
            }
            roles.push((role, entries.len(), fused_parts));
            entries.push(synthetic(name));
        }
        let forms = forms(built);
        let memory = forms.get(1)?;
        let mut all: Vec<Self> = Vec::new();
        for form in &forms {
            let mut places = Vec::new();
            let mut start = None;
            for (role, entry, parts) in &roles {
                let Some(kind) = memory.get(*entry).map(|entry| entry.kind) else { continue };
                for pattern in form.iter().filter(|pattern| pattern.origin.entry == *entry) {
                    places.extend(place(*role, pattern, parts, kind).map(|place| (*role, place)));
                    let prefix = || pattern.name.split(HOLE).next().map(str::to_owned);
                    start = start.or_else(|| matches!(role, Role::Layer(_)).then(prefix).flatten());
                }
            }
            let names = Self { layers: start?, signature, unread: family.unread, places };
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

    /// Returns the places where a tensor with this role may be, the usual one first.
    pub fn places(&self, role: Role) -> impl Iterator<Item = &TensorPlace> {
        self.places.iter().filter(move |(known, _)| *known == role).map(|(_, place)| place)
    }
}

/// Returns the part that identifies a layer of `count`, of those whose names start with `layer`.
fn signature(entries: &[TensorPattern], layer: &str, count: usize) -> LayerPart {
    let is_in_all = |part: &LayerPart| {
        let mut candidates = of_layers(layer).into_iter().filter(|it| it.role == Role::Layer(*part));
        candidates.any(|it| {
            let entry = entries.iter().find(|entry| entry.name == it.name);
            entry.and_then(|entry| entry.at.first()).is_some_and(|layers| layers.len() == count)
        })
    };
    let found = [LayerPart::Wq, LayerPart::Wqkv].into_iter().find(is_in_all);
    found.unwrap_or(LayerPart::AttentionNorm)
}

fn outer(body: &str, embedding: &str, head: &str) -> Vec<Candidate> {
    let at = |role, name| Candidate { role, name, fused_parts: &[], is_norm: false };
    let known = OUTER.iter().flat_map(|(role, modules, _)| {
        modules.iter().map(move |module| at(*role, format!("{body}{module}")))
    });
    let own = [at(Role::Embedding, format!("{body}{embedding}")), at(Role::Output, format!("{head}.weight"))];
    own.into_iter().chain(known).collect()
}

fn of_layers(layer: &str) -> Vec<Candidate> {
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
                name: format!("{layer}{module}.{path}"),
                fused_parts: parts,
                is_norm: false,
            }));
        }
    }
    all
}

/// Returns a tensor that the class has only with another configuration.
fn synthetic(name: String) -> TensorPattern {
    let at = vec![Indices::below(1); name.matches(HOLE).count()];
    TensorPattern {
        name,
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
    kind: Kind,
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
        None => (parts, kind == Kind::Stacked && matches!(role, Role::Expert(_))),
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

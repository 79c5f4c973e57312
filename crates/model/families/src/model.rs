//! The tensors that a configuration asks for, in each layout that a folder may have.

use std::cell::RefCell;

use serde_json::{Map, Value};

use crate::built::Built;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::family::Family;
use crate::heads::{self, Head};
use crate::quantized::Quantization;
use crate::rule::{self, Rule, Scoped};
use crate::tree::{Kind, Scope, TensorPattern, Tie};
use crate::{families, mtp, multimodal};

/// Largest number of tensors of a model.
const TENSORS_MAX: usize = 1 << 21;

/// Names and shapes of a model's tensors in one layout.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// True for the names in memory.
    pub(crate) is_modules: bool,
    pub(crate) entries: Vec<TensorPattern>,
    /// Those of a model that is not quantized and has no heads that predict several tokens.
    pub(crate) plain: Vec<TensorPattern>,
}

/// One of the layouts that the tensors of a model may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutId(pub(crate) usize);

impl LayoutId {
    /// Names and shapes that `save_pretrained` of transformers 5 writes.
    pub const RELEASED: Self = Self(0);
    /// Names and shapes in memory in transformers 5.
    pub const MODULES: Self = Self(1);
}

/// The tensors that a model has according to its configuration.
///
/// ```
/// use families::Model;
///
/// let model = Model::from_config(r#"{"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8,
///     "intermediate_size": 16, "num_attention_heads": 2, "vocab_size": 10}"#)?;
/// assert_eq!(model.model_type, "llama");
/// let names: Vec<String> = model.released().map(|(name, _)| name).collect();
/// assert!(names.contains(&"model.layers.0.mlp.gate_proj.weight".to_owned()));
/// # Ok::<(), families::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Model {
    /// `model_type` of the configuration.
    pub model_type: String,
    /// Class that the tensors are those of; empty if the configuration names none.
    pub class: String,
    /// Layouts of a whole folder, of which the first two are the released names and the names in memory.
    pub(crate) layouts: Vec<Layout>,
    /// True if a quantization is not known, so that linear layers may have any shape and any companions.
    pub(crate) is_open: bool,
    /// Method that quantized experts in a way that their stacked form has no names for.
    pub(crate) unstacked: Option<&'static str>,
    /// True if weights are quantized, so that optional companions may be present.
    pub is_quantized: bool,
}

impl Model {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// When the text is no JSON object, has no model type or one that is not known, names a class that is not known, or lacks a
    /// value that the model needs.
    pub fn from_config(text: &str) -> Result<Self> {
        let map = parse(text)?;
        let no_type = || match map.get("_class_name").and_then(Value::as_str) {
            Some(class) => Error::OfDiffusers { class: class.to_owned() },
            None => Error::NoModelType,
        };
        let model_type = map.get("model_type").and_then(Value::as_str).ok_or_else(no_type)?.to_owned();
        let class = map.get("architectures").and_then(|classes| classes.get(0)?.as_str()).unwrap_or_default();
        let absent = RefCell::new(None);
        let unknown = || Error::UnknownModelType { model_type: model_type.clone(), known: known() };
        let config = Config::new(&model_type, &map, &absent).ok_or_else(unknown)?;
        let unknown_class = || Error::UnknownClass { class: class.to_owned() };
        let head = if class.is_empty() {
            Head::Language
        } else {
            Head::of(class, &model_type).ok_or_else(unknown_class)?
        };
        let (built, text) = match families::find(&model_type) {
            Some(family) => (text_model(&family, head, &config), None),
            None if multimodal::model_types().any(|known| known == model_type) => {
                (multimodal::build(&config, head), config.part("text_config"))
            }
            None => return Err(unknown()),
        };
        let built = built.ok_or_else(unknown_class)?;
        let mtp = mtp::entries(text.as_ref().unwrap_or(&config), head);
        let quantization = Quantization::of(&map);
        if let Some(key) = absent.take() {
            return Err(Error::Value { key });
        }
        let layouts = layouts(built, &mtp, quantization.as_ref());
        if layouts.iter().any(|layout| layout.count() > TENSORS_MAX) {
            return Err(Error::Value { key: "num_hidden_layers".to_owned() });
        }
        let is_quantized = quantization.is_some();
        let has_stacks =
            layouts.get(1).is_some_and(|memory| memory.entries.iter().any(|it| it.kind == Kind::Stacked));
        let unstacked =
            quantization.as_ref().and_then(Quantization::method_without_stacks).filter(|_| has_stacks);
        let is_open = quantization.is_some_and(|quantization| quantization.is_open());
        Ok(Self { model_type, class: class.to_owned(), layouts, is_open, is_quantized, unstacked })
    }

    /// Returns the names and shapes that `save_pretrained` of transformers 5 writes, with those that a folder may lack.
    pub fn released(&self) -> impl Iterator<Item = (String, &[u64])> {
        self.layouts.first().into_iter().flat_map(Layout::tensors)
    }

    /// Returns a layout, with the heads that predict several tokens in the form that they have in another one.
    #[must_use]
    pub fn with_heads_of(&self, layout: LayoutId, other: LayoutId) -> LayoutId {
        let forms = self.layouts.iter().skip(2).position(|layout| layout.is_modules);
        let forms = forms.map_or(self.layouts.len(), |place| place.saturating_add(1));
        let form = layout.0.checked_rem(forms).unwrap_or_default();
        LayoutId(if other.0 < forms { form } else { form.saturating_add(forms) })
    }

    /// Returns true for the names in memory.
    pub fn is_modules(&self, layout: LayoutId) -> bool {
        self.layouts.get(layout.0).is_some_and(|layout| layout.is_modules)
    }

    /// Returns the names and shapes in memory in transformers 5, with those that a folder may lack.
    pub fn modules(&self) -> impl Iterator<Item = (String, &[u64])> {
        self.layouts.get(1).into_iter().flat_map(Layout::tensors)
    }
}

impl Layout {
    fn count(&self) -> usize {
        self.entries.iter().fold(0, |count, entry| count.saturating_add(entry.count()))
    }

    fn tensors(&self) -> impl Iterator<Item = (String, &[u64])> {
        self.entries
            .iter()
            .flat_map(|entry| (0..entry.count()).map(|place| (entry.name_at(place), entry.shape.as_slice())))
    }
}

/// Parses the text of a `config.json`.
pub(crate) fn parse(text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text)
        .or_else(|error| serde_json::from_str(&without_infinities(text)).map_err(|_| error))
        .map_err(Error::Json)
}

/// Lists the model types that are known.
pub(crate) fn known() -> String {
    let mut types: Vec<&str> = families::model_types().chain(multimodal::model_types()).collect();
    types.sort_unstable();
    types.join(", ")
}

/// Writes null for the numbers that Python writes as names, which JSON has not.
fn without_infinities(text: &str) -> String {
    let mut plain = text.to_owned();
    for (before, name) in [": ", "[", ", ", "\n", " "]
        .iter()
        .flat_map(|before| ["-Infinity", "Infinity", "NaN"].map(|name| (before, name)))
    {
        plain = plain.replace(&format!("{before}{name}"), &format!("{before}null"));
    }
    plain
}

/// Builds a model that consists of a single part.
pub(crate) fn text_model(family: &Family, head: Head, c: &Config<'_>) -> Option<Built> {
    let entries = RefCell::new(Vec::new());
    let ties = heads::add(family, head, c, &Scope::new(&entries, ""))?;
    let is_tied = c.flag("tie_word_embeddings") || c.model_type == "t5";
    let scoped = |rules: &'static [Rule]| vec![(String::new(), rules)];
    let mut choices = vec![vec![scoped(family.rules)]];
    match c.model_type.as_str() {
        "qwen3_5_text" | "qwen3_5_moe_text" | "gemma3n_text" if head != Head::None => {
            choices.push(vec![Vec::new(), scoped(rule::IN_MULTIMODAL)]);
        }
        _ if !family.bare.is_empty() && head != Head::None => {
            choices.push(vec![Vec::new(), scoped(family.bare)]);
        }
        _ => {}
    }
    Some(Built { entries: entries.take(), ties: if is_tied { ties } else { Vec::new() }, choices })
}

/// Marks the tensors that are one.
fn tie(entries: &mut [TensorPattern], ties: &[Tie]) {
    for (number, names) in (0_u8..).zip(ties) {
        for entry in entries.iter_mut().filter(|entry| names.contains(&entry.name)) {
            entry.tie = Some(number);
        }
    }
}

/// Returns the tensors in each form: the released one, that in memory, and the others.
pub(crate) fn forms(built: Built) -> Vec<Vec<TensorPattern>> {
    let Built { mut entries, ties, choices } = built;
    tie(&mut entries, &ties);
    for (number, entry) in entries.iter_mut().enumerate() {
        entry.origin.entry = number;
    }
    let apply = |entries: Vec<TensorPattern>, rules: &[Scoped]| {
        rules
            .iter()
            .flat_map(|(scope, rules)| rules.iter().map(move |rule| (scope, rule)))
            .fold(entries, |entries, (scope, rule)| rule.apply(entries, scope))
    };
    let mut forms = vec![entries.clone()];
    for choice in &choices {
        forms = choice
            .iter()
            .flat_map(|rules| forms.iter().map(move |form| (form.clone(), rules)))
            .map(|(form, rules)| apply(form, rules))
            .collect();
    }
    forms.insert(1.min(forms.len()), entries);
    forms
}

fn layouts(built: Built, mtp: &[TensorPattern], quantization: Option<&Quantization>) -> Vec<Layout> {
    let forms = forms(built);
    // The heads that predict several tokens keep the form that they have in any layout of the rest.
    let numbered = rule::NUMBERED.iter().fold(mtp.to_vec(), |entries, rule| rule.apply(entries, ""));
    let is_stacked = numbered.len() != mtp.len();
    let with = |(number, plain): (usize, &Vec<TensorPattern>), mtp: &[TensorPattern]| {
        let mut entries: Vec<TensorPattern> = plain.iter().chain(mtp).cloned().collect();
        if let Some(quantization) = quantization {
            quantization.add(&mut entries);
        }
        Layout { is_modules: number == 1, entries, plain: plain.clone() }
    };
    let first = forms.iter().enumerate().map(|form| with(form, &numbered));
    let others = forms.iter().enumerate().filter(|_| is_stacked).map(|form| with(form, mtp));
    first.chain(others).collect()
}

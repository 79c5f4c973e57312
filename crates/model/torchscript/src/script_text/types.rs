//! TorchScript types, as annotations in source text name them.
//!
//! Facts: `ScriptType::annotation_str` in `aten/src/ATen/core/type.cpp` prints them, and `ScriptTypeParser` in
//! `torch/csrc/jit/frontend/script_type_parser.cpp` reads them.

use std::collections::HashMap;

/// Index of a type in a [`ScriptTypes`] table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScriptTypeId(usize);

impl ScriptTypeId {
    /// Returns the index in the table.
    pub fn number(self) -> usize {
        self.0
    }
}

/// TorchScript type; its [`ScriptTypeId`]s refer to the table that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScriptType {
    Tensor,
    Int,
    Float,
    Complex,
    Bool,
    /// Either an `int` or a `float`: `number` or `Scalar`.
    Number,
    Str,
    None,
    Optional(ScriptTypeId),
    List(ScriptTypeId),
    /// Key type and value type.
    Dict(ScriptTypeId, ScriptTypeId),
    Tuple(Vec<ScriptTypeId>),
    /// Tuple class with named fields.
    NamedTuple(Vec<TupleField>),
    /// Union type, with its member types.
    Union(Vec<ScriptTypeId>),
    /// Enumeration class, with its named values.
    Enum(Vec<EnumMember>),
    /// Any other type: a class of the archive, `Any`, `Device`, and so on.
    Other,
}

/// Field of a named tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TupleField {
    pub name: String,
    pub kind: ScriptTypeId,
}

/// Named value of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnumMember {
    pub name: String,
    /// Source text of the value: an integer, a floating-point number or a quoted string.
    pub value: String,
}

/// Table of the distinct types of a signature.
#[derive(Clone, Debug, Default)]
pub struct ScriptTypes {
    all: Vec<(ScriptType, String)>,
    by_text: HashMap<String, ScriptTypeId>,
}

impl ScriptTypes {
    /// Returns the structure of a type.
    pub fn kind(&self, id: ScriptTypeId) -> &ScriptType {
        self.all.get(id.0).map_or(&ScriptType::Other, |(kind, _)| kind)
    }

    /// Returns the annotation text of a type.
    pub fn annotation_text(&self, id: ScriptTypeId) -> &str {
        self.all.get(id.0).map_or("Any", |(_, text)| text)
    }

    /// Returns the ids of all types in the table.
    pub fn ids(&self) -> impl Iterator<Item = ScriptTypeId> + use<> {
        (0..self.all.len()).map(ScriptTypeId)
    }

    /// Returns the number of types in the table.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if the table has no types.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the direct component types of a type, such as the element type of a list.
    pub fn component_types(&self, id: ScriptTypeId) -> Vec<ScriptTypeId> {
        match self.kind(id) {
            ScriptType::Optional(inner) | ScriptType::List(inner) => vec![*inner],
            ScriptType::Dict(key, value) => vec![*key, *value],
            ScriptType::Tuple(items) | ScriptType::Union(items) => items.clone(),
            ScriptType::NamedTuple(fields) => fields.iter().map(|field| field.kind).collect(),
            _ => Vec::new(),
        }
    }

    /// Adds the type that `head[arguments]` names, or `head` without arguments, and returns its id.
    pub(crate) fn add(&mut self, head: &str, arguments: Option<&[ScriptTypeId]>) -> ScriptTypeId {
        let inside = arguments.map(|arguments| {
            let texts: Vec<&str> = arguments.iter().map(|id| self.annotation_text(*id)).collect();
            if texts.is_empty() { "()".to_owned() } else { texts.join(", ") }
        });
        let text = inside.map_or_else(|| head.to_owned(), |inside| format!("{head}[{inside}]"));
        let kind = match (head, arguments) {
            ("Tensor", None) => ScriptType::Tensor,
            ("int", None) => ScriptType::Int,
            ("float", None) => ScriptType::Float,
            ("complex", None) => ScriptType::Complex,
            ("bool", None) => ScriptType::Bool,
            ("number" | "Scalar", None) => ScriptType::Number,
            ("str", None) => ScriptType::Str,
            ("NoneType" | "None", None) => ScriptType::None,
            ("Optional", Some([inner])) => ScriptType::Optional(*inner),
            ("List", Some([inner])) => ScriptType::List(*inner),
            ("Dict", Some([key, value])) => ScriptType::Dict(*key, *value),
            ("Tuple", Some(items)) => ScriptType::Tuple(items.to_vec()),
            ("Union", Some(items)) => ScriptType::Union(items.to_vec()),
            _ => ScriptType::Other,
        };
        let next = ScriptTypeId(self.all.len());
        let id = *self.by_text.entry(text.clone()).or_insert(next);
        if id == next {
            self.all.push((kind, text));
        }
        id
    }

    pub(crate) fn define(&mut self, id: ScriptTypeId, class: ScriptType) {
        if let Some((kind, _)) = self.all.get_mut(id.0) {
            *kind = class;
        }
    }
}

//! Types as annotations name them.
//!
//! Facts: `Type::annotation_str` in `aten/src/ATen/core/type.cpp` prints them, and `ScriptTypeParser` in
//! `torch/csrc/jit/frontend/script_type_parser.cpp` reads them.

use std::collections::HashMap;

/// A type in a table of [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(usize);

impl TypeId {
    /// Its place in the table.
    pub fn number(self) -> usize {
        self.0
    }
}

/// A type. Those inside it are in the same table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are TorchScript's own")]
#[non_exhaustive]
pub enum Type {
    Tensor,
    Int,
    Float,
    Complex,
    Bool,
    /// An int or a float.
    Number,
    Str,
    None,
    Optional(TypeId),
    List(TypeId),
    /// Keys and values.
    Dict(TypeId, TypeId),
    Tuple(Vec<TypeId>),
    /// A class with named fields that is a tuple.
    NamedTuple(Vec<Field>),
    /// One of several types.
    Union(Vec<TypeId>),
    /// A class of named values, all of the first one's type.
    Enum(Vec<Member>),
    /// Any other: a class of the archive, `Any`, `Device`, and so on.
    Other,
}

/// A field of a named tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: TypeId,
}

/// A value of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The text of the value: an integer, a floating-point number, or a text between quotes.
    pub value: String,
}

/// The types of a signature, each once.
#[derive(Clone, Debug, Default)]
pub struct Types {
    all: Vec<(Type, String)>,
    by_text: HashMap<String, TypeId>,
}

impl Types {
    /// What a type is.
    pub fn kind(&self, id: TypeId) -> &Type {
        self.all.get(id.0).map_or(&Type::Other, |(kind, _)| kind)
    }

    /// How an annotation names it.
    pub fn text(&self, id: TypeId) -> &str {
        self.all.get(id.0).map_or("Any", |(_, text)| text)
    }

    /// All types of the table.
    pub fn ids(&self) -> impl Iterator<Item = TypeId> + use<> {
        (0..self.all.len()).map(TypeId)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The types directly inside one.
    pub fn inner(&self, id: TypeId) -> Vec<TypeId> {
        match self.kind(id) {
            Type::Optional(inner) | Type::List(inner) => vec![*inner],
            Type::Dict(key, value) => vec![*key, *value],
            Type::Tuple(items) | Type::Union(items) => items.clone(),
            Type::NamedTuple(fields) => fields.iter().map(|field| field.kind).collect(),
            _ => Vec::new(),
        }
    }

    /// The type that `head[arguments]` names, or `head` without arguments.
    pub(crate) fn add(&mut self, head: &str, arguments: Option<&[TypeId]>) -> TypeId {
        let inside = arguments.map(|arguments| {
            let texts: Vec<&str> = arguments.iter().map(|id| self.text(*id)).collect();
            if texts.is_empty() { "()".to_owned() } else { texts.join(", ") }
        });
        let text = inside.map_or_else(|| head.to_owned(), |inside| format!("{head}[{inside}]"));
        let kind = match (head, arguments) {
            ("Tensor", None) => Type::Tensor,
            ("int", None) => Type::Int,
            ("float", None) => Type::Float,
            ("complex", None) => Type::Complex,
            ("bool", None) => Type::Bool,
            ("number" | "Scalar", None) => Type::Number,
            ("str", None) => Type::Str,
            ("NoneType" | "None", None) => Type::None,
            ("Optional", Some([inner])) => Type::Optional(*inner),
            ("List", Some([inner])) => Type::List(*inner),
            ("Dict", Some([key, value])) => Type::Dict(*key, *value),
            ("Tuple", Some(items)) => Type::Tuple(items.to_vec()),
            ("Union", Some(items)) => Type::Union(items.to_vec()),
            _ => Type::Other,
        };
        let next = TypeId(self.all.len());
        let id = *self.by_text.entry(text.clone()).or_insert(next);
        if id == next {
            self.all.push((kind, text));
        }
        id
    }

    /// Says what a class is.
    pub(crate) fn define(&mut self, id: TypeId, class: Type) {
        if let Some((kind, _)) = self.all.get_mut(id.0) {
            *kind = class;
        }
    }
}

//! TorchScript types, as annotations in source text name them.
//!
//! Facts: `Type::annotation_str` in `aten/src/ATen/core/type.cpp` prints them, and `ScriptTypeParser` in
//! `torch/csrc/jit/frontend/script_type_parser.cpp` reads them.

use std::collections::HashMap;

/// Index of a type in a [`Types`] table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(usize);

impl TypeId {
    /// Returns the index in the table.
    pub fn number(self) -> usize {
        self.0
    }
}

/// TorchScript type; its [`TypeId`]s refer to the table that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Type {
    Tensor,
    Int,
    Float,
    Complex,
    Bool,
    /// Either an `int` or a `float`: `number` or `Scalar`.
    Number,
    Str,
    None,
    Optional(TypeId),
    List(TypeId),
    /// Key type and value type.
    Dict(TypeId, TypeId),
    Tuple(Vec<TypeId>),
    /// Tuple class with named fields.
    NamedTuple(Vec<TupleField>),
    /// Union type, with its member types.
    Union(Vec<TypeId>),
    /// Enumeration class, with its named values.
    Enum(Vec<EnumMember>),
    /// Any other type: a class of the archive, `Any`, `Device`, and so on.
    Other,
}

/// Field of a named tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TupleField {
    pub name: String,
    pub kind: TypeId,
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
pub struct Types {
    all: Vec<(Type, String)>,
    by_text: HashMap<String, TypeId>,
}

impl Types {
    /// Returns the structure of a type.
    pub fn kind(&self, id: TypeId) -> &Type {
        self.all.get(id.0).map_or(&Type::Other, |(kind, _)| kind)
    }

    /// Returns the annotation text of a type.
    pub fn annotation_text(&self, id: TypeId) -> &str {
        self.all.get(id.0).map_or("Any", |(_, text)| text)
    }

    /// Returns the ids of all types in the table.
    pub fn ids(&self) -> impl Iterator<Item = TypeId> + use<> {
        (0..self.all.len()).map(TypeId)
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
    pub fn component_types(&self, id: TypeId) -> Vec<TypeId> {
        match self.kind(id) {
            Type::Optional(inner) | Type::List(inner) => vec![*inner],
            Type::Dict(key, value) => vec![*key, *value],
            Type::Tuple(items) | Type::Union(items) => items.clone(),
            Type::NamedTuple(fields) => fields.iter().map(|field| field.kind).collect(),
            _ => Vec::new(),
        }
    }

    /// Adds the type that `head[arguments]` names, or `head` without arguments, and returns its id.
    pub(crate) fn add(&mut self, head: &str, arguments: Option<&[TypeId]>) -> TypeId {
        let inside = arguments.map(|arguments| {
            let texts: Vec<&str> = arguments.iter().map(|id| self.annotation_text(*id)).collect();
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

    /// Defines a class type by its parsed structure.
    pub(crate) fn define(&mut self, id: TypeId, class: Type) {
        if let Some((kind, _)) = self.all.get_mut(id.0) {
            *kind = class;
        }
    }
}

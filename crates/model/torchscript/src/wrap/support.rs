//! Types of arguments that can be made of tensors, and of results that can become tensors.

use crate::script_text::{EnumMember, ScriptType, ScriptTypeId, ScriptTypes};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    Tensor,
    Int,
    Float,
    /// Complex number: a tensor of two numbers.
    Complex,
    Bool,
    Number,
    Ints,
    Floats,
    Bools,
    Str,
    Strs,
    None,
    /// Enumeration, by the type of its values.
    Enum(EnumValueType),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EnumValueType {
    Int,
    Float,
    Str,
}

impl Leaf {
    /// Returns the leaf for a result of a type, if it is one output.
    pub(super) fn from_result(types: &ScriptTypes, id: ScriptTypeId) -> Option<Self> {
        let scalar = |id: ScriptTypeId| match types.kind(id) {
            ScriptType::Tensor => Some(Self::Tensor),
            ScriptType::Int => Some(Self::Int),
            ScriptType::Float => Some(Self::Float),
            ScriptType::Complex => Some(Self::Complex),
            ScriptType::Bool => Some(Self::Bool),
            ScriptType::Number => Some(Self::Number),
            ScriptType::Str => Some(Self::Str),
            ScriptType::None => Some(Self::None),
            ScriptType::Enum(members) => EnumValueType::common_value_type(members).map(Self::Enum),
            _ => None,
        };
        match types.kind(id) {
            ScriptType::List(inner) => match scalar(*inner)? {
                Self::Int => Some(Self::Ints),
                Self::Float => Some(Self::Floats),
                Self::Bool => Some(Self::Bools),
                Self::Str => Some(Self::Strs),
                _ => None,
            },
            _ => scalar(id),
        }
    }

    /// Returns the leaf for an argument of a type, if it is one input. A list of texts is not: each text is an input.
    pub(super) fn from_argument(types: &ScriptTypes, id: ScriptTypeId) -> Option<Self> {
        Self::from_result(types, id).filter(|leaf| *leaf != Self::Strs)
    }
}

impl EnumValueType {
    fn common_value_type(members: &[EnumMember]) -> Option<Self> {
        let of = |member: &EnumMember| match member.value.as_bytes() {
            [b'"' | b'\'', ..] => Self::Str,
            value if value.iter().any(|byte| matches!(byte, b'.' | b'e' | b'n')) => Self::Float,
            _ => Self::Int,
        };
        let first = of(members.first()?);
        members.iter().all(|member| of(member) == first).then_some(first)
    }
}

/// Returns the type that inputs provide for an optional type or a union, and true if the value can be `None`. For a union,
/// that type is always Tensor.
pub(super) fn non_none_type(types: &ScriptTypes, id: ScriptTypeId) -> Option<(ScriptTypeId, bool)> {
    match types.kind(id) {
        ScriptType::Optional(inner) => Some((*inner, true)),
        ScriptType::Union(members) => {
            let find = |kind: &ScriptType| members.iter().find(|member| types.kind(**member) == kind);
            find(&ScriptType::Tensor).map(|tensor| (*tensor, find(&ScriptType::None).is_some()))
        }
        _ => None,
    }
}

/// Returns the component types whose functions the function of an argument type calls.
pub(super) fn argument_components(types: &ScriptTypes, id: ScriptTypeId) -> Vec<ScriptTypeId> {
    match types.kind(id) {
        _ if Leaf::from_argument(types, id).is_some() => Vec::new(),
        ScriptType::Dict(_, value) => vec![*value],
        ScriptType::Optional(_) | ScriptType::Union(_) => {
            non_none_type(types, id).map(|(inner, _)| inner).into_iter().collect()
        }
        _ => types.component_types(id),
    }
}

/// Returns the component types whose functions the function of a result type calls.
pub(super) fn result_components(types: &ScriptTypes, id: ScriptTypeId) -> Vec<ScriptTypeId> {
    match types.kind(id) {
        _ if Leaf::from_result(types, id).is_some() => Vec::new(),
        ScriptType::Dict(_, value) => vec![*value],
        _ => types.component_types(id),
    }
}

/// Convertibility of types: of arguments from tensors, and of results to tensors and texts.
pub(super) struct TypeSupport {
    takes: Vec<bool>,
    returns: Vec<bool>,
}

impl TypeSupport {
    pub(super) fn new(types: &ScriptTypes) -> Self {
        let mut all = Self { takes: vec![false; types.len()], returns: vec![false; types.len()] };
        // A type is supported if its components are. A type that contains itself stays unsupported. Each round settles at
        // least one type, until none changes.
        loop {
            let mut changed = false;
            for id in types.ids() {
                let (takes, returns) = (all.can_take(types, id), all.can_return(types, id));
                let at = id.number();
                for (found, known) in [(takes, all.takes.get_mut(at)), (returns, all.returns.get_mut(at))] {
                    if let Some(known) = known.filter(|known| **known != found) {
                        *known = found;
                        changed = true;
                    }
                }
            }
            if !changed {
                return all;
            }
        }
    }

    pub(super) fn supports_argument(&self, id: ScriptTypeId) -> bool {
        self.takes.get(id.number()).is_some_and(|takes| *takes)
    }

    pub(super) fn supports_result(&self, id: ScriptTypeId) -> bool {
        self.returns.get(id.number()).is_some_and(|returns| *returns)
    }

    fn can_take(&self, types: &ScriptTypes, id: ScriptTypeId) -> bool {
        if let Some(leaf) = Leaf::from_argument(types, id) {
            return leaf != Leaf::None;
        }
        match types.kind(id) {
            // A list ends at the first index without an input, so its items cannot be optional.
            ScriptType::List(inner) => {
                let is_optional = non_none_type(types, *inner).is_some_and(|(_, is_optional)| is_optional);
                !is_optional
                    && !matches!(types.kind(*inner), ScriptType::Dict(..))
                    && self.supports_argument(*inner)
            }
            ScriptType::Optional(_) | ScriptType::Union(_) => {
                non_none_type(types, id).is_some_and(|(inner, _)| self.supports_argument(inner))
            }
            ScriptType::Dict(key, value) => {
                *types.kind(*key) == ScriptType::Str && *types.kind(*value) == ScriptType::Tensor
            }
            ScriptType::Tuple(_) | ScriptType::NamedTuple(_) => {
                let inner = types.component_types(id);
                !inner.is_empty() && inner.into_iter().all(|id| self.supports_argument(id))
            }
            _ => false,
        }
    }

    fn can_return(&self, types: &ScriptTypes, id: ScriptTypeId) -> bool {
        if Leaf::from_result(types, id).is_some_and(|leaf| leaf != Leaf::Number) {
            return true;
        }
        match types.kind(id) {
            ScriptType::Optional(inner) | ScriptType::List(inner) => self.supports_result(*inner),
            ScriptType::Dict(key, value) => {
                matches!(types.kind(*key), ScriptType::Str | ScriptType::Int) && self.supports_result(*value)
            }
            ScriptType::Tuple(_) | ScriptType::NamedTuple(_) | ScriptType::Union(_) => {
                types.component_types(id).into_iter().all(|id| self.supports_result(id))
            }
            _ => false,
        }
    }
}

//! Types of arguments that can be made of tensors, and of results that can become tensors.

use torchscript_source::{EnumMember, Type, TypeId, Types};

/// Type that corresponds to one input or one output.
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

/// Type of the values of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EnumValueType {
    Int,
    Float,
    Str,
}

impl Leaf {
    /// Returns the leaf for a result of a type, if it is one output.
    pub(super) fn of_result(types: &Types, id: TypeId) -> Option<Self> {
        let scalar = |id: TypeId| match types.kind(id) {
            Type::Tensor => Some(Self::Tensor),
            Type::Int => Some(Self::Int),
            Type::Float => Some(Self::Float),
            Type::Complex => Some(Self::Complex),
            Type::Bool => Some(Self::Bool),
            Type::Number => Some(Self::Number),
            Type::Str => Some(Self::Str),
            Type::None => Some(Self::None),
            Type::Enum(members) => EnumValueType::common_value_type(members).map(Self::Enum),
            _ => None,
        };
        match types.kind(id) {
            Type::List(inner) => match scalar(*inner)? {
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
    pub(super) fn of_argument(types: &Types, id: TypeId) -> Option<Self> {
        Self::of_result(types, id).filter(|leaf| *leaf != Self::Strs)
    }
}

impl EnumValueType {
    /// Returns the common type of all values, if they have one.
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
pub(super) fn non_none_type(types: &Types, id: TypeId) -> Option<(TypeId, bool)> {
    match types.kind(id) {
        Type::Optional(inner) => Some((*inner, true)),
        Type::Union(members) => {
            let find = |kind: &Type| members.iter().find(|member| types.kind(**member) == kind);
            find(&Type::Tensor).map(|tensor| (*tensor, find(&Type::None).is_some()))
        }
        _ => None,
    }
}

/// Returns the component types whose functions the function of an argument type calls.
pub(super) fn argument_components(types: &Types, id: TypeId) -> Vec<TypeId> {
    match types.kind(id) {
        _ if Leaf::of_argument(types, id).is_some() => Vec::new(),
        Type::Dict(_, value) => vec![*value],
        Type::Optional(_) | Type::Union(_) => {
            non_none_type(types, id).map(|(inner, _)| inner).into_iter().collect()
        }
        _ => types.component_types(id),
    }
}

/// Returns the component types whose functions the function of a result type calls.
pub(super) fn result_components(types: &Types, id: TypeId) -> Vec<TypeId> {
    match types.kind(id) {
        _ if Leaf::of_result(types, id).is_some() => Vec::new(),
        Type::Dict(_, value) => vec![*value],
        _ => types.component_types(id),
    }
}

/// Convertibility of types: of arguments from tensors, and of results to tensors and texts.
pub(super) struct TypeSupport {
    takes: Vec<bool>,
    returns: Vec<bool>,
}

impl TypeSupport {
    pub(super) fn new(types: &Types) -> Self {
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

    pub(super) fn supports_argument(&self, id: TypeId) -> bool {
        self.takes.get(id.number()).is_some_and(|takes| *takes)
    }

    pub(super) fn supports_result(&self, id: TypeId) -> bool {
        self.returns.get(id.number()).is_some_and(|returns| *returns)
    }

    fn can_take(&self, types: &Types, id: TypeId) -> bool {
        if let Some(leaf) = Leaf::of_argument(types, id) {
            return leaf != Leaf::None;
        }
        match types.kind(id) {
            // A list ends at the first index without an input, so its items cannot be optional.
            Type::List(inner) => {
                let is_optional = non_none_type(types, *inner).is_some_and(|(_, is_optional)| is_optional);
                !is_optional
                    && !matches!(types.kind(*inner), Type::Dict(..))
                    && self.supports_argument(*inner)
            }
            Type::Optional(_) | Type::Union(_) => {
                non_none_type(types, id).is_some_and(|(inner, _)| self.supports_argument(inner))
            }
            Type::Dict(key, value) => *types.kind(*key) == Type::Str && *types.kind(*value) == Type::Tensor,
            Type::Tuple(_) | Type::NamedTuple(_) => {
                let inner = types.component_types(id);
                !inner.is_empty() && inner.into_iter().all(|id| self.supports_argument(id))
            }
            _ => false,
        }
    }

    fn can_return(&self, types: &Types, id: TypeId) -> bool {
        if Leaf::of_result(types, id).is_some_and(|leaf| leaf != Leaf::Number) {
            return true;
        }
        match types.kind(id) {
            Type::Optional(inner) | Type::List(inner) => self.supports_result(*inner),
            Type::Dict(key, value) => {
                matches!(types.kind(*key), Type::Str | Type::Int) && self.supports_result(*value)
            }
            Type::Tuple(_) | Type::NamedTuple(_) | Type::Union(_) => {
                types.component_types(id).into_iter().all(|id| self.supports_result(id))
            }
            _ => false,
        }
    }
}

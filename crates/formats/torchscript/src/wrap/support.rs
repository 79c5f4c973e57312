//! Which types are made of tensors, and which become tensors.

use torchscript_source::{Member, Type, TypeId, Types};

/// A type that is one input or one output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    Tensor,
    Int,
    Float,
    /// Two numbers.
    Complex,
    Bool,
    Number,
    Ints,
    Floats,
    Bools,
    Str,
    Strs,
    None,
    /// A value of an enumeration, which is of this type.
    Enum(Value),
}

/// The type of the values of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Int,
    Float,
    Str,
}

impl Leaf {
    /// The leaf that a result of a type is.
    pub(super) fn returned(types: &Types, id: TypeId) -> Option<Self> {
        let scalar = |id: TypeId| match types.kind(id) {
            Type::Tensor => Some(Self::Tensor),
            Type::Int => Some(Self::Int),
            Type::Float => Some(Self::Float),
            Type::Complex => Some(Self::Complex),
            Type::Bool => Some(Self::Bool),
            Type::Number => Some(Self::Number),
            Type::Str => Some(Self::Str),
            Type::None => Some(Self::None),
            Type::Enum(members) => Value::of_all(members).map(Self::Enum),
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

    /// The leaf that an argument of a type is. Each text of a list is an input.
    pub(super) fn taken(types: &Types, id: TypeId) -> Option<Self> {
        Self::returned(types, id).filter(|leaf| *leaf != Self::Strs)
    }
}

impl Value {
    /// The type of all values, if they have one.
    fn of_all(members: &[Member]) -> Option<Self> {
        let of = |member: &Member| match member.value.as_bytes() {
            [b'"' | b'\'', ..] => Self::Str,
            value if value.iter().any(|byte| matches!(byte, b'.' | b'e' | b'n')) => Self::Float,
            _ => Self::Int,
        };
        let first = of(members.first()?);
        members.iter().all(|member| of(member) == first).then_some(first)
    }
}

/// What an optional type or a union is made of: another type, and whether it can be `None`. A union can be a tensor only.
pub(super) fn alternative(types: &Types, id: TypeId) -> Option<(TypeId, bool)> {
    match types.kind(id) {
        Type::Optional(inner) => Some((*inner, true)),
        Type::Union(members) => {
            let find = |kind: &Type| members.iter().find(|member| types.kind(**member) == kind);
            find(&Type::Tensor).map(|tensor| (*tensor, find(&Type::None).is_some()))
        }
        _ => None,
    }
}

/// The types whose functions make an argument of a type.
pub(super) fn taken_parts(types: &Types, id: TypeId) -> Vec<TypeId> {
    match types.kind(id) {
        _ if Leaf::taken(types, id).is_some() => Vec::new(),
        Type::Dict(_, value) => vec![*value],
        Type::Optional(_) | Type::Union(_) => {
            alternative(types, id).map(|(inner, _)| inner).into_iter().collect()
        }
        _ => types.inner(id),
    }
}

/// The types whose functions put a result of a type into the dict of outputs.
pub(super) fn returned_parts(types: &Types, id: TypeId) -> Vec<TypeId> {
    match types.kind(id) {
        _ if Leaf::returned(types, id).is_some() => Vec::new(),
        Type::Dict(_, value) => vec![*value],
        _ => types.inner(id),
    }
}

/// By type, whether arguments of it are made of tensors, and whether results of it become tensors and texts.
pub(super) struct Support {
    takes: Vec<bool>,
    returns: Vec<bool>,
}

impl Support {
    pub(super) fn new(types: &Types) -> Self {
        let mut all = Self { takes: vec![false; types.len()], returns: vec![false; types.len()] };
        // A type depends on those inside it, and a type that contains itself on nothing. So each round settles some.
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

    pub(super) fn takes(&self, id: TypeId) -> bool {
        self.takes.get(id.number()).is_some_and(|takes| *takes)
    }

    pub(super) fn returns(&self, id: TypeId) -> bool {
        self.returns.get(id.number()).is_some_and(|returns| *returns)
    }

    fn can_take(&self, types: &Types, id: TypeId) -> bool {
        if let Some(leaf) = Leaf::taken(types, id) {
            return leaf != Leaf::None;
        }
        match types.kind(id) {
            // A list ends where the next input is absent.
            Type::List(inner) => {
                let is_optional = alternative(types, *inner).is_some_and(|(_, is_optional)| is_optional);
                !is_optional && !matches!(types.kind(*inner), Type::Dict(..)) && self.takes(*inner)
            }
            Type::Optional(_) | Type::Union(_) => {
                alternative(types, id).is_some_and(|(inner, _)| self.takes(inner))
            }
            Type::Dict(key, value) => *types.kind(*key) == Type::Str && *types.kind(*value) == Type::Tensor,
            Type::Tuple(_) | Type::NamedTuple(_) => {
                let inner = types.inner(id);
                !inner.is_empty() && inner.into_iter().all(|id| self.takes(id))
            }
            _ => false,
        }
    }

    fn can_return(&self, types: &Types, id: TypeId) -> bool {
        if Leaf::returned(types, id).is_some_and(|leaf| leaf != Leaf::Number) {
            return true;
        }
        match types.kind(id) {
            Type::Optional(inner) | Type::List(inner) => self.returns(*inner),
            Type::Dict(key, value) => {
                matches!(types.kind(*key), Type::Str | Type::Int) && self.returns(*value)
            }
            Type::Tuple(_) | Type::NamedTuple(_) | Type::Union(_) => {
                types.inner(id).into_iter().all(|id| self.returns(id))
            }
            _ => false,
        }
    }
}

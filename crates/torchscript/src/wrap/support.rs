//! Which types are made of tensors, and which become tensors.

use torchscript_source::{Type, TypeId, Types};

/// A type that is one input or one output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    Tensor,
    Int,
    Float,
    Bool,
    Number,
    Ints,
    Floats,
    Bools,
    Str,
    Strs,
    None,
}

impl Leaf {
    /// The leaf that a type is.
    pub(super) fn from_type(types: &Types, id: TypeId) -> Option<Self> {
        let scalar = |id: TypeId| match types.kind(id) {
            Type::Tensor => Some(Self::Tensor),
            Type::Int => Some(Self::Int),
            Type::Float => Some(Self::Float),
            Type::Bool => Some(Self::Bool),
            Type::Number => Some(Self::Number),
            Type::Str => Some(Self::Str),
            Type::None => Some(Self::None),
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

    /// Whether it can be made of a tensor. Carton's runner does not pass texts.
    fn is_taken(self) -> bool {
        !matches!(self, Self::Str | Self::Strs | Self::None)
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
        if let Some(leaf) = Leaf::from_type(types, id) {
            return leaf.is_taken();
        }
        match types.kind(id) {
            // A list ends where the next input is absent.
            Type::List(inner) => {
                !matches!(types.kind(*inner), Type::Optional(_) | Type::Dict(..)) && self.takes(*inner)
            }
            Type::Optional(inner) => self.takes(*inner),
            Type::Dict(key, value) => *types.kind(*key) == Type::Str && *types.kind(*value) == Type::Tensor,
            Type::Tuple(_) | Type::NamedTuple(_) => {
                let inner = types.inner(id);
                !inner.is_empty() && inner.into_iter().all(|id| self.takes(id))
            }
            _ => false,
        }
    }

    fn can_return(&self, types: &Types, id: TypeId) -> bool {
        if Leaf::from_type(types, id).is_some_and(|leaf| leaf != Leaf::Number) {
            return true;
        }
        match types.kind(id) {
            Type::Optional(inner) | Type::List(inner) => self.returns(*inner),
            Type::Dict(key, value) => {
                matches!(types.kind(*key), Type::Str | Type::Int) && self.returns(*value)
            }
            Type::Tuple(_) | Type::NamedTuple(_) => types.inner(id).into_iter().all(|id| self.returns(id)),
            _ => false,
        }
    }
}

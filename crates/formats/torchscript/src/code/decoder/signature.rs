//! How the `forward` of a decoder's module is called.

use crate::Errors;

/// How `forward` is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::code) enum Signature {
    /// With a dict of tensors. It returns a dict, as Carton's runner requires, and this is what it does with wrong inputs.
    Dict(Errors),
    /// With one tensor. It returns one, because Triton refuses a dict. Wrong inputs raise an exception.
    Positional,
}

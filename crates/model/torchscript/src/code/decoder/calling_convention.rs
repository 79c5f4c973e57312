//! Calling convention of the `forward` of a decoder's module.

use crate::OnInvalidInput;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::code) enum CallingConvention {
    /// Takes and returns a dict, as Carton's runner requires, and reports invalid inputs as given.
    Dict(OnInvalidInput),
    /// Takes and returns one tensor, because Triton refuses a dict. Invalid inputs raise an exception.
    Positional,
}

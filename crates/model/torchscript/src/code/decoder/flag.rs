//! Flags of a decoder's text, which select the lines of the templates that a module needs. Each kind of block has its own, in
//! the file of its text.

use std::fmt;

use decoder::Decoder;

use super::calling_convention::CallingConvention;
use super::lists::WeightLists;
use super::positions::RotaryPositions;

#[derive(Clone, Copy)]
pub(super) struct TextVariant<'d> {
    pub(super) decoder: &'d Decoder,
    pub(super) positions: &'d RotaryPositions,
    pub(super) lists: &'d WeightLists,
    /// True if any weight is float16.
    pub(super) has_float16: bool,
    /// True if any weight is bytes of blocks.
    pub(super) has_blocks: bool,
    pub(super) signature: CallingConvention,
}

/// Condition that holds for some variants of the text.
pub(super) type Condition = fn(TextVariant<'_>) -> bool;

/// Condition of a template line, by its name.
#[derive(Clone, Copy)]
pub(super) struct Flag {
    name: &'static str,
    condition: Condition,
}

impl Flag {
    pub(super) const fn new(name: &'static str, condition: Condition) -> Self {
        Self { name, condition }
    }

    pub(super) fn name(self) -> &'static str {
        self.name
    }

    pub(super) fn holds(self, variant: TextVariant<'_>) -> bool {
        (self.condition)(variant)
    }
}

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Flag {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Flag {}

//! Positions that are a table of weights.
//!
//! Facts: [`decoder::LearnedPositions`].

use crate::kernel::Matrix;
use crate::number::Real;
use crate::{Problem, Result};

/// Table of positions, and the rows before that of the first.
#[derive(Debug)]
pub(crate) struct PositionTable {
    pub(crate) rows: Matrix,
    pub(crate) offset: usize,
}

impl PositionTable {
    /// Checks that a text of this many tokens has positions.
    ///
    /// # Errors
    /// When it has not.
    pub(crate) fn check(&self, tokens: usize) -> Result<()> {
        let positions = self.rows.rows().saturating_sub(self.offset);
        if tokens <= positions {
            return Ok(());
        }
        Err(Problem::Positions { tokens, positions }.into())
    }

    /// Adds the row of a position, for which there is one, to the embedding of its token.
    pub(crate) fn add_to<T: Real>(&self, position: usize, embedding: &mut [T]) {
        let mut embedding = embedding.iter_mut();
        self.rows.for_each_in_row(position + self.offset, |number| {
            if let Some(x) = embedding.next() {
                *x += T::from_f64(number);
            }
        });
    }
}

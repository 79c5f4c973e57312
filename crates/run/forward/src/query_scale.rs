//! Factor of queries that grows with their position.
//!
//! Facts: [`QueryScale`].

use decoder::QueryScale;

use crate::attention::Queries;
use crate::number::Real;

/// Multiplies each row of `width` queries by the factor of its position.
#[expect(clippy::cast_precision_loss, reason = "PyTorch rounds positions, too")]
pub(crate) fn scale_queries<T: Real>(scale: QueryScale, of: Queries, width: usize, q: &mut [T]) {
    for (row, queries) in q.chunks_exact_mut(width).enumerate() {
        let position = (of.past + row % of.count) as f64;
        let factor = T::from_f64(1.0 + scale.beta * (position / scale.old).floor().ln_1p());
        for query in queries {
            *query *= factor;
        }
    }
}

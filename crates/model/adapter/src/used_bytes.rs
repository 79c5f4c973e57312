//! The bytes of an adapter that a merge reads: each element of each tensor has to be one of them.

use std::collections::BTreeMap;

use tensor::{Tensor, Tensors};

use crate::{Problem, Result};

/// Elements of a tensor in C order: an offset, and two dimensions with their strides, the larger stride first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorPart {
    offset: u64,
    outer: (u64, u64),
    inner: (u64, u64),
}

impl TensorPart {
    pub(crate) fn new(offset: u64, [first, second]: [(u64, u64); 2]) -> Self {
        let (outer, inner) = if first.1 >= second.1 { (first, second) } else { (second, first) };
        Self { offset, outer, inner }
    }

    fn whole(tensor: &Tensor) -> Self {
        let numel = tensor.numel();
        Self { offset: 0, outer: (1, numel), inner: (numel, 1) }
    }

    fn is_whole(&self, numel: u64) -> bool {
        let (rows, row_stride) = self.outer;
        let (columns, column_stride) = self.inner;
        self.offset == 0
            && (column_stride == 1 || columns <= 1)
            && (row_stride == columns || rows <= 1)
            && rows.checked_mul(columns) == Some(numel)
    }

    /// Sets the bits of the elements. Elements outside of `bits` are not counted.
    fn mark(&self, bits: &mut [u64]) {
        let (rows, row_stride) = self.outer;
        let (columns, column_stride) = self.inner;
        for row in 0..rows {
            let start = self.offset.saturating_add(row.saturating_mul(row_stride));
            for column in 0..columns {
                let element = start.saturating_add(column.saturating_mul(column_stride));
                let word = usize::try_from(element >> 6).ok().and_then(|word| bits.get_mut(word));
                let Some(word) = word else { return };
                *word |= 1 << (element & 63);
            }
        }
    }
}

/// Elements of an adapter that were used, by the positions of the tensors.
#[derive(Debug, Default)]
pub(crate) struct UsedBytes {
    parts: BTreeMap<usize, Vec<TensorPart>>,
}

impl UsedBytes {
    pub(crate) fn add(&mut self, position: usize, part: TensorPart) {
        let parts = self.parts.entry(position).or_default();
        // A tensor that several names of the base share is read again for each.
        if !parts.contains(&part) {
            parts.push(part);
        }
    }

    pub(crate) fn add_whole(&mut self, position: usize, tensor: &Tensor) {
        self.add(position, TensorPart::whole(tensor));
    }

    /// Fails if an element of a tensor was not used.
    ///
    /// # Errors
    /// With the first tensor that has such elements.
    pub(crate) fn check(&self, tensors: &Tensors) -> Result<()> {
        for (position, (name, tensor)) in tensors.iter().enumerate() {
            let parts = self.parts.get(&position).map_or(&[][..], Vec::as_slice);
            let used = used_elements(parts, tensor.numel()).ok_or_else(|| Problem::Factor {
                tensor: name.clone(),
                reason: "it is too large".to_owned(),
            })?;
            let unused = tensor.numel().saturating_sub(used).saturating_mul(tensor.dtype().size());
            if unused > 0 {
                return Err(Problem::Unused { tensor: name.clone(), unused, nbytes: tensor.nbytes() }.into());
            }
        }
        Ok(())
    }
}

/// Returns how many of `numel` elements are in at least one part; `None` if they do not fit in memory.
fn used_elements(parts: &[TensorPart], numel: u64) -> Option<u64> {
    if parts.iter().any(|part| part.is_whole(numel)) {
        return Some(numel);
    }
    if parts.is_empty() {
        return Some(0);
    }
    let mut bits: Vec<u64> = Vec::new();
    let words = usize::try_from(numel.div_ceil(64)).ok()?;
    bits.try_reserve_exact(words).ok()?;
    bits.resize(words, 0);
    for part in parts {
        part.mark(&mut bits);
    }
    Some(bits.iter().map(|word| u64::from(word.count_ones())).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_once_and_by_their_elements() {
        // Four experts of rank 2: slowest in the 8 rows of A (8 × 5), fastest in the 8 columns of B (3 × 8).
        let of_a = |expert: u64| TensorPart::new(expert * 10, [(2, 5), (5, 1)]);
        let of_b = |expert: u64| TensorPart::new(expert, [(2, 4), (3, 8)]);
        for (part, numel, size) in
            [(&of_a as &dyn Fn(u64) -> TensorPart, 40, 10), (&of_b as &dyn Fn(u64) -> TensorPart, 24, 6)]
        {
            let all: Vec<TensorPart> = (0..4).map(part).collect();
            assert_eq!(used_elements(&all, numel), Some(numel));
            assert_eq!(used_elements(&all[1..], numel), Some(numel - size));
            assert_eq!(used_elements(&[part(2), part(2)], numel), Some(size));
        }
        // Rows that overlap.
        let rows = [TensorPart::new(0, [(2, 5), (5, 1)]), TensorPart::new(5, [(2, 5), (5, 1)])];
        assert_eq!(used_elements(&rows, 20), Some(15));
        assert!(TensorPart::new(0, [(5, 1), (4, 5)]).is_whole(20));
        assert!(!TensorPart::new(0, [(4, 5), (4, 1)]).is_whole(20));
    }
}

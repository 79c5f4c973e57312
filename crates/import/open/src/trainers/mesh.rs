//! Positions of a rank's shard in a `DTensor`.
//!
//! Facts: `Shard` and `_StridedShard` in `torch/distributed/tensor/placement_types.py` of PyTorch 2.15: sizes are those of
//! `torch.chunk`, of which the last ranks may get none; a strided shard has a chunk of each of several pieces.

use std::ops::Range;

use tensor::{Tensor, Tile};
use torch_import::{MeshDimension, Placement};

/// Largest number of boxes of one rank's shard.
const BOXES_MAX: usize = 1 << 16;

/// Indices along a dimension: ranges in the order in which the local tensor has them.
type Segments = Vec<Range<u64>>;

/// Returns the ranges of the whole tensor, along each of its dimensions, that a rank's shard consists of; the reason if there
/// are none.
pub(crate) fn segments(shape: &[u64], mesh: &[MeshDimension]) -> Result<Vec<Segments>, &'static str> {
    let whole = |size: &u64| std::iter::once(0..*size).collect();
    let mut all: Vec<Segments> = shape.iter().map(whole).collect();
    for MeshDimension { ranks, index, placement, .. } in mesh {
        if *ranks == 0 || index >= ranks {
            return Err("its coordinate is not in its mesh");
        }
        let (dim, pieces) = match *placement {
            Placement::Replicate => continue,
            Placement::Partial if *ranks == 1 => continue,
            Placement::Shard { dim } => (dim, 1),
            Placement::StridedShard { dim, pieces } => (dim, pieces),
            _ => return Err("its ranks have addends of a sum"),
        };
        let dim = usize::try_from(dim).ok().and_then(|dim| all.get_mut(dim));
        let Some(own) = dim else { return Err("it is sharded along a dimension that it does not have") };
        if pieces == 0 || pieces > BOXES_MAX as u64 {
            return Err("it is sharded in no pieces or in too many");
        }
        let mut next = Vec::new();
        for piece in 0..pieces {
            let piece = chunk(own, pieces, piece);
            next.extend(chunk(&piece, *ranks, *index));
            if next.len() > BOXES_MAX {
                return Err("it is sharded in too many pieces");
            }
        }
        *own = next;
    }
    Ok(all)
}

/// Returns chunk `number` of `count` as `torch.chunk` cuts them.
fn chunk(segments: &Segments, count: u64, number: u64) -> Segments {
    let len = segments.iter().fold(0_u64, |sum, it| sum.saturating_add(it.end.saturating_sub(it.start)));
    let size = len.div_ceil(count.max(1));
    let start = size.saturating_mul(number).min(len);
    let end = start.saturating_add(size).min(len);
    let (mut found, mut before) = (Segments::new(), 0_u64);
    for segment in segments {
        let size = segment.end.saturating_sub(segment.start);
        let (from, to) = (start.max(before), end.min(before.saturating_add(size)));
        if from < to {
            let at = |n: u64| segment.start.saturating_add(n.saturating_sub(before));
            // Ranges that touch are one.
            match found.last_mut() {
                Some(last) if last.end == at(from) => last.end = at(to),
                _ => found.push(at(from)..at(to)),
            }
        }
        before = before.saturating_add(size);
    }
    found
}

/// Cuts a local tensor into tiles of the whole one. Returns `None` if its shape is not that of the segments, or there are too
/// many.
pub(crate) fn tiles(local: &Tensor, segments: &[Segments]) -> Option<Vec<Tile>> {
    let len = |it: &Segments| {
        it.iter().fold(0_u64, |sum, range| sum.saturating_add(range.end.saturating_sub(range.start)))
    };
    if !segments.iter().map(len).eq(local.shape().iter().copied()) {
        return None;
    }
    let mut boxes: Vec<(Vec<u64>, Vec<u64>, u64)> = vec![(Vec::new(), Vec::new(), local.storage_offset())];
    for (ranges, stride) in segments.iter().zip(local.stride()) {
        let mut next = Vec::new();
        for (start, sizes, offset) in &boxes {
            let mut before = 0_u64;
            for range in ranges {
                let (mut start, mut sizes) = (start.clone(), sizes.clone());
                let size = range.end.saturating_sub(range.start);
                start.push(range.start);
                sizes.push(size);
                next.push((start, sizes, offset.checked_add(before.checked_mul(*stride)?)?));
                before = before.saturating_add(size);
            }
            if next.len() > BOXES_MAX {
                return None;
            }
        }
        boxes = next;
    }
    let tile = |(start, sizes, offset): (Vec<u64>, Vec<u64>, u64)| {
        let stride = local.stride().to_vec();
        let tensor = Tensor::new(local.dtype(), sizes, stride, offset, local.storage().clone()).ok()?;
        Some(Tile { tensor, start })
    };
    boxes.into_iter().map(tile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_those_of_torch() {
        let ends = |len: u64, count: u64| {
            let all: Segments = std::iter::once(0..len).collect();
            let end = |number| chunk(&all, count, number).first().map(|range| range.end);
            (0..count).map(end).collect::<Vec<_>>()
        };
        assert_eq!(ends(7, 3), [Some(3), Some(6), Some(7)]);
        assert_eq!(ends(2, 4), [Some(1), Some(2), None, None]);
        assert_eq!(ends(5, 4), [Some(2), Some(4), Some(5), None]);
        let two = vec![0..2, 6..9];
        assert_eq!(chunk(&two, 2, 0), [0..2, 6..7]);
        assert_eq!(chunk(&two, 2, 1).first(), Some(&(7..9)));
    }
}

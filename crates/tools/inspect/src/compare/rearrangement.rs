//! Finds how the elements of a tensor are arranged in another tensor with the same elements.
//!
//! Facts: Hugging Face's `convert_llama_weights_to_hf.py` permutes the rows of q and k of each head, because its rotary
//! embedding rotates halves where Meta's rotates pairs: row `2 i + j` of a head becomes row `j * size / 2 + i`.

use std::fmt;

use byte_source::Observer;
use serde::Serialize;
use tensor::{ElementReader, RecordChecks, Tensor};

use crate::compare::fingerprint::HashKeys;
use crate::compare::segments::READ_LEN;

/// Largest number of rows of which an order is looked for.
const ROWS_MAX: u64 = 1 << 20;
/// Largest number of dimensions of which all orders are tried.
const RANK_MAX: usize = 5;

/// Arrangement of the elements of the first tensor in the second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rearrangement {
    /// The dimensions have another order, as after `torch.permute(dims)`.
    Transposed { dims: Vec<usize> },
    /// The rows of each head are in the order of another rotary embedding: `from` is `meta` or `hugging_face`.
    Rotary {
        /// Dimension along which the rows are counted.
        dim: usize,
        /// Number of rows of a head.
        head_size: u64,
        from: RotaryLayout,
        to: RotaryLayout,
    },
    /// The slices along a dimension are in another order.
    Slices {
        dim: usize,
        /// Number of slices at another place.
        moved: u64,
    },
    /// The elements are in an order of no known kind.
    Elements,
}

/// Order of the rows of q and k in each head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RotaryLayout {
    /// Rows that are rotated together are next to each other.
    Meta,
    /// Rows that are rotated together are half a head apart.
    HuggingFace,
}

impl fmt::Display for Rearrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transposed { dims } => write!(f, "permute({dims:?})"),
            Self::Rotary { dim, head_size, from, to } => {
                write!(f, "from {from} to {to} order of rotary rows, heads of {head_size}")?;
                if *dim == 0 { Ok(()) } else { write!(f, " along dimension {dim}") }
            }
            Self::Slices { dim, moved } => {
                let slices = if *moved == 1 { "slice" } else { "slices" };
                write!(f, "{} {slices} moved along dimension {dim}", byte_source::format_count(*moved))
            }
            Self::Elements => f.write_str("the same elements in another order"),
        }
    }
}

impl fmt::Display for RotaryLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Meta => "Meta's",
            Self::HuggingFace => "Hugging Face's",
        })
    }
}

/// Finds the rearrangement of `a` that is `b`, which has the same elements in another order.
///
/// # Errors
/// When a tensor cannot be read, or `observer` stops the work.
pub(crate) fn find_rearrangement(
    a: &Tensor,
    b: &Tensor,
    keys: HashKeys,
    observer: &dyn Observer,
) -> Result<Rearrangement, byte_source::Error> {
    for dims in dim_orders(a.shape(), b.shape()) {
        if let Some(view) = permuted(a, &dims)
            && view.has_elements_of(b, observer)?
        {
            return Ok(Rearrangement::Transposed { dims });
        }
    }
    if a.shape() == b.shape() {
        for dim in 0..a.shape().len() {
            if let Some(found) = find_slices(a, b, dim, keys, observer)? {
                return Ok(found);
            }
        }
    }
    Ok(Rearrangement::Elements)
}

/// Returns the orders of dimensions, besides the given one, that turn the first shape into the second. Dimensions of size 1
/// are moved, too.
fn dim_orders(from: &[u64], to: &[u64]) -> Vec<Vec<usize>> {
    if from.len() != to.len() || !(2..=RANK_MAX).contains(&from.len()) {
        return Vec::new();
    }
    let mut partial: Vec<Vec<usize>> = vec![Vec::new()];
    for size in to {
        let extend = |dims: &Vec<usize>| {
            let free = from.iter().enumerate().filter(|(dim, from)| !dims.contains(dim) && *from == size);
            free.map(|(dim, _)| [dims.as_slice(), &[dim]].concat()).collect::<Vec<_>>()
        };
        partial = partial.iter().flat_map(extend).collect();
    }
    partial.retain(|dims| dims.iter().enumerate().any(|(place, dim)| place != *dim));
    // Exchanges of two dimensions are the most common ones.
    partial.sort_by_key(|dims| dims.iter().enumerate().filter(|(place, dim)| place != *dim).count());
    partial
}

/// Returns the view with the dimensions in the order `dims`, as `torch.permute`.
fn permuted(tensor: &Tensor, dims: &[usize]) -> Option<Tensor> {
    let pick = |from: &[u64]| dims.iter().map(|dim| from.get(*dim).copied()).collect::<Option<Vec<u64>>>();
    let (shape, stride) = (pick(tensor.shape())?, pick(tensor.stride())?);
    Tensor::new(tensor.dtype(), shape, stride, tensor.storage_offset(), tensor.storage().clone()).ok()
}

/// Finds an order of the slices of `a` along `dim` that is `b`.
fn find_slices(
    a: &Tensor,
    b: &Tensor,
    dim: usize,
    keys: HashKeys,
    observer: &dyn Observer,
) -> Result<Option<Rearrangement>, byte_source::Error> {
    let rows = a.shape().get(dim).copied().unwrap_or(0);
    if !(2..=ROWS_MAX).contains(&rows) {
        return Ok(None);
    }
    let (Some(first), Some(second)) = (a.transpose(0, dim), b.transpose(0, dim)) else { return Ok(None) };
    let (ours, theirs) = (slice_hashes(&first, keys, observer)?, slice_hashes(&second, keys, observer)?);
    let (mut sorted, mut others) = (ours.clone(), theirs.clone());
    sorted.sort_unstable();
    others.sort_unstable();
    if sorted != others {
        return Ok(None);
    }
    let is_order = |source: &dyn Fn(usize) -> usize| {
        theirs.iter().enumerate().all(|(row, hash)| ours.get(source(row)) == Some(hash))
    };
    let rows = ours.len();
    for size in (4..=rows).step_by(2).filter(|size| rows.is_multiple_of(*size)) {
        let half = size / 2;
        let within = |row: usize| {
            let at = row.checked_rem(size).unwrap_or(0);
            (row.saturating_sub(at), at)
        };
        let from_meta = |row: usize| {
            let (head, at) = within(row);
            let (j, i) = (at.checked_div(half).unwrap_or(0), at.checked_rem(half).unwrap_or(0));
            head.saturating_add(i.saturating_mul(2)).saturating_add(j)
        };
        let to_meta = |row: usize| {
            let (head, at) = within(row);
            head.saturating_add((at % 2).saturating_mul(half)).saturating_add(at / 2)
        };
        let orders: [(&dyn Fn(usize) -> usize, _, _); 2] = [
            (&from_meta, RotaryLayout::Meta, RotaryLayout::HuggingFace),
            (&to_meta, RotaryLayout::HuggingFace, RotaryLayout::Meta),
        ];
        for (order, from, to) in orders {
            if is_order(order) {
                return Ok(Some(Rearrangement::Rotary { dim, head_size: size as u64, from, to }));
            }
        }
    }
    let moved = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours != theirs).count();
    Ok(Some(Rearrangement::Slices { dim, moved: moved as u64 }))
}

/// Hashes the slices of a tensor along its first dimension.
fn slice_hashes(
    tensor: &Tensor,
    keys: HashKeys,
    observer: &dyn Observer,
) -> Result<Vec<u64>, byte_source::Error> {
    let rows = tensor.shape().first().copied().unwrap_or(0);
    let row = tensor.nbytes().checked_div(rows).unwrap_or(0);
    let checks = RecordChecks::default();
    let mut reader = ElementReader::new(tensor, &checks);
    let mut hashes = Vec::new();
    let step = (READ_LEN as u64).checked_next_multiple_of(16).unwrap_or(1);
    let mut buffer = vec![0; READ_LEN];
    for number in 0..rows {
        observer.check()?;
        let (start, end) = (number.saturating_mul(row), number.saturating_add(1).saturating_mul(row));
        let (mut at, mut hash) = (start, 0_u64);
        while at < end {
            let len = usize::try_from(step.min(end.saturating_sub(at))).unwrap_or(READ_LEN).min(READ_LEN);
            let bytes = buffer.get_mut(..len).unwrap_or_default();
            reader.read(at, bytes)?;
            hash = hash.rotate_left(31) ^ keys.hash_bytes(bytes);
            at = at.saturating_add(len as u64);
        }
        hashes.push(hash);
    }
    Ok(hashes)
}

/// Returns true if the elements of both tensors in C order are equal, whatever their shapes are.
///
/// # Errors
/// When a tensor cannot be read, or `observer` stops the work.
pub(crate) fn have_same_order(
    a: &Tensor,
    b: &Tensor,
    observer: &dyn Observer,
) -> Result<bool, byte_source::Error> {
    if a.shape() == b.shape() {
        return a.has_elements_of(b, observer);
    }
    if a.dtype() != b.dtype() || a.numel() != b.numel() {
        return Ok(false);
    }
    let (checks, mut at) = (RecordChecks::default(), 0);
    let (mut first, mut second) = (ElementReader::new(a, &checks), ElementReader::new(b, &checks));
    let (mut ours, mut theirs) = (vec![0; READ_LEN], vec![0; READ_LEN]);
    while at < a.nbytes() {
        observer.check()?;
        let left = a.nbytes().saturating_sub(at);
        let len = usize::try_from(left).unwrap_or(READ_LEN).min(READ_LEN);
        let (Some(ours), Some(theirs)) = (ours.get_mut(..len), theirs.get_mut(..len)) else { break };
        first.read(at, ours)?;
        second.read(at, theirs)?;
        if ours != theirs {
            return Ok(false);
        }
        at = at.saturating_add(len as u64);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use tensor::{Dtype, Storage, contiguous_strides};

    use super::*;

    fn tensor(shape: &[u64], values: impl IntoIterator<Item = u16>) -> Tensor {
        let bytes = values.into_iter().flat_map(u16::to_le_bytes).collect();
        Tensor::new(Dtype::UInt16, shape.to_vec(), contiguous_strides(shape), 0, Storage::owned(bytes))
            .expect("inside")
    }

    fn found(a: &Tensor, b: &Tensor) -> Rearrangement {
        find_rearrangement(a, b, HashKeys::random(), &()).expect("in memory")
    }

    #[test]
    fn transpositions_are_found() {
        let a = tensor(&[2, 3, 4], 0..24);
        for dims in [vec![0, 2, 1], vec![2, 1, 0], vec![1, 2, 0]] {
            let view = permuted(&a, &dims).expect("a permutation");
            assert_eq!(found(&a, &view), Rearrangement::Transposed { dims });
        }
        let square = tensor(&[3, 3], 0..9);
        let other = square.transpose(0, 1).expect("two dimensions");
        assert_eq!(found(&square, &other), Rearrangement::Transposed { dims: vec![1, 0] });
    }

    #[test]
    fn rotary_layouts_are_named() {
        // Two heads of 8 rows of 3.
        let meta: Vec<u16> = (0..48).collect();
        let row = |head: usize, at: usize| (head * 8 + (at % 4) * 2 + at / 4) * 3;
        let rows = (0..2).flat_map(|head| (0..8).map(move |at| (head, at)));
        let face: Vec<u16> =
            rows.flat_map(|(head, at)| meta[row(head, at)..row(head, at) + 3].to_vec()).collect();
        let (meta, face) = (tensor(&[16, 3], meta), tensor(&[16, 3], face));
        let named = |from, to| Rearrangement::Rotary { dim: 0, head_size: 8, from, to };
        assert_eq!(found(&meta, &face), named(RotaryLayout::Meta, RotaryLayout::HuggingFace));
        assert_eq!(found(&face, &meta), named(RotaryLayout::HuggingFace, RotaryLayout::Meta));
        let (meta, face) = (meta.transpose(0, 1).expect("two"), face.transpose(0, 1).expect("two"));
        assert!(matches!(found(&meta, &face), Rearrangement::Rotary { dim: 1, head_size: 8, .. }));
    }

    #[test]
    fn other_orders_are_slices_or_elements() {
        let a = tensor(&[4, 2], [1, 2, 3, 4, 5, 6, 7, 8]);
        let rows = tensor(&[4, 2], [7, 8, 3, 4, 5, 6, 1, 2]);
        assert_eq!(found(&a, &rows), Rearrangement::Slices { dim: 0, moved: 2 });
        let columns = tensor(&[4, 2], [2, 1, 4, 3, 6, 5, 8, 7]);
        assert_eq!(found(&a, &columns), Rearrangement::Slices { dim: 1, moved: 2 });
        let elements = tensor(&[4, 2], [2, 1, 3, 4, 5, 6, 7, 8]);
        assert_eq!(found(&a, &elements), Rearrangement::Elements);
    }

    #[test]
    fn shapes_do_not_matter_for_the_order() {
        let a = tensor(&[2, 3], 0..6);
        assert!(have_same_order(&a, &tensor(&[6], 0..6), &()).expect("in memory"));
        assert!(!have_same_order(&a, &tensor(&[6], 1..7), &()).expect("in memory"));
        assert!(!have_same_order(&a, &tensor(&[7], 0..7), &()).expect("in memory"));
    }
}

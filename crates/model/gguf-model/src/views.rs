//! Parts of tensors, and the order of the rows of queries, keys and values.

use tensor::Tensor;

/// Returns `count` items of a dimension, from the `first` on, of which `step` is the distance. They have to be there.
pub(crate) fn items(
    tensor: &Tensor,
    dim: usize,
    (first, count, step): (u64, u64, u64),
) -> Result<Tensor, tensor::Error> {
    let (mut shape, mut stride) = (tensor.shape().to_vec(), tensor.stride().to_vec());
    let mut offset = tensor.storage_offset();
    if let (Some(size), Some(distance)) = (shape.get_mut(dim), stride.get_mut(dim)) {
        *size = count;
        offset = offset.saturating_add(first.saturating_mul(*distance));
        *distance = distance.saturating_mul(step);
    }
    Tensor::new(tensor.dtype(), shape, stride, offset, tensor.storage().clone())
}

/// Returns every second row of each matrix, or the rows of its first or second half. The rows are the last dimension but one.
pub(crate) fn half(
    tensor: &Tensor,
    dim: usize,
    part: u64,
    is_interleaved: bool,
) -> Result<Tensor, tensor::Error> {
    let rows = tensor.shape().get(dim).copied().unwrap_or_default() / 2;
    let chosen = if is_interleaved { (part, rows, 2) } else { (part.saturating_mul(rows), rows, 1) };
    items(tensor, dim, chosen)
}

/// Numbers of heads of queries and of keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) queries: u64,
    pub(crate) keys: u64,
}

impl Heads {
    /// Returns the number of rows of a head, if a matrix of queries, keys and values has as many as it should.
    fn rows(self, tensor: &Tensor) -> Option<u64> {
        let all = self.queries.checked_add(self.keys.checked_mul(2)?)?;
        let rows = tensor.shape().first().filter(|rows| rows.is_multiple_of(all))?;
        self.queries.checked_rem(self.keys).filter(|rest| *rest == 0)?;
        rows.checked_div(all)
    }

    /// Returns all queries, then all keys and all values, of a matrix that has them by the head of keys.
    pub(crate) fn separated(self, tensor: &Tensor) -> Option<Result<Tensor, tensor::Error>> {
        let (rows, per_group) = (self.rows(tensor)?, self.queries.checked_div(self.keys)?);
        let grouped = [self.keys, per_group.saturating_add(2), rows];
        let shape: Vec<u64> = grouped.into_iter().chain(tensor.shape().iter().skip(1).copied()).collect();
        let part = |grouped: &Tensor, first: u64, count: u64| {
            let part = items(grouped, 1, (first, count, 1))?;
            let rows = self.keys.saturating_mul(count).saturating_mul(rows);
            let shape: Vec<u64> = [rows].into_iter().chain(tensor.shape().iter().skip(1).copied()).collect();
            part.reshaped(&shape)
        };
        Some(tensor.reshaped(&shape).and_then(|grouped| {
            let parts = [(0, per_group), (per_group, 1), (per_group.saturating_add(1), 1)];
            let parts: Result<Vec<Tensor>, _> =
                parts.into_iter().map(|(first, count)| part(&grouped, first, count)).collect();
            Tensor::concat(0, &parts?)
        }))
    }

    /// Returns the queries, the key and the value of each head of keys, one after the other.
    pub(crate) fn mixed(self, tensor: &Tensor) -> Option<Result<Tensor, tensor::Error>> {
        let (rows, per_group) = (self.rows(tensor)?, self.queries.checked_div(self.keys)?);
        let part = |first: u64, count: u64| {
            let all = self.keys.saturating_mul(count).saturating_mul(rows);
            let shape = [self.keys, count.saturating_mul(rows)];
            let shape: Vec<u64> = shape.into_iter().chain(tensor.shape().iter().skip(1).copied()).collect();
            items(tensor, 0, (first.saturating_mul(rows), all, 1))?.reshaped(&shape)
        };
        let parts = [(0, per_group), (self.queries, 1), (self.queries.saturating_add(self.keys), 1)];
        let parts: Result<Vec<Tensor>, _> =
            parts.into_iter().map(|(first, count)| part(first, count)).collect();
        Some(
            parts
                .and_then(|parts| Tensor::concat(1, &parts))
                .and_then(|whole| whole.reshaped(tensor.shape())),
        )
    }
}

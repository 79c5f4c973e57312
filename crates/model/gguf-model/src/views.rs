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

/// Returns the parts of groups of rows: all of the first part, then all of the second, and so on. Each group has `counts` rows of them.
pub(crate) fn parts_of_groups(
    tensor: &Tensor,
    groups: u64,
    counts: &[u64],
) -> Result<Vec<Tensor>, tensor::Error> {
    let rows = counts.iter().fold(0_u64, |rows, count| rows.saturating_add(*count));
    let grouped = tensor.reshaped(&with_rows(tensor, &[groups, rows]))?;
    let mut first = 0_u64;
    let part = |count: &u64| {
        let part = items(&grouped, 1, (first, *count, 1))?;
        first = first.saturating_add(*count);
        part.reshaped(&with_rows(tensor, &[groups.saturating_mul(*count)]))
    };
    counts.iter().map(part).collect()
}

/// Returns the groups of rows of which [`parts_of_groups`] returns the parts.
pub(crate) fn joined_groups(parts: &[Tensor], groups: u64) -> Result<Tensor, tensor::Error> {
    let mut all = 0_u64;
    let grouped = |part: &Tensor| {
        let rows = part.shape().first().copied().unwrap_or_default();
        all = all.saturating_add(rows);
        part.reshaped(&with_rows(part, &[groups, rows.checked_div(groups).unwrap_or_default()]))
    };
    let grouped: Vec<Tensor> = parts.iter().map(grouped).collect::<Result<_, _>>()?;
    let whole = Tensor::concat(1, &grouped)?;
    match parts {
        [first, ..] => whole.reshaped(&with_rows(first, &[all])),
        [] => Ok(whole),
    }
}

/// Returns the shape of a tensor with other dimensions in the place of its first one.
fn with_rows(tensor: &Tensor, dims: &[u64]) -> Vec<u64> {
    dims.iter().chain(tensor.shape().iter().skip(1)).copied().collect()
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
        let counts = [per_group.saturating_mul(rows), rows, rows];
        Some(parts_of_groups(tensor, self.keys, &counts).and_then(|parts| Tensor::concat(0, &parts)))
    }

    /// Returns the queries, the key and the value of each head of keys, one after the other.
    pub(crate) fn mixed(self, tensor: &Tensor) -> Option<Result<Tensor, tensor::Error>> {
        let rows = self.rows(tensor)?;
        let part = |(first, heads): (u64, u64)| {
            items(tensor, 0, (first.saturating_mul(rows), heads.saturating_mul(rows), 1))
        };
        let parts = [
            (0, self.queries),
            (self.queries, self.keys),
            (self.queries.saturating_add(self.keys), self.keys),
        ];
        let parts: Result<Vec<Tensor>, _> = parts.into_iter().map(part).collect();
        Some(parts.and_then(|parts| joined_groups(&parts, self.keys)))
    }
}

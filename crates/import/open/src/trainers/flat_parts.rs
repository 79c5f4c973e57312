//! Slices of the flat tensors of all ranks.

use tensor::{Tensor, Tile};

use crate::trainers::{Error, Problem, Result};

/// Flat tensors of all ranks.
#[derive(Debug)]
pub(crate) struct FlatParts<'p> {
    /// Name of the file and flat tensors, one for each group, of each rank.
    ranks: Vec<(&'p str, &'p [Tensor])>,
    /// True for the flat tensors whose checksum a slice compares, by rank and group.
    compared: Vec<Vec<bool>>,
}

impl<'p> FlatParts<'p> {
    pub(crate) fn new(ranks: Vec<(&'p str, &'p [Tensor])>) -> Self {
        let compared = ranks.iter().map(|(_, groups)| vec![false; groups.len()]).collect();
        Self { ranks, compared }
    }

    /// Returns the tiles of `numel` elements at `offset` of a group, which the ranks have one after another.
    pub(crate) fn of_group(
        &mut self,
        name: &str,
        group: usize,
        offset: u64,
        numel: u64,
    ) -> Result<Vec<Tile>> {
        let (mut tiles, mut at, mut covered) = (Vec::new(), 0_u64, 0_u64);
        let end = offset.saturating_add(numel);
        for rank in 0..self.ranks.len() {
            let len = self.len(rank, group);
            let (from, to) = (offset.max(at), end.min(at.saturating_add(len)));
            if from < to {
                let tensor =
                    self.slice(name, rank, group, from.saturating_sub(at), to.saturating_sub(from))?;
                tiles.push(Tile { tensor, start: vec![from.saturating_sub(offset)] });
                covered = covered.saturating_add(to.saturating_sub(from));
            }
            at = at.saturating_add(len);
        }
        if covered < numel {
            return Err(self.too_short(name, self.ranks.len().saturating_sub(1), end, at).into());
        }
        Ok(tiles)
    }

    /// Returns the tiles of a tensor of which each rank has `each` elements at `offset` of all its groups.
    pub(crate) fn of_each_rank(
        &mut self,
        name: &str,
        offset: u64,
        each: u64,
        numel: u64,
    ) -> Result<Vec<Tile>> {
        let mut tiles = Vec::with_capacity(self.ranks.len());
        let mut start = 0_u64;
        for rank in 0..self.ranks.len() {
            let take = each.min(numel.saturating_sub(start));
            let (end, mut at) = (offset.saturating_add(take), 0_u64);
            let mut covered = 0_u64;
            for group in 0..self.ranks.get(rank).map_or(0, |(_, groups)| groups.len()) {
                let len = self.len(rank, group);
                let (from, to) = (offset.max(at), end.min(at.saturating_add(len)));
                if from < to {
                    let tensor =
                        self.slice(name, rank, group, from.saturating_sub(at), to.saturating_sub(from))?;
                    tiles.push(Tile { tensor, start: vec![start.saturating_add(covered)] });
                    covered = covered.saturating_add(to.saturating_sub(from));
                }
                at = at.saturating_add(len);
            }
            if covered < take {
                return Err(self.too_short(name, rank, end, at).into());
            }
            start = start.saturating_add(take);
        }
        Ok(tiles)
    }

    /// Refuses a group that has more elements than the parameters and the padding.
    pub(crate) fn check_group(&self, group: usize, used: u64) -> Result<()> {
        let found = (0..self.ranks.len()).fold(0_u64, |sum, rank| sum.saturating_add(self.len(rank, group)));
        let align = (self.ranks.len() as u64).saturating_mul(2);
        if used.checked_next_multiple_of(align) == found.checked_next_multiple_of(align) {
            return Ok(());
        }
        let file = self.ranks.first().map_or("", |(file, _)| *file);
        Err(Error::from(Problem::Elements { expected: used, found }).in_file(file.as_ref()))
    }

    /// Refuses a rank that has other than `used` elements.
    pub(crate) fn check_end(&self, used: u64) -> Result<()> {
        for (rank, (file, groups)) in self.ranks.iter().enumerate() {
            let found = (0..groups.len()).fold(0_u64, |sum, group| sum.saturating_add(self.len(rank, group)));
            if found != used {
                return Err(
                    Error::from(Problem::Elements { expected: used, found }).in_file((*file).as_ref())
                );
            }
        }
        Ok(())
    }

    fn len(&self, rank: usize, group: usize) -> u64 {
        self.ranks.get(rank).and_then(|(_, groups)| groups.get(group)).map_or(0, Tensor::numel)
    }

    fn slice(&mut self, name: &str, rank: usize, group: usize, start: u64, len: u64) -> Result<Tensor> {
        let (file, groups) = self.ranks.get(rank).copied().unwrap_or(("", &[]));
        let outside = || Problem::Shard {
            tensor: name.to_owned(),
            file: file.to_owned(),
            reason: format!("its {len} elements at {start} of group {group} are not in the file"),
        };
        let flat = groups.get(group).ok_or_else(outside)?;
        let size = flat.dtype().size();
        let from = flat.storage_offset().checked_add(start).and_then(|at| at.checked_mul(size));
        let bytes =
            from.zip(len.checked_mul(size)).and_then(|(from, len)| Some(from..from.checked_add(len)?));
        let bytes = bytes.ok_or_else(outside)?;
        let compared = self.compared.get_mut(rank).and_then(|groups| groups.get_mut(group));
        // One slice compares the checksum of the whole record: for more of them, it would be read again and again.
        let storage = match compared {
            Some(compared) if !*compared => {
                *compared = true;
                flat.storage().clone()
            }
            _ => flat.storage().without_checksum(),
        };
        let storage = storage.slice(bytes).ok_or_else(outside)?;
        Ok(Tensor::new(flat.dtype(), vec![len], vec![1], 0, storage).map_err(|_| outside())?)
    }

    fn too_short(&self, name: &str, rank: usize, expected: u64, found: u64) -> Problem {
        let file = self.ranks.get(rank).map_or("", |(file, _)| *file).to_owned();
        Problem::Shard {
            tensor: name.to_owned(),
            file,
            reason: format!("its flat weights have {found} elements, expected at least {expected}"),
        }
    }
}

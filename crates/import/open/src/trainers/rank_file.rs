//! Names of the files of ranks.
//!
//! Facts: the names that verl, `SkyRL` and slime give these files, `save_fsdp_model` of Accelerate 1.15 with `use_dcp=False`, and the
//! `FSDPCheckpointer` of `DINOv2`.

use torch_import::is_checkpoint_extension;

use crate::trainers::{Problem, Result};

/// Start of the names of the files with weights, not optimizers.
const MODEL: &str = "model_";
/// The same in Accelerate, before the number of the model.
const ACCELERATE: &str = "pytorch_model_fsdp_";

/// Parsed name of one rank's file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankFile {
    /// Name before the numbers: `model_` or `pytorch_model_fsdp_0_rank` for weights, `optim_` for the state of an optimizer.
    pub prefix: String,
    /// Number of ranks, if the name has it. Accelerate's have not.
    pub ranks: Option<u64>,
    /// Number of the rank, from 0.
    pub rank: u64,
    /// Digits of the number, and the name after it.
    width: usize,
    after: String,
}

impl RankFile {
    /// Parses a name such as `model_world_size_8_rank_3.pt` or `pytorch_model_fsdp_0_rank3.bin`; returns `None` for any other
    /// name.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some((prefix, rank)) = name.strip_suffix(".bin").and_then(|name| name.rsplit_once("rank")) {
            let model = prefix.strip_prefix(ACCELERATE)?.strip_suffix('_');
            model.map_or(prefix == ACCELERATE, |model| number(model).is_some()).then_some(())?;
            return Self::new(&format!("{prefix}rank"), None, rank, ".bin");
        }
        let (prefix, rest) = name.strip_suffix(".pt")?.split_once("world_size_")?;
        let (ranks, rank) = rest.split_once("_rank_")?;
        Self::new(prefix, Some(number(ranks)?), rank, ".pt")
    }

    /// Parses any name with the number of a rank at its end, such as `model_0000124.rank_0.pth`. Whether the file has a part of the
    /// weights, only the others next to it and its contents say.
    pub fn parse_any(name: &str) -> Option<Self> {
        if let Some(parsed) = Self::parse(name) {
            return Some(parsed);
        }
        let (before, rest) = name.rsplit_once("rank")?;
        let separator = rest.strip_prefix(['_', '-']).map_or("", |_| rest.get(..1).unwrap_or_default());
        let (rank, _) = rest.strip_prefix(separator)?.split_once('.')?;
        let after = rest.strip_prefix(separator)?.strip_prefix(rank)?;
        let is_word = before.is_empty() || before.ends_with(['_', '-', '.']);
        let is_checkpoint = after.strip_prefix('.').is_some_and(is_checkpoint_extension);
        let of_weights = !before.starts_with("optim");
        if !(is_word && is_checkpoint && of_weights) {
            return None;
        }
        Self::new(&format!("{before}rank{separator}"), None, rank, after)
    }

    fn new(prefix: &str, ranks: Option<u64>, rank: &str, after: &str) -> Option<Self> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        Some(Self { prefix, ranks, rank: number(rank)?, width: rank.len(), after })
    }

    /// Returns true if the files are parts of one checkpoint.
    pub(crate) fn is_next_to(&self, other: &Self) -> bool {
        (&self.prefix, self.ranks, &self.after) == (&other.prefix, other.ranks, &other.after)
    }

    pub(crate) fn is_of_weights(&self) -> bool {
        self.prefix == MODEL || self.ranks.is_none()
    }

    /// Returns the name that the files of all ranks would have as a single file.
    pub(crate) fn whole(&self) -> String {
        let stem = self.prefix.trim_end_matches(['_', '-', '.']);
        let stem = stem.strip_suffix("rank").unwrap_or(stem).trim_end_matches(['_', '-', '.']);
        format!("{}{}", if stem.is_empty() { "model" } else { stem }, self.after)
    }

    pub(crate) fn name_of(&self, rank: u64) -> String {
        match self.ranks {
            Some(ranks) => format!("{}world_size_{ranks}_rank_{rank}.pt", self.prefix),
            None => format!("{}{rank:0width$}{}", self.prefix, self.after, width = self.width),
        }
    }
}

fn number(digits: &str) -> Option<u64> {
    digits.parse().ok().filter(|_| digits.bytes().all(|it| it.is_ascii_digit()))
}

/// Returns the names of the files of all ranks, in their order; `None` if there are none, or those of several models.
///
/// # Errors
/// When the file of a rank is missing, or they are of different numbers of ranks.
pub(crate) fn all_ranks(mut found: Vec<(String, RankFile)>) -> Result<Option<Vec<String>>> {
    found.sort_by_key(|(_, file)| file.rank);
    let Some((name, first)) = found.first().cloned() else { return Ok(None) };
    if found.iter().any(|(_, file)| file.prefix != first.prefix) {
        return Ok(None);
    }
    if let Some((second, _)) = found.iter().find(|(_, file)| file.ranks != first.ranks) {
        return Err(Problem::WorldSizes { first: name, second: second.clone() }.into());
    }
    let mut rank = 0;
    for (_, file) in &found {
        if file.rank != rank {
            break;
        }
        rank = rank.saturating_add(1);
    }
    // Where the names do not say how many ranks there were, the tensors do.
    let last = found.last().map_or(0, |(_, file)| file.rank.saturating_add(1));
    let ranks = first.ranks.unwrap_or(last);
    if rank < ranks {
        return Err(Problem::MissingRank { file: first.name_of(rank), other: name, ranks }.into());
    }
    if let Some((extra, _)) = found.iter().find(|(_, file)| file.rank >= ranks) {
        return Err(Problem::WorldSizes { first: name, second: extra.clone() }.into());
    }
    Ok(Some(found.into_iter().map(|(name, _)| name).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ranks_are_parsed() {
        let parse = |name: &str| RankFile::parse(name).map(|file| (file.prefix, file.ranks, file.rank));
        assert_eq!(parse("model_world_size_8_rank_3.pt"), Some(("model_".to_owned(), Some(8), 3)));
        assert_eq!(parse("optim_world_size_2_rank_0.pt"), Some(("optim_".to_owned(), Some(2), 0)));
        let accelerate = |prefix: &str, rank| Some((prefix.to_owned(), None, rank));
        assert_eq!(parse("pytorch_model_fsdp_0_rank11.bin"), accelerate("pytorch_model_fsdp_0_rank", 11));
        assert_eq!(parse("pytorch_model_fsdp_rank0.bin"), accelerate("pytorch_model_fsdp_rank", 0));
        for (name, next, whole) in [
            ("model_0000124.rank_0.pth", "model_0000124.rank_1.pth", "model_0000124.pth"),
            ("ckpt-rank-007.pt", "ckpt-rank-001.pt", "ckpt.pt"),
            ("rank0.bin", "rank1.bin", "model.bin"),
            ("model_world_size_8_rank_3.pt", "model_world_size_8_rank_1.pt", "model.pt"),
        ] {
            let file = RankFile::parse_any(name).expect("the name of a rank");
            assert_eq!((file.name_of(1).as_str(), file.whole().as_str()), (next, whole), "{name}");
        }
        for other in
            ["frank_0.pth", "rank_0.txt", "mp_rank_00_model_states.pt", "optim.rank_0.pth", "rank_x.pt"]
        {
            assert_eq!(RankFile::parse_any(other), None, "{other}");
        }
        for other in [
            "pytorch_model_fsdp_rank.bin",
            "pytorch_model_fsdp_x_rank0.bin",
            "pytorch_model_fsdp_0rank0.bin",
            "rank0.bin",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
        assert_eq!(parse("model_world_size_x_rank_0.pt"), None);
        assert_eq!(parse("model_world_size_2_rank_+1.pt"), None);
    }
}

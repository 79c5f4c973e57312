//! Names of the folders of ranks, such as `mp_rank_01`, `mp_rank_01_002` and `mp_rank_01_002_003`.

use std::fmt;
use std::path::Path;

use byte_source::Folder;

use super::sizes::Sizes;
use crate::trainers::listing::list;
use crate::trainers::{Error, Problem, Result};

/// Names of the file with a rank's model; the last is that of `NeMo`.
const FILES: [&str; 3] = ["model_optim_rng.pt", "model_rng.pt", "model_weights.ckpt"];

/// Numbers in the name of a rank's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankFolder {
    tensor: u64,
    /// Number of the pipeline stage, and that of the ranks of experts; only one of them if there is one of the others.
    others: Vec<u64>,
    /// True for `tp_rank_00_pp_rank_000`, as `NeMo` names them.
    of_nemo: bool,
}

impl RankFolder {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let digits = |text: &str| {
            let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
            number.filter(|_| text.len() >= 2)
        };
        if let Some((tensor, stage)) = name.strip_prefix("tp_rank_").and_then(|it| it.split_once("_pp_rank_"))
        {
            return Some(Self { tensor: digits(tensor)?, others: vec![digits(stage)?], of_nemo: true });
        }
        let mut numbers = name.strip_prefix("mp_rank_")?.split('_').map(digits);
        let tensor = numbers.next()??;
        let others: Vec<u64> = numbers.collect::<Option<_>>()?;
        (others.len() <= 2).then_some(Self { tensor, others, of_nemo: false })
    }

    /// Returns the numbers of the tensor parallel rank, the stage and the experts.
    pub(super) fn place(&self, sizes: &Sizes) -> [u64; 3] {
        match (self.others.as_slice(), sizes.stages) {
            ([stage, expert], _) => [self.tensor, *stage, *expert],
            ([expert], 1) if !self.of_nemo && sizes.experts > 1 => [self.tensor, 0, *expert],
            ([stage], _) => [self.tensor, *stage, 0],
            _ => [self.tensor, 0, 0],
        }
    }

    /// Returns the folder of another rank of the same training.
    pub(super) fn with_place(&self, sizes: &Sizes, [tensor, stage, expert]: [u64; 3]) -> Self {
        let others = match (self.others.len(), sizes.stages > 1, sizes.experts > 1) {
            (0, false, false) => Vec::new(),
            (0 | 1, false, true) => vec![expert],
            (0 | 1, _, false) => vec![stage],
            _ => vec![stage, expert],
        };
        Self { tensor, others, of_nemo: self.of_nemo }
    }

    /// Returns the number of different numbers after the first, which is that of the stages if nothing else is known.
    pub(super) fn second(&self) -> Option<u64> {
        self.others.first().copied()
    }

    pub(super) fn third(&self) -> Option<u64> {
        self.others.get(1).copied()
    }

    pub(super) fn tensor(&self) -> u64 {
        self.tensor
    }
}

impl fmt::Display for RankFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.of_nemo {
            return write!(f, "tp_rank_{:02}_pp_rank_{:03}", self.tensor, self.second().unwrap_or(0));
        }
        write!(f, "mp_rank_{:02}", self.tensor)?;
        self.others.iter().try_for_each(|number| write!(f, "_{number:03}"))
    }
}

/// Returns the files of all ranks in the order of the ranks; `None` if there is no folder of a rank.
pub(super) fn files(folder: &Folder) -> Result<Option<Vec<String>>> {
    let parsed = folder.listing.folders.iter().filter_map(|name| Some((RankFolder::parse(name)?, name)));
    let mut found: Vec<(RankFolder, &String)> = parsed.collect();
    found.sort();
    let Some((first, first_name)) = found.first() else { return Ok(None) };
    let mut files = Vec::with_capacity(found.len());
    let (mut missing, mut present) = (None, None);
    for (numbers, name) in &found {
        if (numbers.others.len(), numbers.of_nemo) != (first.others.len(), first.of_nemo) {
            return Err(Problem::WorldSizes { first: (*first_name).clone(), second: (*name).clone() }.into());
        }
        let names = list(&folder.location.join(name))?.listing;
        match FILES.into_iter().find(|file| names.has_file(file)) {
            Some(file) => {
                present.get_or_insert(file);
                files.push(format!("{name}/{file}"));
            }
            None => {
                missing.get_or_insert(*name);
            }
        }
    }
    if let Some(name) = missing {
        let file = format!("{name}/{}", present.unwrap_or("model_optim_rng.pt"));
        let reason = format!("{file} is missing");
        return Err(Problem::Unfinished { folder: folder.path().to_owned(), reason }.into());
    }
    let (ranks, file) = (files.len() as u64, present.unwrap_or_default());
    let missing = |numbers: RankFolder| {
        Error::from(Problem::MissingRank {
            file: format!("{numbers}/{file}"),
            other: files.last().cloned().unwrap_or_default(),
            ranks: ranks.saturating_add(1),
        })
    };
    // A number that no folder has, below one that a folder has.
    let gap = |number: fn(&RankFolder) -> Option<u64>| {
        let mut numbers: Vec<u64> = found.iter().filter_map(|(folder, _)| number(folder)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        (0_u64..).zip(&numbers).find(|(wanted, number)| wanted != *number).map(|(wanted, _)| wanted)
    };
    if let Some(tensor) = gap(|folder| Some(folder.tensor)) {
        return Err(missing(RankFolder { tensor, ..first.clone() }));
    }
    if let Some(second) = gap(RankFolder::second) {
        let mut others = first.others.clone();
        others.iter_mut().take(1).for_each(|number| *number = second);
        return Err(missing(RankFolder { others, ..first.clone() }));
    }
    Ok(Some(files))
}

/// Returns the path of a file in the checkpoint's folder.
pub(super) fn file_of(path: &Path) -> String {
    let text =
        |path: &Path| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    match path.parent().map(text).filter(|folder| !folder.is_empty()) {
        Some(folder) => format!("{folder}/{}", text(path)),
        None => text(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ranks_are_parsed_and_written() {
        for name in ["mp_rank_00", "mp_rank_07_012", "mp_rank_01_002_003", "tp_rank_01_pp_rank_000"] {
            assert_eq!(RankFolder::parse(name).map(|it| it.to_string()), Some(name.to_owned()));
        }
        for name in
            ["mp_rank_", "mp_rank_0", "mp_rank_00_x", "mp_rank_00_001_002_003", "mp_rank_00_", "rank_00"]
        {
            assert_eq!(RankFolder::parse(name), None, "{name}");
        }
    }
}

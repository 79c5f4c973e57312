//! Names of the files in a folder of ZeRO, and what is missing among them.
//!
//! Facts: `_get_zero_ckpt_name` and `_get_ckpt_name` in `runtime/engine.py` of `DeepSpeed` 0.19.8. The files of the
//! optimizer may begin with `bf16_` or `fp16_`.

use torch_import::Container;

use crate::trainers::{Error, Problem, Result};

const OPTIMIZER: &str = "_optim_states.pt";
const MODEL: &str = "_model_states.pt";
/// Model states of ZeRO-1 and 2, which one rank writes.
const ONLY_MODEL: &str = "mp_rank_00_model_states.pt";

/// The files of a folder of ZeRO.
#[derive(Debug)]
pub(crate) struct ZeroFiles;

impl ZeroFiles {
    /// Returns the names of the files to read, the optimizer's first, in the order of the ranks.
    pub(crate) fn find(names: &[String]) -> Result<Option<Vec<String>>> {
        let ranked = |suffix: &str| {
            let found = names.iter().filter_map(|name| Some((rank_of(name, suffix)?, name.clone())));
            let mut found: Vec<(u64, String)> = found.collect();
            found.sort();
            found
        };
        let (optimizer, model) = (ranked(OPTIMIZER), ranked(MODEL));
        let Some((_, last)) = optimizer.iter().chain(&model).max() else { return Ok(None) };
        let ends = |name: &&String| name.ends_with(OPTIMIZER) || name.ends_with(MODEL);
        let is_known = |name: &String| {
            name == ONLY_MODEL || optimizer.iter().chain(&model).any(|(_, known)| known == name)
        };
        if let Some(other) = names.iter().filter(ends).find(|name| !is_known(name)) {
            let reason = "tensor parallel ranks, pipeline stages and experts of DeepSpeed are not joined";
            return Err(Error::from(Problem::Unsupported(reason)).in_file(other.as_ref()));
        }
        let ranks = optimizer.iter().chain(&model).map(|(rank, _)| rank.saturating_add(1)).max().unwrap_or(0);
        let has_only = names.iter().any(|name| name == ONLY_MODEL);
        let missing = |file: String| Error::from(Problem::MissingRank { file, other: last.clone(), ranks });
        if let Some(rank) = first_gap(&optimizer, ranks) {
            let prefix = ["bf16_", "fp16_"]
                .into_iter()
                .find(|prefix| optimizer.first().is_some_and(|(_, name)| name.starts_with(prefix)));
            return Err(missing(format!(
                "{}zero_pp_rank_{rank}_mp_rank_00{OPTIMIZER}",
                prefix.unwrap_or("")
            )));
        }
        if optimizer.len() as u64 > ranks {
            let pair =
                optimizer.windows(2).find(|pair| pair.first().map(|it| it.0) == pair.last().map(|it| it.0));
            let [first, second] = pair.unwrap_or_default() else { return Ok(None) };
            return Err(Problem::WorldSizes { first: first.1.clone(), second: second.1.clone() }.into());
        }
        let mut files: Vec<String> = optimizer.iter().map(|(_, name)| name.clone()).collect();
        match (has_only, model.first()) {
            (true, None) => files.push(ONLY_MODEL.to_owned()),
            (true, Some((_, other))) => {
                return Err(
                    Problem::WorldSizes { first: ONLY_MODEL.to_owned(), second: other.clone() }.into()
                );
            }
            (false, None) => return Err(missing(ONLY_MODEL.to_owned())),
            (false, Some(_)) => {
                if let Some(rank) = first_gap(&model, ranks) {
                    return Err(missing(format!("zero_pp_rank_{rank}_mp_rank_00{MODEL}")));
                }
                files.extend(model.into_iter().map(|(_, name)| name));
            }
        }
        Ok(Some(files))
    }

    /// Refuses a number of ranks that is not that of the files.
    pub(crate) fn check_ranks(containers: &[Container], file: &str, ranks: u64) -> Result<()> {
        let names = containers.iter().filter_map(|it| it.path().file_name()?.to_str());
        let found = names.filter(|name| name.ends_with(OPTIMIZER)).count() as u64;
        if found < ranks {
            let file_name = file.replacen("rank_0_", &format!("rank_{found}_"), 1);
            return Err(Problem::MissingRank { file: file_name, other: file.to_owned(), ranks }.into());
        }
        if found > ranks {
            return Err(Problem::ExtraRanks { file: file.to_owned(), ranks, found }.into());
        }
        Ok(())
    }
}

/// Returns the first rank that has no file.
fn first_gap(found: &[(u64, String)], ranks: u64) -> Option<u64> {
    let mut next = 0_u64;
    for (rank, _) in found {
        if *rank == next {
            next = next.saturating_add(1);
        }
    }
    (next < ranks).then_some(next)
}

/// Returns the rank in a name such as `bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt`.
fn rank_of(name: &str, suffix: &str) -> Option<u64> {
    let name = name.strip_prefix("bf16_").or_else(|| name.strip_prefix("fp16_")).unwrap_or(name);
    let digits = name.strip_prefix("zero_pp_rank_")?.strip_suffix(suffix)?.strip_suffix("_mp_rank_00")?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        match ZeroFiles::find(&names) {
            Ok(files) => format!("{files:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn missing_ranks_are_named() {
        let (first, third) =
            ("zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_pp_rank_2_mp_rank_00_optim_states.pt");
        let missing = find(&[first, third, "mp_rank_00_model_states.pt"]);
        assert!(missing.starts_with("zero_pp_rank_1_mp_rank_00_optim_states.pt is missing"), "{missing}");
        assert!(find(&[first]).starts_with("mp_rank_00_model_states.pt is missing"));
        let missing = find(&["zero_pp_rank_0_mp_rank_00_model_states.pt"]);
        assert!(missing.starts_with("zero_pp_rank_0_mp_rank_00_optim_states.pt is missing"), "{missing}");
        assert_eq!(find(&["mp_rank_00_model_states.pt"]), "None");
        assert!(find(&[first, "zero_pp_rank_0_mp_rank_01_optim_states.pt"]).contains("not joined"));
    }
}

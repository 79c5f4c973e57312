//! Names of files that are one rank's part of a checkpoint.

use crate::trainers::{RankFile, TrainerFolder};
use byte_source::Location;
use output::file_name;

/// What a folder such as `mp_rank_00` is a part of.
pub(crate) const RANK_OF_MEGATRON: &str = "a checkpoint that each of Megatron-LM's ranks wrote a folder of";

/// Returns true if a file of another rank is next to the file.
fn has_other_rank(file: &Location, part: &RankFile) -> bool {
    let others = file.parent().list().map(|folder| folder.listing.files).unwrap_or_default();
    let mut others = others.iter().filter_map(|name| RankFile::parse_any(name));
    others.any(|other| other.is_next_to(part) && other.rank != part.rank)
}

/// Returns what a file is a part of, with its article, if its name is that of one rank's part.
pub(crate) fn rank_part(file: &Location) -> Option<&'static str> {
    let name = file_name(file.path());
    if name.ends_with("_optim_states.pt") {
        // For example `zero_pp_rank_0_mp_rank_00_optim_states.pt`.
        return Some("a DeepSpeed ZeRO optimizer state, not a model");
    }
    if name.contains("zero_pp_rank_") && name.ends_with("_model_states.pt") {
        return Some("a DeepSpeed ZeRO-3 checkpoint");
    }
    if RankFile::parse(&name).is_some_and(|part| part.ranks != Some(1)) {
        return Some("a checkpoint that each rank wrote a file of");
    }
    if let Some(part) = RankFile::parse_any(&name)
        && has_other_rank(file, &part)
    {
        return Some("a checkpoint that each rank wrote a file of");
    }
    if TrainerFolder::is_one_of_several_ranks(&file.parent()) {
        return Some(RANK_OF_MEGATRON);
    }
    name.ends_with(".distcp").then_some("a checkpoint of torch.distributed.checkpoint")
}

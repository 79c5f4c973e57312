//! Safetensors files of ranks: `data/hf` is a save of two ranks.

use std::fs;

use super::support::{changed, counting, data, error, floats, join, replace};

const FIRST: &str = "shard-00001-model-00001-of-00001.safetensors";

#[test]
fn shards_of_two_ranks_become_whole_tensors() {
    let joined = join(&data("hf")).expect("a right folder");
    assert_eq!(floats(&joined, "a"), counting());
    assert_eq!(joined.checkpoint.to_tensors().len(), 2);
    assert!(joined.summary.to_string().contains("the files do not say how many ranks there were"));
}

#[test]
fn a_missing_first_rank_leaves_a_hole() {
    let (_kept, folder) = changed("hf", |folder| fs::remove_file(folder.join(FIRST)).expect("a file"));
    assert_eq!(error(&folder), "`a`: the tiles of shape [7, 5] have 15 elements, expected 35");
}

#[test]
fn a_file_without_starts_is_refused() {
    let (_kept, folder) = changed("hf", |folder| {
        replace(&folder.join(FIRST), b"DCP_SHARDING_INFO", b"DCP_SHARDING_INFX");
    });
    let text = error(&folder);
    assert!(text.starts_with(FIRST) && text.contains("does not say where the parts are"), "{text}");
}

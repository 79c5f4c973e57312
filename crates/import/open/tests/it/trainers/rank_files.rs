//! A file for each rank: `data/rank-files` has the files of two ranks.

use std::fs;

use super::support::{changed, counting, data, error, floats, join, replace};

const FIRST: &str = "model_world_size_2_rank_0.pt";
const SECOND: &str = "model_world_size_2_rank_1.pt";

#[test]
fn shards_of_two_ranks_become_whole_tensors() {
    let joined = join(&data("rank-files")).expect("a right folder");
    assert_eq!(floats(&joined, "w"), counting());
    assert_eq!(floats(&joined, "n"), [0.0, 1.0, 2.0, 3.0]);
    assert!(joined.checkpoint.left_out.is_empty());
    assert_eq!(
        joined.summary.to_string(),
        "one file a rank (FSDP), 2 ranks, float32: 1 tensor is joined from 2 parts, 1 whole"
    );
}

#[test]
fn a_missing_rank_is_named() {
    let (_kept, folder) =
        changed("rank-files", |folder| fs::remove_file(folder.join(SECOND)).expect("a file"));
    assert_eq!(error(&folder), format!("{SECOND} is missing: {FIRST} is of 2 ranks"));
    let (_kept, folder) =
        changed("rank-files", |folder| fs::remove_file(folder.join(FIRST)).expect("a file"));
    assert_eq!(error(&folder), format!("{FIRST} is missing: {SECOND} is of 2 ranks"));
}

#[test]
fn files_of_two_saves_are_refused() {
    let (_kept, folder) = changed("rank-files", |folder| {
        fs::rename(folder.join(SECOND), folder.join("model_world_size_3_rank_1.pt")).expect("a name");
    });
    assert_eq!(
        error(&folder),
        format!(
            "{FIRST} and model_world_size_3_rank_1.pt are of different numbers of ranks: the folder has files of two saves"
        )
    );
}

#[test]
fn a_file_copied_over_another_one_leaves_a_hole() {
    let (_kept, folder) = changed("rank-files", |folder| {
        fs::copy(folder.join(FIRST), folder.join(SECOND)).expect("a copy");
    });
    assert_eq!(error(&folder), "`w`: the tiles of shape [7, 5] have 20 elements, expected 35");
}

#[test]
fn truncated_files_are_named() {
    let (_kept, folder) =
        changed("rank-files", |folder| fs::write(folder.join(SECOND), b"").expect("a file"));
    assert!(error(&folder).starts_with(&format!("{SECOND}: an empty file")), "{}", error(&folder));
}

#[test]
fn shards_of_other_sizes_are_refused() {
    // The pickle of the second rank says that its local tensor has three rows; the archive has no checksum of it then.
    let (_kept, folder) = changed("rank-files", |folder| {
        replace(&folder.join(SECOND), b"K\x03K\x05\x86", b"K\x02K\x05\x86");
    });
    assert!(error(&folder).starts_with(&format!("{SECOND}: ")), "{}", error(&folder));
}

//! A file for each rank: `data/rank-files` has the files of two ranks.

use std::fs;
use std::path::PathBuf;

use open::files::{CheckpointSources, ShardPolicy};

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
fn files_of_ranks_of_any_name_are_joined() {
    let (_kept, folder) = changed("rank-files", |folder| {
        for (name, rank) in [(FIRST, 0), (SECOND, 1)] {
            let other = folder.join(format!("model_0000124.rank_{rank}.pth"));
            fs::rename(folder.join(name), other).expect("a name");
        }
    });
    let find = |paths: &[PathBuf]| CheckpointSources::find(paths, ShardPolicy::RequireAll);
    let ranks = [0, 1, 2].map(|rank| folder.join(format!("model_0000124.rank_{rank}.pth")));
    let [first, second, third] = &ranks;
    for paths in [vec![folder.clone()], vec![second.clone(), first.clone()]] {
        let sources = find(&paths).expect("two ranks");
        let containers = sources.open().expect("two ranks");
        let (checkpoint, _) = sources.read(&containers, &|_, _| Ok(())).expect("shards of two ranks");
        assert_eq!(checkpoint.to_tensors().get("w").expect("a tensor").shape(), [7, 5]);
    }
    let error = find(std::slice::from_ref(first)).expect_err("one of two").to_string();
    assert!(error.ends_with("is one rank's part of a checkpoint that each rank wrote a file of"), "{error}");
    fs::rename(second, third).expect("a name");
    let error = find(std::slice::from_ref(&folder)).expect_err("one of three is missing").to_string();
    assert!(
        error.ends_with("model_0000124.rank_1.pth is missing: model_0000124.rank_0.pth is of 3 ranks"),
        "{error}"
    );
}

#[test]
fn a_mesh_says_which_rank_is_missing() {
    let (_kept, folder) = changed("rank-files", |folder| {
        fs::rename(folder.join(FIRST), folder.join("pytorch_model_fsdp_0_rank0.bin")).expect("a name");
        fs::remove_file(folder.join(SECOND)).expect("a file");
    });
    assert_eq!(
        error(&folder),
        "pytorch_model_fsdp_0_rank1.bin is missing: pytorch_model_fsdp_0_rank0.bin is of 2 ranks"
    );
}

#[test]
fn plain_tensors_of_ranks_are_not_taken_for_whole_ones() {
    for (name, reason) in [
        ("w", "have plain tensors, and do not say how the parts of a tensor are joined"),
        (
            "module._flat_param",
            "it has the flat parameters of FSDP, and no file has the shapes of the weights in them",
        ),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for rank in 0..2 {
            let bytes = test_support::safetensors([(name, "U8", [1], [7])]);
            fs::write(folder.path().join(format!("model.rank_{rank}.safetensors")), bytes).expect("a file");
        }
        let sources = CheckpointSources::find(&[folder.path().to_owned()], ShardPolicy::RequireAll);
        let sources = sources.expect("two ranks");
        let containers = sources.open().expect("two files");
        let error = sources.read(&containers, &|_, _| Ok(())).expect_err("parts").to_string();
        assert!(error.ends_with(reason), "{error}");
    }
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

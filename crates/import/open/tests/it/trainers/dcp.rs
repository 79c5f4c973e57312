//! Folders of `torch.distributed.checkpoint`: `data/dcp` and, with compressed parts, `data/dcp-zstd` are saves of two ranks.

use std::fs;
use std::path::{Path, PathBuf};

use byte_source::Location;
use open::trainers::TrainerFolder;
use tempfile::TempDir;

use super::support::{counting, data, error, floats, join, replace};

fn changed(change: impl Fn(&Path)) -> (TempDir, PathBuf) {
    super::support::changed("dcp", change)
}

/// Replaces bytes everywhere in `.metadata`.
fn with_metadata(from: &[u8], to: &[u8]) -> (TempDir, PathBuf) {
    changed(|folder| replace(&folder.join(".metadata"), from, to))
}

#[test]
fn parts_of_two_ranks_become_whole_tensors() {
    let joined = join(&data("dcp")).expect("a right folder");
    assert_eq!(floats(&joined, "model.a"), counting());
    assert_eq!(
        floats(&joined, "optim.state.a.exp_avg"),
        counting().iter().map(|it| it * 2.0).collect::<Vec<_>>()
    );
    assert_eq!(joined.checkpoint.to_tensors().get("model.b").expect("a tensor").shape(), [4]);
    let mut names: Vec<&str> = joined.checkpoint.values().map(|(name, _)| name).collect();
    names.sort_unstable();
    assert_eq!(names, ["epoch", "lr"]);
    assert_eq!(joined.checkpoint.optimizer_keys, ["optim"]);
    assert_eq!(
        joined.summary.to_string(),
        "torch.distributed.checkpoint, 2 ranks, float32 and bfloat16: 2 tensors are joined from 4 parts, 1 whole"
    );
    let item =
        joined.checkpoint.items.iter().find(|item| item.name == "optim.state.a.exp_avg").expect("an item");
    assert_eq!((item.root_key(), item.second_key()), (Some("optim"), Some("optim.state")));
}

#[test]
fn a_missing_rank_is_named() {
    let (_kept, folder) = changed(|folder| fs::remove_file(folder.join("__1_0.distcp")).expect("a file"));
    assert!(
        error(&folder).ends_with(": .metadata names the file `__1_0.distcp`, which is missing"),
        "{}",
        error(&folder)
    );
}

#[test]
fn truncated_and_empty_files_are_named() {
    for len in [0, 100] {
        let (_kept, folder) = changed(|folder| {
            let file = fs::OpenOptions::new().write(true).open(folder.join("__0_0.distcp")).expect("a file");
            file.set_len(len).expect("a shorter file");
        });
        let text = error(&folder);
        assert!(text.contains(&format!("__0_0.distcp has {len} bytes, and its part of ")), "{text}");
    }
}

#[test]
fn a_save_that_is_not_finished_is_refused() {
    let (_kept, folder) = changed(|folder| fs::remove_file(folder.join(".metadata")).expect("a file"));
    assert_eq!(
        error(&folder),
        "FOLDER is not complete: it has __0_0.distcp, but no .metadata, which a save writes last"
    );
    let (_kept, folder) = changed(|folder| fs::write(folder.join(".metadata.tmp"), b"").expect("a file"));
    assert_eq!(error(&folder), "FOLDER is not complete: .metadata.tmp shows that a save is not finished");
}

#[test]
fn paths_stay_in_the_folder() {
    for outside in [b"../1_0.distcp", b"/_1_0.distcp/"] {
        let (_kept, folder) =
            with_metadata(b"\x0c__1_0.distcp", &[b"\x0c".as_slice(), &outside[..12]].concat());
        assert!(error(&folder).ends_with("which is outside of the folder"), "{}", error(&folder));
    }
}

#[test]
fn parts_that_overlap_or_leave_a_hole_are_refused() {
    let (_kept, folder) = with_metadata(b"K\x04K\x00\x86", b"K\x03K\x00\x86");
    assert_eq!(error(&folder), "`model.a`: the tiles at [0, 0] and [3, 0] overlap");
    let (_kept, folder) = with_metadata(b"K\x07K\x05\x86", b"K\x08K\x05\x86");
    assert_eq!(error(&folder), "`model.a`: the tiles of shape [8, 5] have 35 elements, expected 40");
}

#[test]
fn a_part_of_another_shape_is_refused() {
    let (_kept, folder) = with_metadata(b"K\x03K\x05\x86", b"K\x02K\x05\x86");
    assert_eq!(
        error(&folder),
        "`model.a`: its part at [4, 0], in __1_0.distcp, is float32 [3, 5], expected float32 [2, 5]"
    );
}

#[test]
fn other_objects_are_not_metadata() {
    let (_kept, folder) = with_metadata(b"Metadata\x94\x93", b"MetaData\x94\x93");
    assert_eq!(
        error(&folder),
        ".metadata: its object is not the `Metadata` of a distributed checkpoint, at offset 0x41"
    );
    let (_kept, folder) =
        changed(|folder| fs::write(folder.join(".metadata"), b"\x80\x02}.").expect("a file"));
    assert!(error(&folder).contains("not the `Metadata` of a distributed checkpoint"), "{}", error(&folder));
}

#[test]
fn the_newest_step_is_found() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    for step in ["step-9", "step-10", "optimizer_11"] {
        let folder = temporary.path().join(step);
        fs::create_dir(&folder).expect("a folder");
        super::support::copy("dcp", &folder);
    }
    let folder = Location::from(temporary.path()).list().expect("a folder");
    assert!(TrainerFolder::at(&folder).expect("readable").is_none());
    let found = TrainerFolder::newest_step(&folder).expect("readable").expect("three steps");
    assert_eq!(found.folder.path(), temporary.path().join("step-10"));
    assert_eq!(found.other_steps, ["optimizer_11", "step-9"]);
}

#[test]
fn compressed_parts_are_decompressed() {
    let joined = join(&data("dcp-zstd")).expect("a right folder");
    assert_eq!(floats(&joined, "a"), counting());
    assert_eq!(joined.checkpoint.values().next().map(|(name, _)| name), Some("n"));
    let (_kept, folder) = super::support::changed("dcp-zstd", |folder| {
        replace(&folder.join(".metadata"), b"stream.zstd/1", b"stream.zstd/2");
    });
    assert!(
        error(&folder).ends_with("is stored as `stream.zstd/2`, which is not supported"),
        "{}",
        error(&folder)
    );
    let (_kept, folder) = super::support::changed("dcp-zstd", |folder| {
        replace(&folder.join("__1_0.distcp"), b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfe");
    });
    assert!(error(&folder).contains("of __1_0.distcp cannot be decompressed"), "{}", error(&folder));
}

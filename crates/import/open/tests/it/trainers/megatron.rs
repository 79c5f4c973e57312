//! Folders of Megatron-LM's ranks: `data/megatron` has those of two tensor parallel ranks, as `torch.save` wrote them.

use std::fs;
use std::io::Write;
use std::path::Path;

use byte_source::Location;
use open::trainers::{TrainerArchive, TrainerFolder};

use super::support::{changed, data, error, floats, join, replace};

const FIRST: &str = "mp_rank_00/model_optim_rng.pt";
const SECOND: &str = "mp_rank_01/model_optim_rng.pt";
const LAYER: &str = "model.decoder.layers.0";

fn numbers(count: u16) -> Vec<f32> {
    (0..count).map(f32::from).collect()
}

#[test]
fn parts_of_two_ranks_become_whole_tensors() {
    let joined = join(&data("megatron")).expect("a right folder");
    assert_eq!(floats(&joined, "model.embedding.word_embeddings.weight"), numbers(32));
    assert_eq!(floats(&joined, &format!("{LAYER}.self_attention.linear_qkv.weight")), numbers(48));
    assert_eq!(floats(&joined, &format!("{LAYER}.mlp.linear_fc1.weight")), numbers(32), "gate, then up");
    assert_eq!(floats(&joined, &format!("{LAYER}.mlp.linear_fc2.weight")), numbers(16), "by columns");
    assert_eq!(floats(&joined, "model.decoder.final_layernorm.weight"), [1.0; 4]);
    assert_eq!(floats(&joined, "optimizer.mp_rank_01.state.0.exp_avg"), [1.0; 2]);
    assert_eq!(joined.checkpoint.optimizer_keys, ["optimizer"]);
    assert_eq!(
        joined.summary.to_string(),
        "Megatron-LM, 2 ranks, float32: 4 tensors are joined from 8 parts, 1 whole"
    );
}

#[test]
fn a_missing_rank_is_named() {
    let (_kept, folder) =
        changed("megatron", |folder| fs::remove_dir_all(folder.join("mp_rank_00")).expect("a folder"));
    assert_eq!(error(&folder), format!("{FIRST} is missing: {SECOND} is of 2 ranks"));
    let (_kept, folder) =
        changed("megatron", |folder| fs::remove_dir_all(folder.join("mp_rank_01")).expect("a folder"));
    assert_eq!(error(&folder), format!("{SECOND} is missing: {FIRST} is of 2 ranks"));
    let (_kept, folder) = changed("megatron", |folder| fs::remove_file(folder.join(SECOND)).expect("a file"));
    assert_eq!(error(&folder), format!("FOLDER is not complete: {SECOND} is missing"));
}

#[test]
fn ranks_of_another_training_are_refused() {
    let (_kept, folder) = changed("megatron", |folder| {
        fs::rename(folder.join("mp_rank_01"), folder.join("mp_rank_01_000")).expect("a name");
    });
    assert_eq!(
        error(&folder),
        "mp_rank_00 and mp_rank_01_000 are of different numbers of ranks: the folder has files of two saves"
    );
    let (_kept, folder) = changed("megatron", |folder| {
        fs::create_dir(folder.join("mp_rank_02")).expect("a folder");
        fs::copy(folder.join(SECOND), folder.join("mp_rank_02/model_optim_rng.pt")).expect("a copy");
    });
    assert_eq!(error(&folder), format!("{FIRST} is of 2 ranks, and the folder has the files of 3"));
}

#[test]
fn a_tensor_of_an_unknown_module_is_refused() {
    let (_kept, folder) = changed("megatron", |folder| {
        for file in [FIRST, SECOND] {
            replace(&folder.join(file), b"linear_qkv", b"linear_xyz");
        }
    });
    let text = error(&folder);
    // The pickle has a checksum, which is compared first.
    assert!(text.starts_with(FIRST) || text.contains("how Megatron divides it"), "{text}");
}

#[test]
fn one_of_several_ranks_is_known() {
    let folder = data("megatron");
    assert!(TrainerFolder::is_one_of_several_ranks(&folder.join("mp_rank_00").into()));
    assert!(!TrainerFolder::is_one_of_several_ranks(&folder.into()));
}

/// Writes an archive with the ranks of `data/megatron` under the names that `NeMo` gives them.
fn archive(path: &Path) {
    let mut tar = tar::Builder::new(fs::File::create(path).expect("a file"));
    for (file, name) in
        [(FIRST, "./mp_rank_00/model_weights.ckpt"), (SECOND, "./mp_rank_01/model_weights.ckpt")]
    {
        tar.append_path_with_name(data("megatron").join(file), name).expect("a member");
    }
    tar.into_inner().expect("the archive").flush().expect("the archive");
}

#[test]
fn archives_of_nemo_are_read_without_unpacking() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let path = temporary.path().join("x.nemo");
    archive(&path);
    let open = || TrainerArchive::from_source(Location::from(&path).open().expect("a file"));
    let found = open().expect("an archive");
    let layout = found.layout.expect("several ranks");
    let joined = layout.join(&found.containers().expect("members"), &()).expect("two ranks");
    assert_eq!(floats(&joined, "model.embedding.word_embeddings.weight"), numbers(32));
    let whole = fs::read(&path).expect("the archive");
    for (len, reason) in [
        (0, "the archive has no checkpoint that is known"),
        (4000, "damaged tar archive: it ends within member `mp_rank_00/model_weights.ckpt`"),
    ] {
        fs::write(&path, &whole[..len.min(whole.len())]).expect("a file");
        let found = open().map(|_| ()).expect_err("a damaged archive");
        assert_eq!(found.to_string(), reason);
    }
}

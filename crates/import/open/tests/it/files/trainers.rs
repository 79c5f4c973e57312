//! Folders that trainers wrote: DeepSpeed's steps, and files of ranks.

use std::path::{Path, PathBuf};

use open::files::{CheckpointSources, FilesNote, Problem, ShardPolicy};

use super::made_folder::{Folder, names, problem};

#[test]
fn the_newest_step_of_deepspeed_is_read() {
    let folder = Folder::with(&[
        "global_step500/zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "global_step500/mp_rank_00_model_states.pt",
        "global_step1000/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "global_step1000/mp_rank_00_model_states.pt",
    ]);
    let step = |folder: &Folder| folder.find().expect("a step").root().to_owned();
    assert_eq!(step(&folder), folder.path().join("global_step1000"));
    let chosen = FilesNote::CandidateChosen {
        used: "global_step1000".to_owned(),
        unused_candidates: vec!["global_step500".to_owned()],
    };
    assert_eq!(folder.find().expect("a step").notes, [chosen]);
    folder.write("latest", b"global_step500\n");
    assert_eq!(step(&folder), folder.path().join("global_step500"));
}

#[test]
fn a_step_of_deepspeed_whose_path_ends_with_dots_is_found() {
    let folder = Folder::with(&[
        "global_step500/zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "global_step500/mp_rank_00_model_states.pt",
        "global_step500/deeper/x",
    ]);
    let path = folder.path().join("global_step500/deeper/..");
    let sources = CheckpointSources::find(&[path], ShardPolicy::RequireAll).expect("a step");
    let real = |path: &Path| path.canonicalize().expect("it is there");
    assert_eq!(real(sources.root()), real(&folder.path().join("global_step500")));
}

/// Files of a step of `DeepSpeed`.
const STEP: [&str; 2] =
    ["global_step500/zero_pp_rank_0_mp_rank_00_optim_states.pt", "global_step500/mp_rank_00_model_states.pt"];

#[test]
fn a_single_step_has_no_note() {
    let sources = Folder::with(&STEP).find().expect("a step");
    assert!(sources.is_of_trainer() && sources.notes.is_empty(), "{:?}", sources.notes);
    // A file that need not be a whole model is not used.
    let folder = Folder::with(&STEP);
    folder.write("other.pt", b"");
    let sources = folder.find().expect("a step");
    assert!(sources.is_of_trainer());
    assert_eq!(sources.notes, [FilesNote::CheckpointFilesUnused { files: vec!["other.pt".to_owned()] }]);
}

#[test]
fn names_that_are_like_those_of_deepspeed_mean_nothing() {
    for others in [
        &["mine_optim_states.pt"][..],
        &["zero_pp_rank_0_notes.txt"],
        &["global_step5/notes.txt"],
        &["latest", "epoch1/notes.txt"],
    ] {
        let folder = Folder::with(others);
        folder.write("model.safetensors", b"");
        folder.write("latest", b"epoch1");
        assert_eq!(names(&folder.find().expect("a file").files), ["model.safetensors"], "{others:?}");
    }
}

#[test]
fn the_name_of_the_newest_step_is_not_a_path() {
    for latest in ["", "elsewhere/step", "..\\step"] {
        let folder = Folder::with(&STEP);
        folder.write("zero_to_fp32.py", b"");
        folder.write("latest", latest.as_bytes());
        assert_eq!(folder.find().expect("a step").root(), folder.path().join("global_step500"), "{latest}");
    }
}

#[test]
fn the_script_of_deepspeed_gets_the_step() {
    for (latest, expected) in [("global_step500", None), ("global_step900", Some("global_step500"))] {
        // A tensor parallel rank without the files of the first one.
        let folder = Folder::with(&["global_step500/zero_pp_rank_0_mp_rank_01_optim_states.pt"]);
        folder.write("latest", latest.as_bytes());
        let step = folder.path().join("global_step500");
        let found = CheckpointSources::find(&[step], ShardPolicy::RequireAll);
        let Problem::DeepSpeed { found, .. } = problem(found) else { panic!("another problem") };
        assert_eq!((found.folder, found.tag.as_deref()), (folder.path(), expected));
    }
}

#[test]
fn an_error_of_a_trainer_names_its_folder_once() {
    let folder = Folder::with(&["zero_pp_rank_0_mp_rank_00_optim_states.pt"]);
    let error = folder.find().expect_err("a file is missing").to_string();
    let start = format!("{}: mp_rank_00_model_states.pt is missing", folder.path().display());
    assert!(error.starts_with(&start), "{error}");
}

#[test]
fn a_whole_model_next_to_the_state_of_deepspeed_is_offered() {
    let folder = Folder::with(&["zero_to_fp32.py", "model.safetensors", "other.pt"]);
    let Problem::DeepSpeed { candidates, .. } = problem(folder.find()) else { panic!("expected DeepSpeed") };
    let paths: Vec<_> = candidates.into_iter().flat_map(|candidate| candidate.paths).collect();
    assert_eq!(names(&paths), ["model.safetensors"]);
}

/// The folder of one of the checkpoints that `torch.distributed` and FSDP wrote for the tests of `trainers/`.
fn trainer_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

#[test]
fn the_files_of_ranks_are_one_checkpoint() {
    let find = |path: &Path| CheckpointSources::find(&[path.to_owned()], ShardPolicy::RequireAll);
    for (name, pickle) in [("dcp", ".metadata"), ("rank-files", "model_world_size_2_rank_0.pt")] {
        let sources = find(&trainer_folder(name)).expect("a trainer's checkpoint");
        assert!(sources.is_of_trainer() && !sources.is_single(), "{name}");
        assert_eq!(sources.trainer_pickle().map(output::file_name).as_deref(), Some(pickle));
        assert!(sources.notes.is_empty(), "{name}: {:?}", sources.notes);
    }
    let sources = find(&trainer_folder("dcp").join(".metadata")).expect("it stands for its folder");
    assert!(sources.is_of_trainer() && sources.folder().is_some());
    let sources = Folder::with(&["model.safetensors"]).find().expect("one file");
    assert!(!sources.is_of_trainer() && sources.trainer_pickle().is_none());
}

#[test]
fn a_file_next_to_those_of_ranks_is_not_used() {
    let folder = Folder::with(&["model.safetensors"]);
    for name in [".metadata", "__0_0.distcp", "__1_0.distcp"] {
        std::fs::copy(trainer_folder("dcp").join(name), folder.path().join(name)).expect("a fixture");
    }
    let sources = folder.find().expect("a trainer's checkpoint");
    assert!(sources.is_of_trainer());
    assert_eq!(
        sources.notes,
        [FilesNote::CheckpointFilesUnused { files: vec!["model.safetensors".to_owned()] }]
    );
}

#[test]
fn a_file_of_one_rank_is_refused_unless_there_is_only_one() {
    let folder = Folder::with(&[
        "model_world_size_2_rank_1.pt",
        "model_world_size_1_rank_0.pt",
        "zero_pp_rank_0_mp_rank_00_model_states.pt",
        "mp_rank_00_model_states.pt",
    ]);
    let find = |name: &str| CheckpointSources::find(&[folder.path().join(name)], ShardPolicy::RequireAll);
    for name in ["model_world_size_2_rank_1.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt"] {
        assert!(matches!(problem(find(name)), Problem::RankPart { .. }), "{name}");
    }
    for name in ["model_world_size_1_rank_0.pt", "mp_rank_00_model_states.pt"] {
        assert!(find(name).expect("a whole checkpoint").is_single(), "{name}");
    }
}

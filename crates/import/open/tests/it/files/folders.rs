//! Made-up folders, and what they mean.
//!
//! Facts: the files that the models of model hubs have, and those that training programs leave.

use std::path::{Path, PathBuf};

use open::files::{
    CheckpointSources, DOCUMENT_MAX, DocumentCache, FilesNote, FolderDiagnosis, Problem, ShardPolicy,
    read_document,
};

use super::made_folder::{Folder, names, problem};

#[test]
fn an_indexed_set_is_read_as_one_checkpoint() {
    let folder = Folder::with(&[]);
    folder.write_set();
    let sources = folder.find().expect("a set");
    assert_eq!(sources.path, folder.path().join("model.safetensors"));
    assert_eq!(sources.root(), folder.path());
    assert_eq!(sources.inputs().count(), 3);
    let containers = sources.open().expect("two files");
    let (checkpoint, notes) = sources.read(&containers, &|_, _| Ok(())).expect("a checkpoint");
    assert_eq!((checkpoint.items.len(), notes.as_slice()), (2, &[][..]));
}

#[cfg(unix)]
#[test]
fn one_file_under_two_names_is_refused() {
    let link = |folder: &Folder, original: &str, name: &str| {
        std::fs::remove_file(folder.path().join(name)).ok();
        std::os::unix::fs::symlink(original, folder.path().join(name)).expect("a temporary folder");
    };
    let folder = Folder::with(&["consolidated.00.pth"]);
    link(&folder, "consolidated.00.pth", "consolidated.01.pth");
    let indexed = Folder::with(&[]);
    indexed.write_set();
    link(&indexed, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
    let numbered = Folder::with(&["model-00001-of-00002.safetensors"]);
    link(&numbered, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
    for folder in [folder, indexed, numbered] {
        let sources = folder.find().expect("two names");
        let error = sources.open().expect_err("one file");
        let [first, second] = sources.files.as_slice() else { panic!("{:?}", sources.files) };
        let text = format!("{} and {} are the same file", first.display(), second.display());
        assert_eq!(error.to_string(), text);
    }
}

#[cfg(unix)]
#[test]
fn a_link_to_nothing_is_refused_if_the_folder_would_mean_something_else() {
    for (name, others) in [
        ("model.safetensors", &["pytorch_model.bin"][..]),
        ("consolidated.01.pth", &["consolidated.00.pth"]),
        ("model.safetensors.index.json", &["pytorch_model.bin"]),
        ("config.json", &["model.safetensors"]),
    ] {
        let folder = Folder::with(others);
        std::os::unix::fs::symlink("../gone", folder.path().join(name)).expect("a temporary folder");
        let error = folder.find().expect_err("a link to nothing").to_string();
        let path = folder.path().join(name);
        assert_eq!(error, format!("{} is a link to ../gone, which is not there", path.display()));
    }
    let folder = Folder::with(&["model.safetensors"]);
    std::os::unix::fs::symlink("../gone", folder.path().join("notes.txt")).expect("a temporary folder");
    assert_eq!(names(&folder.find().expect("one file").files), ["model.safetensors"]);
}

#[test]
fn an_indexed_set_is_preferred_to_consolidated_files() {
    for other in ["consolidated.safetensors", "consolidated.00.pth", "pytorch_model.bin"] {
        let folder = Folder::with(&[other]);
        folder.write_set();
        let sources = folder.find().expect("the set");
        assert_eq!(sources.files.len(), 2);
        let [note] = sources.notes.as_slice() else { panic!("{:?}", sources.notes) };
        assert_eq!(note.to_string(), format!("using model.safetensors.index.json, not {other}"));
    }
}

#[test]
fn a_consolidated_file_alone_is_read() {
    let folder = Folder::with(&["consolidated.safetensors", "params.json"]);
    assert_eq!(names(&folder.find().expect("one file").files), ["consolidated.safetensors"]);
    // The older `.bin` form is not preferred to it.
    let folder = Folder::with(&["consolidated.safetensors", "pytorch_model.bin"]);
    let sources = folder.find().expect("one file");
    assert_eq!(names(&sources.files), ["consolidated.safetensors"]);
    let others = vec!["pytorch_model.bin".to_owned()];
    assert_eq!(
        sources.notes,
        [FilesNote::CandidateChosen {
            used: "consolidated.safetensors".to_owned(),
            unused_candidates: others
        }]
    );
}

#[test]
fn two_models_are_a_choice() {
    let folder = Folder::with(&["a.safetensors", "b.safetensors"]);
    let Problem::SeveralCheckpoints { candidates, .. } = problem(folder.find()) else {
        panic!("expected a choice")
    };
    assert_eq!(candidates.len(), 2);
    for candidate in candidates {
        assert_eq!(
            CheckpointSources::find(&candidate.paths, ShardPolicy::RequireAll).expect("one file").files.len(),
            1
        );
    }
}

#[test]
fn files_that_are_not_used_are_noted() {
    let folder = Folder::with(&["model.safetensors", "extra.pth", "config.json", "optimizer.pt"]);
    let sources = folder.find().expect("one file");
    assert_eq!(sources.notes, [FilesNote::CheckpointFilesUnused { files: vec!["extra.pth".to_owned()] }]);
    assert_eq!(sources.notes.first().map(ToString::to_string).as_deref(), Some("extra.pth is not used"));
    let separate: Vec<PathBuf> = sources.separate_files().iter().map(|file| file.path().to_owned()).collect();
    assert_eq!(separate, [folder.path().join("extra.pth")]);
}

#[test]
fn a_folder_is_one_checkpoint_only_if_its_names_or_an_index_say_so() {
    for (files, count) in [
        (&["model.safetensors", "extra.pth"][..], 2),
        (&["a.safetensors", "b.pth", "c.pt", "d.ckpt", "e.bin"], 5),
        (&["lora.safetensors", "pytorch_model.bin"], 2),
        (&["model.fp16.safetensors", "model.safetensors", "config.json"], 2),
        (&["m-00001-of-00002.bin", "m-00002-of-00002.bin", "n-00001-of-00001.bin"], 2),
    ] {
        let Problem::SeveralCheckpoints { candidates, .. } = problem(Folder::with(files).find()) else {
            panic!("expected a choice in {files:?}")
        };
        assert_eq!(candidates.len(), count, "{files:?}");
    }
}

#[test]
fn an_index_says_which_of_the_files_are_read() {
    for other in ["model.safetensors", "model-00001-of-00003.safetensors", "extra.pth"] {
        let folder = Folder::with(&[other, "config.json"]);
        folder.write_set();
        let sources = folder.find().expect("the set");
        assert_eq!(sources.files.len(), 2);
        assert_eq!(sources.notes, [FilesNote::CheckpointFilesUnused { files: vec![other.to_owned()] }]);
    }
    let folder =
        Folder::with(&["model-00001-of-00002.fp16.safetensors", "model-00002-of-00002.fp16.safetensors"]);
    let [one, two] = ["model-00001-of-00002.fp16.safetensors", "model-00002-of-00002.fp16.safetensors"];
    let map = format!(r#"{{"weight_map":{{"{one}":"{one}","{two}":"{two}"}}}}"#);
    folder.write("model.safetensors.index.fp16.json", map.as_bytes());
    assert_eq!(folder.find().expect("the set").path, folder.path().join("model.fp16.safetensors"));
}

#[test]
fn a_gguf_file_is_read_if_nothing_else_is_there() {
    let files = |names: &[&str]| Folder::with(names).find().map(|sources| sources.files.len());
    let set = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
    assert_eq!(files(&set).expect("one set"), 2);
    let sources = Folder::with(&[&set[..], &["model.safetensors"]].concat()).find().expect("one file");
    assert_eq!(sources.files.len(), 1);
    assert_eq!(files(&["llama.Q4_K_M.gguf", "config.json"]).expect("one file"), 1);
    assert!(matches!(
        problem(Folder::with(&["a.gguf", "b.gguf"]).find()),
        Problem::SeveralCheckpoints { .. }
    ));
}

#[test]
fn models_of_other_frameworks_are_named() {
    for (files, expected) in [
        (&["saved_model.pb", "variables/variables.index"][..], "a TensorFlow SavedModel"),
        (
            &["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index", "checkpoint"],
            "a TensorFlow checkpoint",
        ),
        (&["model.onnx", "tokenizer.json"], "an ONNX model"),
        (&["flax_model.msgpack", "config.json"], "a Flax checkpoint"),
        (&["tf_model.h5", "config.json"], "a Keras model"),
        (&["model.mlpackage/Manifest.json"], "a Core ML model"),
        (&["Manifest.json", "Data/com.apple.CoreML/model.mlmodel"], "a Core ML model"),
        (&["net.mlmodel"], "a Core ML model"),
    ] {
        let FolderDiagnosis::OtherFramework { what, .. } = Folder::with(files).contents() else {
            panic!("{files:?}")
        };
        assert_eq!(what, expected);
    }
    for files in [["run.data-7", "x.json"], ["Manifest.json", "Data/other/x.json"]] {
        let contents = Folder::with(&files).contents();
        assert!(!matches!(contents, FolderDiagnosis::OtherFramework { .. }), "{contents:?}");
    }
}

#[test]
fn the_parts_of_a_pipeline_are_named() {
    let folder = Folder::with(&[
        "model_index.json",
        "scheduler/scheduler_config.json",
        "unet/diffusion_pytorch_model.safetensors",
        "vae/diffusion_pytorch_model.bin",
    ]);
    let folders = vec!["unet".into(), "vae".into()];
    assert_eq!(folder.contents(), FolderDiagnosis::Pipeline { folders });
}

#[test]
fn sub_folders_with_checkpoints_are_named() {
    let folder = Folder::with(&["original/consolidated.00.pth", "README.md", "docs/a.txt"]);
    assert_eq!(folder.contents(), FolderDiagnosis::Folders { folders: vec!["original".into()] });
    // The cache of a model hub.
    let folder = Folder::with(&["blobs/0123", "refs/main", "snapshots/4567/model.safetensors"]);
    assert_eq!(
        folder.contents(),
        FolderDiagnosis::Folders { folders: vec![Path::new("snapshots/4567").into()] }
    );
}

#[test]
fn folders_without_weights_say_what_is_there() {
    assert_eq!(Folder::with(&[]).contents(), FolderDiagnosis::Nothing);
    let files = vec!["config.json".to_owned(), "tokenizer.json".to_owned()];
    assert_eq!(
        Folder::with(&["config.json", "tokenizer.json", ".gitattributes"]).contents(),
        FolderDiagnosis::Documents { files: files.clone(), git: true }
    );
    assert_eq!(
        Folder::with(&["config.json", "tokenizer.json", ".git/HEAD"]).contents(),
        FolderDiagnosis::Documents { files: files.clone(), git: true }
    );
    assert_eq!(
        Folder::with(&["config.json", "tokenizer.json", "docs/a.txt"]).contents(),
        FolderDiagnosis::Documents { files, git: false }
    );
    assert_eq!(
        Folder::with(&["optimizer.pt", "notes.txt"]).contents(),
        FolderDiagnosis::TrainingState { files: vec!["optimizer.pt".to_owned()] }
    );
    let names = vec!["notes.txt".to_owned()];
    assert_eq!(Folder::with(&["notes.txt"]).contents(), FolderDiagnosis::Unknown { names });
}

#[test]
fn what_is_in_a_folder_is_one_sentence() {
    for (files, text) in [
        (&[][..], "contains no checkpoint: the folder is empty"),
        (&["a/x.pth"], "contains no checkpoint at its top level, but a/ contains one"),
        (&["a/x.pth", "b/x.pth"], "contains no checkpoint at its top level, but a/ and b/ contain one each"),
        (&["model_index.json", "vae/x.bin"], "is a diffusers pipeline with its checkpoints in vae/"),
        (&["m.onnx"], "contains an ONNX model (m.onnx), not a PyTorch or safetensors checkpoint"),
        (&["optimizer.pt"], "contains no checkpoint, only the state of a training: optimizer.pt"),
        (&["config.json"], "contains no checkpoint, only config.json: the weights are not there"),
        (&["notes.txt"], "contains no checkpoint, only notes.txt"),
    ] {
        assert_eq!(Folder::with(files).contents().to_string(), text);
    }
}

#[test]
fn a_path_without_a_file_is_an_error() {
    let folder = Folder::with(&["a.bin"]);
    let find = |name: &str| CheckpointSources::find(&[folder.path().join(name)], ShardPolicy::RequireAll);
    assert!(matches!(problem(find("b.bin")), Problem::NotFound { .. }));
    assert_eq!(find("a.bin").expect("a file").root(), folder.path().join("a.bin"));
    // The system says what is wrong with a link when it is opened.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("gone", folder.path().join("c.bin")).expect("a temporary folder");
        assert!(find("c.bin").is_ok());
    }
}

#[test]
fn a_shard_alone_is_refused() {
    let folder = Folder::with(&["consolidated.00.pth", "consolidated.02.pth", "m-00002-of-00003.bin"]);
    for (name, number) in
        [("consolidated.00.pth", 1), ("consolidated.02.pth", 3), ("m-00002-of-00003.bin", 2)]
    {
        let path = folder.path().join(name);
        let found = CheckpointSources::find(std::slice::from_ref(&path), ShardPolicy::RequireAll);
        assert!(matches!(problem(found), Problem::LoneShard { number: n, of: 3, .. } if n == number));
        assert!(CheckpointSources::find(&[path], ShardPolicy::ThisFileOnly).is_ok());
    }
}

#[test]
fn notes_on_the_files_of_a_set_name_them() {
    let note = |names: &[&str]| {
        let folder = Folder::with(&[]);
        for name in names {
            folder.write(name, b"\x80\x02}.more");
        }
        let sources = folder.find().expect("a checkpoint");
        let containers = sources.open().expect("pickles");
        let (_, notes) = sources.read(&containers, &|_, _| Ok(())).expect("a checkpoint");
        let [FilesNote::Container { files, .. }, ..] = notes.as_slice() else { panic!("{notes:?}") };
        files.clone()
    };
    assert_eq!(note(&["m.bin"]), [""; 0]);
    let set = ["m-00001-of-00002.bin", "m-00002-of-00002.bin"];
    assert_eq!(note(&set), set);
}

#[test]
fn a_pointer_of_git_lfs_is_refused() {
    let folder = Folder::with(&[]);
    folder.write("pytorch_model.bin", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    let error = folder.find().expect("one file").open().expect_err("a pointer");
    assert!(error.to_string().contains("a Git LFS pointer"), "{error}");
}

#[test]
fn documents_are_read_once_and_have_a_limit() {
    let folder = Folder::with(&["model.safetensors"]);
    folder.write("params.json", b"{}");
    let sources = folder.find().expect("one file");
    assert_eq!(sources.documents.params().expect("a text"), Some("{}"));
    std::fs::remove_file(folder.path().join("params.json")).expect("it is there");
    assert_eq!(sources.documents.params().expect("a text"), Some("{}"));
    assert_eq!(sources.documents.config().expect("no file"), None);

    let large = std::fs::File::create(folder.path().join("adapter_config.json")).expect("a file");
    large.set_len(DOCUMENT_MAX + 1).expect("a sparse file");
    let error = problem(sources.documents.adapter());
    assert!(matches!(error, Problem::DocumentTooLarge { len, .. } if len == DOCUMENT_MAX + 1), "{error}");
}

#[test]
fn a_refusal_stops_the_reading() {
    let folder = Folder::with(&["model.safetensors"]);
    let sources = folder.find().expect("one file");
    let containers = sources.open().expect("one file");
    let refused = sources.read(&containers, &|_, _| Err(Problem::NoPaths.into()));
    assert!(matches!(problem(refused), Problem::NoPaths));
}

#[test]
fn no_paths_are_an_error() {
    assert!(matches!(
        problem(CheckpointSources::find::<PathBuf>(&[], ShardPolicy::RequireAll)),
        Problem::NoPaths
    ));
}

/// The names of the companions of `checkpoint`, and the notes on those that are left out.
#[cfg(unix)]
fn companions(checkpoint: &Path) -> (Vec<String>, Vec<String>) {
    let sources = CheckpointSources::file(&checkpoint.into());
    let (files, notes) = sources.companions().expect("a folder");
    (files.into_iter().map(|(name, _)| name).collect(), notes.iter().map(ToString::to_string).collect())
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_folder_is_left_out_with_a_note() {
    use std::os::unix::fs::symlink;
    let folder = Folder::with(&["secret", "m/model.safetensors", "m/config.json", "m/own/real.json"]);
    let at = |name: &str| folder.path().join("m").join(name);
    let secret = folder.path().join("secret").canonicalize().expect("it was written");
    let link = |to: &str, name: &str| symlink(to, at(name)).expect("a temporary folder");
    // Inside; outside by an absolute path, a relative one, and through another link; to nothing; to a folder.
    link("own/real.json", "generation_config.json");
    link(secret.to_str().expect("UTF-8"), "tokenizer.model");
    link("../secret", "vocab.json");
    link("own/again", "merges.txt");
    symlink("../../secret", at("own/again")).expect("a temporary folder");
    link("nothing", "params.json");
    link("..", "LICENSE");
    let (files, mut notes) = companions(&at("model.safetensors"));
    assert_eq!(files, ["config.json", "generation_config.json"]);
    notes.sort();
    let expected = ["merges.txt", "tokenizer.model", "vocab.json"].map(|name| {
        format!(
            "{name} is left out: it is a link to {}, outside of the checkpoint's folder",
            secret.display()
        )
    });
    assert_eq!(notes, expected);
    // The folder may be given through a link itself.
    symlink(folder.path().join("m"), folder.path().join("n")).expect("a temporary folder");
    assert_eq!(companions(&folder.path().join("n/model.safetensors")).0, files);
    // A tokenizer that serves several sizes is one folder higher, and no link either.
    std::fs::remove_file(at("tokenizer.model")).expect("it was made");
    folder.write("tokenizer.model", b"t");
    assert_eq!(companions(&at("model.safetensors")).0.last().map(String::as_str), Some("tokenizer.model"));
    std::fs::remove_file(folder.path().join("tokenizer.model")).expect("it was made");
    symlink("/etc/passwd", folder.path().join("tokenizer.model")).expect("a temporary folder");
    let (files, notes) = companions(&at("model.safetensors"));
    assert_eq!((files.len(), notes.len()), (2, 3), "{notes:?}");
}

/// The cache of `huggingface_hub`: a snapshot's files are links into a folder of the same repository.
#[cfg(unix)]
#[test]
fn the_cache_of_a_model_hub_is_one_folder() {
    use std::os::unix::fs::symlink;
    let folder = Folder::with(&["models--o--m/blobs/0", "models--o--m/blobs/1", "models--o--other/blobs/2"]);
    folder.write("models--o--m/blobs/t.safetensors", b"");
    let snapshot = folder.path().join("models--o--m/snapshots/abc");
    std::fs::create_dir_all(snapshot.join("sub")).expect("a temporary folder");
    symlink("../../blobs/t.safetensors", snapshot.join("model.safetensors")).expect("a temporary folder");
    symlink("../../blobs/0", snapshot.join("config.json")).expect("a temporary folder");
    symlink("../../../models--o--other/blobs/2", snapshot.join("vocab.json")).expect("a temporary folder");
    symlink("../../blobs/../../secret", snapshot.join("merges.txt")).expect("a temporary folder");
    folder.write("secret", b"s");
    symlink("../../../blobs/1", snapshot.join("sub/config.json")).expect("a temporary folder");
    // A blob that is a link itself.
    symlink("/etc/passwd", folder.path().join("models--o--m/blobs/3")).expect("a temporary folder");
    symlink("../../blobs/3", snapshot.join("tokenizer.model")).expect("a temporary folder");
    let (files, notes) = companions(&snapshot.join("model.safetensors"));
    assert_eq!(files, ["config.json"], "{notes:?}");
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert_eq!(companions(&snapshot.join("sub/model.safetensors")).0, ["config.json"]);
    let sources =
        CheckpointSources::find(std::slice::from_ref(&snapshot), ShardPolicy::RequireAll).expect("one file");
    assert!(sources.notes.is_empty(), "{:?}", sources.notes);
    // Elsewhere, links to the files of the checkpoint are read, and noted.
    let linked = Folder::with(&[]);
    symlink(folder.path().join("models--o--m/blobs/t.safetensors"), linked.path().join("a.safetensors"))
        .expect("a temporary folder");
    let notes = linked.find().expect("one file").notes;
    assert_eq!(notes, [FilesNote::LinksFollowed { files: vec!["a.safetensors".to_owned()] }]);
}

#[test]
fn sets_are_told_apart_by_the_rest_of_their_names() {
    let folder = Folder::with(&["a-00001-of-00002.bin", "a-00002-of-00002.bin", "b-00001-of-00002.bin"]);
    let Problem::SeveralCheckpoints { candidates, .. } = problem(folder.find()) else {
        panic!("expected a choice")
    };
    let members: Vec<_> = candidates.iter().map(|candidate| names(&candidate.paths)).collect();
    assert_eq!(members, [&["a-00001-of-00002.bin", "a-00002-of-00002.bin"][..], &["b-00001-of-00002.bin"]]);
    // Numbers from 0, from 1, and one that is missing.
    for files in [
        ["m-00000-of-00002.bin", "m-00001-of-00002.bin"],
        ["m-00001-of-00002.bin", "m-00002-of-00002.bin"],
        ["m_00001-of-00002.bin", "m_00002-of-00002.bin"],
        ["m_1_of_2.bin", "m_2_of_2.bin"],
        ["m-00001-of-00002.fp16.bin", "m-00002-of-00002.fp16.bin"],
    ] {
        assert_eq!(names(&Folder::with(&files).find().expect("a set").files), files);
    }
    let error = Folder::with(&["m-00000-of-00003.bin", "m-00001-of-00003.bin"]).find();
    assert!(matches!(problem(error), Problem::MissingShard { found: 2, .. }));
}

#[test]
fn files_that_are_not_a_set_are_named() {
    let folder = Folder::with(&["a.pth", "b.pth"]);
    let [a, b] = ["a.pth", "b.pth"].map(|name| folder.path().join(name));
    let error = CheckpointSources::find(&[a.clone(), b.clone()], ShardPolicy::RequireAll);
    let expected = format!("{} and {} are not shards of one checkpoint", a.display(), b.display());
    assert_eq!(error.expect_err("two checkpoints").to_string(), expected);
    let folder =
        Folder::with(&["m-00001-of-00002.bin", "m-00002-of-00002.bin/x", "more/m-00002-of-00002.bin"]);
    let find = |names: [&str; 2]| {
        CheckpointSources::find(&names.map(|name| folder.path().join(name)), ShardPolicy::RequireAll)
    };
    // A folder with the name of a shard, and a shard in another folder.
    for second in ["m-00002-of-00002.bin", "more/m-00002-of-00002.bin"] {
        let found = find(["m-00001-of-00002.bin", second]);
        assert!(matches!(problem(found), Problem::NotASet { .. }));
    }
    let whole = Folder::with(&["m-00001-of-00002.bin", "m-00002-of-00002.bin"]);
    let paths = ["m-00002-of-00002.bin", "m-00001-of-00002.bin"].map(|name| whole.path().join(name));
    let found = CheckpointSources::find(&paths, ShardPolicy::RequireAll).expect("a set");
    assert_eq!(names(&found.files), ["m-00001-of-00002.bin", "m-00002-of-00002.bin"]);
}

#[test]
fn a_document_has_a_largest_length() {
    let folder = Folder::with(&[]);
    folder.write("config.json", b"1234");
    let path = folder.path().join("config.json");
    assert_eq!(read_document(&path.clone().into(), 4).expect("short enough"), "1234");
    assert!(matches!(
        problem(read_document(&path.clone().into(), 3)),
        Problem::DocumentTooLarge { len: 4, limit: 3, .. }
    ));
    // A file whose length the system does not know.
    #[cfg(target_os = "linux")]
    assert!(matches!(
        problem(read_document(&"/proc/self/status".into(), 3)),
        Problem::DocumentTooLarge { len: 4, limit: 3, .. }
    ));
    let mut documents = DocumentCache::next_to(&path.into());
    documents.replace_params("{}".to_owned());
    assert_eq!(documents.params().expect("a text"), Some("{}"));
}

//! Folders that are not on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{BufferSource, Location, MemoryStore, Source};
use open::files::{CheckpointSources, FilesNote, FolderDiagnosis, Problem, ShardPolicy};

use super::made_folder::{names, one_tensor, problem};

/// A folder with these files, or one of them. Safetensors files hold a tensor, other files their own names.
fn input(files: &[&str], file: Option<&str>) -> Location {
    let source = |name: &&str| {
        let bytes = if name.ends_with(".safetensors") { one_tensor(name) } else { name.as_bytes().to_vec() };
        Arc::new(BufferSource::new(Path::new("far://m").join(name), bytes)) as Arc<dyn Source>
    };
    let folder = Location::new(Arc::new(files.iter().map(source).collect::<MemoryStore>()), "far://m");
    file.map_or_else(|| folder.clone(), |name| folder.join(name))
}

fn find(files: &[&str], file: Option<&str>) -> open::Result<CheckpointSources> {
    CheckpointSources::find(&[input(files, file)], ShardPolicy::RequireAll)
}

#[test]
fn a_remote_folder_has_a_checkpoint_with_its_documents() {
    let files = ["LICENSE", "config.json", "deeper/config.json", "model.safetensors", "notes.txt"];
    let sources = find(&files, None).expect("one file");
    assert_eq!(sources.files, [Path::new("far://m/model.safetensors")]);
    assert_eq!(sources.inputs().count(), 0);
    assert_eq!(sources.documents.config().expect("it is there"), Some("config.json"));
    assert_eq!(sources.documents.params().expect("there is none"), None);
    let containers = sources.open().expect("one file");
    assert_eq!(containers.len(), 1);
    let (checkpoint, _) = sources.read(&containers, &|_, _| Ok(())).expect("a checkpoint");
    assert_eq!(checkpoint.tensors().count(), 1);
    // Companions are copied, because an output reads them when it is written.
    let (companions, notes) = sources.companions().expect("a copy");
    assert!(notes.is_empty());
    assert_eq!(
        companions.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["LICENSE", "config.json"]
    );
    for (name, path) in companions {
        assert_eq!(std::fs::read_to_string(path).expect("a copy"), name);
    }
}

#[test]
fn a_remote_file_is_one_of_those_that_were_listed() {
    let shards = [
        "model-00001-of-00002.bin",
        "model-00002-of-00002.bin",
        "one.bin",
        "zero_pp_rank_0_mp_rank_00_optim_states.pt",
    ];
    assert_eq!(names(&find(&shards, Some("one.bin")).expect("a file").files), ["one.bin"]);
    assert!(
        matches!(problem(find(&shards, Some("two.bin"))), Problem::NotFound { path } if path == Path::new("far://m/two.bin"))
    );
    let second = Some("model-00002-of-00002.bin");
    assert!(matches!(problem(find(&shards, second)), Problem::LoneShard { number: 2, of: 2, .. }));
    let part = shards.last().copied();
    assert!(matches!(problem(find(&shards, part)), Problem::RankPart { .. }));
    // Alone, if the caller wants that.
    let alone = |file| {
        CheckpointSources::find(&[input(&shards, file)], ShardPolicy::ThisFileOnly).expect("a file").notes
    };
    assert!(alone(second).is_empty());
    assert!(matches!(alone(part).as_slice(), [FilesNote::RankPart { .. }]));
}

#[test]
fn a_remote_folder_without_a_checkpoint_says_what_is_there() {
    let found = find(&["a/model.safetensors", "a/b/c", "notes.txt"], None);
    let Problem::NoCheckpoint { folder, contents } = problem(found) else { panic!("another problem") };
    assert_eq!(folder.as_os_str(), "far://m");
    assert_eq!(contents, FolderDiagnosis::Folders { folders: vec![PathBuf::from("a")] });
}

#[test]
fn a_single_source_has_nothing_next_to_it() {
    let source: Arc<dyn Source> = Arc::new(BufferSource::new("x.safetensors", one_tensor("w")));
    let sources = CheckpointSources::find(&[source], ShardPolicy::RequireAll).expect("a file");
    assert_eq!(sources.open().expect("a file").len(), 1);
    assert!(sources.companions().expect("nothing is read").0.is_empty());
    assert_eq!(sources.documents.config().expect("nothing is read"), None);
}

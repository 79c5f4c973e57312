//! Folders that are not on this machine.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{BufferSource, InputSource, ReadError, Source, SourceFolder};
use checkpoint_files::{CheckpointSources, Error, FilesNote, FolderDiagnosis, ShardPolicy};

use crate::made_folder::{names, one_tensor};

#[derive(Debug)]
struct MemoryFolder {
    names: Vec<String>,
    contents: BTreeMap<String, Vec<u8>>,
}

impl SourceFolder for MemoryFolder {
    fn path(&self) -> &Path {
        Path::new("far://m")
    }

    fn name(&self) -> String {
        "m".to_owned()
    }

    fn files(&self) -> &[String] {
        &self.names
    }

    fn open(&self, files: &[&str]) -> Result<Vec<Arc<dyn Source>>, ReadError> {
        let open = |name: &&str| {
            let contents = self.contents.get(*name).ok_or(io::ErrorKind::NotFound)?;
            Ok(Arc::new(BufferSource::new(self.path_of(name), contents.clone())) as Arc<dyn Source>)
        };
        files.iter().map(open).collect::<io::Result<Vec<_>>>().map_err(ReadError::from)
    }
}

/// A folder with these files. Safetensors files hold a tensor, other files their own names.
fn input(files: &[&str], file: Option<&str>) -> InputSource {
    let bytes = |name: &str| {
        if name.ends_with(".safetensors") { one_tensor(name) } else { name.as_bytes().to_vec() }
    };
    let contents: BTreeMap<_, _> = files.iter().map(|&name| (name.to_owned(), bytes(name))).collect();
    let folder = MemoryFolder { names: contents.keys().cloned().collect(), contents };
    InputSource::Folder { folder: Arc::new(folder), file: file.map(str::to_owned) }
}

fn find(files: &[&str], file: Option<&str>) -> Result<CheckpointSources, Error> {
    CheckpointSources::find_source(&input(files, file), ShardPolicy::RequireAll)
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
    let (checkpoint, _) = sources.read::<Error>(&containers, &|_, _| Ok(())).expect("a checkpoint");
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
        matches!(find(&shards, Some("two.bin")), Err(Error::NotFound { path }) if path == Path::new("far://m/two.bin"))
    );
    let second = Some("model-00002-of-00002.bin");
    assert!(matches!(find(&shards, second), Err(Error::LoneShard { number: 2, of: 2, .. })));
    let part = shards.last().copied();
    assert!(matches!(find(&shards, part), Err(Error::RankPart { .. })));
    // Alone, if the caller wants that.
    let alone = |file| {
        CheckpointSources::find_source(&input(&shards, file), ShardPolicy::ThisFileOnly)
            .expect("a file")
            .notes
    };
    assert!(alone(second).is_empty());
    assert!(matches!(alone(part).as_slice(), [FilesNote::RankPart { .. }]));
}

#[test]
fn remote_files_of_ranks_are_refused() {
    for part in [".metadata", "__0_0.distcp"] {
        let found = find(&[part, "model.safetensors"], None);
        assert!(matches!(&found, Err(Error::RemoteTrainer { file, .. }) if file == part), "{found:?}");
    }
}

#[test]
fn a_remote_folder_without_a_checkpoint_says_what_is_there() {
    let found = find(&["a/model.safetensors", "a/b/c", "notes.txt"], None);
    let Err(Error::NoCheckpoint { folder, contents }) = found else { panic!("{found:?}") };
    assert_eq!(folder.as_os_str(), "far://m");
    assert_eq!(contents, FolderDiagnosis::Folders { folders: vec![PathBuf::from("a")] });
}

#[test]
fn a_single_source_has_nothing_next_to_it() {
    let source: Arc<dyn Source> = Arc::new(BufferSource::new("x.safetensors", one_tensor("w")));
    let sources = CheckpointSources::find_source(&source.into(), ShardPolicy::RequireAll).expect("a file");
    assert_eq!(sources.open().expect("a file").len(), 1);
    assert!(sources.companions().expect("nothing is read").0.is_empty());
    assert_eq!(sources.documents.config().expect("nothing is read"), None);
}

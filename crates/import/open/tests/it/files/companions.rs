//! Companions of a checkpoint, and the documents that a model was trained with.

use byte_source::Location;
use open::files::{CheckpointSources, DocumentCache, has_tokenizer, is_companion_name};

use super::made_folder::Folder;

#[test]
fn companions_have_known_names() {
    for name in [
        "config.json",
        "LICENSE",
        "LICENSE.txt",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "merges.txt",
    ] {
        assert!(is_companion_name(name), "{name}");
    }
    for name in ["deeper/config.json", "tokenizer.txt", "tokenizer", "other.json", "README.md", "xLICENSE"] {
        assert!(!is_companion_name(name), "{name}");
    }
}

#[test]
fn a_tokenizer_is_one_of_several_files() {
    let has = |names: &[&str]| {
        has_tokenizer(&names.iter().map(|&name| (name.to_owned(), name.into())).collect::<Vec<_>>())
    };
    assert!(has(&["config.json", "vocab.txt"]) && has(&["tokenizer.model"]));
    assert!(!has(&["config.json", "tokenizer_config.json"]) && !has(&[]));
}

#[test]
fn the_tokenizer_of_a_checkpoint_is_preferred_to_the_shared_one() {
    let folder = Folder::with(&["tokenizer.model", "7B/model.safetensors"]);
    let checkpoint = folder.path().join("7B/model.safetensors");
    let tokenizers = || {
        let (companions, _) =
            CheckpointSources::file(&Location::from(&checkpoint)).companions().expect("a folder");
        companions.into_iter().map(|(_, path)| path.canonicalize().expect("it is there")).collect::<Vec<_>>()
    };
    let real = |name: &str| folder.path().join(name).canonicalize().expect("it is there");
    assert_eq!(tokenizers(), [real("tokenizer.model")]);
    folder.write("7B/tokenizer.model", b"");
    assert_eq!(tokenizers(), [real("7B/tokenizer.model")]);
}

#[test]
fn the_companions_of_a_checkpoint_are_next_to_it() {
    let folder = Folder::with(&["model.safetensors", "config.json"]);
    let (companions, _) = folder.find().expect("one file").companions().expect("a folder");
    assert_eq!(companions, [("config.json".to_owned(), folder.path().join("config.json"))]);
}

#[test]
fn documents_of_a_training_are_in_the_step_or_above() {
    let step = ["run/step/zero_pp_rank_0_mp_rank_00_optim_states.pt", "run/step/mp_rank_00_model_states.pt"];
    for name in
        ["run/config.json", "run/step/huggingface/config.json", "run/step/config.json", "run/params.json"]
    {
        let folder = Folder::with(&step);
        folder.write(name, name.as_bytes());
        let path = folder.path().join("run/step");
        let sources = open::files::CheckpointSources::find(&[path], open::files::ShardPolicy::RequireAll);
        let documents = sources.expect("a step").documents;
        let read = [documents.config(), documents.params()]
            .map(|text| text.expect("it was written").map(str::to_owned));
        assert_eq!(read.into_iter().flatten().collect::<Vec<_>>(), [name]);
    }
}

#[test]
fn a_document_can_be_replaced() {
    let folder = Folder::with(&["model.safetensors"]);
    folder.write("config.json", b"{}");
    let mut documents = DocumentCache::next_to(&folder.path().join("model.safetensors").into());
    documents.replace_config("other".to_owned());
    assert_eq!(documents.config().expect("a text"), Some("other"));
}

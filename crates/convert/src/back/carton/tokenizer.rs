//! Whether the tokenizer that a carton gets is one that this program reads.

use crate::back::OutputJob;

/// Size up to which a tokenizer is read as a whole, in bytes. That of a real model is larger, and reading it takes long.
#[cfg(feature = "tokenizer")]
const READ_MAX: u64 = 1 << 20;

/// Files that are refused by their names.
#[cfg(feature = "tokenizer")]
const VOCABULARIES: [&str; 3] = ["vocab.json", "vocab.txt", "sentencepiece.bpe.model"];

/// Returns why `run` would not read the tokenizer among the files of a carton; `None` if there is none, or if it is large.
#[cfg(feature = "tokenizer")]
pub(super) fn unread(job: &OutputJob<'_>) -> Option<String> {
    /// Reason for which no tokenizer is read here.
    enum Stop {
        Large,
        Wrong(generate::Error),
    }
    impl From<generate::Error> for Stop {
        fn from(error: generate::Error) -> Self {
            Self::Wrong(error)
        }
    }
    let mut read = |name: &str| {
        if let Some((_, contents)) = job.made_documents().find(|(made, _)| *made == name) {
            return Ok(Some(contents));
        }
        let Some((_, path)) = job.misc.iter().find(|(known, _)| known == name) else { return Ok(None) };
        if VOCABULARIES.contains(&name) {
            return Ok(Some(Vec::new()));
        }
        match path.metadata() {
            Ok(metadata) if metadata.len() <= READ_MAX => {
                std::fs::read(path).map(Some).map_err(|_| Stop::Large)
            }
            _ => Err(Stop::Large),
        }
    };
    match generate::Tokenizer::from_files(&mut read) {
        Err(Stop::Wrong(error)) => Some(error.to_string()),
        _ => None,
    }
}

#[cfg(not(feature = "tokenizer"))]
pub(super) fn unread(_: &OutputJob<'_>) -> Option<String> {
    None
}

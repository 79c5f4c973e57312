//! What a person should know about a carton, without an error.

use std::fmt;
use std::path::PathBuf;

use carton_format::{Problem, TensorIndex};
use serde::{Serialize, Serializer};

/// What a person should know; its text is one sentence without a full stop.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Note {
    /// About the checkpoint that a carton is compared with.
    Checkpoint(pipeline::Note),
    /// An observation about a carton that is verified.
    Verify(String),
    /// A field of a document is missing and was added.
    FieldAdded(Problem),
    /// The tensor index is missing and was added.
    IndexAdded,
    /// Files that MANIFEST lists are not in the carton.
    FilesElsewhere {
        /// How many.
        files: usize,
    },
    /// A file in the cache is damaged and was downloaded again.
    DownloadedAgain {
        /// Its path.
        path: PathBuf,
    },
    /// Tensors were compared, but code of the model runs when it is loaded.
    CodeNotCompared,
    /// The tensors of the model cannot be listed.
    NoTensors {
        /// Why not.
        reason: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(note) => note.fmt(f),
            Self::Verify(text) => f.write_str(text),
            Self::FieldAdded(problem) => write!(f, "{problem}: added, because Carton's client needs it"),
            Self::IndexAdded => {
                write!(f, "{} is missing: added, because Carton's client needs it", TensorIndex::PATH)
            }
            Self::FilesElsewhere { files } => {
                let verb = if *files == 1 { "is" } else { "are" };
                write!(f, "{} {verb} not in the carton", pipeline::counted(*files, "file"))
            }
            Self::DownloadedAgain { path } => {
                write!(f, "{} was damaged and was downloaded again", path.display())
            }
            Self::CodeNotCompared => f.write_str(
                "the code of the model was not compared: its `__setstate__` runs when the model is loaded and may \
                 change the tensors, and no conversion writes one",
            ),
            Self::NoTensors { reason } => write!(f, "no tensors are listed: {reason}"),
        }
    }
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

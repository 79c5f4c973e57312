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
    /// Tensors were compared, but what the model computes was not.
    OtherCode {
        /// A record of the model that is not what a conversion writes.
        record: String,
    },
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
            Self::OtherCode { record } => write!(
                f,
                "only the stored values of the tensors were compared: `{}` of the model is not what a conversion by this \
                 version writes for them, so the model may compute something else",
                record.escape_debug()
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

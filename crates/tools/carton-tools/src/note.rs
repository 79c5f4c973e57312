//! Notes about a carton: facts that the user should know, but not errors.

use std::fmt;
use std::path::PathBuf;

use carton_format::{DocumentProblem, TensorIndex};
use serde::{Serialize, Serializer};

/// Note for the user; its text is one sentence without a full stop.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CartonNote {
    /// Note about the checkpoint with which a carton is compared.
    Checkpoint(open::Note),
    /// Note about a carton that is verified.
    Verify(String),
    /// A field of a document was missing and was added.
    FieldAdded(DocumentProblem),
    /// The tensor index was missing and was added.
    IndexAdded,
    /// Files that MANIFEST lists are not in the carton.
    FilesElsewhere {
        /// Number of absent files.
        files: usize,
    },
    /// A file in the cache was damaged and was downloaded again.
    DownloadedAgain { path: PathBuf },
    /// The tensors were compared, but the computation of the model was not.
    CodeDiffers {
        /// Record of the model that differs from a conversion's.
        record: String,
    },
    /// Weights of a decoder are bfloat16, with which PyTorch 2.0.1 is slow on CPUs without AVX-512.
    SlowBFloat16,
    /// The tensors of the model cannot be listed.
    NoTensors { reason: String },
}

impl fmt::Display for CartonNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(note) => note.fmt(f),
            Self::Verify(text) => f.write_str(text),
            Self::SlowBFloat16 => f.write_str(
                "in Carton, which runs PyTorch 2.0, a prompt takes several times as long with bfloat16 weights as with float16 \
                 or float32 ones on a CPU without AVX-512",
            ),
            Self::FieldAdded(problem) => write!(f, "{problem}: added, because Carton's client needs it"),
            Self::IndexAdded => {
                write!(f, "{} is missing: added, because Carton's client needs it", TensorIndex::PATH)
            }
            Self::FilesElsewhere { files } => {
                let verb = if *files == 1 { "is" } else { "are" };
                write!(f, "{} {verb} not in the carton", byte_source::format_things(*files, "file"))
            }
            Self::DownloadedAgain { path } => {
                write!(f, "{} was damaged and was downloaded again", path.display())
            }
            Self::CodeDiffers { record } => write!(
                f,
                "only the stored values of the tensors were compared: `{}` of the model is not what a conversion by this \
                 version writes for them, so the model may compute something else",
                record.escape_debug()
            ),
            Self::NoTensors { reason } => write!(f, "no tensors are listed: {reason}"),
        }
    }
}

impl Serialize for CartonNote {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

//! What was decided about a checkpoint's files that a person may not expect.

use std::fmt;

/// A decision, or something a file says about itself; its text is one sentence without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// A folder holds a checkpoint more than once, and one form of it is read.
    Chosen {
        /// The file or set that is read.
        used: String,
        /// The others.
        others: Vec<String>,
    },
    /// Checkpoint files in the folder that are not part of what is read.
    LeftAlone {
        /// Their names; there is at least one.
        files: Vec<String>,
    },
    /// What `torch-import` notes about a container or about the joining of several.
    Container {
        /// The files that it is about, where there are several in the set.
        files: Vec<String>,
        /// The note.
        note: torch_import::Note,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen { used, others } => write!(f, "using {used}, not {}", others.join(" or ")),
            Self::LeftAlone { files } => {
                let verb = if files.len() == 1 { "is" } else { "are" };
                write!(f, "{} {verb} not used", files.join(", "))
            }
            Self::Container { files, note } => match files.as_slice() {
                [] => write!(f, "{note}"),
                [file] => write!(f, "{file}: {note}"),
                [first, ..] => write!(f, "{first} and {} more files: {note}", files.len().saturating_sub(1)),
            },
        }
    }
}

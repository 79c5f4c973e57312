//! What was decided about a checkpoint's files that a person may not expect.

use std::fmt;
use std::path::PathBuf;

use output::file_name;

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
    /// Files of the checkpoint that are links to files outside of the folder that was given. They are read.
    LinksFollowed {
        /// Their names; there is at least one.
        files: Vec<String>,
    },
    /// A file next to the checkpoint that is a link to a file outside of its folder. It is not kept.
    LinkLeftOut {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
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
            Self::LinksFollowed { files } => match files.as_slice() {
                [file] => write!(f, "{file} is a link to a file outside of the folder"),
                files => {
                    let (first, more) =
                        (files.first().map_or("", String::as_str), files.len().saturating_sub(1));
                    write!(f, "{first} and {more} more files are links to files outside of the folder")
                }
            },
            Self::LinkLeftOut { path, target } => {
                let (name, target) = (file_name(path), target.display());
                write!(f, "{name} is left out: it is a link to {target}, outside of the checkpoint's folder")
            }
            Self::Container { files, note } => match files.as_slice() {
                [] => write!(f, "{note}"),
                [file] => write!(f, "{file}: {note}"),
                [first, ..] => write!(f, "{first} and {} more files: {note}", files.len().saturating_sub(1)),
            },
        }
    }
}

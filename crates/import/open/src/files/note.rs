//! Notes on the choice of a checkpoint's files, and on their contents.

use std::fmt;
use std::path::PathBuf;

use crate::trainers::TrainerSummary;
use output::file_name;

/// A choice among files, or a remark on a file; the text is one sentence without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilesNote {
    /// The folder holds several forms of the checkpoint, and one of them is read.
    CandidateChosen {
        /// File or set that is read.
        used: String,
        /// Files and sets that are not read.
        unused_candidates: Vec<String>,
    },
    /// Checkpoint files in the folder are not read.
    CheckpointFilesUnused {
        /// File names; at least one.
        files: Vec<String>,
    },
    /// Files of the checkpoint are links to files outside the given folder. They are read.
    LinksFollowed {
        /// File names; at least one.
        files: Vec<String>,
    },
    /// A companion is a link to a file outside the checkpoint's folder. It is left out.
    LinkLeftOut {
        path: PathBuf,
        /// Target of the link, resolved if possible.
        target: PathBuf,
    },
    /// Python code of the model next to the checkpoint is left out.
    CodeLeftOut {
        /// File names; at least one.
        files: Vec<String>,
    },
    /// Modules of sentence-transformers in folders next to the checkpoint are left out.
    ModulesLeftOut {
        /// Names of the folders; at least one.
        folders: Vec<String>,
    },
    /// The checkpoint was joined from the parts of a trainer's ranks.
    Trainer(TrainerSummary),
    /// The file is one rank's part of a checkpoint, and is read alone.
    RankPart {
        /// Description of the whole, with its article.
        what: &'static str,
    },
    /// Note of `torch-import` on a container, or on merging several.
    Container {
        /// Files that the note applies to; empty if the checkpoint is a single file or the note is on the merge.
        files: Vec<String>,
        note: torch_import::CheckpointNote,
    },
}

impl fmt::Display for FilesNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CandidateChosen { used, unused_candidates: others } => {
                write!(f, "using {used}, not {}", others.join(" or "))
            }
            Self::CheckpointFilesUnused { files } => {
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
            Self::CodeLeftOut { files } => {
                write!(f, "the model's Python code is left out: {}", files.join(", "))
            }
            Self::ModulesLeftOut { folders } => {
                write!(f, "modules.json names modules in folders, which are left out: {}", folders.join(", "))
            }
            Self::Trainer(summary) => write!(f, "{summary}"),
            Self::RankPart { what } => write!(f, "this file is one rank's part of {what}"),
            Self::Container { files, note } => match files.as_slice() {
                [] => write!(f, "{note}"),
                [file] => write!(f, "{file}: {note}"),
                [first, ..] => write!(f, "{first} and {} more files: {note}", files.len().saturating_sub(1)),
            },
        }
    }
}

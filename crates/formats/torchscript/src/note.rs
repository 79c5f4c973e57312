//! What a user should know about a module that was made without an error.

use std::fmt;

use tensor::Dtype;

/// What a user should know about a module that was made without an error; its text is one sentence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Note {
    /// About the decoder and its documents.
    Decoder(decoder::Note),
    /// A tensor has the name of the flag that `eval()` and `train()` set.
    Training,
    /// The tensors are all in one module, because their names do not make a tree.
    Flat {
        /// Why they do not.
        why: WhyFlat,
    },
    /// A module has so many members that PyTorch is slow to load it.
    Wide {
        /// How many.
        members: usize,
    },
    /// A storage ends with bytes that are less than an element. They are not in the archive.
    CutStorage {
        /// How many bytes.
        bytes: u64,
        /// The dtype of the storage.
        dtype: Dtype,
    },
    /// The dtypes of inputs are not known.
    UnlistedInputs {
        /// Their names.
        names: Vec<String>,
    },
    /// Arguments that tensors cannot express keep their defaults.
    FixedArguments {
        /// Their names.
        names: Vec<String>,
    },
    /// The archive has a format version that PyTorch 2.0.1 does not load.
    NewerArchive {
        /// The version.
        version: u64,
    },
    /// The code calls operators that PyTorch 2.0.1 does not have.
    NewerOperators {
        /// Their names.
        names: Vec<String>,
    },
    /// The code calls operators, or uses classes, of other libraries than PyTorch.
    OtherOperators {
        /// Their names.
        names: Vec<String>,
    },
}

impl Note {
    /// Whether PyTorch 2.0.1 does not load what this is about.
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::NewerArchive { .. } | Self::NewerOperators { .. })
    }
}

/// Why the names of tensors do not make a tree of modules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyFlat {
    /// A tensor would have to be a module too.
    TensorAndModule {
        /// Its name.
        tensor: String,
        /// A tensor that would be in that module.
        member: String,
    },
    /// Two dots follow each other, or the name begins with one.
    EmptyPart {
        /// The name.
        name: String,
    },
    /// A part of the name is an attribute of PyTorch's modules.
    ReservedPart {
        /// The name.
        name: String,
    },
    /// PyTorch cannot load modules nested this deep.
    Deep {
        /// The number of dots in the name.
        dots: usize,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decoder(note) => note.fmt(f),
            Self::Training => {
                f.write_str("a tensor is called `training`: eval() and train() fail on the module")
            }
            Self::Flat { why } => write!(
                f,
                "all tensors are in one module, because {why}; their names have dots, so that load_state_dict needs \
                 strict=False"
            ),
            Self::Wide { members } => write!(
                f,
                "one module has {members} members: the time that PyTorch needs to load it grows with the square of that"
            ),
            Self::UnlistedInputs { names } => {
                f.write_str("carton.toml does not list the ")?;
                first_of(f, "input", names)?;
                f.write_str(": the code does not say the dtypes and shapes")
            }
            Self::FixedArguments { names } => {
                f.write_str("tensors cannot express the ")?;
                first_of(f, "argument", names)?;
                f.write_str(if names.len() == 1 {
                    ", which keeps its default"
                } else {
                    ", which keep their defaults"
                })
            }
            Self::NewerArchive { version } => {
                write!(f, "the archive has format version {version}, which PyTorch 2.0 does not load")
            }
            Self::NewerOperators { names } => {
                f.write_str("PyTorch 2.0 does not have the ")?;
                first_of(f, "operator", names)
            }
            Self::OtherOperators { names } => {
                f.write_str("the code needs a library, which Carton's runner does not have, for the ")?;
                first_of(f, "name", names)
            }
            Self::CutStorage { bytes, dtype } => write!(
                f,
                "the end of a storage is not written: {bytes} bytes, which are less than one {dtype} and not part of any tensor"
            ),
        }
    }
}

/// The first names of some things, and how many more there are.
fn first_of(f: &mut fmt::Formatter<'_>, thing: &str, names: &[String]) -> fmt::Result {
    const SHOWN: usize = 4;
    let shown: Vec<String> =
        names.iter().take(SHOWN).map(|name| format!("`{}`", name.escape_debug())).collect();
    write!(f, "{thing}{} {}", if names.len() == 1 { "" } else { "s" }, shown.join(", "))?;
    match names.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

impl fmt::Display for WhyFlat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TensorAndModule { tensor, member } => write!(
                f,
                "`{}` is both a tensor and the prefix of `{}`",
                tensor.escape_debug(),
                member.escape_debug()
            ),
            Self::EmptyPart { name } => write!(f, "`{}` has an empty part", name.escape_debug()),
            Self::ReservedPart { name } => {
                write!(f, "`{}` has a part that PyTorch's modules reserve", name.escape_debug())
            }
            Self::Deep { dots } => write!(f, "a name has {dots} dots"),
        }
    }
}

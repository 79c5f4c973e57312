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
            Self::CutStorage { bytes, dtype } => write!(
                f,
                "the end of a storage is not written: {bytes} bytes, which are less than one {dtype} and not part of any tensor"
            ),
        }
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

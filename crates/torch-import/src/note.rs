//! Harmless irregularities that a reader reports in addition to the data.

use std::fmt;

use crate::TwinName;

/// A harmless irregularity of a file, or contents of it that are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointNote {
    /// Every checksum of the archive is 0, as written with `set_crc32_options(False)`.
    NoChecksums,
    /// A TorchScript archive has constants, which belong to its code.
    Constants {
        /// Number of constants in `constants.pkl`.
        count: usize,
        /// Number of tensors among the constants.
        tensors: u64,
    },
    /// Bytes follow the last storage of a checkpoint in the format before PyTorch 1.6.
    TrailingAfterStorages { bytes: u64 },
    /// Bytes follow a bare pickle.
    TrailingAfterPickle { bytes: u64 },
    /// Note of the reader of a container format.
    Format { text: String },
    /// Values are not listed in full.
    ValuesTruncated {
        /// Number of values listed without their contents, because they are nested too deeply or shared too often.
        cut: usize,
        /// Number of values beyond the limit, which are not listed.
        unlisted: usize,
    },
    /// Keys contain lone surrogates, which are not characters, so names have escapes.
    Surrogates {
        /// Number of keys with a lone surrogate.
        keys: usize,
        /// Code unit of the first surrogate.
        first: u16,
    },
    /// Two tensors have the same name, and the second is listed with a number.
    SameName(TwinName),
    /// Shards after the first have values, which are not merged.
    ValuesLeftOut {
        /// File names of the shards.
        files: Vec<String>,
        /// Number of values in these shards.
        count: usize,
    },
}

impl fmt::Display for CheckpointNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoChecksums => f.write_str("the archive has no checksums: damage would go unnoticed"),
            Self::Constants { count, tensors } => {
                let (s, are) = if *count == 1 { ("", "is") } else { ("s", "are") };
                let these = if *tensors == 1 { "tensor" } else { "tensors" };
                write!(
                    f,
                    "{count} constant{s} of the archive's code ({tensors} {these}) {are} not part of its state"
                )
            }
            Self::TrailingAfterStorages { bytes } => {
                write!(f, "{bytes} bytes follow the last storage; PyTorch does not read them either")
            }
            Self::TrailingAfterPickle { bytes } => {
                write!(f, "{bytes} bytes follow the pickle and are not read")
            }
            Self::Format { text } => f.write_str(text),
            Self::ValuesTruncated { cut, unlisted } => {
                let are = |n: &usize| if *n == 1 { "value is" } else { "values are" };
                if *cut > 0 {
                    write!(
                        f,
                        "{cut} {} nested too deeply, or shared too often, to be listed with what is inside",
                        are(cut)
                    )?;
                }
                match (*cut, *unlisted) {
                    (_, 0) => Ok(()),
                    (0, _) => write!(f, "{unlisted} {} not listed: there are too many", are(unlisted)),
                    _ => write!(f, "; {unlisted} {} not listed: there are too many", are(unlisted)),
                }
            }
            Self::Surrogates { keys, first } => {
                let (s, have) = if *keys == 1 { ("", "has") } else { ("s", "have") };
                write!(
                    f,
                    "{keys} key{s} {have} a lone surrogate, which UTF-8 cannot represent: names have an escape, such as \
                     `\\u{first:04x}`, instead"
                )
            }
            Self::SameName(TwinName { name, listed, first, second }) => {
                let (name, listed) = (name.escape_debug(), listed.escape_debug());
                write!(
                    f,
                    "two tensors have the name `{name}`: {first}, and {second}, which is listed as `{listed}`"
                )
            }
            Self::ValuesLeftOut { files, count } => {
                let (s, are) = if *count == 1 { ("", "is") } else { ("s", "are") };
                match files.as_slice() {
                    [file] => write!(f, "{count} value{s} of {file} {are} not kept"),
                    files => write!(f, "{count} value{s} of {} shards {are} not kept", files.len()),
                }
            }
        }
    }
}

//! Notes to the user about a module that was made without an error.

use std::fmt;

use tensor::Dtype;

/// Note to the user about a module that was made without an error; its [`Display`](fmt::Display) text is one sentence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModuleNote {
    /// Note of the decoder and its documents.
    Decoder(decoder::DecoderNote),
    /// A tensor is named `training`, like the flag that `eval()` and `train()` set.
    Training,
    /// All tensors are in one flat module, because their names do not form a tree of modules.
    Flat { why: FlatReason },
    /// A module has so many members that PyTorch loads it slowly.
    Wide { members: usize },
    /// A storage ends with an incomplete element, whose bytes are not in the archive.
    CutStorage {
        /// Number of bytes after the last whole element.
        bytes: u64,
        dtype: Dtype,
    },
    /// Inputs of unknown dtypes and shapes, which `carton.toml` does not list.
    UnlistedInputs { names: Vec<String> },
    /// Arguments that tensors cannot express, and that keep their defaults.
    FixedArguments { names: Vec<String> },
    /// The archive has a format version that PyTorch 2.0.1 does not load.
    NewerArchive { version: u64 },
    /// The code calls operators that PyTorch 2.0.1 does not have.
    NewerOperators { names: Vec<String> },
    /// The code calls operators with the numbers of dtypes that PyTorch 2.0.1 does not have.
    NewerDtypes { numbers: Vec<u8> },
    /// The code or its constants make float16 tensors, of which PyTorch 2.0.1 has no products on a CPU.
    Float16Code,
    /// Weights are bfloat16, and these inputs are not declared, so that the code gets them as Carton passes them.
    BFloat16Inputs { names: Vec<String> },
    /// Outputs have the name of the output for error messages.
    ErrorOutput { names: Vec<String> },
    /// An output is a list of texts, which Carton's client cannot read.
    TextListOutput,
    /// Carton ends names at the first NUL, so it passes and returns these tensors under shorter names.
    NulNames {
        names: Vec<String>,
        /// True if two tensors have the same name before the first NUL.
        collide: bool,
    },
    /// The code calls operators, or uses classes, of libraries other than PyTorch.
    OtherOperators { names: Vec<String> },
}

impl ModuleNote {
    /// Returns true if PyTorch 2.0.1 does not have the archive version, the operators or the dtypes that the note names.
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::NewerArchive { .. } | Self::NewerOperators { .. } | Self::NewerDtypes { .. })
    }
}

/// Reason why tensor names do not form a tree of modules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlatReason {
    /// A tensor whose name is also the name of a module.
    TensorAndModule {
        tensor: String,
        /// Name of a tensor that would be a member of that module.
        member: String,
    },
    /// The name has two dots in a row, or begins with a dot.
    EmptyPart { name: String },
    /// A part of the name is an attribute of PyTorch's modules.
    ReservedPart { name: String },
    /// The name needs modules nested deeper than PyTorch can load.
    Deep {
        /// Number of dots in the name.
        dots: usize,
    },
}

impl fmt::Display for ModuleNote {
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
                write_name_list(f, "input", names)?;
                f.write_str(": the code does not say the dtypes and shapes")
            }
            Self::FixedArguments { names } => {
                f.write_str("tensors cannot express the ")?;
                write_name_list(f, "argument", names)?;
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
                write_name_list(f, "operator", names)
            }
            Self::NewerDtypes { numbers } => {
                let names: Vec<String> = numbers.iter().map(|number| newer_dtype_name(*number)).collect();
                f.write_str("PyTorch 2.0 does not have the ")?;
                write_name_list(f, "dtype", &names)
            }
            Self::Float16Code => f.write_str(
                "the code has float16 tensors that cannot be widened: PyTorch 2.0 does not multiply float16 matrices on a \
                 CPU, and a call that does ends Carton's runner",
            ),
            Self::BFloat16Inputs { names } => {
                f.write_str("the weights are bfloat16, and Carton passes no bfloat16 tensors: a call fails unless the code casts the ")?;
                write_name_list(f, "input", names)
            }
            Self::ErrorOutput { names } => {
                f.write_str("an error message has the name `error` too: look at the type of the ")?;
                write_name_list(f, "output", names)
            }
            Self::TextListOutput => {
                f.write_str("an output is a list of texts, which Carton's client cannot read: it raises an exception")
            }
            Self::NulNames { names, collide } => {
                f.write_str("Carton ends names at the first NUL, and its runner ends if an input has such a name: ")?;
                write_name_list(f, "tensor", names)?;
                f.write_str(if *collide { "; two tensors then have the same name, and one is lost" } else { "" })
            }
            Self::OtherOperators { names } => {
                f.write_str("the code needs a library, which Carton's runner does not have, for the ")?;
                write_name_list(f, "name", names)
            }
            Self::CutStorage { bytes, dtype } => write!(
                f,
                "the end of a storage is not written: {bytes} bytes, which are less than one {dtype} and not part of any tensor"
            ),
        }
    }
}

/// Returns the name of a dtype that PyTorch 2.0.1 does not have, by its number in `c10::ScalarType` of 2.15.
fn newer_dtype_name(number: u8) -> String {
    let known = match number {
        18 => "bits1x8",
        19 => "bits2x4",
        20 => "bits4x2",
        21 => "bits8",
        22 => "bits16",
        23 => "float8_e5m2",
        24 => "float8_e4m3fn",
        25 => "float8_e5m2fnuz",
        26 => "float8_e4m3fnuz",
        27 => "uint16",
        28 => "uint32",
        29 => "uint64",
        44 => "float8_e8m0fnu",
        45 => "float4_e2m1fn_x2",
        number => return format!("number {number}"),
    };
    known.to_owned()
}

/// Writes the first few names of a list, and the number of remaining names.
fn write_name_list(f: &mut fmt::Formatter<'_>, thing: &str, names: &[String]) -> fmt::Result {
    const SHOWN: usize = 4;
    let shown: Vec<String> =
        names.iter().take(SHOWN).map(|name| format!("`{}`", name.escape_debug())).collect();
    write!(f, "{thing}{} {}", if names.len() == 1 { "" } else { "s" }, shown.join(", "))?;
    match names.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

impl fmt::Display for FlatReason {
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

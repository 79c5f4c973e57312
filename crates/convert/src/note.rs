//! Notes on a conversion: facts about its output that the user should know, but not errors.

use std::fmt;

use byte_source::format_things;
use serde::{Serialize, Serializer};
use tensor::Dtype;
use torch_import::Risk;

use crate::error::unsupported_tensors_text;

/// Remark for the user; its text is one sentence without a full stop.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Note {
    /// Note on the input, or on the steps that changed its tensors.
    Open(open::Note),
    /// Note on the module.
    Module(torchscript::ModuleNote),
    /// The architecture is known by name, and its forward pass is not implemented.
    NoForward {
        model_type: String,
        /// Kind of block that no forward has, if it is known.
        needs: Option<&'static str>,
    },
    /// Quantized weights are written as they are stored.
    Quantized {
        /// Method, in the names of `transformers`.
        method: String,
    },
    /// The output is a carton, and its extension is not that of any output format.
    CartonByDefault {
        /// File name of the output.
        output: String,
    },
    /// The code of a TorchScript archive is not kept.
    CodeDropped {
        /// Reason for which the code cannot be called; `None` if the conversion keeps no code anyway.
        why: Option<torchscript::Uncallable>,
    },
    /// The program of `torch.export` is not kept.
    ProgramDropped,
    /// The tokenizer next to the checkpoint is not one that this program reads.
    TokenizerUnread { reason: String },
    /// Globals of the pickle were recorded, and not executed.
    GlobalsRecorded { risk: Risk, names: Vec<String> },
    /// A file of fields contains keys that the carton format does not define. They are kept.
    UnknownFields {
        /// File name of the file.
        file: String,
        /// Keys that are not defined.
        fields: Vec<String>,
    },
    /// The output is a single file, so the documents next to the checkpoint are not written.
    DocumentsLeftOut {
        /// File names of the documents.
        names: Vec<String>,
        /// Name of the file's format.
        to: &'static str,
    },
    /// A folder with a model lacks documents that programs which load the output need.
    DocumentsMissing {
        /// Names of what is missing, such as `config.json`.
        names: Vec<&'static str>,
    },
    /// Entries of the input's metadata are not true of the output.
    MetadataLeftOut { keys: Vec<String> },
    /// A model in Meta's layout has no `tokenizer.model`, which Meta's code needs.
    NoMetaTokenizer,
    /// Tensors that share a storage without being the same view are written as separate copies.
    ViewsSeparated {
        /// Number of such tensors.
        count: usize,
        /// Names of the first tensors.
        names: Vec<String>,
    },
    /// Compound tensors are written as their parts, without the relation of the parts.
    PartsSeparated {
        /// Number of compound tensors.
        count: usize,
        /// Names of the first compound tensors.
        names: Vec<String>,
    },
    /// Some tensors have dtypes that only newer versions of PyTorch load.
    NewerTorch {
        /// Names and dtypes of the first tensors.
        tensors: Vec<(String, String)>,
        /// Number of such tensors.
        count: usize,
    },
    /// The self test has no expected logits, because the weights have a low precision.
    NoExpectedLogits {
        /// Dtype of the first such weight.
        dtype: Dtype,
    },
    /// The output format cannot store values that are not tensors.
    ValuesLeftOut {
        /// Number of values left out.
        values: usize,
    },
    /// Values that are not tensors are kept in `misc/checkpoint.json`.
    ValuesKept {
        /// Number of values; 0 if only the structure of compound tensors is kept.
        values: usize,
    },
}

impl byte_source::Notice for Note {}

impl From<open::Note> for Note {
    fn from(note: open::Note) -> Self {
        Self::Open(note)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(note) => note.fmt(f),
            Self::Module(note) => note.fmt(f),
            Self::NoForward { model_type, needs: Some(needs) } => {
                write!(
                    f,
                    "{model_type} needs {needs}, which decoders do not have yet: the carton returns its tensors"
                )
            }
            Self::NoForward { model_type, needs: None } => {
                write!(f, "no forward for {model_type}: the carton returns its tensors; ")?;
                match family(model_type).as_slice() {
                    [] => f.write_str("docs/models.md lists the decoders that have one"),
                    [one] => write!(f, "of its family, {one} has one (docs/models.md lists all)"),
                    several => {
                        write!(f, "of its family, {} have one (docs/models.md lists all)", several.join(", "))
                    }
                }
            }
            Self::ViewsSeparated { count, names } => {
                let views = format_things(*count, "view");
                write!(f, "{views} of shared storages are written as their own values: ")?;
                write_first_names(f, names, *count)
            }
            Self::PartsSeparated { count, names } => {
                let tensors = format_things(*count, "tensor");
                write!(f, "the parts of {tensors} are written, and not how they belong together: ")?;
                write_first_names(f, names, *count)
            }
            Self::NewerTorch { tensors, count } => {
                write!(f, "PyTorch 2.0 cannot load {}", unsupported_tensors_text(tensors, *count))
            }
            Self::NoExpectedLogits { dtype } => write_no_logits(f, *dtype),
            Self::MetadataLeftOut { keys } => {
                let (verb, they) = if keys.len() == 1 { ("is", "it is") } else { ("are", "they are") };
                write_first_names(f, keys, keys.len())?;
                write!(f, " {verb} left out of the metadata: {they} not true of what is written")
            }
            Self::ValuesLeftOut { values } => {
                let what = if *values == 1 { "is not a tensor" } else { "are not tensors" };
                write!(f, "left out {} that {what}", format_things(*values, "value"))
            }
            Self::Quantized { method } => write_quantized(f, method),
            Self::DocumentsLeftOut { names, .. } => {
                let verb = if names.len() == 1 { "is" } else { "are" };
                write_first_names(f, names, names.len())?;
                write!(f, " {verb} not written with a single file")
            }
            Self::DocumentsMissing { names } => write!(
                f,
                "there is no {} next to the checkpoint, so the output has none; programs that load a model from a folder need it",
                names.join(" and no ")
            ),
            Self::NoMetaTokenizer => {
                f.write_str("there is no tokenizer.model next to the checkpoint, which Meta's code needs")
            }
            Self::CartonByDefault { output } => {
                write!(f, "{output} is a carton: no kind of output has this extension")
            }
            Self::CodeDropped { why } => {
                f.write_str("the file's own code is not kept: only its tensors are converted")?;
                why.as_ref().map_or(Ok(()), |why| write!(f, ", because {why}"))
            }
            Self::ProgramDropped => {
                f.write_str("the program of the file is not kept: only its tensors are converted")
            }
            Self::TokenizerUnread { reason } => {
                write!(f, "the carton takes token ids and no texts: {reason}")
            }
            Self::GlobalsRecorded { risk, names } => {
                const SHOWN: usize = 3;
                let verb = if names.len() == 1 { "was" } else { "were" };
                let subject = format_things(names.len(), &format!("{} global", risk.name()));
                let first = names.get(..SHOWN.min(names.len())).unwrap_or_default().join(", ");
                write!(f, "{subject} {verb} recorded, not executed: {first}")?;
                match names.len().saturating_sub(SHOWN) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::UnknownFields { file, fields } => {
                let fields: Vec<String> =
                    fields.iter().map(|field| format!("`{}`", field.escape_debug())).collect();
                write!(f, "{file}: Carton does not define {}", fields.join(", "))
            }
            Self::ValuesKept { values: 0 } => {
                f.write_str("how the parts of a tensor belong together is kept in misc/checkpoint.json")
            }
            Self::ValuesKept { values } => {
                let verb = if *values == 1 { "is" } else { "are" };
                write!(f, "{} {verb} kept in misc/checkpoint.json", format_things(*values, "value"))
            }
        }
    }
}

/// Returns at most three architectures of the same maker and line, such as qwen2 and qwen3 for `qwen3_next`. What is called GPT has
/// little else in common.
fn family(name: &str) -> Vec<&'static str> {
    let line = |name: &str| -> String { name.chars().take_while(char::is_ascii_alphabetic).collect() };
    let of_family = |known: &&'static str| line(known) == line(name) && line(name) != "gpt";
    decoder::architectures().filter(of_family).take(3).collect()
}

fn write_no_logits(f: &mut fmt::Formatter<'_>, dtype: Dtype) -> fmt::Result {
    write!(f, "the self test has tokens and no expected logits: ")?;
    write!(f, "those of {dtype} weights depend on the program that runs them")
}

fn write_quantized(f: &mut fmt::Formatter<'_>, method: &str) -> fmt::Result {
    write!(f, "the weights are quantized with {method} and written as they are stored")
}

/// Writes the first names, and the number of the remaining ones.
fn write_first_names(f: &mut fmt::Formatter<'_>, names: &[String], count: usize) -> fmt::Result {
    f.write_str(&names.join(", "))?;
    match count.saturating_sub(names.len()) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

//! Notes on an input and on the steps that changed its tensors: facts that the user should know, but not errors.

use std::fmt;
use std::path::Path;

use byte_source::{format_bytes, format_things, group_thousands};
use serde::{Serialize, Serializer};
use tensor::Dtype;
use torch_import::{Omission, OmissionKind, OmissionReason, OmissionTotal, Omissions};

use crate::CastFrom;
use crate::files::FilesNote;

/// Remark for the user; its text is one sentence without a full stop.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Note {
    /// Note on the files of the checkpoint.
    Sources(FilesNote),
    /// The name of the file promises another format, without pickles.
    OtherFormat {
        /// Extension of the name.
        named: String,
        format: String,
    },
    /// Note on one of several inputs.
    OfInput { file: String, note: Box<Note> },
    /// The values of a carton's checkpoint and its compound tensors are not known.
    ValuesUnread { reason: String },
    /// The weights were found automatically under a key of the root dict.
    UsingKey {
        key: String,
        /// Number of tensors under the key.
        tensors: u64,
        /// Name (empty for the root itself), number of tensors, and bytes of each other key.
        left_out: Vec<(String, u64, u64)>,
    },
    /// Several keys of the root hold weights, and all are kept under their full names.
    SetsKept {
        /// Name and number of tensors of each key.
        keys: Vec<(String, u64)>,
    },
    /// The state of a trainer's optimizer is left out.
    OptimizerLeftOut {
        /// Paths of its dicts.
        keys: Vec<String>,
        tensors: usize,
    },
    /// Some tensors are the factors of an adapter.
    AdapterFactors {
        /// Kind of adapter, with its article.
        form: &'static str,
    },
    /// All tensor names begin with the prefix that a wrapper adds.
    CommonPrefix { prefix: String },
    /// Wrappers of modules add parts to names.
    WrapperParts {
        /// The parts, each with its dot.
        parts: Vec<String>,
        /// Number of names that have some of them.
        names: usize,
        /// Number of all names.
        of: usize,
        /// Regular expression for the parts; `None` if names would be equal without them.
        pattern: Option<String>,
    },
    /// Quantized weights are compared as they are stored, with others that are not quantized by this method.
    ComparedAsStored { method: String },
    /// A pattern of `include` or `exclude` matches no name.
    PatternUnused { pattern: String },
    /// The prefix was removed from the start of names.
    PrefixRemoved {
        prefix: String,
        /// Number of names that began with it.
        names: usize,
        /// Number of all names.
        of: usize,
    },
    /// Parts of storages that no tensor uses are not written.
    UnusedBytes { bytes: u64 },
    /// Tensors, objects, storages or records of the files are neither tensors nor values of the checkpoint.
    LeftOut {
        /// Count and bytes of one kind of omission, with its reason.
        total: OmissionTotal,
        /// Names of the first omissions.
        names: Vec<String>,
    },
    /// No tensor has the dtype that a cast applies to.
    NothingToCast { from: CastFrom },
    /// The tokenizer in a GGUF file is not written as a document.
    GgufTokenizer { reason: String },
    /// Quantized weights are listed as they are stored, because their numbers cannot be computed.
    ListedAsStored {
        /// Reason that a conversion would be refused for.
        why: String,
    },
    /// Scales, zero points and indices are not cast.
    PartsNotCast {
        /// Number of parts of compound tensors.
        parts: usize,
    },
    /// Tensors of one dimension, such as norms and biases, are cast to an 8-bit float.
    VectorsCast {
        to: Dtype,
        /// Number of such tensors.
        count: usize,
        /// Name of the first such tensor.
        first: String,
    },
    /// Matrices are not quantized, because their rows are not whole blocks.
    NotQuantized {
        count: usize,
        /// Name of the first such matrix, and the length of its rows.
        first: String,
        columns: u64,
    },
    /// Elements are out of the range of their new dtype.
    OutOfRange {
        to: Dtype,
        /// Number of elements out of range.
        count: u64,
        /// Name of the tensor with the first element out of range.
        first: String,
    },
    /// Tensors are not those that the configuration asks for.
    NotWhole {
        /// The differences, as a list.
        differences: String,
    },
    /// The text model of several parts is taken.
    PartTaken {
        /// Modules of the other parts, and the number of their tensors.
        left_out: Vec<(String, usize)>,
    },
    /// Tensors were taken from a base.
    Completed {
        base: String,
        names: Vec<String>,
        /// Number of tensors that agree bit for bit.
        agree: usize,
        /// Number of tensors that both have.
        of: usize,
    },
    /// The tokenizer of an adapter has tokens that the base's lacks.
    AddedTokens {
        /// Name of the adapter.
        name: String,
        count: usize,
        /// The first of these tokens.
        first: Vec<String>,
    },
    /// Note on the translation into another layout.
    LayoutTranslation(decoder::DecoderNote),
}

impl byte_source::Notice for Note {}

fn write_values_unread(f: &mut fmt::Formatter<'_>, reason: &str) -> fmt::Result {
    write!(
        f,
        "misc/checkpoint.json is not read ({reason}), so the carton has no values, and parts of quantized or sparse \
                 tensors are plain tensors"
    )
}

fn write_part_taken(f: &mut fmt::Formatter<'_>, left_out: &[(String, usize)]) -> fmt::Result {
    let parts =
        left_out.iter().map(|(module, count)| format!("{module} ({})", format_things(*count, "tensor")));
    let parts: Vec<String> = parts.collect();
    write!(
        f,
        "the text model is taken, without {}",
        if parts.is_empty() { "others".to_owned() } else { parts.join(", ") }
    )
}

fn write_completed(
    f: &mut fmt::Formatter<'_>,
    base: &str,
    names: &[String],
    [agree, of]: [usize; 2],
) -> fmt::Result {
    write!(f, "{agree} of {} agree bit for bit with {base}", format_things(of, "tensor"))?;
    match names {
        [] => f.write_str(", and none is missing"),
        names => write!(f, ", which gives {}: {}", format_things(names.len(), "tensor"), names.join(", ")),
    }
}

fn write_added_tokens(f: &mut fmt::Formatter<'_>, name: &str, count: usize, first: &[String]) -> fmt::Result {
    let first: Vec<String> = first.iter().map(|token| format!("`{}`", token.escape_debug())).collect();
    write!(
        f,
        "the tokenizer of {name} has {} that the base's lacks, such as {}; the output keeps the base's tokenizer",
        format_things(count, "token"),
        first.join(", ")
    )
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sources(note) => note.fmt(f),
            Self::OtherFormat { named, format } => {
                write!(f, "its name ends in .{named}, and its format is {format}")
            }
            Self::OfInput { file, note } => write!(f, "{file}: {note}"),
            Self::LayoutTranslation(note) => note.fmt(f),
            Self::PartTaken { left_out } => write_part_taken(f, left_out),
            Self::Completed { base, names, agree, of } => write_completed(f, base, names, [*agree, *of]),
            Self::AddedTokens { name, count, first } => write_added_tokens(f, name, *count, first),
            Self::NotWhole { differences } => write!(f, "the model is not whole: {differences}"),
            Self::ValuesUnread { reason } => write_values_unread(f, reason),
            Self::UsingKey { key, tensors, left_out } => write_using_key(f, key, *tensors, left_out),
            Self::SetsKept { keys } => write_sets_kept(f, keys),
            Self::OptimizerLeftOut { keys, tensors } => {
                let tensors = format_things(*tensors, "tensor");
                write!(f, "the optimizer's {tensors} under {} are left out", keys.join(" and "))
            }
            Self::AdapterFactors { form } => {
                write!(
                    f,
                    "it has factors of {form}, which change the weights of a base only when they are merged"
                )
            }
            Self::CommonPrefix { prefix } => write!(f, "every name starts with `{prefix}`"),
            Self::WrapperParts { parts, names, of, pattern } => {
                write!(
                    f,
                    "wrappers add `{}` to {names} of {}",
                    parts.join("` and `"),
                    format_things(*of, "name")
                )?;
                if pattern.is_none() { f.write_str(", and without it names would be equal") } else { Ok(()) }
            }
            Self::ComparedAsStored { method } => {
                write!(f, "the weights are quantized with {method} and compared as they are stored")
            }
            Self::PatternUnused { pattern } => write!(f, "no name matches `{pattern}`"),
            Self::PrefixRemoved { prefix, names, of } => write_prefix_removed(f, prefix, *names, *of),
            Self::UnusedBytes { bytes } => {
                write!(f, "{} of storages are not written, because no tensor uses them", format_bytes(*bytes))
            }
            Self::LeftOut { total, names } => write_left_out(f, total, names),
            Self::GgufTokenizer { reason } => write!(f, "the tokenizer stays in the GGUF file: {reason}"),
            Self::NothingToCast { from } => write!(f, "nothing to cast: no tensor is {from}"),
            Self::ListedAsStored { why } => write_listed_as_stored(f, why),
            Self::PartsNotCast { parts } => write_parts_not_cast(f, *parts),
            Self::NotQuantized { count, first, columns } => write!(
                f,
                "not quantized but float32: {}, such as `{first}`, whose rows of {columns} numbers are not whole blocks of 32",
                format_things(*count, "tensor"),
            ),
            Self::OutOfRange { to, count, first } => write_out_of_range(f, *to, *count, first),
            Self::VectorsCast { to, count, first } => {
                let tensors = format_things(*count, "tensor");
                write!(f, "{tensors} of one dimension, such as `{first}`, ")?;
                write!(
                    f,
                    "{} {to}; models usually keep norms and biases wider",
                    if *count == 1 { "becomes" } else { "become" }
                )
            }
        }
    }
}

fn write_prefix_removed(f: &mut fmt::Formatter<'_>, prefix: &str, names: usize, of: usize) -> fmt::Result {
    if names == of {
        return write!(f, "`{prefix}` was removed from {}", format_things(of, "name"));
    }
    let others = format_things(of.saturating_sub(names), "name");
    write!(f, "`{prefix}` was removed from {names} of {of} names; {others} did not start with it")
}

fn write_left_out(f: &mut fmt::Formatter<'_>, total: &OmissionTotal, names: &[String]) -> fmt::Result {
    let thing = match total.kind {
        OmissionKind::Tensor => "tensor",
        OmissionKind::Object => "object",
        OmissionKind::Storage => "storage",
        _ => "record",
    };
    let (things, bytes) = (format_things(total.count, thing), format_bytes(total.nbytes));
    write!(f, "left out {things} ({bytes}), {}", omission_reason_text(total))?;
    for (index, name) in names.iter().enumerate() {
        write!(f, "{}{name}", if index == 0 { ": " } else { ", " })?;
    }
    match total.count.saturating_sub(names.len()) {
        more if more > 0 && !names.is_empty() => write!(f, " and {more} more"),
        _ => Ok(()),
    }
}

fn write_using_key(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    tensors: u64,
    left_out: &[(String, u64, u64)],
) -> fmt::Result {
    let s = if tensors == 1 { "" } else { "s" };
    write!(f, "using key `{key}` ({} tensor{s})", group_thousands(tensors))?;
    for (index, (key, tensors, nbytes)) in left_out.iter().enumerate() {
        f.write_str(if index == 0 { "; left out " } else { ", " })?;
        write!(f, "{} ({}) ", group_thousands(*tensors), format_bytes(*nbytes))?;
        if key.is_empty() {
            f.write_str("at the root")?;
        } else {
            write!(f, "under `{key}`")?;
        }
    }
    Ok(())
}

fn write_sets_kept(f: &mut fmt::Formatter<'_>, keys: &[(String, u64)]) -> fmt::Result {
    f.write_str("all tensors are kept under their full names: ")?;
    for (index, (key, tensors)) in keys.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(f, "{separator}{} under `{key}`", group_thousands(*tensors))?;
    }
    Ok(())
}

fn write_listed_as_stored(f: &mut fmt::Formatter<'_>, why: &str) -> fmt::Result {
    write!(f, "the quantized weights are listed as they are stored: {why}")
}

fn write_parts_not_cast(f: &mut fmt::Formatter<'_>, parts: usize) -> fmt::Result {
    let verb = if parts == 1 { "keeps its dtype" } else { "keep their dtypes" };
    write!(
        f,
        "{} of quantized, sparse or nested tensors {verb}: scales and indices",
        format_things(parts, "part")
    )
}

fn write_out_of_range(f: &mut fmt::Formatter<'_>, to: Dtype, count: u64, first: &str) -> fmt::Result {
    let (s, verb) = if count == 1 { ("", "is") } else { ("s", "are") };
    let (count, became, first) = (group_thousands(count), out_of_range_effect(to), first.escape_debug());
    write!(f, "{count} value{s} {verb} out of the range of {to} and {became}, first in `{first}`")
}

/// Describes the result of casting numbers out of the range of a dtype.
fn out_of_range_effect(to: Dtype) -> &'static str {
    match to {
        Dtype::Float8E4M3Fn => "became the largest one",
        Dtype::Float8E4M3FnUz | Dtype::Float8E5M2FnUz | Dtype::Float8E8M0FnU => "became NaN",
        to if to.is_floating_point() => "became infinite",
        Dtype::Complex128 | Dtype::Complex64 | Dtype::Complex32 | Dtype::BComplex32 => "became infinite",
        _ => "wrapped around",
    }
}

impl Note {
    /// Creates a note on tensors of which some are the factors of an adapter.
    pub fn of_factors<'n>(names: impl Iterator<Item = &'n str>) -> Option<Self> {
        adapter::factor_form(names).map(|form| Self::AdapterFactors { form })
    }

    /// Creates a note on a file whose name promises a format without pickles, and which has another one.
    pub fn of_other_format(file: &Path, format: &str) -> Option<Self> {
        let named = file.extension()?.to_str()?.to_lowercase();
        let is_other = ["safetensors", "gguf"].contains(&named.as_str()) && named != format;
        is_other.then(|| Self::OtherFormat { named, format: format.to_owned() })
    }

    /// Creates a note for each reason for which something is left out, except constants and the objects of exported programs, which
    /// the notes of the container and of the checkpoint report.
    pub fn omission_notes(left_out: &Omissions) -> Vec<Self> {
        const SHOWN: usize = 3;
        let totals = left_out.totals.iter();
        let totals = totals
            .filter(|total| !matches!(total.reason, OmissionReason::Constant | OmissionReason::Pickled));
        let note = |total: &OmissionTotal| {
            let same = |omission: &&Omission| (omission.kind, omission.reason) == (total.kind, total.reason);
            let names = left_out.listed.iter().filter(same).filter(|omission| !omission.name.is_empty());
            let names = names.take(SHOWN).map(|omission| omission.name.clone()).collect();
            Self::LeftOut { total: *total, names }
        };
        totals.map(note).collect()
    }
}

/// Returns the reason of an omission, as the end of a sentence.
fn omission_reason_text(total: &OmissionTotal) -> &'static str {
    let is_one = total.count == 1;
    let either = |one, several| if is_one { one } else { several };
    match total.reason {
        OmissionReason::Attribute => either(
            "an attribute that state_dict() does not return",
            "attributes that state_dict() does not return",
        ),
        OmissionReason::NonPersistentBuffer => either(
            "a non-persistent buffer, which state_dict() does not return",
            "non-persistent buffers, which state_dict() does not return",
        ),
        OmissionReason::Hook => "used by hooks of modules",
        OmissionReason::Replaced => either(
            "because a later value of the same key replaces it",
            "because later values of the same keys replace them",
        ),
        OmissionReason::TensorAttribute => {
            either("an attribute of another tensor", "attributes of other tensors")
        }
        OmissionReason::DictAttribute => either("an attribute of a dict", "attributes of dicts"),
        OmissionReason::DictKey => either("part of a dict's key", "parts of dicts' keys"),
        OmissionReason::InValue => "used in values that are not tensors",
        OmissionReason::Unreferenced => "which nothing in the checkpoint refers to",
        OmissionReason::Constant => "used by the archive's code",
        OmissionReason::MobileCode => "with code for mobile devices",
        OmissionReason::CompiledCode => "compiled code, which may have weights in it",
        OmissionReason::ExtraFile => either("an extra file", "extra files"),
        OmissionReason::TracedInput => "the inputs that the model was traced with",
        OmissionReason::UnknownRecord => "not part of a checkpoint",
        _ if total.kind == OmissionKind::Storage => "which no tensor uses",
        _ => "which no name leads to",
    }
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_agree_with_their_counts() {
        let one = Note::PartsNotCast { parts: 1 }.to_string();
        assert_eq!(one, "1 part of quantized, sparse or nested tensors keeps its dtype: scales and indices");
        let two = Note::PartsNotCast { parts: 2 }.to_string();
        assert_eq!(
            two,
            "2 parts of quantized, sparse or nested tensors keep their dtypes: scales and indices"
        );
        let text = |reason, count| {
            omission_reason_text(&OmissionTotal { kind: OmissionKind::Object, reason, count, nbytes: 0 })
        };
        assert_eq!(text(OmissionReason::Attribute, 1), "an attribute that state_dict() does not return");
        assert_eq!(text(OmissionReason::Attribute, 2), "attributes that state_dict() does not return");
        assert_eq!(text(OmissionReason::Hook, 1), "used by hooks of modules");
    }
}

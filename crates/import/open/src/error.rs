//! Problems of opening inputs and of changing their tensors.
//!
//! Each text is complete without the place of the error. The program that prints it adds the remedy.

use std::path::Path;

use byte_source::{Error, Place, RecordDamaged, details};
use carton_format::DocumentProblems;
use tensor::{Dtype, Tensors};
use torch_import::{CheckpointNote, Container};

use crate::AdapterOverview;
use crate::error_text::{key_list, with_tensors_under};

/// Reasons for which an input cannot be opened, or its tensors cannot be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A path that should be merged has no adapter.
    #[error(
        "no adapter_config.json with adapter_model.safetensors or adapter_model.bin was found; expected the folder that \
         save_pretrained of peft writes"
    )]
    NoAdapter,
    /// A file that should be merged is an adapter in a form that is not read.
    #[error("it is {form}; expected the folder of an adapter of peft, with its adapter_config.json")]
    AdapterForm {
        /// The form, with its article.
        form: &'static str,
    },
    /// The input is an adapter, which has no weights of its base.
    #[error(
        "this is an adapter{}, and not a model",
        overview.base.as_ref().map_or_else(String::new, |base| format!(" for {base}"))
    )]
    AdapterAlone { overview: Box<AdapterOverview> },
    /// A pickle names a global that can run code, and the options do not allow such globals.
    #[error("its pickle names `{global}` at offset 0x{offset:x}, which can run code where Python loads it")]
    DangerousGlobal {
        global: String,
        /// Offset of the opcode that names the global, in bytes from the start of the pickle.
        offset: u64,
    },
    /// A pickle names a global that is not known, or uses one of the standard library, torch or numpy in a way that nobody has
    /// judged, and the options do not allow that.
    #[error(
        "its pickle names `{global}` at offset 0x{offset:x}, which {}",
        unjudged_use.map_or_else(|| "is not known".to_owned(), |use_text| format!("{use_text}: nobody has judged what that runs"))
    )]
    UnknownGlobal {
        global: String,
        /// Offset of the opcode that names the global, in bytes from the start of the pickle.
        offset: u64,
        /// Use that was not judged, as the end of a sentence about the global; `None` if the global is not known.
        unjudged_use: Option<&'static str>,
    },
    /// The checkpoint contains no tensors.
    #[error(
        "it contains no tensors{}",
        if *constants > 0 { ", because its code has them as constants, as that of a frozen module" } else { "" }
    )]
    NoTensors {
        /// Number of tensors among the constants of a TorchScript archive's code.
        constants: u64,
    },
    /// NumPy's arrays have fewer dimensions than a tensor that is to be shown or written as one.
    #[error("it has {found} dimensions, and NumPy arrays have at most {limit}")]
    Dimensions { found: usize, limit: usize },
    /// The text of a tensor would have too many elements.
    #[error("it would print {found} elements, more than {limit}")]
    TooManyElements { found: u64, limit: u64 },
    /// The elements of a tensor that is to be shown or written as an array are not numbers.
    #[error("it has elements of dtype {0}, which are not numbers")]
    NotNumbers(Dtype),
    /// No tensor is under the key, or the patterns exclude all of them.
    #[error("no tensor is under `{key}`, or the patterns exclude them all{}", with_tensors_under(under))]
    NoTensorsUnderKey {
        key: String,
        /// First keys of the root dict that contain tensors.
        under: Vec<String>,
    },
    /// Views repeat the bytes of their storages, so hashing them would read many times the input.
    #[error(
        "the tensors have {nbytes} bytes, because views repeat bytes: more than {allowed}, the limit for this input"
    )]
    DigestExpansion {
        /// Bytes of the tensors.
        nbytes: u64,
        /// Largest number of bytes.
        allowed: u64,
    },
    /// The patterns exclude every tensor.
    #[error("the patterns exclude every tensor")]
    AllTensorsExcluded,
    /// No name of a selected tensor begins with the prefix to remove.
    #[error("no tensor that is kept has a name that begins with `{prefix}`")]
    NoSuchPrefix { prefix: String },
    /// A regular expression matches none of the tensor names.
    #[error("no tensor that is kept has a name that matches `{pattern}`")]
    NothingRenamed { pattern: String },
    /// A renamed tensor would have an empty name.
    #[error("`{}` would have no name", name.escape_debug())]
    EmptyName {
        /// Name of the tensor before renaming.
        name: String,
    },
    /// Two renamed tensors would have the same name.
    #[error("{}", same_name_text(name, first, second))]
    SameName {
        /// Common name after renaming.
        name: String,
        /// Name of the first tensor before renaming.
        first: String,
        /// Name of the second tensor before renaming.
        second: String,
    },
    /// Two tensors of the input have the same name, and both are selected.
    #[error("two tensors have the name `{}`: {first} and {second}", name.escape_debug())]
    TwoOfOneName {
        name: String,
        /// Path of the first tensor, as Python subscripts.
        first: String,
        /// Path of the second tensor, as Python subscripts.
        second: String,
        /// Name of the second tensor in a listing.
        listed: String,
    },
    /// Two tensors would have the same name without the prefix to remove.
    #[error("{}", same_name_text(name, first, second))]
    SameNameWithoutPrefix {
        /// Common name without the prefix.
        name: String,
        /// Name of the first tensor in the input.
        first: String,
        /// Name of the second tensor in the input.
        second: String,
    },
    /// Several keys of the root dict contain weights.
    #[error("several keys hold weights: {}", key_list(keys))]
    SeveralKeys {
        /// Name, number of tensors, and number of tensor bytes of each key.
        keys: Vec<(String, u64, u64)>,
    },
    /// The dtype of a tensor cannot be cast to the requested one.
    #[error("{from} cannot be cast to {to}")]
    CannotCast { from: Dtype, to: Dtype },
    /// No matrix of a decoder has rows of whole blocks.
    #[error(
        "its rows have {columns} numbers, a block of q8_0 has 32, and no matrix has rows of whole blocks"
    )]
    NoWholeBlocks { columns: u64 },
    /// The elements of a tensor are codes of a quantized weight, and a cast would give other weights.
    #[error("its {from} numbers are codes, which `{}` gives a meaning, and cannot be cast to {to}", companion.escape_debug())]
    CodesCast { from: Dtype, to: Dtype, companion: String },
    /// A model of Megatron-LM was trained with a setting that its names do not show, and no other layout has.
    #[error("it was trained with `{setting}`, and weights of this kind are not translated")]
    MegatronSetting { setting: String },
    /// No configuration says which tensors the model has.
    #[error("there is no config.json that says what tensors the model has")]
    NoConfiguration,
    /// The configuration does not say which tensors the model has.
    #[error("config.json does not say what tensors the model has: {reason}")]
    Configuration { reason: families::Error },
    /// Most tensors are not those of the model of the configuration.
    #[error("{known} of {of} tensors have names of a `{}`, which config.json describes", model_type.escape_debug())]
    NamesOfAnother { model_type: String, known: usize, of: usize },
    /// The tensors cannot get the names of another layout.
    #[error("{reason}")]
    Untranslatable { reason: families::Error },
    /// A layout has tensors that another one has, too.
    #[error("`{}` and `{}` are the same tensor in two layouts", first.escape_debug(), second.escape_debug())]
    InTwoLayouts { first: String, second: String },
    /// Tensors are not those that the configuration asks for.
    #[error("it is not whole: {comparison}")]
    NotWhole {
        comparison: Box<families::ModelComparison>,
        /// Start of all names, without which they are those of the model.
        prefix: Option<&'static str>,
    },
    /// Tensors of a part that is taken are not those that its configuration asks for.
    #[error("its text model is not whole: {comparison}")]
    PartNotWhole { comparison: Box<families::ModelComparison> },
    /// A base has another configuration than the model that it should complete.
    #[error("it is not its base: config.json has other values of {}", keys.join(", "))]
    OtherConfiguration { keys: Vec<String> },
    /// No tensor of a base is one of the model that it should complete.
    #[error(
        "it is not its base: {agree} of {of} tensors agree bit for bit{}",
        if *agree == 0 { "" } else { ", and each of them is one number repeated" }
    )]
    NotItsBase { agree: usize, of: usize },
    /// A base lacks a tensor that it should give.
    #[error("it has no tensor `{}` either", name.escape_debug())]
    NotInBase { name: String },
    /// A tensor of a base has another shape.
    #[error("`{}` has the shape {found:?}, and {expected:?} is needed", name.escape_debug())]
    OtherShape { name: String, expected: Vec<u64>, found: Vec<u64> },
    /// A tensor of the base has another dtype than the same tensors in other layers.
    #[error("`{}` is {found}, and {expected} is needed", name.escape_debug())]
    OtherDtype { name: String, expected: Dtype, found: Dtype },
    /// A document of an input or of the options is not one of a carton. The text counts its problems.
    #[error("{}", .0.count_text())]
    Document(DocumentProblems),
    /// A selected tensor has no data.
    #[error("tensor `{name}` has no data: it is {what}")]
    NoData {
        /// Name of the tensor.
        name: String,
        /// Kind of the tensor with its article.
        what: String,
    },
}

details! {
    Problem => Problem::place {
        Input: NoAdapter, AdapterAlone, DangerousGlobal, UnknownGlobal, NoTensors, SeveralKeys, TwoOfOneName, NoData,
            NoConfiguration, NamesOfAnother, Untranslatable, InTwoLayouts, NotWhole, PartNotWhole, OtherConfiguration,
            NotItsBase, NotInBase, OtherShape, OtherDtype, Document;
        Option: NoTensorsUnderKey, DigestExpansion, AllTensorsExcluded, NoSuchPrefix, NothingRenamed, EmptyName, SameName,
            SameNameWithoutPrefix, CannotCast, CodesCast, NoWholeBlocks;
        Unsupported: AdapterForm, Dimensions, TooManyElements, NotNumbers, MegatronSetting, Configuration;
    }
}

impl Problem {
    fn place(&self) -> Place {
        match self {
            Self::DangerousGlobal { offset, .. } | Self::UnknownGlobal { offset, .. } => {
                Place::offset(*offset)
            }
            Self::NoData { name, .. } => Place::tensor(name),
            _ => Place::default(),
        }
    }
}

fn same_name_text(name: &str, first: &str, second: &str) -> String {
    let [name, first, second] = [name, first, second].map(str::escape_debug);
    format!("`{first}` and `{second}` would both be called `{name}`")
}

/// Adds the path of the carton that is opened. A document that does not follow the specification is a wrong input.
pub fn in_carton(path: &Path) -> impl Fn(Error) -> Error + '_ {
    move |error| match error.detail() {
        Some(carton_format::Problem::Document(problems)) => {
            Error::from(Problem::Document(problems.clone())).in_file(path)
        }
        _ => error.in_file(path),
    }
}

/// Adds to the error that there are no tensors how many the code has.
pub(crate) fn with_constants(error: Error, containers: &[Container]) -> Error {
    match error.detail() {
        Some(Problem::NoTensors { .. }) => Problem::NoTensors { constants: constants(containers) }.into(),
        _ => error,
    }
}

/// Returns the number of tensors among the constants of TorchScript archives' code.
fn constants(containers: &[Container]) -> u64 {
    let tensors = |note: &CheckpointNote| match note {
        CheckpointNote::Constants { tensors, .. } => *tensors,
        _ => 0,
    };
    containers.iter().flat_map(Container::notes).map(tensors).fold(0, u64::saturating_add)
}

/// Adds the name of the first tensor that reads the damaged record, if the error is about damage and names no tensor yet.
#[must_use]
pub fn name_damaged_tensor(error: Error, tensors: &Tensors) -> Error {
    if error.detail::<RecordDamaged>().is_none() {
        return error;
    }
    let place = error.location();
    match tensors.iter().find(|(_, tensor)| tensor.storage().reads_record(&place)) {
        Some((name, _)) => error.in_tensor(name),
        None => error,
    }
}

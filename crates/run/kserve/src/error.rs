//! Errors in requests and responses, with the HTTP status of the error response.
//!
//! An error message includes the message of its cause, so these errors have no `source`.
//!
//! Facts: status codes of Triton 2.51, but 400 for a malformed request to which Triton responds with another code.

use std::fmt;

use serde::Serialize;

use crate::json_problem::JsonProblem;
use crate::{Datatype, HEADER_LENGTH};

/// Result with the [`Error`] of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error in a request, or in a response to be sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server has no model of this name.
    #[error("unknown model `{}`", model.escape_debug())]
    UnknownModel { model: String },
    /// The model has no such version.
    #[error("model `{}` has no version `{}`", model.escape_debug(), version.escape_debug())]
    UnknownVersion { model: String, version: String },
    /// The `Content-Encoding` of the body is not supported.
    #[error("unknown Content-Encoding `{}`, expected gzip, deflate or identity", encoding.escape_debug())]
    UnknownEncoding { encoding: String },
    /// The queue of the model is full.
    #[error("model `{}` is busy: {waiting} requests are waiting for it already", model.escape_debug())]
    Busy { model: String, waiting: usize },
    /// The body has no JSON.
    #[error("the body is empty, expected an inference request in JSON")]
    Empty,
    /// The value of the header [`HEADER_LENGTH`] is not a number, or exceeds the length of the body.
    #[error("{HEADER_LENGTH} is `{}`, expected a number of bytes from 0 to {body}, the length of the body", found.escape_debug())]
    HeaderLength {
        found: String,
        /// Length of the decompressed body in bytes.
        body: usize,
    },
    /// The JSON is malformed, or a value in it has the wrong type.
    #[error("the JSON is wrong at byte {at}{}: {problem}", DisplayPath(path))]
    Json {
        /// Byte offset from the start of the JSON.
        at: usize,
        /// Path of the member, such as `inputs[0].shape`; empty for the whole document.
        path: String,
        problem: JsonProblem,
    },
    /// A tensor does not have exactly one of `data`, `binary_data_size` and `shared_memory_region`.
    #[error(
        "{tensor} must have exactly one of `data`, `binary_data_size` and `shared_memory_region`, and has {found}"
    )]
    DataLocation { tensor: TensorLabel, found: &'static str },
    /// A request uses a parameter of an unsupported protocol extension.
    #[error("{tensor} has the parameter `{parameter}`, which is not supported")]
    UnsupportedParameter { tensor: TensorLabel, parameter: &'static str },
    /// The datatype name is unknown.
    #[error("{tensor} has the unknown datatype `{}`", found.escape_debug())]
    UnknownDatatype { tensor: TensorLabel, found: String },
    /// The datatype has no JSON form.
    #[error("{tensor} is {datatype}, which has no JSON form: it can only be sent as bytes (`{parameter}`)")]
    NoJson {
        tensor: TensorLabel,
        datatype: Datatype,
        /// Parameter that selects binary data for the tensor.
        parameter: &'static str,
    },
    /// A BYTES element to be written as JSON is not UTF-8.
    #[error(
        "{tensor} has bytes in element {element} that are not UTF-8: it can only be sent as bytes (`binary_data`)"
    )]
    NotUtf8Element {
        tensor: TensorLabel,
        /// Index of the element, counted from 0.
        element: u64,
    },
    /// The number of values in the JSON `data` differs from the number of elements of the shape.
    #[error(
        "{tensor}: the number of values in `data` is {found}, and its shape {} needs {expected}",
        DisplayShape(shape)
    )]
    ElementCountMismatch { tensor: TensorLabel, shape: Vec<u64>, expected: u64, found: u64 },
    /// The number of bytes differs from the size of the shape and datatype.
    #[error("{tensor} has {}, but its shape {} of {datatype} needs {expected}", DisplayByteCount(*found), DisplayShape(shape))]
    DataSizeMismatch { tensor: TensorLabel, shape: Vec<u64>, datatype: Datatype, expected: u64, found: u64 },
    /// The number of elements or bytes of a shape overflows 64 bits, or an element has 4 GiB or more.
    #[error("{tensor} has the shape {}, which has more elements than can be counted", DisplayShape(shape))]
    ShapeOverflow { tensor: TensorLabel, shape: Vec<u64> },
    /// A BOOL element is neither 0 nor 1.
    #[error("{tensor} has the byte {found} as element {element}, expected 0 or 1 for BOOL")]
    NotBool {
        tensor: TensorLabel,
        /// Index of the element, counted from 0.
        element: u64,
        found: u8,
    },
    /// The data of a BYTES tensor ends within an element.
    #[error("{tensor} ends within element {element}, which needs {}: {found} are left", DisplayByteCount(*expected))]
    TruncatedElement {
        tensor: TensorLabel,
        /// Index of the element, counted from 0.
        element: u64,
        /// Number of bytes that the length prefix, or the element with its length prefix, needs.
        expected: u64,
        found: u64,
    },
    /// The data of a BYTES tensor continues after its last element.
    #[error("{tensor} has {} after the last of its elements, of which its shape has {elements}", DisplayByteCount(*found))]
    TrailingTensorData { tensor: TensorLabel, elements: u64, found: u64 },
    /// The body ends within the binary data of a tensor.
    #[error("{tensor} has a `binary_data_size` of {expected}, but the body has {} left", DisplayByteCount(*found))]
    TruncatedBody {
        tensor: TensorLabel,
        /// Value of the parameter `binary_data_size`.
        expected: u64,
        found: u64,
    },
    /// The body continues after the binary data of the last tensor.
    #[error("the body has {} after those of its tensors", DisplayByteCount(*found))]
    TrailingBodyData { found: u64 },
    /// Two inputs or two outputs of a request have the same name.
    #[error("{tensor} appears more than once")]
    DuplicateTensorName { tensor: TensorLabel },
    /// The model has no tensor of this name.
    #[error("model `{}` has no {tensor}", model.escape_debug())]
    UnknownTensor { model: String, tensor: TensorLabel },
    /// A required input of the model is missing from the request.
    #[error("model `{}` needs {tensor}, which the request leaves out", model.escape_debug())]
    MissingInput { model: String, tensor: TensorLabel },
    /// The datatype of an input differs from the model configuration.
    #[error("{tensor} is {found}, but model `{}` takes {expected}", model.escape_debug())]
    DatatypeMismatch { model: String, tensor: TensorLabel, expected: Datatype, found: Datatype },
    /// The shape of an input does not match the model configuration.
    #[error("{tensor} has the shape {}, but model `{}` takes {}", DisplayShape(found), model.escape_debug(), DisplayDims(expected))]
    InputShapeMismatch {
        model: String,
        tensor: TensorLabel,
        /// Dimensions in the model configuration, including the batch dimension; `None` is a variable dimension.
        expected: Vec<Option<u64>>,
        found: Vec<u64>,
    },
    /// The batch of an input is larger than `max_batch_size` of the model.
    #[error("{tensor} has a batch of {found}, but model `{}` takes at most {max}", model.escape_debug())]
    BatchTooLarge { model: String, tensor: TensorLabel, max: u32, found: u64 },
    /// Two inputs have different batch sizes.
    #[error("{tensor} has a batch of {found}, but {other} has a batch of {expected}")]
    BatchSizeMismatch {
        tensor: TensorLabel,
        found: u64,
        /// Input before `tensor`, which set the expected batch size.
        other: TensorLabel,
        expected: u64,
    },
    /// A raw request is for a model that does not have exactly one required input.
    #[error("a raw request is for a model with one input, and model `{}` has {found}", model.escape_debug())]
    RawInputs { model: String, found: usize },
    /// A raw request is for an input with more than one variable dimension.
    #[error(
        "a raw request cannot give the shape of {tensor}: more than one size of {} is free",
        DisplayDims(expected)
    )]
    RawShape {
        tensor: TensorLabel,
        /// Dimensions in the model configuration, without the batch dimension; `None` is a variable dimension.
        expected: Vec<Option<u64>>,
    },
    /// A raw request is for a BYTES input whose dimensions are not fixed to one element.
    #[error("a raw request of BYTES has one element, but {tensor} takes {}", DisplayDims(expected))]
    RawBytesShape {
        tensor: TensorLabel,
        /// Dimensions in the model configuration, without the batch dimension; `None` is a variable dimension.
        expected: Vec<Option<u64>>,
    },
    /// The body of a raw request has a length that no shape of the input has.
    #[error("a raw request has {}, but {tensor} takes {}{expected}", DisplayByteCount(*found), if *multiple { "a multiple of " } else { "" })]
    RawSize {
        tensor: TensorLabel,
        /// True if the input has a variable dimension, so that every multiple of `expected` is valid.
        multiple: bool,
        /// Size of the input in bytes, with the variable dimension set to 1.
        expected: u64,
        found: u64,
    },
    /// An output of the model does not have data of its datatype and shape.
    #[error("the answer of the model is wrong: {0}")]
    InvalidModelOutput(Box<Error>),
}

impl Error {
    /// Returns the HTTP status code of the error response.
    pub fn status(&self) -> u16 {
        match self {
            Self::UnknownModel { .. } | Self::UnknownVersion { .. } => 404,
            Self::InvalidModelOutput(_) => 500,
            Self::UnknownEncoding { .. } => 501,
            Self::Busy { .. } => 503,
            _ => 400,
        }
    }

    /// Returns the JSON body of the error response.
    pub fn body(&self) -> ErrorBody {
        ErrorBody { error: self.to_string() }
    }

    /// Prepends `part` to the path of a [`Json`](Self::Json) error; other errors are returned unchanged.
    pub(crate) fn prepend_path(mut self, part: impl fmt::Display) -> Self {
        if let Self::Json { path, .. } = &mut self {
            let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
            *path = format!("{part}{dot}{path}");
        }
        self
    }
}

/// JSON body of an error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    pub error: String,
}

/// Tensor of a request or response, by direction and name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorLabel {
    Input(String),
    Output(String),
}

impl TensorLabel {
    /// Returns the name of the parameter that selects binary data for the tensor.
    pub(crate) fn binary_parameter(&self) -> &'static str {
        match self {
            Self::Input(_) => "binary_data_size",
            Self::Output(_) => "binary_data",
        }
    }
}

impl fmt::Display for TensorLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(name) => write!(f, "input `{}`", name.escape_debug()),
            Self::Output(name) => write!(f, "output `{}`", name.escape_debug()),
        }
    }
}

/// Displays the path of a JSON member as ", in `inputs[0]`"; an empty path displays nothing.
struct DisplayPath<'p>(&'p str);

impl fmt::Display for DisplayPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", in `{}`", self.0.escape_debug()) }
    }
}

/// Displays a number of bytes with its unit.
struct DisplayByteCount(u64);

impl fmt::Display for DisplayByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { "byte" } else { "bytes" })
    }
}

/// Displays the first 16 dimensions of a shape.
struct DisplayShape<'s>(&'s [u64]);

impl fmt::Display for DisplayShape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display_list(f, self.0.iter())
    }
}

/// Displays the first 16 dimensions of a model configuration, −1 for a variable dimension.
struct DisplayDims<'s>(&'s [Option<u64>]);

impl fmt::Display for DisplayDims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display_list(
            f,
            self.0.iter().map(|size| size.map_or_else(|| "-1".to_owned(), |size| size.to_string())),
        )
    }
}

/// Displays the first 16 items of a list, since a client may have sent a shape with a million dimensions.
fn display_list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = T>) -> fmt::Result {
    f.write_str("[")?;
    for (n, item) in items.enumerate() {
        match n {
            0 => write!(f, "{item}")?,
            1..16 => write!(f, ", {item}")?,
            _ => {
                f.write_str(", …")?;
                break;
            }
        }
    }
    f.write_str("]")
}

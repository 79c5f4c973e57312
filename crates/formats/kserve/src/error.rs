//! What can be wrong with a request, and with which status a server answers it.
//!
//! The texts are whole: a cause is printed within its error, so errors here have no `source`.
//!
//! Facts: statuses that Triton 2.51 answered with; 400 where it answers a broken request with something else.

use std::fmt;

use serde::Serialize;

use crate::problem::JsonProblem;
use crate::{Datatype, HEADER_LENGTH};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a request, or with a response that is to be sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server has no model of this name.
    #[error("unknown model `{}`", model.escape_debug())]
    UnknownModel {
        /// The name.
        model: String,
    },
    /// The model has no such version.
    #[error("model `{}` has no version `{}`", model.escape_debug(), version.escape_debug())]
    UnknownVersion {
        /// The model.
        model: String,
        /// The version.
        version: String,
    },
    /// The body is not compressed in a way that the server reads.
    #[error("unknown Content-Encoding `{}`, expected gzip, deflate or identity", encoding.escape_debug())]
    UnknownEncoding {
        /// The value of the header.
        encoding: String,
    },
    /// As many requests wait for the model as the server allows.
    #[error("model `{}` is busy: {waiting} requests are waiting for it already", model.escape_debug())]
    Busy {
        /// The model.
        model: String,
        /// How many requests wait.
        waiting: usize,
    },
    /// The body of a request is empty where it must have JSON.
    #[error("the body is empty, expected an inference request in JSON")]
    Empty,
    /// The header that gives the length of the JSON is not a number of bytes in the body.
    #[error("{HEADER_LENGTH} is `{}`, expected a number of bytes from 0 to {body}, the length of the body", found.escape_debug())]
    HeaderLength {
        /// The value of the header.
        found: String,
        /// The length of the body in bytes, decompressed.
        body: usize,
    },
    /// The JSON is malformed, or a value in it has the wrong type.
    #[error("the JSON is wrong at byte {at}{}: {problem}", In(path))]
    Json {
        /// Where, in bytes from the start of the JSON.
        at: usize,
        /// The member, such as `inputs[0].shape`; empty for the whole document.
        path: String,
        /// What is wrong there.
        problem: JsonProblem,
    },
    /// An input does not say where its elements are, or names several places.
    #[error(
        "{tensor} must have exactly one of `data`, `binary_data_size` and `shared_memory_region`, and has {found}"
    )]
    Contents {
        /// The tensor.
        tensor: Place,
        /// The members that it has.
        found: &'static str,
    },
    /// A request asks for an extension that this server does not have.
    #[error("{tensor} has the parameter `{parameter}`, which is not supported")]
    Unsupported {
        /// The tensor.
        tensor: Place,
        /// The parameter.
        parameter: &'static str,
    },
    /// No datatype has this name.
    #[error("{tensor} has the unknown datatype `{}`", found.escape_debug())]
    UnknownDatatype {
        /// The tensor.
        tensor: Place,
        /// The name.
        found: String,
    },
    /// Elements of this datatype cannot be written as JSON.
    #[error("{tensor} is {datatype}, which has no JSON form: it can only be sent as bytes (`{parameter}`)")]
    NoJson {
        /// The tensor.
        tensor: Place,
        /// Its datatype.
        datatype: Datatype,
        /// The parameter that sends it as bytes.
        parameter: &'static str,
    },
    /// A text of a tensor that is to be written as JSON is not UTF-8.
    #[error(
        "{tensor} has bytes in element {element} that are not UTF-8: it can only be sent as bytes (`binary_data`)"
    )]
    NotText {
        /// The tensor.
        tensor: Place,
        /// The number of the element, from 0 on.
        element: u64,
    },
    /// There are more or fewer values in JSON than the shape has elements.
    #[error(
        "{tensor}: the number of values in `data` is {found}, and its shape {} needs {expected}",
        Sizes(shape)
    )]
    Count {
        /// The tensor.
        tensor: Place,
        /// Its shape.
        shape: Vec<u64>,
        /// The elements of the shape.
        expected: u64,
        /// The values.
        found: u64,
    },
    /// There are more or fewer bytes than the shape needs.
    #[error("{tensor} has {}, but its shape {} of {datatype} needs {expected}", Amount(*found), Sizes(shape))]
    Size {
        /// The tensor.
        tensor: Place,
        /// Its shape.
        shape: Vec<u64>,
        /// Its datatype.
        datatype: Datatype,
        /// The bytes that the shape needs.
        expected: u64,
        /// The bytes that there are.
        found: u64,
    },
    /// A shape has more elements than can be counted.
    #[error("{tensor} has the shape {}, which has more elements than can be counted", Sizes(shape))]
    TooLarge {
        /// The tensor.
        tensor: Place,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// A byte of a BOOL is neither 0 nor 1.
    #[error("{tensor} has the byte {found} as element {element}, expected 0 or 1 for BOOL")]
    NotBool {
        /// The tensor.
        tensor: Place,
        /// The number of the element, from 0 on.
        element: u64,
        /// The byte.
        found: u8,
    },
    /// The lengths within a BYTES tensor do not fit its bytes.
    #[error("{tensor} ends within element {element}, which needs {}: {found} are left", Amount(*expected))]
    CutElement {
        /// The tensor.
        tensor: Place,
        /// The number of the element, from 0 on.
        element: u64,
        /// The bytes that its length, or the element itself, needs.
        expected: u64,
        /// The bytes that are left.
        found: u64,
    },
    /// Bytes follow the last element of a BYTES tensor.
    #[error("{tensor} has {} after the last of its elements, of which its shape has {elements}", Amount(*found))]
    BytesLeft {
        /// The tensor.
        tensor: Place,
        /// The elements of the shape.
        elements: u64,
        /// The bytes after them.
        found: u64,
    },
    /// The body ends before the bytes of a tensor do.
    #[error("{tensor} has a `binary_data_size` of {expected}, but the body has {} left", Amount(*found))]
    Cut {
        /// The tensor.
        tensor: Place,
        /// The bytes that it should have.
        expected: u64,
        /// The bytes that are left.
        found: u64,
    },
    /// Bytes follow those of the last tensor.
    #[error("the body has {} after those of its tensors", Amount(*found))]
    LeftOver {
        /// How many bytes follow.
        found: u64,
    },
    /// Two tensors of a request have one name.
    #[error("{tensor} appears more than once")]
    Duplicate {
        /// The tensor.
        tensor: Place,
    },
    /// The model has no tensor of this name.
    #[error("model `{}` has no {tensor}", model.escape_debug())]
    UnknownTensor {
        /// The model.
        model: String,
        /// The tensor.
        tensor: Place,
    },
    /// The request leaves out an input that the model needs.
    #[error("model `{}` needs {tensor}, which the request leaves out", model.escape_debug())]
    MissingInput {
        /// The model.
        model: String,
        /// The input.
        tensor: Place,
    },
    /// The model takes another datatype.
    #[error("{tensor} is {found}, but model `{}` takes {expected}", model.escape_debug())]
    Datatype {
        /// The model.
        model: String,
        /// The tensor.
        tensor: Place,
        /// The datatype that the model takes.
        expected: Datatype,
        /// The datatype in the request.
        found: Datatype,
    },
    /// The model takes other shapes.
    #[error("{tensor} has the shape {}, but model `{}` takes {}", Sizes(found), model.escape_debug(), Pattern(expected))]
    Shape {
        /// The model.
        model: String,
        /// The tensor.
        tensor: Place,
        /// The sizes that the model takes; `None` is any.
        expected: Vec<Option<u64>>,
        /// The shape in the request.
        found: Vec<u64>,
    },
    /// The batch is larger than the model allows.
    #[error("{tensor} has a batch of {found}, but model `{}` takes at most {max}", model.escape_debug())]
    Batch {
        /// The model.
        model: String,
        /// The tensor.
        tensor: Place,
        /// The largest batch.
        max: u32,
        /// The batch in the request.
        found: u64,
    },
    /// Two inputs have different batches.
    #[error("{tensor} has a batch of {found}, but {other} has a batch of {expected}")]
    Batches {
        /// The tensor.
        tensor: Place,
        /// The batch in the request.
        found: u64,
        /// A tensor before it.
        other: Place,
        /// The batch of that one.
        expected: u64,
    },
    /// A raw request is for a model that does not have exactly one input.
    #[error("a raw request is for a model with one input, and model `{}` has {found}", model.escape_debug())]
    RawInputs {
        /// The model.
        model: String,
        /// How many inputs it has.
        found: usize,
    },
    /// A raw request is for a model whose input has more than one free size.
    #[error(
        "a raw request cannot give the shape of {tensor}: more than one size of {} is free",
        Pattern(expected)
    )]
    RawShape {
        /// The tensor.
        tensor: Place,
        /// The sizes that the model takes, without the batch; `None` is any.
        expected: Vec<Option<u64>>,
    },
    /// A raw request is for a model whose input has BYTES of another shape than one element.
    #[error("a raw request of BYTES has one element, but {tensor} takes {}", Pattern(expected))]
    RawText {
        /// The tensor.
        tensor: Place,
        /// The sizes that the model takes, without the batch; `None` is any.
        expected: Vec<Option<u64>>,
    },
    /// A raw request has a number of bytes that no shape of the input has.
    #[error("a raw request has {}, but {tensor} takes {}{expected}", Amount(*found), if *multiple { "a multiple of " } else { "" })]
    RawSize {
        /// The tensor.
        tensor: Place,
        /// Whether any multiple of the expected bytes fits.
        multiple: bool,
        /// The bytes that the input takes.
        expected: u64,
        /// The bytes that there are.
        found: u64,
    },
    /// A tensor that the model returned is not what the model said.
    #[error("the answer of the model is wrong: {0}")]
    Output(Box<Error>),
}

impl Error {
    /// The status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::UnknownModel { .. } | Self::UnknownVersion { .. } => 404,
            Self::Output(_) => 500,
            Self::UnknownEncoding { .. } => 501,
            Self::Busy { .. } => 503,
            _ => 400,
        }
    }

    /// The body of the answer.
    pub fn body(&self) -> ErrorBody {
        ErrorBody { error: self.to_string() }
    }

    /// This error with a part of the path in front of its own.
    pub(crate) fn within(mut self, part: impl fmt::Display) -> Self {
        if let Self::Json { path, .. } = &mut self {
            let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
            *path = format!("{part}{dot}{path}");
        }
        self
    }
}

/// The body of an answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    /// What is wrong.
    pub error: String,
}

/// A part of a request or a response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The input of this name.
    Input(String),
    /// The output of this name.
    Output(String),
}

impl Place {
    /// The parameter that sends the tensor as bytes.
    pub(crate) fn binary_parameter(&self) -> &'static str {
        match self {
            Self::Input(_) => "binary_data_size",
            Self::Output(_) => "binary_data",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(name) => write!(f, "input `{}`", name.escape_debug()),
            Self::Output(name) => write!(f, "output `{}`", name.escape_debug()),
        }
    }
}

/// Prints ", in `inputs[0]`", or nothing.
struct In<'p>(&'p str);

impl fmt::Display for In<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", in `{}`", self.0.escape_debug()) }
    }
}

/// Prints a number of bytes.
struct Amount(u64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { "byte" } else { "bytes" })
    }
}

/// Prints the first sizes of a shape.
struct Sizes<'s>(&'s [u64]);

impl fmt::Display for Sizes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.0.iter())
    }
}

/// Prints the sizes that a model takes, −1 for any.
struct Pattern<'s>(&'s [Option<u64>]);

impl fmt::Display for Pattern<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.0.iter().map(|size| size.map_or_else(|| "-1".to_owned(), |size| size.to_string())))
    }
}

/// Prints a list; a client may have sent a million sizes, of which the first are enough.
fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = T>) -> fmt::Result {
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

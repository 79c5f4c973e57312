//! The parameters of requests, tensors and responses.
//!
//! Facts: "Parameters Extension" of Triton's protocol: strings, booleans, integers and doubles.

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number with a fraction or an exponent.
    Double(f64),
    /// A text.
    String(String),
}

/// Parameters by name, in the order in which they were sent. Those that the binary tensor data extension defines are not
/// here: they are fields of the types.
pub type Parameters = Vec<(String, Parameter)>;

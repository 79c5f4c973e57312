//! The parameters of requests, tensors and responses.
//!
//! Facts: "Parameters Extension" of Triton's protocol: strings, booleans, integers and doubles. `sequence_id` of its "Sequence
//! Extension" is a uint64.

use crate::error::{Error, Result};
use crate::json::{Number, Reader};
use crate::problem::{JsonProblem, Kind, shortened};
use crate::write;

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above those of `Int`.
    Uint(u64),
    /// A number with a fraction or an exponent.
    Double(f64),
    /// A text.
    String(String),
}

/// Parameters by name, in the order in which they were sent. Those that the binary tensor data extension defines are not
/// here: they are fields of the types.
pub type Parameters = Vec<(String, Parameter)>;

/// Reads an object of parameters. `known` reads the values of those that are not custom, and says whether it has read one.
pub(crate) fn read(
    json: &mut Reader<'_>,
    mut known: impl FnMut(&mut Reader<'_>, &str) -> Result<bool>,
) -> Result<Parameters> {
    let mut parameters = Parameters::new();
    json.object(|json, key| {
        if !known(json, key)? {
            parameters.push((key.to_owned(), value(json)?));
        }
        Ok(())
    })?;
    Ok(parameters)
}

fn value(json: &mut Reader<'_>) -> Result<Parameter> {
    match json.kind()? {
        Kind::String => Ok(Parameter::String(json.string()?.into_owned())),
        Kind::Boolean => Ok(Parameter::Bool(json.boolean()?)),
        Kind::Number => {
            let at = json.position();
            let number = json.number()?;
            let value = match number {
                Number::Integer(text) => {
                    let int = text.parse().ok().map(Parameter::Int);
                    int.or_else(|| text.parse().ok().map(Parameter::Uint))
                }
                Number::Fraction(text) | Number::NotFinite(text) => text.parse().ok().map(Parameter::Double),
            };
            let problem = || JsonProblem::Integer { found: shortened(number.text()) };
            value.ok_or_else(|| Error::Json { at, path: String::new(), problem: problem() })
        }
        found => Err(json.error(JsonProblem::Parameter { found })),
    }
}

/// Writes the members of an object of parameters, with commas between them.
pub(crate) fn write_all(out: &mut Vec<u8>, parameters: &Parameters) {
    for (n, (key, value)) in parameters.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write::text(out, key);
        out.push(b':');
        match value {
            Parameter::Bool(value) => write::boolean(out, *value),
            Parameter::Int(value) => write::integer(out, *value),
            Parameter::Uint(value) => write::integer(out, *value),
            Parameter::Double(value) => write::f64(out, *value),
            Parameter::String(value) => write::text(out, value),
        }
    }
}

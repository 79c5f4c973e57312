//! Parameters of requests, tensors and responses.
//!
//! Facts: "Parameters Extension" of Triton's protocol: strings, booleans, integers and doubles. `sequence_id` of its
//! "Sequence Extension" is a uint64.

use crate::error::{Error, Result};
use crate::json::{JsonNumber, JsonReader};
use crate::json_problem::{JsonKind, JsonProblem, truncate_for_message};
use crate::write;

/// Value of a protocol parameter: boolean, integer, double or string.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    Bool(bool),
    Int(i64),
    /// An integer above [`i64::MAX`].
    Uint(u64),
    /// A number with a fraction or an exponent.
    Double(f64),
    String(String),
}

/// Parameter names and values in the order of the JSON object, without the parameters of the binary tensor data extension,
/// which are fields of the types.
pub type Parameters = Vec<(String, Parameter)>;

/// Reads a JSON object of parameters. `known` reads the values of protocol-defined keys; it returns false, without reading,
/// for a custom parameter.
pub(crate) fn read(
    json: &mut JsonReader<'_>,
    mut known: impl FnMut(&mut JsonReader<'_>, &str) -> Result<bool>,
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

fn value(json: &mut JsonReader<'_>) -> Result<Parameter> {
    match json.kind()? {
        JsonKind::String => Ok(Parameter::String(json.string()?.into_owned())),
        JsonKind::Boolean => Ok(Parameter::Bool(json.boolean()?)),
        JsonKind::Number => {
            let at = json.position();
            let number = json.number()?;
            let value = match number {
                JsonNumber::Integer(text) => {
                    let int = text.parse().ok().map(Parameter::Int);
                    int.or_else(|| text.parse().ok().map(Parameter::Uint))
                }
                JsonNumber::Fraction(text) | JsonNumber::NotFinite(text) => {
                    text.parse().ok().map(Parameter::Double)
                }
            };
            let problem = || JsonProblem::Integer { found: truncate_for_message(number.text()) };
            value.ok_or_else(|| Error::Json { at, path: String::new(), problem: problem() })
        }
        found => Err(json.error(JsonProblem::Parameter { found })),
    }
}

/// Writes the members of a JSON object of parameters, separated by commas, without the braces.
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

//! Values of the keys of a GGUF file as JSON.

use gguf_format::{GgufValue, ValueType};
use serde_json::{Value as Json, json};

use super::{ValueRenderer, decoded};

/// Returns the name that Python has for a type.
pub(super) fn type_name(kind: ValueType) -> &'static str {
    match kind {
        ValueType::Bool => "bool",
        ValueType::Float32 | ValueType::Float64 => "float",
        ValueType::Text => "str",
        ValueType::Array => "list",
        _ => "int",
    }
}

impl<'h> ValueRenderer<'h, 'h> {
    /// Renders a value. Recurses as deep as arrays are nested, which their reader limits.
    pub(super) fn gguf_value(&mut self, value: &GgufValue) -> Json {
        match value {
            GgufValue::UInt8(number) => json!(number),
            GgufValue::Int8(number) => json!(number),
            GgufValue::UInt16(number) => json!(number),
            GgufValue::Int16(number) => json!(number),
            GgufValue::UInt32(number) => json!(number),
            GgufValue::Int32(number) => json!(number),
            GgufValue::UInt64(number) => json!(number),
            GgufValue::Int64(number) => json!(number),
            GgufValue::Bool(is_set) => json!(is_set),
            // The shortest decimal that stands for the number in its own precision.
            GgufValue::Float32(number) => {
                decoded::float(number.to_string().parse().unwrap_or(f64::from(*number)))
            }
            GgufValue::Float64(number) => decoded::float(*number),
            GgufValue::Text(text) => {
                let shown = self.spend_bytes(text.len()).and_then(|()| value.text().map(Json::from));
                shown.unwrap_or_else(|| json!({ "$more": "str" }))
            }
            GgufValue::Array(array) => {
                let spent = usize::try_from(array.len()).ok().and_then(|len| self.spend_objects(len));
                match spent {
                    Some(()) => array.iter().map(|element| self.gguf_value(&element)).collect(),
                    None => json!({ "$more": "list" }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gguf_format::GgufArray;
    use torch_import::Checkpoint;

    use super::*;

    #[test]
    fn values_are_those_of_python() {
        let checkpoint = Checkpoint::default();
        let mut shown = ValueRenderer::new(&checkpoint);
        let mut row = |value: GgufValue| {
            let row = shown.row(String::new(), &torch_import::CheckpointValue::Gguf(value));
            format!("{} {}", row.type_name, row.value)
        };
        let integers = |len| GgufValue::Array(GgufArray::from_int32(0..len));
        assert_eq!(row(GgufValue::UInt64(u64::MAX)), "int 18446744073709551615");
        assert_eq!(row(GgufValue::Int8(-1)), "int -1");
        assert_eq!(row(GgufValue::Bool(true)), "bool true");
        assert_eq!(row(GgufValue::Float32(1e-5)), "float 0.00001");
        assert_eq!(row(GgufValue::Float32(f32::NAN)), r#"float {"$float":"nan"}"#);
        assert_eq!(row(GgufValue::Float64(0.1)), "float 0.1");
        assert_eq!(row(GgufValue::Array(GgufArray::from_texts(["a"]))), r#"list ["a"]"#);
        assert_eq!(row(integers(3)), "list [0,1,2]");
        assert_eq!(row(integers(10_001)), r#"list {"$more":"list"}"#);
    }
}

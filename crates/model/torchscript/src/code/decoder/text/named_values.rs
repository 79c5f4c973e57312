//! Attributes of a module by name.

use crate::module_tree::AttributeValue;
use crate::{Problem, Result};

pub(super) type NamedValues = Vec<(String, AttributeValue)>;

pub(super) fn size_attribute(name: &str, value: u64) -> Result<(String, AttributeValue)> {
    let value =
        i64::try_from(value).map_err(|_| Problem::TooLarge { tensor: name.to_owned(), number: value })?;
    Ok((name.to_owned(), AttributeValue::Int(value)))
}

pub(super) fn float_attribute(name: &str, value: f64) -> (String, AttributeValue) {
    (name.to_owned(), AttributeValue::Float(value))
}

pub(super) fn ints_attribute(name: &str, numbers: Vec<i64>) -> (String, AttributeValue) {
    (name.to_owned(), AttributeValue::Ints(Box::new(numbers)))
}

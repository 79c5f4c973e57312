//! Errors about hyperparameters, whose texts name the key in the document that they come from.

use std::fmt::Display;

use crate::{Error, Result};

/// Builds the error for a key, its value, and the expected value.
pub(crate) type MakeParamError<'w> = &'w dyn Fn(&str, &dyn Display, String) -> Error;

/// Returns an error for the first number that is not finite and above 0.
pub(crate) fn check_positive(wrong: MakeParamError<'_>, numbers: &[(&str, f64)]) -> Result<()> {
    match numbers.iter().find(|(_, number)| !(*number > 0.0 && number.is_finite())) {
        Some((key, number)) => Err(wrong(key, number, "a number above 0".to_owned())),
        None => Ok(()),
    }
}

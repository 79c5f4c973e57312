//! The integration tests of `carton-tools`, in one program.

mod changes;
mod code;
mod in_place;
mod tools;

use carton_tools::{Observer, Result, VerifyOptions, VerifyReport};

/// Verifies a carton whose model a conversion wrote.
fn verify(options: &VerifyOptions, observer: &dyn Observer) -> Result<VerifyReport> {
    carton_tools::verify(options, &convert::default_modules, observer)
}

//! User interface of the program, apart from the texts of the library crates.

pub(crate) mod advice;
mod advice_table;
pub(crate) mod argument_errors;
pub(crate) mod batch_progress;
pub(crate) mod carton_advice;
pub(crate) mod checkpoint_advice;
pub(crate) mod errors;
pub(crate) mod escapes;
pub(crate) mod flags;
pub(crate) mod invocation;
pub(crate) mod located_advice;
#[cfg(feature = "serve")]
pub(crate) mod log;
pub(crate) mod progress;
mod remote_advice;
pub(crate) mod run_advice;
#[cfg(feature = "serve")]
pub(crate) mod serve_advice;
pub(crate) mod shell;
pub(crate) mod signals;
pub(crate) mod stdin;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod usage;
pub(crate) mod value_text;
mod verb_options;

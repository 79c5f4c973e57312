//! Options as JSON and as texts, and the errors in their values.

pub(crate) mod invalid_option;
pub(crate) mod json;
pub mod path_json;
pub mod size_text;

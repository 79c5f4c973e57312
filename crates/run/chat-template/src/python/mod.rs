//! Python's texts of values, methods and filters, as templates use them.

mod arguments;
mod braces;
mod filters;
mod methods;
mod text;
mod values;

pub(crate) use filters::add_filters;
pub(crate) use methods::call_method;
pub(crate) use values::str_of;

//! Headers that fit the format, and headers that do not.

mod builder;
mod hostile;
mod layout;

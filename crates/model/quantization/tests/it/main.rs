//! Models whose numbers were computed by the methods' own libraries.

mod codes;
mod models;
mod refusals;
mod windows;

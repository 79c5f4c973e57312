//! Models whose numbers were computed by the methods' own libraries.

mod codes;
mod damaged;
mod gguf;
mod models;
mod refusals;
mod windows;

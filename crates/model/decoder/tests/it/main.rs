//! The integration tests of `decoder`, in one program.

mod choose;
mod documents;
mod fixtures;
mod frequencies;
mod gemma4;
mod models;
mod names;
mod plans;
mod sizes;
mod text_models;
mod views;

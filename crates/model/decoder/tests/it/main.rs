//! The integration tests of `decoder`, in one program.

mod choose;
mod documents;
mod fixtures;
mod frequencies;
mod models;
mod names;
mod plans;
mod sizes;
mod text_models;
mod views;

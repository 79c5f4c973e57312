//! The integration tests of `decoder`, in one program.

mod choose;
mod fixtures;
mod models;
mod names;
mod sizes;
mod views;

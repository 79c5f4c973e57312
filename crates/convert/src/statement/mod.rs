//! Statements of conversions: what was made from what, so that anyone can repeat it.

mod compare;
mod found;
mod request;
#[expect(clippy::module_inception, reason = "the module has the name of its type")]
mod statement;
mod verify;
pub(crate) mod write;

pub use compare::StatementFinding;
pub use verify::{StatementOptions, StatementReport, verify_statement};

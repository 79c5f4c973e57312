//! The integration tests of `convert`, in one program.

mod cancel;
mod changes;
mod checkpoints;
mod choices;
mod no_output;
mod options;
mod plan;
mod remote;
mod statement;
mod stored_outputs;
mod value_limits;

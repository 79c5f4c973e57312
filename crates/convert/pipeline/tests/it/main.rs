//! The integration tests of `pipeline`, in one program.

mod arrays;
mod cancel;
mod changes;
mod checkpoints;
mod choices;
mod no_output;
mod options;
mod plan;
mod remote;
mod stored_outputs;
mod value_limits;
mod values;

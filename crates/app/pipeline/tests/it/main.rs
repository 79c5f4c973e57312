//! The integration tests of `pipeline`, in one program.

mod cancel;
mod changes;
mod no_output;
mod plan;
mod remote;
mod stored_outputs;
mod values;

//! The integration tests of `pipeline`, in one program.

mod arrays;
mod cancel;
mod changes;
mod no_output;
mod options;
mod plan;
mod remote;
mod stored_outputs;
mod values;

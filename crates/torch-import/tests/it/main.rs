//! The integration tests of `torch-import`, in one program.

mod bombs;
mod gadgets;
mod rebuilds;
mod scan;
mod scan_edges;

//! The integration tests of `torch-import`, in one program.

mod bombs;
mod cancelled;
mod compressed_bombs;
mod configurations;
mod containers;
mod documents;
mod exported;
mod gadgets;
mod gguf;
mod pickled;
mod rebuilds;
mod scan;
mod scan_edges;
mod scan_formats;
mod scan_loaders;
mod scan_sequences;
mod texts;
mod uses;
mod uses_of_packages;

//! Snapshots of what the program prints and writes, for the inputs in this folder.
//!
//! Drop a file into `checkpoints/` or `hostile/` and run the tests: the new snapshot is in
//! `snapshots/` for review. `generate.py` made the inputs with real PyTorch.

mod against;
mod batches;
mod carton_inputs;
mod carton_refusals;
mod carton_tools;
mod cartons;
mod casts;
mod checkpoints;
mod cli;
mod compare;
mod dequantize;
mod documents;
mod download_server;
mod downloads;
mod dtypes;
mod error_texts;
mod extensions;
mod folders;
mod hidden;
mod hostile;
mod inspect_options;
mod left_out;
mod limits;
mod made;
mod manifests;
mod merge;
mod messages;
mod names;
mod notes;
mod output_paths;
mod outputs;
mod pickles;
mod processes;
mod program;
mod random_folders;
mod remote;
mod remote_folders;
mod reports;
mod resumed_batches;
mod run;
mod safetensors;
mod scan;
mod scripts;
mod selection;
mod self_tests;
mod serve;
mod shards;
mod streams;
mod sums;
mod torch_save;
mod transcripts;
mod triton;
mod walk;

//! Snapshots of what the program prints and writes, for the inputs in this folder.
//!
//! Drop a file into `checkpoints/` or `hostile/` and run the tests: the new snapshot is in
//! `snapshots/` for review. `generate.py` made the inputs with real PyTorch.

mod carton_refusals;
mod carton_tools;
mod cartons;
mod checkpoints;
mod downloads;
mod folders;
mod hostile;
mod pickles;
mod program;
mod random_folders;
mod scan;
mod shards;
mod walk;

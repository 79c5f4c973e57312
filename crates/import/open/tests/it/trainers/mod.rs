//! Tests of the layouts with folders that PyTorch 2.15 wrote. Each test changes a copy of one.

mod dcp;
mod hf_shards;
mod megatron;
mod rank_files;
mod support;

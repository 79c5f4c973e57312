//! Readers and writers of the documents next to a checkpoint: `config.json` and `params.json`.

pub(crate) mod config;
pub(crate) mod params;
pub(crate) mod positions;
pub(crate) mod written;

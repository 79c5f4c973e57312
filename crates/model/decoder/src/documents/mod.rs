//! Readers and writers of the documents next to a checkpoint: `config.json` and `params.json`.

pub(crate) mod config;
pub(crate) mod layout_document;
pub(crate) mod params;
pub(crate) mod rope_config;
pub(crate) mod token_ids;

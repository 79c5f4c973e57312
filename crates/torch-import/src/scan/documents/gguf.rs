//! Reads the chat templates in the metadata of a GGUF file.
//!
//! Facts: `llama-cpp-python` renders `tokenizer.chat_template` with Jinja; before version 0.2.72, without a sandbox.

use bytes::Bytes;
use gguf_format::{GgufHeader, GgufValue, is_gguf};

use super::judge::Judge;

/// Reads the metadata.
///
/// # Errors
/// The reason for which it was not read to its end.
pub(super) fn read(bytes: &[u8], judge: &mut Judge<'_>) -> Result<(), String> {
    if !is_gguf(bytes) {
        return Err("it has another format".to_owned());
    }
    let start = Bytes::copy_from_slice(bytes);
    let entries = GgufHeader::parse_entries(&start, start.len() as u64).map_err(|error| error.to_string())?;
    let templates = entries.iter().filter(|(key, _)| key.starts_with("tokenizer.chat_template"));
    templates.filter_map(|(_, value)| GgufValue::text(value)).for_each(|template| judge.template(&template));
    Ok(())
}

//! Formats of Meta's own folders, which have `params.json` and `tokenizer.model` and no template.
//!
//! Facts: `llama/generation.py` of Llama 2 (`<<SYS>>` inside the first `[INST]`, each answer ends with `</s>` and each turn begins
//! with `<s>`), and `llama3/tokenizer.py` of `llama-models` (a header for each message, `<|eot_id|>` at its end).

use serde_json::{Map, Value};

use crate::{Error, Result};

const LLAMA2: &str = "\
{%- set first = 1 if messages[0].role == 'system' else 0 -%}
{%- for message in messages[first:] -%}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) or message.role not in ['user', 'assistant'] -%}
{{- raise_exception('the messages after that of the system are from the user and the assistant in turns') -}}
{%- endif -%}
{%- if message.role == 'user' -%}
{{- bos_token ~ '[INST] ' -}}
{%- if loop.first and first -%}
{{- ('<<SYS>>\\n' ~ messages[0].content ~ '\\n<</SYS>>\\n\\n' ~ message.content).strip() -}}
{%- else -%}{{- message.content.strip() -}}{%- endif -%}
{{- ' [/INST]' -}}
{%- else -%}{{- ' ' ~ message.content.strip() ~ ' ' ~ eos_token -}}{%- endif -%}
{%- endfor -%}
";

const LLAMA3: &str = "\
{{- bos_token -}}
{%- for message in messages -%}
{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' ~ message.content.strip() ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}
";

/// Function that returns a document of a model by its name, or `None` if there is no such document.
pub type ReadDocument<'r, E> = dyn FnMut(&str) -> Result<Option<Vec<u8>>, E> + 'r;

/// Format of a folder with Meta's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaFormat {
    /// With a `SentencePiece` model.
    Llama2,
    /// With a list of tokens in base64.
    Llama3,
}

impl MetaFormat {
    /// Finds the format by the files next to `params.json`.
    pub(crate) fn find<E: From<Error>>(read: &mut ReadDocument<'_, E>) -> Result<Option<Self>, E> {
        if read("params.json")?.is_none() {
            return Ok(None);
        }
        // A SentencePiece model begins with a field of a protocol buffer, which is not a base64 character.
        let is_text = |bytes: Vec<u8>| bytes.first().is_some_and(u8::is_ascii_graphic);
        let format = |bytes| if is_text(bytes) { Self::Llama3 } else { Self::Llama2 };
        Ok(read("tokenizer.model")?.map(format))
    }

    pub(crate) fn template(self) -> &'static str {
        match self {
            Self::Llama2 => LLAMA2,
            Self::Llama3 => LLAMA3,
        }
    }

    pub(crate) fn tokens(self) -> Map<String, Value> {
        let [bos, eos] = match self {
            Self::Llama2 => ["<s>", "</s>"],
            Self::Llama3 => ["<|begin_of_text|>", "<|end_of_text|>"],
        };
        [("bos_token", bos), ("eos_token", eos)]
            .map(|(name, text)| (name.to_owned(), Value::String(text.to_owned())))
            .into_iter()
            .collect()
    }
}

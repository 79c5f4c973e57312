//! Reader of `tekken.json`, the tokenizer of Mistral's later models: ranks as in tiktoken's format, after special tokens.
//!
//! Facts: `mistral_common/tokens/tokenizers/tekken.py` of `mistral_common` 1.11: the ids of ranks are larger by the number of special
//! tokens, of which those without a name are called `<SPECIAL_N>`; names in a text are text; `<s>` begins a text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use super::added::AddedToken;
use super::json::JsonTokenizer;
use super::pattern::Patterns;
use super::tiktoken::{Rank, check_ranks};
use super::work;
use crate::{Error, Result};

/// Most special tokens.
const SPECIAL_MAX: u32 = 1 << 16;
/// Special tokens of the first files, which do not name them.
const NAMES: &[&str] = &[
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

#[derive(Deserialize)]
struct TekkenFile {
    config: TekkenConfig,
    vocab: Vec<RankRow>,
    #[serde(default)]
    special_tokens: Option<Vec<SpecialRow>>,
}

#[derive(Deserialize)]
struct TekkenConfig {
    pattern: String,
    default_vocab_size: u32,
    default_num_special_tokens: u32,
}

#[derive(Deserialize)]
struct RankRow {
    rank: u32,
    token_bytes: String,
}

#[derive(Deserialize)]
struct SpecialRow {
    rank: u32,
    token_str: String,
}

/// Reads a file, and returns its special tokens, too.
///
/// # Errors
/// Returns an error if the file is damaged.
pub(super) fn read(file: &str, bytes: &[u8]) -> Result<(JsonTokenizer, Vec<AddedToken>)> {
    let invalid = |reason: String| Error::Invalid { file: file.to_owned(), reason };
    let TekkenFile { config, vocab, special_tokens } =
        serde_json::from_slice(bytes).map_err(|error| invalid(error.to_string()))?;
    let count = config.default_num_special_tokens;
    if count > SPECIAL_MAX {
        return Err(invalid(format!("it has {count} special tokens, at most {SPECIAL_MAX} are used")));
    }
    let used = config.default_vocab_size.saturating_sub(count) as usize;
    let mut ranks: Vec<Rank> = Vec::with_capacity(vocab.len().min(used));
    for (place, RankRow { rank, token_bytes }) in vocab.into_iter().take(used).enumerate() {
        let token = STANDARD.decode(&token_bytes).ok().filter(|token| !token.is_empty());
        let token = token.filter(|_| rank as usize == place);
        ranks.push((token.ok_or_else(|| invalid(format!("its token {place} is damaged")))?, rank));
    }
    check_ranks(file, &ranks)?;
    let split = json!({"type": "Split", "pattern": {"Regex": config.pattern}});
    work::check_components(file, "pre_tokenizer", &split)?;
    Patterns::check(file, &[("pre_tokenizer", &split)])?;
    let mut names: Vec<String> = (0..count).map(|id| format!("<SPECIAL_{id}>")).collect();
    let own = special_tokens.map(|rows| rows.into_iter().map(|row| (row.rank, row.token_str)).collect());
    let own: Vec<(u32, String)> =
        own.unwrap_or_else(|| (0..).zip(NAMES.iter().map(|name| (*name).to_owned())).collect());
    for (id, name) in own {
        if let Some(known) = names.get_mut(id as usize) {
            *known = name;
        }
    }
    let tokenizer = JsonTokenizer::of_ranks(file, &ranks, &config.pattern, count)?;
    Ok((tokenizer, (0..).zip(names).map(|(id, name)| AddedToken::special(id, name)).collect()))
}

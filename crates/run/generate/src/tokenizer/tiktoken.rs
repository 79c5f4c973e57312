//! Reader of Llama 3's `tokenizer.model`: a line for each token, with its bytes in base64 and its rank.
//!
//! Facts: `llama_models/llama3/tokenizer.py` of Meta's `llama-models` 0.3.0, which has the regular expression and the names
//! of the special tokens. `tests/conformance/test_tokenizers.py` compares encoded texts with the crate `tiktoken`. Tokens
//! are merged in the order of the rank of the result, so a list of merges sorted by that rank is equivalent in `tokenizers`;
//! Hugging Face converts these files in this way.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::tokenizer::{AddedToken, SplitDelimiterBehavior, Tokenizer as HuggingFace};

use super::guard::catch_panics;
use crate::{Error, Result};

/// Regular expression that splits a text before tokens are merged.
const PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Special tokens with individual names, in order; reserved tokens follow, up to [`SPECIAL_TOKEN_COUNT`] in total.
const NAMED_SPECIAL_TOKENS: &[&str] = &[
    BEGIN,
    END,
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>",
    "<|step_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    END_OF_MESSAGE,
    END_OF_TURN,
    "<|python_tag|>",
    "<|image|>",
];
const SPECIAL_TOKEN_COUNT: usize = 256;
/// Maximum length of a special token's name, in bytes.
const SPECIAL_MAX: usize = 32;
const BEGIN: &str = "<|begin_of_text|>";
const END: &str = "<|end_of_text|>";
const END_OF_MESSAGE: &str = "<|eom_id|>";
const END_OF_TURN: &str = "<|eot_id|>";
/// Maximum length of a token, in bytes; Llama 3's longest has 128. Each token is split at each byte, so this bounds the
/// time.
const TOKEN_MAX: usize = 512;

/// Bytes of a token, and its rank.
pub(super) type Rank = (Vec<u8>, u32);

/// Returns true if a file has this format: its first line is base64, a space and a number.
pub(super) fn is_tiktoken(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    std::str::from_utf8(line).ok().and_then(parse_token_line).is_some()
}

/// Contents of a Llama 3 `tokenizer.model`.
pub(super) struct TiktokenFile {
    pub(super) tokenizer: HuggingFace,
    /// Ids of the tokens that end a text.
    pub(super) stops: Vec<u32>,
    /// Length of the longest token, in bytes.
    pub(super) longest: usize,
}

pub(super) fn read(file: &str, bytes: &[u8]) -> Result<TiktokenFile> {
    let ranks = read_ranks(file, bytes)?;
    // The names of special tokens have at most this length.
    let longest = longest(&ranks).max(SPECIAL_MAX);
    let mut tokenizer = tokenizer_of_ranks(file, &ranks, PATTERN, 0)?;
    catch_panics(file, || {
        let special = (0..SPECIAL_TOKEN_COUNT).map(|at| match NAMED_SPECIAL_TOKENS.get(at) {
            Some(name) => (*name).to_owned(),
            // Reserved names continue at 2.
            None => {
                format!(
                    "<|reserved_special_token_{}|>",
                    at.saturating_sub(NAMED_SPECIAL_TOKENS.len()).saturating_add(2)
                )
            }
        });
        tokenizer.add_special_tokens(special.map(|name| AddedToken::from(name, true)))?;
        let id = |name: &str| tokenizer.token_to_id(name).ok_or("a special token has no number");
        let stops = vec![id(END)?, id(END_OF_MESSAGE)?, id(END_OF_TURN)?];
        let begin = TemplateProcessing::builder()
            .try_single(format!("{BEGIN} $A"))?
            .special_tokens(vec![(BEGIN.to_owned(), id(BEGIN)?)])
            .build()?;
        tokenizer.with_post_processor(Some(begin));
        Ok(TiktokenFile { tokenizer, stops, longest })
    })
}

/// Returns the length of the longest token, in bytes.
pub(super) fn longest(ranks: &[Rank]) -> usize {
    ranks.iter().map(|(token, _)| token.len()).max().unwrap_or(0)
}

/// Creates the tokenizer of these ranks, whose ids are `offset` larger, without special tokens.
///
/// # Errors
/// Returns an error if the pattern is not understood.
pub(super) fn tokenizer_of_ranks(
    file: &str,
    ranks: &[Rank],
    pattern: &str,
    offset: u32,
) -> Result<HuggingFace> {
    let text = |token: &[u8]| token.iter().copied().map(byte_character).collect::<String>();
    let vocab = ranks.iter().map(|(token, rank)| (text(token), rank.saturating_add(offset)));
    let merges = merge_pairs(ranks).into_iter().map(|(left, right)| (text(left), text(right))).collect();
    catch_panics(file, || {
        let model = BPE::builder().vocab_and_merges(vocab.collect::<Vocab>(), merges);
        // A piece that is itself a token needs no merges, even if none lead to it.
        let mut tokenizer = HuggingFace::new(model.ignore_merges(true).build()?);
        let split =
            Split::new(SplitPattern::Regex(pattern.to_owned()), SplitDelimiterBehavior::Isolated, false)?;
        let bytes = ByteLevel::new(false, true, false);
        tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![split.into(), bytes.into()])));
        tokenizer.with_decoder(Some(bytes));
        Ok(tokenizer)
    })
}

/// Reads the tokens in the order of their ranks, which must be 0, 1, 2 and so on.
fn read_ranks(file: &str, bytes: &[u8]) -> Result<Vec<Rank>> {
    let invalid = |line: usize, reason: String| Error::Invalid {
        file: file.to_owned(),
        reason: format!("line {}: {reason}", line.saturating_add(1)),
    };
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Error::Invalid { file: file.to_owned(), reason: "it is not text".to_owned() })?;
    let mut ranks = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() {
            continue;
        }
        let (token, rank) = parse_token_line(line)
            .ok_or_else(|| invalid(number, "not base64, a space and a number".to_owned()))?;
        if token.is_empty() || token.len() > TOKEN_MAX {
            return Err(invalid(
                number,
                format!("a token of {} bytes, expected 1 to {TOKEN_MAX}", token.len()),
            ));
        }
        if ranks.len() != rank as usize {
            return Err(invalid(number, format!("rank {rank}, expected {}", ranks.len())));
        }
        ranks.push((token, rank));
    }
    check_ranks(file, &ranks)?;
    Ok(ranks)
}

/// Returns an error if two tokens are the same, a token is too long, or a byte has none.
pub(super) fn check_ranks(file: &str, ranks: &[Rank]) -> Result<()> {
    let known: HashMap<&[u8], u32> = ranks.iter().map(|(token, rank)| (token.as_slice(), *rank)).collect();
    let invalid = |reason: String| Err(Error::Invalid { file: file.to_owned(), reason });
    if known.len() != ranks.len() {
        return invalid("two tokens are the same".to_owned());
    }
    if longest(ranks) > TOKEN_MAX {
        return invalid(format!("a token has {} bytes, expected at most {TOKEN_MAX}", longest(ranks)));
    }
    match (0..=u8::MAX).find(|byte| !known.contains_key([*byte].as_slice())) {
        Some(byte) => invalid(format!("no token stands for the byte {byte}")),
        None => Ok(()),
    }
}

fn parse_token_line(line: &str) -> Option<(Vec<u8>, u32)> {
    let (token, rank) = line.trim_end_matches('\r').split_once(' ')?;
    Some((STANDARD.decode(token).ok()?, rank.parse().ok()?))
}

/// Returns the pairs of tokens that merge into another token, ordered by the rank of the result, then of the left and the
/// right token.
fn merge_pairs(ranks: &[Rank]) -> Vec<(&[u8], &[u8])> {
    let known: HashMap<&[u8], u32> = ranks.iter().map(|(token, rank)| (token.as_slice(), *rank)).collect();
    let mut merges = Vec::new();
    for (token, _) in ranks {
        let splits = (1..token.len()).filter_map(|at| {
            let (left, right) = token.split_at_checked(at)?;
            Some((*known.get(left)?, *known.get(right)?, left, right))
        });
        let mut splits: Vec<_> = splits.collect();
        splits.sort_unstable();
        merges.extend(splits.into_iter().map(|(_, _, left, right)| (left, right)));
    }
    merges
}

/// Returns the character that stands for a byte in token names: itself if it is printable, else one from U+0100.
///
/// Facts: `bytes_to_unicode` of GPT-2.
fn byte_character(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|byte| !is_printable(*byte)).count();
    u32::try_from(before)
        .ok()
        .and_then(|before| char::from_u32(before.saturating_add(0x100)))
        .unwrap_or('\u{fffd}')
}

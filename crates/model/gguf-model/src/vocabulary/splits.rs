//! How the pre-tokenizers that llama.cpp knows by name split a text.
//!
//! Facts: the `tokenizer.json` of each family, for its regular expression.

use std::slice;

use serde_json::{Value, json};

const CONTRACTIONS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const REST: &str = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const REST_WITH_SLASHES: &str = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const WORD: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+";
const LOWER_WORD: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+";
const UPPER_WORD: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*";

/// Rule by which a text is split before its bytes are merged.
enum Split {
    /// As GPT-2's are.
    Gpt2,
    /// As GPT-2's, with each digit alone.
    Digits,
    /// By the alternatives of a regular expression.
    Pattern(&'static [&'static [&'static str]]),
}

/// What is known of a pre-tokenizer.
pub(super) struct PreTokenizerRow {
    pub(super) names: &'static [&'static str],
    split: Split,
    /// True if a token is one whatever merges lead to it.
    pub(super) ignores_merges: bool,
    pub(super) adds_begin: bool,
    /// True if texts are composed first.
    pub(super) composes: bool,
}

static ROWS: &[PreTokenizerRow] = &[
    PreTokenizerRow {
        names: &["llama-bpe"],
        split: Split::Pattern(&[&[CONTRACTIONS], &[WORD], &[r"\p{N}{1,3}"], &[REST]]),
        ignores_merges: true,
        adds_begin: true,
        composes: false,
    },
    PreTokenizerRow {
        names: &["dbrx", "smaug-bpe"],
        split: Split::Pattern(&[&[CONTRACTIONS], &[WORD], &[r"\p{N}{1,3}"], &[REST]]),
        ..PLAIN
    },
    PreTokenizerRow {
        names: &["qwen2", "deepseek-r1-qwen"],
        split: Split::Pattern(&[&[CONTRACTIONS], &[WORD], &[r"\p{N}"], &[REST]]),
        composes: true,
        ..PLAIN
    },
    PreTokenizerRow {
        names: &["stablelm2"],
        split: Split::Pattern(&[&[CONTRACTIONS], &[WORD], &[r"\p{N}"], &[REST]]),
        composes: true,
        ..PLAIN
    },
    PreTokenizerRow {
        names: &["gpt-4o"],
        split: Split::Pattern(&[
            &[LOWER_WORD, CONTRACTIONS, "?"],
            &[UPPER_WORD, CONTRACTIONS, "?"],
            &[r"\p{N}{1,3}"],
            &[REST_WITH_SLASHES],
        ]),
        ..PLAIN
    },
    PreTokenizerRow {
        names: &["tekken"],
        split: Split::Pattern(&[&[LOWER_WORD], &[UPPER_WORD], &[r"\p{N}"], &[REST_WITH_SLASHES]]),
        ignores_merges: true,
        adds_begin: true,
        composes: false,
    },
    PreTokenizerRow { names: &["smollm", "starcoder"], split: Split::Digits, ..PLAIN },
    PreTokenizerRow { names: &["gpt-2", "phi-2"], ..PLAIN },
];

const PLAIN: PreTokenizerRow = PreTokenizerRow {
    names: &[],
    split: Split::Gpt2,
    ignores_merges: false,
    adds_begin: false,
    composes: false,
};

impl PreTokenizerRow {
    /// Finds a pre-tokenizer by its name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        ROWS.iter().find(|row| row.names.contains(&name))
    }

    /// Returns the names of the pre-tokenizers that split a text as the `pre_tokenizer` of a tokenizer.json does.
    pub(super) fn names_alike(pre_tokenizer: &Value) -> Vec<&'static str> {
        let rules = rules_of(pre_tokenizer);
        let rows = ROWS.iter().filter(|row| rules_of(&row.split_json()) == rules);
        rows.flat_map(|row| row.names.iter().copied()).collect()
    }

    /// Returns the `pre_tokenizer` of a tokenizer.json.
    pub(super) fn split_json(&self) -> Value {
        match &self.split {
            Split::Gpt2 => byte_level(true),
            Split::Digits => sequence(
                "pretokenizers",
                &[json!({"type": "Digits", "individual_digits": true}), byte_level(true)],
            ),
            Split::Pattern(alternatives) => {
                let pattern = Self::pattern(alternatives);
                let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
                sequence("pretokenizers", &[split, byte_level(false)])
            }
        }
    }

    /// Returns the regular expression of a split by alternatives.
    pub(super) fn pattern(alternatives: &[&[&str]]) -> String {
        alternatives.iter().map(|parts| parts.concat()).collect::<Vec<_>>().join("|")
    }
}

/// Returns the rules that decide where a text is split.
fn rules_of(pre_tokenizer: &Value) -> Vec<&str> {
    let parts = pre_tokenizer.get("pretokenizers").and_then(Value::as_array);
    let parts = parts.map_or(slice::from_ref(pre_tokenizer), Vec::as_slice);
    parts.iter().filter_map(rule_of).collect()
}

fn rule_of(part: &Value) -> Option<&str> {
    match part.get("type").and_then(Value::as_str) {
        Some("ByteLevel") if part.get("use_regex") == Some(&Value::Bool(false)) => None,
        Some("Split") => part.get("pattern")?.get("Regex")?.as_str(),
        kind => kind,
    }
}

pub(super) fn byte_level(uses_pattern: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": uses_pattern})
}

fn sequence(key: &str, parts: &[Value; 2]) -> Value {
    json!({"type": "Sequence", key: parts})
}

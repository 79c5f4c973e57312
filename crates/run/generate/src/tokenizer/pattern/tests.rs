//! The machine that counts finds what `fancy-regex` finds, and its steps bound the work.

use fancy_regex::Regex;
use proptest::prelude::*;

use super::matcher::{Steps, find_all};
use super::program::Program;

const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK: &str = r"[!\x22#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const HAN: &str = "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+";
/// Patterns of tokenizers, and others with each part of the syntax.
const PATTERNS: &[&str] = &[
    super::BYTE_LEVEL,
    LLAMA_3,
    QWEN,
    DEEPSEEK,
    O200K,
    HAN,
    r"\p{N}{1,3}",
    r"",
    r"a|",
    r"(a|ab)(c|bcd)",
    r"(?<=a)b",
    r"(?<!a)b+",
    r"(?<=ab|c).",
    r"(?>a+|b)b",
    r"a*?b",
    r"(a+?)(?=b)",
    r"(?:ab?)+",
    r"(?:a*b?)*",
    r"(?:a|b){2,3}?",
    r"^a|b$",
    r"(?m)^.|.$",
    r"\bab?\b",
    r"\B.",
    r"(?s).b",
    r"a\Z",
    r"(?i)äB",
    r"[^ab]\h",
    r"(?!a(?=b)).",
    r"(?:(?=ab)a|b)+c?",
    r"(?>(?:a|b(?!c))*)",
    r"(a?){3}b",
    r"\d{2,}?",
    r"(?<=^|\s)\w+",
];

fn matches(pattern: &str, text: &str) -> (Vec<(usize, usize)>, u64) {
    let program = Program::new(pattern).expect(pattern);
    let mut steps = Steps(u64::MAX);
    let mut found = Vec::new();
    find_all(&program, text, &mut steps, |start, end| found.push((start, end))).expect("no limit");
    (found, u64::MAX.saturating_sub(steps.0))
}

fn expected(pattern: &str, text: &str) -> Vec<(usize, usize)> {
    let regex = Regex::new(pattern).expect(pattern);
    regex
        .find_iter(text)
        .map(|found| found.expect("few steps"))
        .map(|found| (found.start(), found.end()))
        .collect()
}

proptest! {
    #[test]
    fn matches_are_those_of_the_library(text in r"[abcAB äÄ中'1\n\r\t.sS]{0,30}", at in 0..PATTERNS.len()) {
        let pattern = PATTERNS[at];
        prop_assert_eq!(matches(pattern, &text).0, expected(pattern, &text), "{}", pattern);
    }
}

#[test]
fn real_patterns_take_few_steps_for_any_text() {
    let texts = [
        "a",
        "a ",
        " ",
        "\n",
        " \n",
        "1",
        "'",
        "'s",
        "a'l ",
        ".",
        ". ",
        "ä",
        "中",
        "中a",
        "\u{301}",
        "Aa",
        "aA",
        "\t ",
        "\u{3000}x",
        "\r\n  ",
    ];
    for pattern in [super::BYTE_LEVEL, LLAMA_3, QWEN, DEEPSEEK, O200K, HAN] {
        for text in texts {
            let text = text.repeat(20_000 / text.len());
            let steps = matches(pattern, &text).1 / text.len() as u64;
            assert!(
                steps <= super::STEPS_PER_BYTE / 2,
                "{steps} steps for each byte: {pattern}, {:?}",
                &text[..4]
            );
        }
    }
}

#[test]
fn what_no_tokenizer_uses_is_refused() {
    for (pattern, reason) in [
        (r"(a)\1", "a back reference"),
        (r"(?<=a*)b", "a variable-length look-behind"),
        (r"a\Kb", r"`\K`"),
        (r"\Ga", r"`\G`"),
        (r"(a)?(?(1)b|c)", "a condition"),
        (r"((a{1,50}){1,50}){1,50}c", "parts when its repetitions are written out"),
        (r"(a", "opening paren"),
    ] {
        let found = Program::new(pattern).expect_err(pattern);
        assert!(found.to_lowercase().contains(reason) || found.contains(reason), "{pattern}: {found}");
    }
}

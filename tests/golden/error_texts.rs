//! Every error text of carton-tools, runtime and generate is in a snapshot, so that a person has read it.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use std::path::Path;

use crate::program::folder;

/// The longest part of a format string that is not replaced.
fn fixed_text(literal: &str) -> String {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    let mut chars = literal.chars();
    while let Some(c) = chars.next() {
        match c {
            '{' => {
                depth += 1;
                parts.push(String::new());
            }
            '}' => depth -= 1,
            // The line continues on the next one.
            '\\' if chars.as_str().starts_with('\n') => {
                chars = chars.as_str().trim_start().chars();
            }
            _ if depth == 0 => parts.last_mut().expect("one was pushed").push(c),
            _ => {}
        }
    }
    parts.into_iter().max_by_key(String::len).unwrap_or_default().trim().to_owned()
}

#[test]
fn every_error_text_is_in_a_snapshot() {
    let snapshots = folder().join("snapshots").read_dir().expect("they are checked in").flatten();
    let golden: String = snapshots.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let (mut count, mut missing) = (0, Vec::new());
    for file in [
        "tools/carton-tools/src/error.rs",
        "tools/carton-tools/src/npy.rs",
        "run/runtime/src/error.rs",
        "run/generate/src/error.rs",
    ] {
        let text = std::fs::read_to_string(source.join(file)).expect("a source file");
        for kind in text.split("#[error(").skip(1) {
            let Some((_, literal)) = kind.split(")]").next().and_then(|it| it.split_once('"')) else {
                continue;
            };
            let fixed = fixed_text(literal.split('"').next().unwrap_or_default());
            // A text of other libraries, and what no test can provoke: a full disk, a stopped program.
            let is_tested = fixed.len() > 2 && !UNTESTED.contains(&fixed.as_str());
            if is_tested && !golden.contains(&fixed) {
                missing.push(format!("{file}: {fixed}"));
            }
            count += usize::from(is_tested);
        }
    }
    assert!(missing.is_empty(), "no snapshot has these texts: {missing:#?}");
    assert!(count >= 30, "{count}");
}

/// Texts that need a full disk, a program that stops the work, a carton that its reader rejects first, or a program that asks
/// for outputs by name.
const UNTESTED: &[&str] = &[
    "its strings cannot be printed as TOML:",
    "`, which is neither in the carton nor in LINKS",
    "cannot compress `",
    "`, which is not packed",
    "there is no output `",
    "cannot be an output of a carton",
    "an expanded view of",
    "` is given twice",
    "is not a number (NaN)",
    "the model returned no logits",
];

//! Reads configurations of sections and lines `KEY = VALUE`, as spaCy and Python's `configparser` have them.
//!
//! Facts: `thinc.config` of thinc 9, whose values are JSON and whose sections are `[a.b.c]`; spacy-transformers gives a section
//! `transformer_config` to `from_pretrained`.

use super::json;
use super::judge::Judge;
use super::value_texts::shown;

/// Reads a configuration: each section is a map under the last part of its name.
pub(super) fn read(bytes: &[u8], judge: &mut Judge<'_>) {
    let text = crate::scan::text_encoding::decode_text(bytes);
    let text = String::from_utf8_lossy(&text);
    judge.open(true);
    let (mut has_section, mut at) = (false, 0_u64);
    // A value, the indentation of its key, and its offset. Lines that are indented further continue it.
    let mut open: Option<(String, usize, u64)> = None;
    for line in text.split('\n') {
        let start = at;
        at = at.saturating_add(line.len() as u64).saturating_add(1);
        let indent = line.len().saturating_sub(line.trim_start().len());
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some((value, ..)) = open.as_mut().filter(|(_, outer, _)| indent > *outer) {
            value.push('\n');
            value.push_str(line);
            continue;
        }
        if let Some((value, _, start)) = open.take() {
            read_value(&value, judge, start);
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            if std::mem::replace(&mut has_section, true) {
                judge.close(start);
            }
            judge.text(name.rsplit('.').next().unwrap_or_default(), start);
            judge.open(true);
        } else if let Some((key, value)) = line.split_once(['=', ':']) {
            judge.text(unquoted(key), start);
            open = Some((value.trim().to_owned(), indent, start));
        }
    }
    if let Some((value, _, start)) = open {
        read_value(&value, judge, start);
    }
    judge.close_to(0, at);
}

/// Reads a value, which may be JSON.
fn read_value(value: &str, judge: &mut Judge<'_>, at: u64) {
    if !value.starts_with(['{', '[']) {
        return judge.text(unquoted(value), at);
    }
    let depth = judge.depth();
    if !json::read(value.as_bytes(), judge) {
        judge.close_to(depth, at);
        judge.other();
        if value.contains("${") {
            judge.add_missed(|| format!("the value `{}`, into which a program puts others", shown(value)));
        }
    }
}

/// Returns a text without the blanks, quotes and comma around it.
fn unquoted(text: &str) -> &str {
    text.trim().trim_end_matches(',').trim_matches(['"', '\''])
}

//! Reads configurations of sections and lines `KEY = VALUE`, as spaCy and Python's `configparser` have them.
//!
//! Facts: `thinc.config` of thinc 9, whose values are JSON and whose sections are `[a.b.c]`; spacy-transformers gives a section
//! `transformer_config` to `from_pretrained`.

use super::judge::Judge;

/// Reads a configuration: each section is a map under the last part of its name.
pub(super) fn read(bytes: &[u8], judge: &mut Judge<'_>) {
    let text = super::decode_text(bytes);
    let text = String::from_utf8_lossy(&text);
    judge.open(true);
    let (mut has_section, mut at) = (false, 0_u64);
    for line in text.split('\n') {
        let start = at;
        at = at.saturating_add(line.len() as u64).saturating_add(1);
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            if std::mem::replace(&mut has_section, true) {
                judge.close(start);
            }
            judge.text(name.rsplit('.').next().unwrap_or_default(), start);
            judge.open(true);
        } else if let Some((key, value)) =
            line.split_once(['=', ':']).filter(|_| !line.starts_with(['#', ';']))
        {
            judge.text(unquoted(key), start);
            let value = value.trim();
            if value.starts_with(['{', '[']) {
                judge.found.texts.push(value.to_owned());
                judge.other();
            } else {
                judge.text(unquoted(value), start);
            }
        }
    }
    if has_section {
        judge.close(at);
    }
    judge.close(at);
}

/// Returns a text without the blanks, quotes and comma around it.
fn unquoted(text: &str) -> &str {
    text.trim().trim_end_matches(',').trim_matches(['"', '\''])
}

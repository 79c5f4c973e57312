//! Reads YAML: the events of all documents of a text, with the values of aliases.
//!
//! The reader follows YAML 1.2, `PyYAML` 1.1. Where they differ in what is a line, the document counts as not read.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, Tag};

use super::judge::Judge;

/// Line breaks of YAML 1.1 that are none in YAML 1.2.
const OLD_BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];
/// Bytes of the texts that have an anchor, and of those for which an alias stands, together.
const ANCHORED_MAX: usize = 16 << 20;
const MUCH_ANCHORED: &str = "its anchors have too much text";

/// Reads all documents of a text.
///
/// # Errors
/// The reason for which a part was not read as `PyYAML` may read it.
pub(super) fn read(bytes: &[u8], judge: &mut Judge<'_>) -> Result<(), String> {
    let bytes = crate::scan::text_encoding::decode_text(bytes);
    let text = std::str::from_utf8(&bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    if text.contains(OLD_BREAKS) {
        return Err("it has line breaks that readers of YAML disagree on".to_owned());
    }
    let mut parser = Parser::new_from_str(text);
    let (mut anchored, mut left) = (HashMap::<usize, String>::new(), ANCHORED_MAX);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| error.info().to_owned())?;
        let at = span.start.index() as u64;
        let is_map = matches!(event, Event::MappingStart(..));
        match event {
            Event::Scalar(text, _, anchor, tag) => {
                judge_tag(tag.as_deref(), judge, at);
                judge.text(&text, at);
                if anchor > 0 {
                    left = left.checked_sub(text.len()).ok_or(MUCH_ANCHORED)?;
                    anchored.insert(anchor, text.into_owned());
                }
            }
            Event::Alias(anchor) => match anchored.get(&anchor) {
                Some(text) => {
                    left = left.checked_sub(text.len()).ok_or(MUCH_ANCHORED)?;
                    judge.text(text, at);
                }
                // A list or a map, which was judged where it stands.
                None => judge.other(),
            },
            Event::SequenceStart(_, tag) | Event::MappingStart(_, tag) => {
                judge_tag(tag.as_deref(), judge, at);
                if !judge.open(is_map) {
                    return Ok(());
                }
            }
            Event::SequenceEnd | Event::MappingEnd => judge.close(at),
            Event::DocumentStart(_) => anchored.clear(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
    }
    Ok(())
}

fn judge_tag(tag: Option<&Tag>, judge: &mut Judge<'_>, at: u64) {
    if let Some(tag) = tag {
        judge.tag(&[tag.handle.as_str(), tag.suffix.as_str()].concat(), at);
    }
}

//! Reads texts whose names do not say what they are: documents under another extension, and data in which a program evaluates lines.
//!
//! Facts: `ParlAI` reads JSON from `model.opt`; deployed models of `NequIP` have YAML in a record `extra/config`, whose tags it
//! follows; RVC evaluates a line of `train.log`, and `PySR` the columns of a table.

use super::found::Found;
use super::judge::Judge;
use super::value_texts::is_pipe;
use super::{json, yaml};
use crate::scan::text_encoding::decode_text;

/// Extensions of programs' sources and of prose, which shows code, and of data in lines.
const OTHERS: &str = "bat c cc cpp css cu cuh go h hpp htm html ipynb java jl js jsonl lua m md mdx ndjson org pl ps1 py pyi pyx r rb rmd rs rst sh svg swift tex ts vue xml";

/// Returns true for the name of a text that is read.
pub(super) fn is_read(name: &str) -> bool {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
    !OTHERS.split(' ').any(|other| other == extension)
}

/// Reads a text.
pub(super) fn read(bytes: &[u8], judge: &mut Judge<'_>) {
    let text = decode_text(bytes);
    let start = text.trim_ascii_start();
    let is_template = start.starts_with(b"{{") || start.starts_with(b"{%");
    if !is_template && (start.starts_with(b"{") || start.starts_with(b"[")) {
        let mut is_document = json::read(&text, judge);
        if !is_document {
            judge.restart();
            is_document = yaml::read(&text, judge).is_ok();
        }
        if is_document {
            return;
        }
        judge.found = Found::default();
    }
    let text = String::from_utf8_lossy(&text);
    if text.contains("!!python/") || text.contains("tag:yaml.org,") {
        judge.restart();
        if let Err(reason) = yaml::read(text.as_bytes(), judge) {
            judge.add_missed(|| format!("its tags of YAML, because it was not read: {reason}"));
        }
        judge.restart();
    }
    // Tables of Kaldi have a key and a file in a line, or a command that a shell runs.
    let files = text.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
    for (_, file) in files.filter(|(_, file)| is_pipe(file)) {
        judge.restart();
        judge.text(file, 0);
    }
    let is_index = |line: &str| line.starts_with('\'') && line.contains("', (") && line.ends_with(')');
    if text.lines().next().is_some_and(is_index) {
        judge.add_missed(|| "an index of `dbm.dumb`, whose values `shelve` unpickles".to_owned());
    }
    for line in text.lines().filter(|line| line.contains('(')) {
        judge.code("", line);
        line.split(['\t', '"']).filter(|part| part.len() < line.len()).for_each(|part| judge.code("", part));
    }
    if text.contains("{{") || text.contains("{%") {
        judge.template(&text);
    }
}

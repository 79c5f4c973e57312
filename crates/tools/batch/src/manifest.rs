//! Manifests: one input of a batch on each line, as a JSON object.

use std::io::{self, BufRead, Read as _};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// Maximum length of a line in bytes.
const LINE_MAX: u64 = 1 << 20;

/// Input of a batch, as a line of a manifest names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestEntry {
    /// Path of the checkpoint.
    pub input: String,
    /// Path of the output; `None` for the default one.
    #[serde(default)]
    pub output: Option<String>,
    /// Options of the task by their names, such as `max-shard-size`.
    #[serde(default)]
    pub options: Map<String, Json>,
}

/// Reason for which a line of a manifest is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestProblem {
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    #[error("it is longer than 1 MiB")]
    TooLong,
    /// The line is not an entry, the task does not have an option, or an option has a wrong value.
    #[error("{0}")]
    Invalid(String),
    #[error("`input` is empty")]
    NoInput,
    /// An earlier line has the same input.
    #[error(
        "the input {input} is already in line {first}; name it once, and use several manifests for several outputs"
    )]
    SameInput { input: String, first: u64 },
    /// An earlier line has the same output.
    #[error("the output {output} is already that of line {first}; give one of them another `output`")]
    SameOutput { output: String, first: u64 },
}

#[derive(Debug)]
pub(crate) struct ManifestReader<R> {
    reader: R,
    /// Number of the last line, from 1 on.
    line: u64,
}

impl<R: BufRead> ManifestReader<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, line: 0 }
    }

    /// Goes on with `reader`, whose first line has the next number.
    pub(crate) fn go_on_with(&mut self, reader: R) {
        self.reader = reader;
    }

    /// Returns the number of the last line that was read.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Returns the next entry; `None` at the end. Empty lines are left out.
    ///
    /// # Errors
    /// When the next line is not an entry.
    pub(crate) fn next_entry(&mut self) -> Result<Option<ManifestEntry>, ManifestProblem> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            self.line = self.line.saturating_add(1);
            let mut limited = (&mut self.reader).take(LINE_MAX.saturating_add(1));
            limited.read_until(b'\n', &mut bytes).map_err(ManifestProblem::Read)?;
            if bytes.is_empty() {
                self.line = self.line.saturating_sub(1);
                return Ok(None);
            }
            if bytes.len() as u64 > LINE_MAX {
                return Err(ManifestProblem::TooLong);
            }
            let text = bytes.trim_ascii();
            if !text.is_empty() {
                let entry: ManifestEntry =
                    serde_json::from_slice(text).map_err(|error| json_problem(&error))?;
                return if entry.input.is_empty() { Err(ManifestProblem::NoInput) } else { Ok(Some(entry)) };
            }
        }
    }
}

/// Returns the problem without the line number of the parser, which counts within the line.
fn json_problem(error: &serde_json::Error) -> ManifestProblem {
    let text = error.to_string();
    let (text, _) = text.split_once(" at line ").unwrap_or((&text, ""));
    ManifestProblem::Invalid(format!(
        "expected an object with `input`, found an error at column {}: {text}",
        error.column()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> (Vec<ManifestEntry>, Option<(u64, String)>) {
        let mut reader = ManifestReader::new(text.as_bytes());
        let mut found = Vec::new();
        loop {
            match reader.next_entry() {
                Ok(Some(entry)) => found.push(entry),
                Ok(None) => return (found, None),
                Err(problem) => return (found, Some((reader.line(), problem.to_string()))),
            }
        }
    }

    #[test]
    fn lines_are_entries() {
        let (found, problem) = entries(
            "\n{\"input\":\"a\"}\r\n  \n{\"input\":\"b\",\"output\":null,\"options\":{\"to\":\"pth\"}}",
        );
        assert_eq!(problem, None);
        assert_eq!(found.iter().map(|entry| entry.input.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(found.last().and_then(|entry| entry.options.get("to")), Some(&Json::from("pth")));
    }

    #[test]
    fn a_wrong_line_has_its_number() {
        let wrong = |line: &str| {
            let (found, problem) = entries(&format!("{{\"input\":\"a\"}}\n\n{line}\n"));
            assert_eq!(found.len(), 1);
            let (number, text) = problem.expect("a problem");
            assert_eq!(number, 3);
            text
        };
        assert!(wrong("{}").contains("missing field `input`"));
        assert!(wrong("{\"input\":1}").contains("invalid type: integer `1`, expected a string"));
        assert!(wrong("{\"input\":\"b\",\"ouput\":\"c\"}").contains("unknown field `ouput`"));
        assert!(wrong("{\"input\":\"b\",\"input\":\"c\"}").contains("duplicate field `input`"));
        assert!(wrong("b").contains("expected value"));
        assert!(wrong("{\"input\":\"b\"").contains("EOF"));
        assert!(wrong("{\"input\":\"b\"} {\"input\":\"c\"}").contains("trailing characters"));

        assert_eq!(wrong("{\"input\":\"\"}"), "`input` is empty");
        assert_eq!(wrong(&format!("{{\"input\":\"{}\"}}", "b".repeat(1 << 20))), "it is longer than 1 MiB");
    }
}

//! Scans as a SARIF document.

use std::path::Path;

use inspect::{CUSTOM_CODE_NOTE, FileScan, GlobalUse, Risk, ScanOutcome, ScannedFile, Verdict};
use serde_json::{Map, Value as Json, json};

use super::sarif::{SarifLog, rule_json};
use super::scan_headline::{call_text, unread_rows};

/// Findings of all files.
#[derive(Default)]
pub(super) struct SarifResults {
    results: SarifLog,
    /// Kinds of irregularities that were found, each of which is a rule after those of `RULES`.
    kinds: Vec<&'static str>,
}

/// Rules of the document: id, level, severity from 0 to 10, name and description.
const RULES: [(&str, &str, &str, &str, &str); 6] = [
    (
        "dangerous-global",
        "error",
        "9.8",
        "Dangerous code",
        "Loading the file in Python runs code, starts a program, or uses files or the network.",
    ),
    (
        "unreviewed-global",
        "error",
        "7.0",
        "Global that was not reviewed",
        "The file uses a name of Python, PyTorch or NumPy in a way that nobody has judged.",
    ),
    (
        "unknown-global",
        "warning",
        "5.0",
        "Unknown global",
        "The file names a class or function of a package that is not known, which loading it imports.",
    ),
    (
        "custom-code",
        "warning",
        "6.0",
        "Python code of a model",
        "A configuration names Python code, which programs import if they trust it.",
    ),
    ("not-scanned", "warning", "5.0", "Part that was not scanned", "A part of the file was not scanned."),
    (
        "not-a-checkpoint",
        "warning",
        "1.0",
        "Not a checkpoint",
        "The file or folder holds no pickle that could be scanned.",
    ),
];

impl SarifResults {
    pub(super) fn add(&mut self, file: &FileScan) {
        match &file.outcome {
            ScanOutcome::Scanned(scan) => self.add_scan(&file.file, scan),
            ScanOutcome::NotScanned { reason } if file.verdict == Verdict::NotACheckpoint => {
                self.add_text(&file.file, "not-a-checkpoint", reason);
            }
            ScanOutcome::NotScanned { reason } => {
                self.add_text(&file.file, "not-scanned", reason);
            }
            ScanOutcome::NamesCode { classes } => {
                for class in classes {
                    let text =
                        format!("{} is {} of {}: {CUSTOM_CODE_NOTE}", class.key, class.class, class.place());
                    self.add_text(&file.file, "custom-code", &text);
                }
            }
            ScanOutcome::Skipped { .. } | ScanOutcome::LinkedFolder { .. } => {}
        }
    }

    /// Returns the whole document. `status` is the exit status of the program.
    pub(super) fn into_log(self, status: u8) -> Json {
        let irregular = |kind: &&'static str| {
            let (id, name) = (irregular_rule(kind), format!("Irregular file: {kind}"));
            rule_json((
                &id,
                "error",
                "8.0",
                &name,
                "No writer of the format writes this, and programs may read different contents.",
            ))
        };
        let rules = RULES.iter().copied().map(rule_json).chain(self.kinds.iter().map(irregular));
        let rules: Vec<Json> = rules.collect();
        self.results.into_log(&rules, status)
    }

    fn add_scan(&mut self, file: &Path, scan: &ScannedFile) {
        for risk in [Risk::Dangerous, Risk::Unreviewed, Risk::Unknown] {
            let found = scan.uses().filter(|(_, found)| found.risk == risk);
            for (pickle, found) in found {
                self.add_global(file, &pickle.place.to_string(), pickle.offset, found);
            }
        }
        for finding in &scan.findings {
            let at = self.kinds.iter().position(|kind| *kind == finding.kind).unwrap_or_else(|| {
                self.kinds.push(finding.kind);
                self.kinds.len().saturating_sub(1)
            });
            let rule = (irregular_rule(finding.kind), RULES.len().saturating_add(at), "error");
            self.results.push(file, rule, &finding.text, Map::new());
        }
        for reason in unread_rows(scan) {
            self.add_text(file, "not-scanned", &reason);
        }
    }

    /// Adds a global of a pickle that starts at the offset `start` of its place, with its first call.
    fn add_global(&mut self, file: &Path, place: &str, start: u64, found: &GlobalUse) {
        let rule = match found.risk {
            Risk::Dangerous => "dangerous-global",
            Risk::Unreviewed => "unreviewed-global",
            _ => "unknown-global",
        };
        let global = &found.global;
        let call = found.calls.iter().find(|call| call.has_arguments).or(found.calls.first());
        let (text, offset) = match call {
            Some(call) => (format!("calls {}", call_text(global, call)), call.offset),
            None => (format!("names {}", global.name_with_alias()), global.offset),
        };
        let message = format!("{text} at 0x{offset:x} of {place}");
        let mut properties = Map::new();
        properties.insert("global".to_owned(), json!(global.to_string()));
        properties.insert("place".to_owned(), json!(place));
        properties.insert("offset".to_owned(), json!(start.saturating_add(offset)));
        self.add_result(file, rule, &message, properties);
    }

    fn add_text(&mut self, file: &Path, rule: &str, message: &str) {
        self.add_result(file, rule, message, Map::new());
    }

    fn add_result(&mut self, file: &Path, rule: &str, text: &str, properties: Map<String, Json>) {
        if let Some((at, (_, level, ..))) = RULES.iter().enumerate().find(|(_, (id, ..))| *id == rule) {
            self.results.push(file, (rule.to_owned(), at, level), text, properties);
        }
    }
}

/// Returns the id of the rule for a kind of irregularities.
fn irregular_rule(kind: &str) -> String {
    format!("irregular-{kind}")
}

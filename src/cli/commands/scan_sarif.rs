//! Scans as a SARIF document.

use std::path::Path;

use inspect::{CUSTOM_CODE_NOTE, FileScan, GlobalUse, Risk, ScanOutcome, ScannedFile, Verdict};
use serde_json::{Map, Value as Json, json};

use super::sarif::{SarifLog, SarifRule};
use super::scan_headline::{call_text, unread_rows};

/// Findings of all files.
#[derive(Default)]
pub(super) struct SarifResults {
    results: SarifLog,
    /// Kinds of irregularities that were found, each of which is a rule after those of `RULES`.
    kinds: Vec<&'static str>,
}

/// Rules of the document.
const RULES: [SarifRule<'_>; 6] = [
    SarifRule {
        id: "dangerous-global",
        level: "error",
        severity: "9.8",
        name: "Dangerous code",
        description: "Loading the file in Python runs code, starts a program, or uses files or the network.",
    },
    SarifRule {
        id: "unreviewed-global",
        level: "error",
        severity: "7.0",
        name: "Global that was not reviewed",
        description: "The file uses a name of Python, PyTorch or NumPy in a way that nobody has judged.",
    },
    SarifRule {
        id: "unknown-global",
        level: "warning",
        severity: "5.0",
        name: "Unknown global",
        description: "The file names a class or function of a package that is not known, which loading it imports.",
    },
    SarifRule {
        id: "custom-code",
        level: "warning",
        severity: "6.0",
        name: "Python code of a model",
        description: "A configuration names Python code, which programs import if they trust it.",
    },
    SarifRule {
        id: "not-scanned",
        level: "warning",
        severity: "5.0",
        name: "Part that was not scanned",
        description: "A part of the file was not scanned.",
    },
    SarifRule {
        id: "not-a-checkpoint",
        level: "warning",
        severity: "1.0",
        name: "Not a checkpoint",
        description: "The file or folder holds no pickle that could be scanned.",
    },
];

/// Rule of a kind of irregularities, which has an id and a name of its own.
const IRREGULAR: SarifRule<'_> = SarifRule {
    id: "",
    level: "error",
    severity: "8.0",
    name: "",
    description: "No writer of the format writes this, and programs may read different contents.",
};

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
        let irregular: Vec<(String, String)> =
            self.kinds.iter().map(|kind| (irregular_rule(kind), format!("Irregular file: {kind}"))).collect();
        let irregular = irregular.iter().map(|(id, name)| SarifRule { id, name, ..IRREGULAR });
        let rules: Vec<SarifRule<'_>> = RULES.into_iter().chain(irregular).collect();
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
            let rule = SarifRule { id: &irregular_rule(finding.kind), ..IRREGULAR };
            let number = RULES.len().saturating_add(at);
            self.results.push(file, (number, &rule), &finding.text, Map::new());
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
        if let Some(rule) = RULES.iter().enumerate().find(|(_, known)| known.id == rule) {
            self.results.push(file, rule, text, properties);
        }
    }
}

/// Returns the id of the rule for a kind of irregularities.
fn irregular_rule(kind: &str) -> String {
    format!("irregular-{kind}")
}

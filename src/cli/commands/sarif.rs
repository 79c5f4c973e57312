//! Findings as a SARIF document, which code hosts show next to the files.
//!
//! Facts: SARIF 2.1.0 (OASIS); GitHub's documentation of its support for SARIF, which wants a line of each file and shows
//! `security-severity`. A crate of SARIF's types is not used: it generates all of the schema's types to write a dozen.

use std::path::{Component, Path};

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

/// Findings of all files.
#[derive(Default)]
pub(super) struct SarifLog(Vec<SarifResult>);

/// Finding in the form that SARIF calls a result.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SarifResult {
    rule_id: String,
    rule_index: usize,
    level: &'static str,
    message: Json,
    locations: [Json; 1],
    partial_fingerprints: Json,
    #[serde(skip_serializing_if = "Map::is_empty")]
    properties: Map<String, Json>,
}

/// Rule that findings belong to.
pub(super) struct SarifRule<'r> {
    pub(super) id: &'r str,
    pub(super) level: &'static str,
    /// From 0 to 10.
    pub(super) severity: &'static str,
    pub(super) name: &'r str,
    pub(super) description: &'static str,
}

impl SarifLog {
    /// Returns the whole document with its rules. `status` is the exit status of the program.
    pub(super) fn into_log(self, rules: &[SarifRule<'_>], status: u8) -> Json {
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": {"driver": {
                    "name": env!("CARGO_PKG_NAME"),
                    "semanticVersion": env!("CARGO_PKG_VERSION"),
                    "rules": rules.iter().map(SarifRule::json).collect::<Vec<_>>(),
                }},
                "invocations": [{"executionSuccessful": true, "exitCode": status}],
                "results": self.0,
            }],
        })
    }

    /// Adds a finding under a rule, whose number is that in the list of rules.
    pub(super) fn push(
        &mut self,
        file: &Path,
        (number, rule): (usize, &SarifRule<'_>),
        text: &str,
        properties: Map<String, Json>,
    ) {
        // Hosts recognise a finding of an earlier scan by its fingerprint.
        let fingerprint = format!("{}: {text}", rule.id);
        self.0.push(SarifResult {
            rule_id: rule.id.to_owned(),
            rule_index: number,
            level: rule.level,
            message: json!({ "text": text }),
            // The file has no lines, but hosts want one.
            locations: [json!({"physicalLocation": {
                "artifactLocation": {"uri": uri(file)},
                "region": {"startLine": 1},
            }})],
            partial_fingerprints: json!({ "finding/v1": fingerprint }),
            properties,
        });
    }
}

impl SarifRule<'_> {
    fn json(&self) -> Json {
        json!({
            "id": self.id,
            "shortDescription": {"text": self.name},
            "fullDescription": {"text": self.description},
            "defaultConfiguration": {"level": self.level},
            "properties": {"tags": ["security"], "security-severity": self.severity},
        })
    }
}

/// Returns the path as a URI: relative to the root of the repository, if the path is relative.
fn uri(path: &Path) -> String {
    let start = if path.is_absolute() { "file://" } else { "" };
    let parts = path.components().filter(|part| !matches!(part, Component::CurDir));
    let parts = parts.map(|part| match part {
        Component::RootDir => String::new(),
        part => percent_encoded(part.as_os_str().as_encoded_bytes()),
    });
    format!("{start}{}", parts.collect::<Vec<_>>().join("/"))
}

/// Encodes all bytes but the unreserved characters of RFC 3986.
fn percent_encoded(bytes: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    bytes
        .iter()
        .map(|byte| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_a_uri() {
        assert_eq!(uri(Path::new("./models/a b#1?.pth")), "models/a%20b%231%3F.pth");
        assert_eq!(uri(Path::new("/tmp/ü.pth")), "file:///tmp/%C3%BC.pth");
        assert_eq!(uri(Path::new("../a:b.pth")), "../a%3Ab.pth");
    }
}

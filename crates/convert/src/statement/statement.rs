//! The statement as it is stored: in-toto's Statement v1 with SLSA's provenance v1.
//!
//! Facts: <https://in-toto.io/Statement/v1>, <https://slsa.dev/spec/v1.1/provenance>; RFC 4151 for `tag:` URIs. `docs/proof.md` defines the
//! [`BUILD_TYPE`].

use std::collections::BTreeMap;

use byte_source::Location;
use open::files::{DOCUMENT_MAX, read_document};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::{Problem, Result};

const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE: &str = "https://slsa.dev/provenance/v1";
const BUILD_TYPE: &str = "tag:torch2carton,2026:conversion/v1";
const BUILDER: &str = "tag:torch2carton,2026:program";
/// Name of the program among the versions of the builder.
const PROGRAM: &str = "torch2carton";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Name of the digest of a file's bytes.
const SHA256: &str = "sha256";
/// Name of the digest of tensors, as `docs/digest.md` defines it.
const TENSORS: &str = "torch2carton_digest";

/// Statement about the files of a conversion: its outputs, its inputs and its request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    /// Files of the output, sorted by name.
    pub(super) subject: Vec<ResourceDescriptor>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    predicate: Provenance,
}

/// File by its digest, or the tensors of all files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResourceDescriptor {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) uri: Option<String>,
    digest: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Provenance {
    build_definition: BuildDefinition,
    run_details: RunDetails,
}

/// Conversion that anyone can repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BuildDefinition {
    build_type: String,
    /// The request: the inputs, the form of the output, and the options that have other values than the default ones.
    pub(super) external_parameters: Map<String, Json>,
    #[serde(default)]
    pub(super) internal_parameters: InternalParameters,
    /// Files that the conversion reads, sorted by name, and the tensors of the input.
    pub(super) resolved_dependencies: Vec<ResourceDescriptor>,
}

/// Parameters that the request leaves to the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InternalParameters {
    /// Name of the model, if the output has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// Documents that are read, and that the output does not have, such as links out of their folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) left_out: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunDetails {
    builder: Builder,
    /// Times of the run and the like, which other programs add.
    #[serde(default, skip_serializing)]
    metadata: Option<Json>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Builder {
    id: String,
    version: BTreeMap<String, String>,
}

impl ResourceDescriptor {
    pub(super) fn file(name: String, uri: Option<String>, sha256: String) -> Self {
        Self { name, uri, digest: BTreeMap::from([(SHA256.to_owned(), sha256)]) }
    }

    /// Creates the descriptor of the tensors of the input, whose digest does not depend on the files that they are in.
    pub(super) fn tensors(digest: String) -> Self {
        Self { name: ".".to_owned(), uri: None, digest: BTreeMap::from([(TENSORS.to_owned(), digest)]) }
    }

    /// Returns the SHA-256 of the file in hexadecimal; `None` for tensors.
    pub(super) fn sha256(&self) -> Option<&str> {
        self.digest.get(SHA256).map(String::as_str)
    }
}

/// Counts the members of all objects in JSON text.
fn written_members(text: &str) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_text = !is_text,
            b':' if !is_text => count = count.saturating_add(1),
            _ => {}
        }
    }
    count
}

/// Counts the members of all objects, of which no two have the same name.
fn members(json: &Json) -> usize {
    let (mut count, mut rest) = (0_usize, vec![json]);
    while let Some(json) = rest.pop() {
        match json {
            Json::Array(list) => rest.extend(list),
            Json::Object(object) => {
                count = count.saturating_add(object.len());
                rest.extend(object.values());
            }
            _ => {}
        }
    }
    count
}

impl Statement {
    pub(super) fn new(
        subject: Vec<ResourceDescriptor>,
        (external_parameters, internal_parameters): (Map<String, Json>, InternalParameters),
        resolved_dependencies: Vec<ResourceDescriptor>,
    ) -> Self {
        let build_definition = BuildDefinition {
            build_type: BUILD_TYPE.to_owned(),
            external_parameters,
            internal_parameters,
            resolved_dependencies,
        };
        let version = BTreeMap::from([(PROGRAM.to_owned(), VERSION.to_owned())]);
        let run_details = RunDetails { builder: Builder { id: BUILDER.to_owned(), version }, metadata: None };
        Self {
            kind: STATEMENT_TYPE.to_owned(),
            subject,
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate: Provenance { build_definition, run_details },
        }
    }

    /// Reads a statement of a conversion.
    ///
    /// # Errors
    /// When the file cannot be read, or is another document.
    pub(super) fn read(file: &Location) -> Result<Self> {
        let text = read_document(file, DOCUMENT_MAX)?;
        let refuse = |reason: String| crate::Error::from(Problem::Statement { reason }).in_file(file.path());
        let json: Json = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        if written_members(&text) != members(&json) {
            return Err(refuse("a member appears twice".to_owned()));
        }
        let required = [
            ("/_type", STATEMENT_TYPE),
            ("/predicateType", PREDICATE_TYPE),
            ("/predicate/buildDefinition/buildType", BUILD_TYPE),
            ("/predicate/runDetails/builder/id", BUILDER),
        ];
        for (pointer, expected) in required {
            let found = json.pointer(pointer);
            if found.and_then(Json::as_str) != Some(expected) {
                let found = found.map_or_else(|| "nothing".to_owned(), Json::to_string);
                return Err(refuse(format!("{pointer} is {found}, expected \"{expected}\"")));
            }
        }
        serde_json::from_value(json).map_err(|error| refuse(error.to_string()))
    }

    pub(super) fn definition(&self) -> &BuildDefinition {
        &self.predicate.build_definition
    }

    /// Returns the version of the program that made the output; empty if the statement does not say it.
    pub(super) fn version(&self) -> &str {
        self.predicate.run_details.builder.version.get(PROGRAM).map_or("", String::as_str)
    }

    /// Returns true if this version of the program made the output.
    pub(super) fn is_of_this_version(&self) -> bool {
        self.version() == VERSION
    }

    /// Gives the inputs the addresses that they have in another statement.
    pub(super) fn take_addresses(&mut self, other: &Self) {
        let known = &other.definition().resolved_dependencies;
        for file in &mut self.predicate.build_definition.resolved_dependencies {
            let same = known.iter().find(|known| known.name == file.name);
            file.uri = same.and_then(|known| known.uri.clone());
        }
    }

    /// Returns the text that is stored: the same for the same statement.
    pub(super) fn to_text(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("texts and lists");
        text + "\n"
    }

    /// Returns the JSON pointer of the first place where another statement differs, but for the version of the program.
    pub(super) fn first_difference(&self, other: &Self) -> Option<String> {
        let mut other = other.clone();
        other.predicate.run_details = self.predicate.run_details.clone();
        let json = |statement: &Self| serde_json::to_value(statement).expect("texts and lists");
        let (mut left, mut right) = (json(self), json(&other));
        let mut pointer = String::new();
        // The depth is that of the shorter of two documents, which serde_json limits.
        while left != right {
            let names: Vec<String> = match (&left, &right) {
                (Json::Object(left), Json::Object(right)) => {
                    left.keys().chain(right.keys()).cloned().collect()
                }
                (Json::Array(left), Json::Array(right)) => {
                    (0..left.len().max(right.len())).map(|number| number.to_string()).collect()
                }
                _ => Vec::new(),
            };
            let member = |json: &Json, name: &String| match json {
                Json::Array(list) => name.parse::<usize>().ok().and_then(|place| list.get(place).cloned()),
                json => json.get(name).cloned(),
            };
            let Some(name) = names.iter().find(|name| member(&left, name) != member(&right, name)) else {
                break;
            };
            pointer = format!("{pointer}/{name}");
            (left, right) =
                (member(&left, name).unwrap_or_default(), member(&right, name).unwrap_or_default());
        }
        (self != &other).then_some(pointer)
    }
}

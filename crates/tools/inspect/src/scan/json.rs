//! Result of a scan as JSON.

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use torch_import::{GlobalUse, GlobalUseKind, OmittedCounts, PlaceStep, Scan};

use crate::scan::{CUSTOM_CODE_NOTE, FileScan, ScanOutcome, linked_folder_note};

/// Version of the JSON fields of [`FileScan`].
const SCHEMA_VERSION: u32 = 1;

impl Serialize for FileScan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (file, verdict) = (self.file.display().to_string(), self.verdict.name());
        match &self.outcome {
            ScanOutcome::Scanned(scan) => {
                let mut object = scan_to_json(&file, scan, verdict);
                if let (false, Some(members)) = (self.allowed.is_empty(), object.as_object_mut()) {
                    members.insert("allowed".to_owned(), json!(self.allowed));
                }
                object
            }
            ScanOutcome::Skipped { reason } => json!({
                "schema_version": SCHEMA_VERSION,
                "file": file,
                "verdict": verdict,
                "notes": [reason],
            }),
            ScanOutcome::NotScanned { reason } => json!({
                "schema_version": SCHEMA_VERSION,
                "file": file,
                "verdict": verdict,
                "missed": [reason],
            }),
            ScanOutcome::NamesCode { classes } => json!({
                "schema_version": SCHEMA_VERSION,
                "file": file,
                "verdict": verdict,
                "custom_code": classes,
                "notes": [CUSTOM_CODE_NOTE],
            }),
            ScanOutcome::LinkedFolder { target } => json!({
                "schema_version": SCHEMA_VERSION,
                "file": file,
                "verdict": verdict,
                "notes": [linked_folder_note(target)],
            }),
        }
        .serialize(serializer)
    }
}

fn scan_to_json(file: &str, scan: &Scan, verdict: &str) -> Json {
    let pickles: Vec<Json> = scan
        .pickles
        .iter()
        .map(|pickle| {
            let globals: Vec<Json> = pickle.uses.iter().map(global_use_to_json).collect();
            let mut steps = pickle.place.0.iter().map(|step| match step {
                PlaceStep::Part(name) => json!(name),
                PlaceStep::Record(name) => json!(name),
                PlaceStep::Bytes(offset) | PlaceStep::Archive(offset) => json!(offset),
            });
            json!({
                "record": steps.next(),
                "within": steps.collect::<Vec<Json>>(),
                "offset": pickle.offset,
                "error": pickle.error.as_ref().map(ToString::to_string),
                "globals": globals,
            })
        })
        .collect();
    let findings: Vec<Json> =
        scan.findings.iter().map(|finding| json!({ "kind": finding.kind, "text": finding.text })).collect();
    let mut object = json!({
        "schema_version": SCHEMA_VERSION,
        "file": file,
        "verdict": verdict,
        "format": scan.format,
        "pickle_count": scan.count,
        "pickles": pickles,
        "irregularities": findings,
        "missed": scan.missed,
        "notes": scan.notes,
    });
    let OmittedCounts { globals, pickles, findings, missed } = scan.omitted;
    if scan.omitted.total() > 0
        && let Some(members) = object.as_object_mut()
    {
        let omitted =
            json!({ "globals": globals, "pickles": pickles, "irregularities": findings, "missed": missed });
        members.insert("omitted".to_owned(), omitted);
    }
    object
}

fn global_use_to_json(found: &GlobalUse) -> Json {
    let calls: Vec<Json> = found
        .calls
        .iter()
        .map(|call| json!({ "opcode": call.opcode, "offset": call.offset, "text": call.text }))
        .collect();
    json!({
        "module": found.global.module,
        "name": found.global.name,
        "alias_of": found.global.familiar_name(),
        "risk": found.risk.name(),
        "offset": found.global.offset,
        "uses": found.global.uses().iter().map(GlobalUseKind::name).collect::<Vec<_>>(),
        "unreviewed_uses": found.global.findings().iter().map(GlobalUseKind::name).collect::<Vec<_>>(),
        "calls": calls,
        "more_calls": found.unlisted_calls,
        "behind_error": found.after_error,
    })
}

//! Scans documents, which programs read next to weights or with them: JSON, YAML, templates and the metadata of GGUF, in folders and in archives.
//!
//! Each reader accepts what its loader in Python does. Of a document, only what a program calls, evaluates, unpickles or imports is
//! judged, as its events come, so that no document needs memory of its own.

pub(super) mod base64;
mod callable;
pub(super) mod document_kind;
mod expression;
mod found;
mod gguf;
mod hocon;
mod ini;
mod interpolation;
mod json;
pub(super) mod judge;
mod level;
pub(super) mod pickled;
mod plain_text;
mod protobuf_text;
pub(super) mod python_records;
mod python_text;
mod template;
mod toml;
pub(super) mod value_texts;
mod yaml;

use std::sync::Arc;

use byte_source::{Cancelled, Observer, Source};

pub use self::document_kind::DocumentKind;
use self::document_kind::METADATA_MAX;
pub use self::found::CodeReference;
pub(super) use self::judge::Judge;
use self::python_records::PythonRecords;
use super::compressed::detect_compression;
use super::scanner::{NESTING_DEPTH_MAX, Scanner};
use super::unread::{is_foreign_model, is_text};
use super::{PicklePlace, PlaceStep, Scan};
use crate::Result;
use crate::container::inflate;

/// Documents in texts of documents that are read.
const INNER_DOCUMENTS_MAX: usize = 1 << 10;
/// Folders around a record of Python code.
const FOLDERS_MAX: usize = 32;

impl Scan {
    /// Scans a document, and returns its references to Python code: `is_near` tells whether a file of Python code, without its
    /// extension, or a folder is next to the document.
    ///
    /// # Errors
    /// When the document cannot be read, or `observer` cancels the work.
    pub fn document(
        source: &Arc<dyn Source>,
        kind: DocumentKind,
        is_near: &dyn Fn(&str) -> bool,
        observer: &dyn Observer,
    ) -> Result<(Self, Vec<CodeReference>)> {
        let bytes = if kind == DocumentKind::Gguf {
            source.share(0..source.len().min(METADATA_MAX as u64))?
        } else {
            let source = inflate::mappable(Arc::clone(source))?;
            source.share(0..source.len())?
        };
        let mut scanner = Scanner::new(kind.name(), bytes.len() as u64, observer);
        let place = PicklePlace(vec![PlaceStep::Part("document")]);
        let references = scanner.scan_document(&place, kind, &bytes, 0, is_near);
        scanner.scan_queue();
        if scanner.should_stop() { Err(Cancelled.into()) } else { Ok((scanner.scan, references)) }
    }
}

impl Scanner<'_, '_> {
    /// Remembers which Python code an archive has.
    pub(super) fn add_python_records<'e>(
        &mut self,
        archive: &PicklePlace,
        names: impl Iterator<Item = &'e str>,
    ) {
        let mut found = PythonRecords::default();
        for module in names.filter_map(|name| name.strip_suffix(".py")) {
            found.modules.insert(module.to_owned());
            let folders = module.match_indices('/').map(|(at, _)| module.get(..at).unwrap_or_default());
            found.folders.extend(folders.take(FOLDERS_MAX).map(str::to_owned));
        }
        if !found.modules.is_empty() {
            self.python_records.insert(archive.clone(), found);
        }
    }

    /// Scans a document that is the record `name` of an archive.
    pub(super) fn scan_archived_document(
        &mut self,
        record: &PicklePlace,
        kind: DocumentKind,
        name: &str,
        bytes: &[u8],
        depth: usize,
    ) {
        let archive =
            PicklePlace(record.0.split_last().map(|(_, archive)| archive.to_vec()).unwrap_or_default());
        let code = self.python_records.remove(&archive).unwrap_or_default();
        let folder = name.rfind('/').and_then(|at| name.get(..=at)).unwrap_or_default();
        let is_near = |name: &str| {
            let path = [folder, name].concat();
            code.modules.contains(&path) || code.folders.contains(&path)
        };
        if is_foreign_model(name) {
            self.report_unread(record, bytes);
        }
        let references = self.scan_document(record, kind, bytes, depth, &is_near);
        let is_here = |reference: &&CodeReference| {
            reference.text.contains("--") || code.has_module(folder, &reference.text)
        };
        let uses = references.iter().filter(is_here).map(found::use_of_code).collect();
        self.add_pickle(record, 0, uses, None);
        if name.eq_ignore_ascii_case("MAR-INF/MANIFEST.json") && !code.modules.is_empty() {
            let count = code.modules.len();
            self.add_missed(|| format!("the Python code that TorchServe runs ({count} records)"));
        }
        if !code.modules.is_empty() {
            self.python_records.insert(archive, code);
        }
    }

    /// Scans a document, queues the pickles in it, and returns its references to Python code.
    pub(super) fn scan_document(
        &mut self,
        record: &PicklePlace,
        kind: DocumentKind,
        bytes: &[u8],
        depth: usize,
        is_near: &dyn Fn(&str) -> bool,
    ) -> Vec<CodeReference> {
        if !self.budget.spend(bytes.len() as u64) {
            self.add_missed(|| format!("{record}: the limit on the work for one file was reached"));
            return Vec::new();
        }
        if let Some(packed) = detect_compression(bytes).filter(|_| !is_text(bytes)) {
            if depth >= NESTING_DEPTH_MAX {
                self.add_missed(|| format!("{record}: it is nested deeper than {NESTING_DEPTH_MAX} levels"));
                return Vec::new();
            }
            let content = self.decompress(record, packed, bytes);
            return self.scan_document(record, kind, &content, depth.saturating_add(1), is_near);
        }
        if kind.is_lenient() && !is_text(bytes) {
            // The name says that it is a text.
            self.report_unread(record, bytes);
            return Vec::new();
        }
        self.has_content |= kind != DocumentKind::Text;
        let mut judge = Judge::new(is_near);
        match kind {
            // Some programs read all documents as YAML, such as jsonargparse.
            DocumentKind::Json if json::read(bytes, &mut judge) => {}
            DocumentKind::Json | DocumentKind::Yaml => {
                judge.restart();
                if let Err(reason) = yaml::read(bytes, &mut judge) {
                    let names = if kind == DocumentKind::Json { "JSON or YAML" } else { "YAML" };
                    self.add_missed(|| format!("{record}: not read as {names}: {reason}"));
                }
            }
            DocumentKind::Gguf => {
                if let Err(reason) = gguf::read(bytes, &mut judge) {
                    self.add_missed(|| format!("{record}: not read as GGUF: {reason}"));
                }
            }
            DocumentKind::Toml => {
                if let Err(reason) = toml::read(bytes, &mut judge) {
                    self.add_missed(|| format!("{record}: not read as TOML: {reason}"));
                }
            }
            DocumentKind::Hocon => match hocon::read(bytes, &mut judge) {
                Ok(()) => {}
                Err(hocon::NotRead::Refused) => {
                    judge.restart();
                    plain_text::read(bytes, &mut judge);
                }
                Err(hocon::NotRead::Unread(reason)) => {
                    self.add_missed(|| format!("{record}: not read as HOCON: {reason}"));
                }
            },
            DocumentKind::Text => plain_text::read(bytes, &mut judge),
            DocumentKind::Sections => ini::read(bytes, &mut judge),
            DocumentKind::ProtobufText => protobuf_text::read(bytes, &mut judge),
            DocumentKind::Template => judge.template(&String::from_utf8_lossy(bytes)),
            DocumentKind::ModuleName => {
                judge.open(true);
                judge.text("loader_module", 0);
                judge.text(String::from_utf8_lossy(bytes).trim(), 0);
                judge.close(0);
            }
        }
        self.report_document(record, judge, depth)
    }

    /// Reports what was found in a document, queues the pickles in it, and returns its references to Python code.
    pub(super) fn report_document(
        &mut self,
        record: &PicklePlace,
        mut judge: Judge<'_>,
        depth: usize,
    ) -> Vec<CodeReference> {
        let mut read = 0_usize;
        while let Some(text) = judge.found.texts.pop() {
            read = read.saturating_add(1);
            if read > INNER_DOCUMENTS_MAX {
                self.add_missed(|| format!("{record}: more than {INNER_DOCUMENTS_MAX} documents in it"));
                break;
            }
            judge.restart();
            json::read(text.as_bytes(), &mut judge);
        }
        let found = judge.found;
        for finding in found.findings {
            self.add_finding(finding.kind, || format!("{record}: {}", finding.text));
        }
        for text in found.missed {
            self.add_missed(|| format!("{record}: {text}"));
        }
        self.add_pickle(record, 0, found.uses, None);
        for (at, bytes, is_loaded) in found.pickles {
            self.scan_temporary(
                &record.join_step(PlaceStep::Bytes(at)),
                &bytes,
                depth.saturating_add(1),
                is_loaded,
            );
        }
        found.references
    }
}

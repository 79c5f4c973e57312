//! Scans tar archives: checkpoints of PyTorch 0.1, those of `NeMo`, and archives of other files.
//!
//! Facts: `hydra.utils.instantiate`, with which `NeMo` makes the objects of its `model_config.yaml`, calls what `_target_` names.

use std::io::Cursor;

use super::scanner::{ScanItem, Scanner};
use super::{PicklePlace, PlaceStep};
use crate::Risk;
use crate::container::tar_members::{TarMembers, without_dot_slash};

/// Bytes of a document in which `_target_` is looked for.
const DOCUMENT_LEN_MAX: usize = 4 << 20;

impl<'a> Scanner<'a, '_> {
    /// Scans the members of a tar archive. If the archive is the whole file, the checkpoint reader finds the pickles
    /// between the numbers of a 0.1 checkpoint.
    pub(super) fn scan_tar(&mut self, record: &PicklePlace, bytes: &'a [u8], depth: usize) {
        let archive = TarMembers::read(Cursor::new(bytes), bytes.len() as u64);
        let place = if record.0.is_empty() { String::new() } else { format!("{record}: ") };
        for oddity in &archive.oddities {
            self.add_finding("tar", || format!("{place}{oddity}"));
        }
        if let Some(error) = &archive.error {
            self.add_missed(|| format!("{place}{error}"));
        }
        let has_pickle = archive.find("pickle").is_some();
        for (name, range) in archive.members {
            let bytes = bytes.get(range).unwrap_or_default();
            let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
            if ["yaml", "yml"].iter().any(|known| extension.eq_ignore_ascii_case(known)) {
                self.find_dangerous_targets(&name, bytes);
            }
            let between_numbers = has_pickle && matches!(without_dot_slash(&name), "storages" | "tensors");
            let expected = matches!(without_dot_slash(&name), "pickle" | "sys_info");
            let record = record.join_step(PlaceStep::Record(name));
            if between_numbers && depth > 0 {
                let why = "a checkpoint of PyTorch 0.1 in another file; unpack it and scan that";
                self.add_missed(|| format!("{record}: {why}"));
            }
            if !(between_numbers || bytes.is_empty()) {
                self.work.push_back(ScanItem {
                    record,
                    bytes: bytes.into(),
                    depth: depth.saturating_add(1),
                    is_pickle_expected: expected,
                });
            }
        }
    }
}

impl Scanner<'_, '_> {
    /// Reports the callables of a document that are dangerous.
    fn find_dangerous_targets(&mut self, document: &str, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes.get(..DOCUMENT_LEN_MAX).unwrap_or(bytes));
        for after in text.split("_target_").skip(1) {
            let is_quote = |c: char| c.is_whitespace() || matches!(c, ':' | '"' | '\'');
            let value = after.trim_start_matches(is_quote);
            let end =
                value.find(|c: char| is_quote(c) || matches!(c, ',' | '}' | '#')).unwrap_or(value.len());
            let target = value.get(..end).unwrap_or_default();
            let Some((module, name)) = target.rsplit_once('.') else { continue };
            if Risk::from_names(module, name) == Risk::Dangerous {
                self.add_finding("target", || {
                    format!(
                        "`{}` has `_target_: {}`, which a program calls that builds a model from it",
                        document.escape_debug(),
                        target.escape_debug()
                    )
                });
            }
        }
    }
}

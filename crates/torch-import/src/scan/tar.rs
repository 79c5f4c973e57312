//! Scans tar archives: checkpoints of PyTorch 0.1, those of `NeMo`, and archives of other files.

use std::io::Cursor;

use super::budget::ScanBudget;
use super::documents::DocumentKind;
use super::record_names::{is_native_library, is_pickle};
use super::scanner::{ScanItem, Scanner};
use super::{PicklePlace, PlaceStep, pickle};
use crate::container::tar_members::{TarMembers, without_dot_slash};
use crate::script_modules::is_python;

impl<'a> Scanner<'a, '_> {
    /// Scans the members of a tar archive. If the archive is the whole file, the checkpoint reader finds the pickles
    /// between the numbers of a 0.1 checkpoint.
    pub(super) fn scan_tar(&mut self, record: &PicklePlace, bytes: &'a [u8], depth: usize) {
        let archive = TarMembers::read(Cursor::new(bytes), bytes.len() as u64);
        let place = if record.0.is_empty() { String::new() } else { format!("{record}: ") };
        // Each member has a header of a block.
        if !self.budget.spend((archive.members.len() as u64).saturating_mul(512)) {
            return self.add_missed(|| format!("{place}the limit on the work for one file was reached"));
        }
        for oddity in &archive.oddities {
            self.add_finding("tar", || format!("{place}{oddity}"));
        }
        if let Some(error) = &archive.error {
            self.add_missed(|| format!("{place}{error}"));
        }
        let has_pickle = archive.find("pickle").is_some();
        self.add_python_records(record, archive.members.iter().map(|(name, _)| without_dot_slash(name)));
        let code =
            archive.members.iter().filter(|(name, _)| is_python(name) || is_native_library(name)).count();
        if code > 0 {
            self.add_missed(|| {
                format!("{place}code ({code} members), which programs may run with the model")
            });
        }
        for (name, range) in archive.members {
            let bytes = bytes.get(range).unwrap_or_default();
            let between_numbers = has_pickle && matches!(without_dot_slash(&name), "storages" | "tensors");
            let expected = matches!(without_dot_slash(&name), "pickle" | "sys_info")
                || is_pickle(&name)
                || starts_as_pickle(bytes);
            let document = DocumentKind::with_content(&name, || bytes.into()).filter(|_| !between_numbers);
            let name_inside = without_dot_slash(&name).to_owned();
            let record = record.join_step(PlaceStep::Record(name));
            if let Some(kind) = document {
                self.scan_archived_document(&record, kind, &name_inside, bytes, depth);
            }
            if between_numbers && depth > 0 {
                let why = "a checkpoint of PyTorch 0.1 in another file; unpack it and scan that";
                self.add_missed(|| format!("{record}: {why}"));
            }
            if !(between_numbers || bytes.is_empty()) {
                let depth = depth.saturating_add(1);
                if document.is_some() || expected {
                    let bytes = bytes.into();
                    self.work.push_back(ScanItem { record, bytes, depth, is_pickle_expected: expected });
                } else {
                    self.scan_recognised(&record, bytes, depth, false);
                }
            }
        }
    }
}

/// Returns true for a pickle of protocol 2 or later, whatever it does: another one may follow it.
fn starts_as_pickle(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2..=5, ..]) && pickle::scan_pickle(bytes, &mut ScanBudget::new(0)).error.is_none()
}

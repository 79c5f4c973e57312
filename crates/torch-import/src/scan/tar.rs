//! Scans tar archives: checkpoints of PyTorch 0.1, and archives of other files.

use super::scanner::{ScanItem, Scanner};
use super::{PicklePlace, PlaceStep};
use crate::container::tar;

impl<'a> Scanner<'a> {
    /// Scans the members of a tar archive. If the archive is the whole file, the checkpoint reader finds the pickles
    /// between the numbers of a 0.1 checkpoint.
    pub(super) fn scan_tar(&mut self, record: &PicklePlace, bytes: &'a [u8], depth: usize) {
        let members = match tar::TarMembers::read(bytes) {
            Ok(members) => members.0,
            Err(error) => return self.add_missed(|| error.to_string()),
        };
        let has_pickle = members.iter().any(|(name, _)| without_dot_slash(name) == "pickle");
        for (name, range) in members {
            let bytes = bytes.get(range).unwrap_or_default();
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

fn without_dot_slash(name: &str) -> &str {
    name.strip_prefix("./").unwrap_or(name)
}

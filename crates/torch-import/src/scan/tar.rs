//! Scans tar archives: checkpoints of PyTorch 0.1, and archives of other files.

use super::scanner::{Item, Scanner};
use super::{Place, Step};
use crate::container::tar;

impl<'a> Scanner<'a> {
    /// Scans the members of a tar archive. If the archive is the whole file, the checkpoint reader finds the pickles
    /// between the numbers of a 0.1 checkpoint.
    pub(super) fn tar(&mut self, record: &Place, bytes: &'a [u8], depth: usize) {
        let members = match tar::Members::read(bytes) {
            Ok(members) => members.0,
            Err(error) => return self.miss(|| error.to_string()),
        };
        let has_pickle = members.iter().any(|(name, _)| bare(name) == "pickle");
        for (name, range) in members {
            let bytes = bytes.get(range).unwrap_or_default();
            let between_numbers = has_pickle && matches!(bare(&name), "storages" | "tensors");
            let expected = matches!(bare(&name), "pickle" | "sys_info");
            let record = record.with(Step::Record(name));
            if between_numbers && depth > 0 {
                let why = "a checkpoint of PyTorch 0.1 in another file; unpack it and scan that";
                self.miss(|| format!("{record}: {why}"));
            }
            if !(between_numbers || bytes.is_empty()) {
                self.work.push_back(Item {
                    record,
                    bytes: bytes.into(),
                    depth: depth.saturating_add(1),
                    expected,
                });
            }
        }
    }
}

fn bare(name: &str) -> &str {
    name.strip_prefix("./").unwrap_or(name)
}

//! Scan of msgpack, whose texts and byte strings programs unpickle, and whose texts are judged as those of other documents: `RLlib`
//! imports what they name. A byte string that is neither the numbers of an array nor read here is reported.

use super::documents::Judge;
use super::msgpack_reader::{self, Contents};
use super::nested::NestedBytes;
use super::scanner::Scanner;
use super::{PicklePlace, PlaceStep};

impl Scanner<'_, '_> {
    /// Scans the texts and byte strings of msgpack.
    pub(super) fn scan_msgpack(&mut self, record: &PicklePlace, bytes: &[u8], depth: usize) {
        self.has_content = true;
        // The formats have no signature.
        self.report_foreign(record);
        if !self.budget.spend(bytes.len() as u64) {
            return self.add_missed(|| format!("{record}: the limit on the work for one file was reached"));
        }
        let is_near = |_: &str| false;
        let mut judge = Judge::new(&is_near);
        let Contents { nested, own_extension, has_other_array } = msgpack_reader::read(bytes, &mut judge);
        if has_other_array {
            self.add_missed(|| {
                format!("{record}: an array that is not one of numbers, such as one of objects, for whose addresses NumPy takes the bytes")
            });
        }
        if let Some(kind) = own_extension {
            self.add_missed(|| {
                format!("{record}: an extension of type {kind}, for which a program has its own code")
            });
        }
        self.report_document(record, judge, depth);
        for NestedBytes { at, bytes, .. } in nested {
            if self.should_stop() {
                return;
            }
            let record = record.join_step(PlaceStep::Bytes(at));
            self.scan_recognised(&record, &bytes, depth.saturating_add(1), false);
        }
    }
}

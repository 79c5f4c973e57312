//! Scan of msgpack, whose texts and byte strings programs unpickle, and whose texts are judged as those of other documents: `RLlib`
//! imports what they name.

use super::documents::Judge;
use super::scanner::Scanner;
use super::{PicklePlace, msgpack_reader};

impl<'a> Scanner<'a, '_> {
    /// Scans the texts and byte strings of msgpack.
    pub(super) fn scan_msgpack(&mut self, record: &PicklePlace, bytes: &'a [u8], depth: usize) {
        self.has_content = true;
        // The formats have no signature.
        self.report_foreign(record);
        if !self.budget.spend(bytes.len() as u64) {
            return self.add_missed(|| format!("{record}: the limit on the work for one file was reached"));
        }
        if msgpack_reader::has_objects(bytes) {
            self.add_missed(|| {
                format!("{record}: arrays of objects, for whose addresses NumPy takes the bytes of msgpack")
            });
        }
        if let Some(kind) = msgpack_reader::own_extension(bytes) {
            self.add_missed(|| {
                format!("{record}: an extension of type {kind}, for which a program has its own code")
            });
        }
        let is_near = |_: &str| false;
        let mut judge = Judge::new(&is_near);
        msgpack_reader::judge(bytes, &mut judge);
        self.report_document(record, judge, depth);
        self.queue_nested(record, msgpack_reader::nested(bytes), depth);
    }
}

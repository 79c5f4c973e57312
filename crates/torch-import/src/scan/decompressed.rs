//! Scan of the content of files that were compressed.

use super::compressed::{CompressionFormat, Decompressed};
use super::nested::NestedBytes;
use super::scan_format::ScanFormat;
use super::scanner::{NESTING_DEPTH_MAX, Scanner};
use super::unread::is_git_object;
use super::{PicklePlace, PlaceStep};
use crate::container::inflate::RecordBytes;

impl Scanner<'_, '_> {
    /// Scans bytes, and reports them if no reader recognises them.
    pub(super) fn scan_recognised(
        &mut self,
        record: &PicklePlace,
        bytes: &[u8],
        depth: usize,
        expected: bool,
    ) {
        if depth > NESTING_DEPTH_MAX {
            return self
                .add_missed(|| format!("{record}: it is nested deeper than {NESTING_DEPTH_MAX} levels"));
        }
        let had_content = std::mem::take(&mut self.has_content);
        self.scan_temporary(record, bytes, depth, expected);
        if !self.has_content {
            self.report_unread(record, bytes);
        }
        self.has_content |= had_content;
    }

    /// Scans the decompressed content of compressed bytes.
    pub(super) fn scan_compressed(
        &mut self,
        record: &PicklePlace,
        packed: &CompressionFormat,
        bytes: &[u8],
        depth: usize,
        expected: bool,
    ) {
        let content = self.decompress(record, packed, bytes);
        let inner: &[u8] = &content;
        if is_git_object(inner) {
            return;
        }
        // Bytes of a format without a decoder here may begin like a pickle.
        if !packed.has_decoder() {
            let nested = self.scan_pickles(record, bytes, false);
            for NestedBytes { at, bytes, is_loaded } in nested {
                self.scan_temporary(
                    &record.join_step(PlaceStep::Bytes(at)),
                    &bytes,
                    depth.saturating_add(1),
                    is_loaded,
                );
            }
        }
        let record = record.join_step(PlaceStep::Part(packed.name));
        let depth = depth.saturating_add(1);
        let expected = expected || matches!(ScanFormat::of_signature(inner), Some(ScanFormat::Pickles));
        self.scan_recognised(&record, inner, depth, expected);
    }

    /// Decompresses bytes within the limit, and reports what was not decompressed.
    pub(super) fn decompress(
        &mut self,
        record: &PicklePlace,
        packed: &CompressionFormat,
        bytes: &[u8],
    ) -> RecordBytes {
        let Decompressed { content, incomplete_reason } = packed.decompress_up_to(bytes, self.unpack_budget);
        let place = if record.0.is_empty() { String::new() } else { format!("{record}: ") };
        if let Some(cut) = incomplete_reason {
            self.add_missed(|| format!("{place}{cut}"));
        }
        self.unpack_budget = self.unpack_budget.saturating_sub(content.len() as u64);
        self.budget.add(content.len() as u64);
        content
    }
}

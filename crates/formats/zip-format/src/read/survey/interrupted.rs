//! Survey of a zip file that ends before its directory, like an interrupted download.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7 and 4.3.9.

use byte_source::{Cancelled, Observer};

use super::{CENTRAL, DESCRIPTOR, ENTRIES_MAX, LOCAL, Survey, find_with_observer, local_header};
use crate::read::entry::Entry;

impl Survey {
    /// Follows the local headers of a file that ends before its directory. Nothing is compared, because the central
    /// headers are missing.
    pub(super) fn survey_interrupted(
        &mut self,
        bytes: &[u8],
        observer: &dyn Observer,
    ) -> Result<(), Cancelled> {
        self.ends_before_directory = true;
        let mut offset = 0_usize;
        let mut missing = None;
        while let Ok(local) = local_header(bytes, offset as u64) {
            if self.entries.len() >= ENTRIES_MAX {
                self.is_incomplete = true;
                break;
            }
            let span = usize::try_from(local.span).unwrap_or(usize::MAX);
            let start = offset.saturating_add(span).min(bytes.len());
            let rest = bytes.get(start..).unwrap_or_default();
            let len = usize::try_from(local.compressed_len).unwrap_or(usize::MAX);
            let has_len = !(local.has_descriptor() && len == 0);
            // Data of unknown length extend to the next record.
            let len = if has_len { len } else { next_record(rest, observer)?.unwrap_or(usize::MAX) };
            missing = Some(len.saturating_sub(rest.len())).filter(|_| has_len);
            let end = start.saturating_add(len).min(bytes.len());
            let name = local.display_name();
            self.entries.extend(Entry::from_header_lenient(&local, name, offset as u64, start as u64, end));
            let next = find_with_observer(bytes.get(end..).unwrap_or_default(), LOCAL, observer)?;
            let Some(next) = next else { break };
            offset = end.saturating_add(next);
        }
        let last = self.entries.last().map_or_else(String::new, |entry| {
            let (name, here) = (entry.name.escape_debug(), entry.stored_len());
            let of = match missing {
                Some(0) => String::new(),
                Some(missing) => format!(", of which {missing} bytes are missing"),
                None => ", whose length is not known".to_owned(),
            };
            format!(", and the last of its {} entries is `{name}` with {here} bytes{of}", self.entries.len())
        });
        let text = format!(
            "it ends after {} bytes, before the directory of the archive{last}: the file is cut short; download or copy \
             it again",
            bytes.len()
        );
        self.add_oddity("cut", text);
        Ok(())
    }
}

/// Returns the end of the data of an entry without sizes: the start of the next record, or of the data descriptor
/// before it.
fn next_record(bytes: &[u8], observer: &dyn Observer) -> Result<Option<usize>, Cancelled> {
    let local = find_with_observer(bytes, LOCAL, observer)?;
    // A search to the end of the file for each entry would take a time that is quadratic in the number of entries.
    let before = bytes.get(..local.unwrap_or(bytes.len())).unwrap_or_default();
    let Some(next) = find_with_observer(before, CENTRAL, observer)?.or(local) else { return Ok(None) };
    let is_descriptor = |start: &usize| bytes.get(*start..).is_some_and(|rest| rest.starts_with(DESCRIPTOR));
    let descriptor = [16, 24].into_iter().filter_map(|len| next.checked_sub(len)).find(is_descriptor);
    Ok(Some(descriptor.unwrap_or(next)))
}

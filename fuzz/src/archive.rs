//! Zip files of arbitrary entries whose checksums are right, so that an input gets past them.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use zip_format::{EntryContent, NewZipEntry, ZipWriter};

/// A zip file of these entries.
pub fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    let mut writer = ZipWriter::new(&mut out);
    for (name, bytes) in entries {
        let entry = NewZipEntry { name, alignment: 0, content: EntryContent::Bytes(bytes) };
        writer.add(&entry).expect("memory takes everything");
    }
    writer.finish().expect("memory takes everything");
    out
}

/// Replaces a few bytes.
///
/// # Errors
/// When all of the input is used.
pub fn patch(u: &mut Unstructured<'_>, bytes: &mut [u8]) -> Result<()> {
    for _ in 0..u.int_in_range(0..=3)? {
        // Counted from the end, where a zip file has its directory.
        let at = u.int_in_range(0..=bytes.len().min(1 << 12) - 1)?;
        let at = bytes.len() - 1 - at;
        bytes[at] = u.arbitrary()?;
    }
    Ok(())
}

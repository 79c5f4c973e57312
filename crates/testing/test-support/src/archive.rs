//! Builder of zip archives in memory.

use zip_format::{EntryContent, NewZipEntry, ZipWriter};

/// Returns a zip file of these records, stored and aligned to 64 bytes as `torch.save` does it, with valid checksums.
pub fn stored_zip<N: AsRef<str>, B: AsRef<[u8]>>(records: impl IntoIterator<Item = (N, B)>) -> Vec<u8> {
    let mut sink: Vec<u8> = Vec::new();
    let mut zip = ZipWriter::new(&mut sink);
    for (name, bytes) in records {
        let entry =
            NewZipEntry { name: name.as_ref(), alignment: 64, content: EntryContent::Bytes(bytes.as_ref()) };
        zip.add(&entry).expect("writing to memory does not fail");
    }
    zip.finish().expect("writing to memory does not fail");
    sink
}

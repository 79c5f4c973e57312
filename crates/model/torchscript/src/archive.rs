//! Layout and writer of `model.pt`: the zip file of `data.pkl`, the code and the storages.
//!
//! Facts: `PyTorchStreamReader` in `caffe2/serialize/inline_container.cc`: one root folder of any name, and in it `version`
//! (10 is the highest that 2.0.1 and 2.15 both load; with it no operator is upgraded), `data.pkl`, `constants.pkl` (an empty
//! tuple), `code/` and `data/`.

use std::collections::HashSet;
use std::fmt;

use byte_source::{Blob, OwnedBlob, Sink};
use bytes::Bytes;
use tensor::{Storage, Tensors};
use zip_format::{EntryContent, LayoutBuilder, NewZipEntry, ZipWriter};

use crate::module_tree::{ModuleId, ModuleTree};
use crate::record::{DataRecord, DataRecords};
use crate::{ModuleNote, Result};

/// Alignment of storages in bytes, the same as torch's own, so that they can be memory-mapped.
const ALIGNMENT: u64 = 64;
const VERSION: &[u8] = b"10\n";
const NO_CONSTANTS: &[u8] = b"\x80\x02).";
const DATA: &str = "data.pkl";
const CODE: &str = "code/__torch__/torch2carton.py";

/// TorchScript archive, laid out and ready to be written.
///
/// As a [`Blob`], it is the whole file. Small entries are held in memory, storages by reference.
pub struct ScriptArchive {
    /// Records that this crate wrote: names below the root folder, and bytes.
    head: Vec<(String, OwnedBlob)>,
    records: Vec<DataRecord>,
    /// Records copied unchanged from another archive: names below the root folder, and bytes.
    kept: Vec<(String, Storage)>,
    /// The other archive's whole file, if nothing was added to it.
    whole: Option<Storage>,
    len: u64,
}

impl ScriptArchive {
    /// Makes the archive whose root module is `root` of `tree`; `tree` was built for `tensors`.
    pub(crate) fn new(tree: ModuleTree<'_>, root: ModuleId, tensors: &Tensors) -> Result<Self> {
        let records = DataRecords::new(tensors)?;
        // Memory that was freed while the tree was built can be as large as the pickle.
        byte_source::report_memory_freed();
        let data_pkl = OwnedBlob(tree.data_pkl(root, tensors, &records)?);
        let code = OwnedBlob(tree.into_code().into_bytes());
        let head = vec![
            (CODE.to_owned(), code),
            ("version".to_owned(), OwnedBlob(VERSION.to_vec())),
            ("constants.pkl".to_owned(), OwnedBlob(NO_CONSTANTS.to_vec())),
            (DATA.to_owned(), data_pkl),
        ];
        let mut archive = Self { head, records: records.records, kept: Vec::new(), whole: None, len: 0 };
        archive.lay_out()?;
        Ok(archive)
    }

    /// Makes an archive of the new records `head` and of the records `kept` of another archive.
    pub(crate) fn with_kept_records(
        head: Vec<(String, OwnedBlob)>,
        kept: Vec<(String, Storage)>,
    ) -> Result<Self> {
        let mut archive = Self { head, records: Vec::new(), kept, whole: None, len: 0 };
        archive.lay_out()?;
        Ok(archive)
    }

    /// Makes an archive that is the file `whole`, unchanged; `kept` are its records.
    pub(crate) fn unchanged_file(kept: Vec<(String, Storage)>, whole: Storage) -> Self {
        Self { head: Vec::new(), records: Vec::new(), kept, len: whole.len(), whole: Some(whole) }
    }

    /// Returns the storage records, in the order of the file.
    pub fn records(&self) -> &[DataRecord] {
        &self.records
    }

    /// Returns the source text of the module's classes.
    pub fn code(&self) -> &[u8] {
        self.head.first().map_or(&[], |(_, code)| &code.0)
    }

    /// Returns the pickle of the module's objects, `data.pkl`.
    pub fn data_pkl(&self) -> &[u8] {
        self.head.iter().find(|(name, _)| name == DATA).map_or(&[], |(_, bytes)| &bytes.0)
    }

    /// Returns the records that this crate wrote besides the storages: names below the root folder, and bytes.
    pub fn head_records(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.head.iter().map(|(name, bytes)| (name.as_str(), bytes.0.as_slice()))
    }

    /// Returns the records copied unchanged from another archive: names below the root folder, and bytes.
    pub fn kept_records(&self) -> &[(String, Storage)] {
        &self.kept
    }

    /// Compares this archive with one that has the records `found`, named as in [`head_records`](Self::head_records), and
    /// returns the first difference. The bytes of compressed records are `None`, and such records differ. The contents of
    /// records copied from another archive are not compared.
    pub fn first_difference(&self, found: &[(String, Option<Bytes>)]) -> Option<ArchiveDifference> {
        let written: Vec<(&str, &[u8])> = self.head_records().collect();
        let kept: HashSet<&str> = self.kept.iter().map(|(name, _)| name.as_str()).collect();
        let record = |name: &str| {
            found.iter().find(|(found, _)| found == name).and_then(|(_, bytes)| bytes.as_deref())
        };
        let other = written.iter().position(|(name, bytes)| record(name) != Some(*bytes));
        if let Some(equal) = other {
            let record = written.get(equal).map_or("", |(name, _)| *name).to_owned();
            return Some(ArchiveDifference { equal, record });
        }
        let is_own = |found: &str| written.iter().any(|(name, _)| *name == found) || kept.contains(found);
        let more = found.iter().find(|(found, _)| !is_own(found));
        more.map(|(name, _)| ArchiveDifference { equal: written.len(), record: name.clone() })
    }

    /// Returns a note for each storage that ends in the middle of an element.
    pub(crate) fn cut_storages(&self) -> impl Iterator<Item = ModuleNote> {
        let cut = self.records.iter().filter(|record| record.incomplete_bytes() > 0);
        cut.map(|record| ModuleNote::CutStorage { bytes: record.incomplete_bytes(), dtype: record.dtype() })
    }

    /// Computes the offset of each record and the length of the file.
    fn lay_out(&mut self) -> Result<()> {
        let mut plan = LayoutBuilder::default();
        let mut starts = Vec::with_capacity(self.records.len());
        self.try_for_each_entry(|entry| plan.add(&entry).map(|data| starts.push(data.start)))?;
        let starts = starts.into_iter().skip(self.head.len());
        for (record, start) in self.records.iter_mut().zip(starts) {
            record.offset = start;
        }
        self.len = plan.finish()?;
        Ok(())
    }

    /// Passes all zip entries to `take`, in the order of the file.
    fn try_for_each_entry<E>(&self, mut take: impl FnMut(NewZipEntry<'_>) -> Result<(), E>) -> Result<(), E> {
        // Differences are reported in the order of `head`, which has the code first.
        let first = ["version", DATA, "constants.pkl"];
        let place = |name: &str| first.iter().position(|first| *first == name).unwrap_or(first.len());
        let mut head: Vec<&(String, OwnedBlob)> = self.head.iter().collect();
        head.sort_by_key(|(name, _)| place(name));
        for (name, bytes) in head {
            let is_constant = ["version", "constants.pkl"].contains(&name.as_str());
            let content = if is_constant { EntryContent::Bytes(&bytes.0) } else { EntryContent::Blob(bytes) };
            take(NewZipEntry { name: &path_in_root(name), alignment: ALIGNMENT, content })?;
        }
        for record in &self.records {
            take(NewZipEntry {
                name: &record.name(),
                alignment: ALIGNMENT,
                content: EntryContent::Blob(record),
            })?;
        }
        for (name, storage) in &self.kept {
            take(NewZipEntry {
                name: &path_in_root(name),
                alignment: ALIGNMENT,
                content: EntryContent::Blob(storage),
            })?;
        }
        Ok(())
    }
}

/// First difference of two archives. Differences are ordered by the number of equal records before them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArchiveDifference {
    /// Number of equal records before the difference.
    pub equal: usize,
    /// Name of the first record that differs, below the root folder.
    pub record: String,
}

/// Returns the path of a record under the root folder, for which torch takes any name.
fn path_in_root(name: &str) -> String {
    format!("model/{name}")
}

impl Blob for ScriptArchive {
    fn len(&self) -> u64 {
        self.len
    }

    fn write_to(&self, sink: &mut dyn Sink) -> byte_source::Result<()> {
        if let Some(whole) = &self.whole {
            return whole.write_to(sink);
        }
        let mut zip = ZipWriter::new(sink);
        self.try_for_each_entry(|entry| zip.add(&entry))?;
        zip.finish()
    }
}

impl fmt::Debug for ScriptArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive")
            .field("records", &self.records.len())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use tensor::{Dtype, Tensor};

    use super::*;
    use crate::{OnInvalidInput, weights_module};

    fn int16(name: &str, shape: u64, bytes: Vec<u8>) -> (String, Tensor) {
        let storage = Storage::owned(bytes);
        let tensor = Tensor::new(Dtype::Int16, vec![shape], vec![1], 0, storage).expect("the bytes suffice");
        (name.to_owned(), tensor)
    }

    #[test]
    fn the_file_has_the_computed_layout() {
        let lengths: [u8; 6] = [0, 2, 63, 64, 65, 200];
        let tensors: Vec<_> = lengths
            .iter()
            .map(|len| int16(&len.to_string(), u64::from(*len / 2), vec![*len; usize::from(*len)]))
            .collect();
        let archive =
            weights_module(&tensors.clone().into(), OnInvalidInput::Return).expect("plain names").archive;
        let mut file: Vec<u8> = Vec::new();
        archive.write_to(&mut file).expect("memory takes it");
        assert_eq!(file.len() as u64, archive.len());

        let mut zip = zip::ZipArchive::new(io::Cursor::new(&file)).expect("a zip file");
        for (record, len) in archive.records().iter().zip(lengths) {
            let mut entry = zip.by_name(&record.name()).expect("it was written");
            assert_eq!(entry.data_start(), Some(record.offset()), "{len}");
            assert_eq!(record.offset() % ALIGNMENT, 0, "{len}");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("its CRC is right");
            // The odd byte after the last element is not written.
            assert_eq!(bytes, vec![len; usize::from(len & !1)]);
        }
        let small: [(&str, &[u8]); 4] = [
            ("model/version", b"10\n"),
            ("model/data.pkl", archive.data_pkl()),
            ("model/constants.pkl", b"\x80\x02)."),
            ("model/code/__torch__/torch2carton.py", archive.code()),
        ];
        for (name, expected) in small {
            let mut bytes = Vec::new();
            zip.by_name(name).expect("it was written").read_to_end(&mut bytes).expect("its CRC is right");
            assert_eq!(bytes, expected);
        }
    }
}

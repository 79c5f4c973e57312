//! `model.pt`: the zip file around `data.pkl`, the code and the storages.
//!
//! Facts: `PyTorchStreamReader` in `caffe2/serialize/inline_container.cc`: one root folder of any name, and
//! under it `version` (10 is the highest that 2.0.1 and 2.15 both load; with it no operator is upgraded),
//! `data.pkl`, `constants.pkl` (an empty tuple), `code/` and `data/`.

use std::fmt;
use std::io;

use mapped::{Blob, OwnedBlob, Sink};
use tensor::Tensor;
use zip_layout::{Content, Entry, Plan, ZipWriter};

use crate::module::{ModuleId, Tree};
use crate::record::{Record, Records};
use crate::{Note, Result};

/// Storages start at multiples of this many bytes, as torch's own do, so that they can be mapped.
const ALIGNMENT: u64 = 64;
const VERSION: &[u8] = b"10\n";
const NO_CONSTANTS: &[u8] = b"\x80\x02).";
const CODE: &str = "code/__torch__/torch2carton.py";

/// A TorchScript archive, laid out and ready to be written.
///
/// As a [`Blob`] it is the whole file. It holds its small entries in memory and the storages by reference.
pub struct Archive {
    code: OwnedBlob,
    data_pkl: OwnedBlob,
    records: Vec<Record>,
    len: u64,
}

impl Archive {
    /// The archive whose root module is `root` of `tree`, which was made for `tensors`.
    pub(crate) fn new(tree: Tree<'_>, root: ModuleId, tensors: &[(String, Tensor)]) -> Result<Self> {
        let records = Records::new(tensors)?;
        // What the tree was made with can be as large as the pickle.
        mapped::release_freed();
        let data_pkl = OwnedBlob(tree.data_pkl(root, tensors, &records)?);
        let code = OwnedBlob(tree.into_code().into_bytes());
        let mut archive = Self { code, data_pkl, records: records.records, len: 0 };
        archive.lay_out()?;
        Ok(archive)
    }

    /// The records of the storages, in the order of the file.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The text of the module's classes.
    pub fn code(&self) -> &[u8] {
        &self.code.0
    }

    /// The pickle of the module's objects.
    pub fn data_pkl(&self) -> &[u8] {
        &self.data_pkl.0
    }

    /// The records besides the storages: their names after the root folder, and their bytes.
    pub fn head_records(&self) -> [(&'static str, &[u8]); 4] {
        [
            (CODE, self.code()),
            ("version", VERSION),
            ("constants.pkl", NO_CONSTANTS),
            ("data.pkl", self.data_pkl()),
        ]
    }

    /// The first record in which an archive with the records `found`, named as in [`head_records`](Self::head_records), is
    /// not this one. The bytes of compressed records are `None`, and such a record differs.
    pub fn first_difference(&self, found: &[(String, Option<&[u8]>)]) -> Option<Difference> {
        let written = self.head_records();
        let record = |name: &str| found.iter().find(|(found, _)| found == name).and_then(|(_, bytes)| *bytes);
        let other = written.iter().position(|(name, bytes)| record(name) != Some(*bytes));
        if let Some(equal) = other {
            let record = written.get(equal).map_or("", |(name, _)| *name).to_owned();
            return Some(Difference { equal, record });
        }
        let more = found.iter().find(|(found, _)| written.iter().all(|(name, _)| name != found));
        more.map(|(name, _)| Difference { equal: written.len(), record: name.clone() })
    }

    /// A note for each storage that ends in the middle of an element.
    pub(crate) fn cut_storages(&self) -> impl Iterator<Item = Note> {
        let cut = self.records.iter().filter(|record| record.cut() > 0);
        cut.map(|record| Note::CutStorage { bytes: record.cut(), dtype: record.dtype() })
    }

    /// Computes where each record starts and how long the file is.
    fn lay_out(&mut self) -> Result<()> {
        let mut plan = Plan::default();
        let mut starts = Vec::with_capacity(self.records.len());
        self.each(|entry| {
            starts.push(plan.add(&entry)?.start);
            Ok(())
        })?;
        let starts = starts.into_iter().skip(self.head().len());
        for (record, start) in self.records.iter_mut().zip(starts) {
            record.offset = start;
        }
        self.len = plan.finish()?;
        Ok(())
    }

    /// The entries before the storages. Torch takes any name for the folder.
    fn head(&self) -> [(&'static str, Content<'_>); 4] {
        [
            ("model/version", Content::Bytes(VERSION)),
            ("model/data.pkl", Content::Blob(&self.data_pkl)),
            ("model/constants.pkl", Content::Bytes(NO_CONSTANTS)),
            ("model/code/__torch__/torch2carton.py", Content::Blob(&self.code)),
        ]
    }

    /// Passes all entries to `take`, in the order of the file.
    fn each(&self, mut take: impl FnMut(Entry<'_>) -> io::Result<()>) -> io::Result<()> {
        for (name, content) in self.head() {
            take(Entry { name, alignment: ALIGNMENT, content })?;
        }
        for record in &self.records {
            take(Entry { name: &record.name(), alignment: ALIGNMENT, content: Content::Blob(record) })?;
        }
        Ok(())
    }
}

/// Where two archives differ. The more records are equal, the greater it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// How many records are equal.
    pub equal: usize,
    /// The name of the first that is not, after the root folder.
    pub record: String,
}

impl Blob for Archive {
    fn len(&self) -> u64 {
        self.len
    }

    fn write_to(&self, sink: &mut dyn Sink) -> io::Result<()> {
        let mut zip = ZipWriter::new(sink);
        self.each(|entry| zip.add(&entry))?;
        zip.finish()
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive")
            .field("records", &self.records.len())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use tensor::{Dtype, Storage};

    use super::*;
    use crate::weights;

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
        let archive = weights(&tensors).expect("plain names").archive;
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

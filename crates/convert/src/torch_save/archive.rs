//! Zip file around `data.pkl` and the storages.
//!
//! Facts: `_save` and `_load` in `torch/serialization.py`, and `PyTorchStreamReader` in
//! `caffe2/serialize/inline_container.cc`: one root folder of any name, and under it `data.pkl`, `byteorder`, `data/` and
//! `version`. Three records of newer versions are not needed and not written: `.data/serialization_id`, a hash over the
//! checksums; `.format_version` and `.storage_alignment`, from which a reader may compute the offset at which PyTorch's own
//! writer puts each storage. PyTorch 2.15 and 2.0.1 read records with data descriptors, and compare their checksums.

use std::fmt;

use byte_source::{Blob, OwnedBlob, PRODUCER, Sink};
use foldhash::{HashSet, HashSetExt};
use tensor::{Dtype, Tensors};
use zip_format::{EntryContent, LayoutBuilder, NewZipEntry, ZipWriter};

use crate::torch_save::Problem;
use crate::torch_save::Result;
use crate::torch_save::pickle::data_pkl;
use crate::torch_save::storages::SavedStorages;

/// Alignment of storages in bytes, the same as in torch's own files, so that they can be mapped.
const ALIGNMENT: u64 = 64;
/// Format version that `torch.save` has written since 1.6.
const VERSION: &[u8] = b"3\n";
const BYTE_ORDER: &[u8] = b"little";

/// A checkpoint with a computed layout, ready to be written.
///
/// As a [`Blob`] it is the whole file. It holds `data.pkl` in memory and the storages by reference.
pub struct TorchSaveArchive {
    data_pkl: OwnedBlob,
    storages: SavedStorages,
    newer: Vec<(String, Dtype)>,
    len: u64,
}

impl TorchSaveArchive {
    /// Lays out a checkpoint of `tensors` in this order. Each storage is written whole, as `torch.save` does.
    ///
    /// # Errors
    /// When two tensors have the same name, a tensor is quantized, or the file is larger than a zip file can be.
    pub fn new(tensors: &Tensors) -> Result<Self> {
        let mut names = HashSet::with_capacity(tensors.len());
        if let Some((name, _)) = tensors.iter().find(|(name, _)| !names.insert(name.as_str())) {
            return Err(Problem::Duplicate { name: name.clone() }.into());
        }
        drop(names);
        let storages = SavedStorages::new(tensors)?;
        let data_pkl = OwnedBlob(data_pkl(tensors, &storages)?);
        let is_newer =
            |position: usize| storages.storage_of_tensor(position).is_some_and(|(_, it)| it.dtype.is_none());
        let newer = tensors.iter().enumerate().filter(|(position, _)| is_newer(*position));
        let newer = newer.map(|(_, (name, tensor))| (name.clone(), tensor.dtype())).collect();
        let mut archive = Self { data_pkl, storages, newer, len: 0 };
        let mut plan = LayoutBuilder::default();
        archive.for_each_entry(|entry| plan.add(&entry).map(drop))?;
        archive.len = plan.finish_with_comment(PRODUCER)?;
        Ok(archive)
    }

    /// Returns the tensors that PyTorch 2.0 cannot load: those of a newer dtype, and those that share a storage with a
    /// tensor of another dtype.
    pub fn needs_newer_torch(&self) -> impl ExactSizeIterator<Item = (&str, Dtype)> {
        self.newer.iter().map(|(name, dtype)| (name.as_str(), *dtype))
    }

    /// Returns the number of storages.
    pub fn storages(&self) -> usize {
        self.storages.list.len()
    }

    /// Passes all entries to `take`, in the order of the file.
    fn for_each_entry<E>(&self, mut take: impl FnMut(NewZipEntry<'_>) -> Result<(), E>) -> Result<(), E> {
        let head = [
            ("archive/data.pkl", EntryContent::Blob(&self.data_pkl)),
            ("archive/byteorder", EntryContent::Bytes(BYTE_ORDER)),
            ("archive/version", EntryContent::Bytes(VERSION)),
        ];
        for (name, content) in head {
            take(NewZipEntry { name, alignment: ALIGNMENT, content })?;
        }
        for (key, storage) in self.storages.list.iter().enumerate() {
            let (name, elements) = (format!("archive/data/{key}"), storage.elements());
            take(NewZipEntry { name: &name, alignment: ALIGNMENT, content: EntryContent::Blob(&elements) })?;
        }
        Ok(())
    }
}

impl Blob for TorchSaveArchive {
    fn len(&self) -> u64 {
        self.len
    }

    fn write_to(&self, sink: &mut dyn Sink) -> byte_source::Result<()> {
        let mut zip = ZipWriter::new(sink);
        self.for_each_entry(|entry| zip.add(&entry))?;
        zip.finish_with_comment(PRODUCER)
    }
}

impl fmt::Debug for TorchSaveArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive")
            .field("storages", &self.storages.list.len())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use tensor::{Storage, Tensor};

    use super::*;

    fn view(dtype: Dtype, numel: u64, storage: &Storage) -> Tensor {
        Tensor::new(dtype, vec![numel], vec![1], 0, storage.clone()).expect("inside its storage")
    }

    fn named(tensors: impl IntoIterator<Item = Tensor>) -> Tensors {
        tensors.into_iter().enumerate().map(|(i, tensor)| (i.to_string(), tensor)).collect()
    }

    #[test]
    fn the_file_has_the_computed_length_and_aligned_storages() {
        let lengths: [u8; 6] = [0, 2, 63, 64, 65, 200];
        let storages = lengths.map(|len| Storage::owned(vec![len; usize::from(len)]));
        let tensors = storages.each_ref().map(|storage| view(Dtype::Int16, storage.len() / 2, storage));
        let archive = TorchSaveArchive::new(&named(tensors)).expect("plain tensors");
        let mut file: Vec<u8> = Vec::new();
        archive.write_to(&mut file).expect("memory takes it");
        assert_eq!(file.len() as u64, archive.len());
        assert!(file.ends_with(b"torch2carton"));

        let mut zip = zip::ZipArchive::new(io::Cursor::new(&file)).expect("a zip file");
        for (key, len) in lengths.iter().enumerate() {
            let mut entry = zip.by_name(&format!("archive/data/{key}")).expect("it was written");
            assert!(entry.data_start().expect("it was read").is_multiple_of(ALIGNMENT));
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("its CRC is right");
            // The odd byte after the last element is not written.
            assert_eq!(bytes, vec![*len; usize::from(len & !1)]);
        }
        for (name, expected) in [
            ("archive/version", &b"3\n"[..]),
            ("archive/byteorder", b"little"),
            ("archive/data.pkl", &archive.data_pkl.0),
        ] {
            let mut bytes = Vec::new();
            zip.by_name(name).expect("it was written").read_to_end(&mut bytes).expect("its CRC is right");
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn a_storage_under_two_dtypes_has_none() {
        let [one, two, three] = [0, 1, 2].map(|byte| Storage::owned(vec![byte; 8]));
        let tensors = [
            view(Dtype::Float32, 2, &one),
            view(Dtype::Int8, 8, &two),
            view(Dtype::Float32, 1, &one),
            view(Dtype::Int16, 4, &two),
            view(Dtype::UInt16, 4, &three),
            view(Dtype::Int8, 3, &two),
        ];
        let archive = TorchSaveArchive::new(&named(tensors)).expect("plain tensors");
        let newer: Vec<_> = archive.needs_newer_torch().collect();
        let expected = [("1", Dtype::Int8), ("3", Dtype::Int16), ("4", Dtype::UInt16), ("5", Dtype::Int8)];
        assert_eq!(newer, expected);
        let numel: Vec<_> = archive.storages.list.iter().map(|storage| storage.elements().count()).collect();
        assert_eq!(numel, [2, 8, 8]);
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let storage = Storage::owned(vec![0; 4]);
        let same = view(Dtype::Int8, 4, &storage);
        let error = TorchSaveArchive::new(&Tensors::from(
            [("a".to_owned(), same.clone()), ("a".to_owned(), same)].to_vec(),
        ));
        let error = error.expect_err("they have one name").to_string();
        assert_eq!(error, "two tensors have the name `a`");
        for dtype in Dtype::all().filter(|dtype| dtype.is_quantized()) {
            let error =
                TorchSaveArchive::new(&named([view(Dtype::UInt8, 4, &storage), view(dtype, 1, &storage)]));
            let error = error.expect_err("it is quantized").to_string();
            assert_eq!(error, format!("tensor `1`: {dtype} is quantized"));
        }
    }
}

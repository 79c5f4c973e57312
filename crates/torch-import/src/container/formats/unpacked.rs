//! Opens the files of a zip archive of PyTorch that was unpacked.

use std::path::Path;
use std::sync::Arc;

use byte_source::Source;
use tensor::{StorageRecord, StorageRecords};

use super::byte_order::parse_byte_order;
use crate::Result;
use crate::container::contents::{ContainerContents, PickledTensors};
use crate::container::inflate::RecordBytes;
use crate::container::joined::JoinedSource;

const STORAGES: &str = "data/";
const BYTE_ORDER: &str = "byteorder";

/// Joins the files, of which the first is the pickle.
pub(in crate::container) fn open(
    path: &Path,
    files: Vec<(String, Arc<dyn Source>)>,
) -> Result<ContainerContents> {
    let pickle_len = files.first().map_or(0, |(_, source)| source.len());
    let mut storages = StorageRecords::with_capacity("", files.len());
    let (mut byte_order, mut parts, mut end) = (None, Vec::with_capacity(files.len()), 0_u64);
    for (name, source) in files {
        let start = end;
        end = end.saturating_add(source.len());
        if let Some(key) = name.strip_prefix(STORAGES) {
            storages.insert(key, StorageRecord::new(start..end, None));
        } else if name == BYTE_ORDER {
            byte_order = Some(parse_byte_order(&source.read_range(0..source.len().min(16))?)?);
        }
        parts.push(source);
    }
    let file: Arc<dyn Source> = Arc::new(JoinedSource::new(path, parts));
    let new = PickledTensors::new(RecordBytes::read(&file, 0..pickle_len)?);
    let byte_order = byte_order.unwrap_or(new.byte_order);
    let pickled = PickledTensors { pickle_record: "data.pkl".to_owned(), byte_order, ..new };
    Ok(ContainerContents { format: "unpacked", ..ContainerContents::pickled(file, storages, pickled) })
}

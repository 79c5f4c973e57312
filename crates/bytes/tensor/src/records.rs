//! Table of the named records of a file, each of which is a storage.
//!
//! A file may have a million storages of a few bytes. One allocation for each, and a map of their names, would take
//! more memory than the records themselves.

use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use byte_source::Source;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Records of one file. [`Storage::record`](crate::Storage::record) creates their storages.
#[derive(Debug, Default)]
pub struct StorageRecords {
    /// The file, and the temporary file of its decompressed records (`inflated`).
    file: Option<Arc<dyn Source>>,
    inflated: Option<Arc<dyn Source>>,
    /// Prefix of each name in messages.
    prefix: String,
    /// Names of all records, concatenated.
    names: String,
    list: Vec<StorageRecord>,
    numbers_by_name: HashTable<u32>,
    state: RandomState,
}

/// Location of a storage's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageRecord {
    /// True if the record lies in the decompressed temporary file.
    pub inflated: bool,
    /// Range of the record in its file, in bytes.
    pub range: Range<u64>,
    /// CRC-32 of the bytes; `None` if the file has none, or it was already checked.
    pub crc: Option<u32>,
    /// End of the name in the concatenated names, in bytes.
    name_end: u32,
}

impl StorageRecord {
    /// Creates a record of the original file.
    pub fn new(range: Range<u64>, crc: Option<u32>) -> Self {
        Self { inflated: false, range, crc, name_end: 0 }
    }

    /// Returns the number of bytes.
    pub fn nbytes(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// Creates a record of the decompressed temporary file.
    pub fn inflated(range: Range<u64>) -> Self {
        Self { inflated: true, ..Self::new(range, None) }
    }
}

impl StorageRecords {
    /// Creates an empty table with room for `records` records. `prefix` precedes their names in messages.
    pub fn with_capacity(prefix: &str, records: usize) -> Self {
        Self {
            prefix: prefix.to_owned(),
            list: Vec::with_capacity(records),
            numbers_by_name: HashTable::with_capacity(records),
            ..Self::default()
        }
    }

    /// Adds a record. Returns false if its name exists already or the table is full.
    pub fn insert(&mut self, name: &str, record: StorageRecord) -> bool {
        let name_end = u32::try_from(self.names.len().saturating_add(name.len()));
        let (Ok(number), Ok(name_end)) = (u32::try_from(self.list.len()), name_end) else { return false };
        let hashed = self.state.hash_one(name);
        if self.find_hashed(hashed, name).is_some() {
            return false;
        }
        self.names.push_str(name);
        self.list.push(StorageRecord { name_end, ..record });
        let Self { numbers_by_name: places, state, names, list, .. } = self;
        let hash = |number: &u32| state.hash_one(record_name_at(names, list, *number));
        places.insert_unique(hashed, number, hash);
        true
    }

    /// Sets the sources that hold the records.
    pub fn set_sources(&mut self, file: &Arc<dyn Source>, inflated: Option<&Arc<dyn Source>>) {
        self.file = Some(Arc::clone(file));
        self.inflated = inflated.cloned();
    }

    /// Returns the number of the record called `name`.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.find_hashed(self.state.hash_one(name), name)
    }

    fn find_hashed(&self, hashed: u64, name: &str) -> Option<u32> {
        let is_called = |number: &u32| record_name_at(&self.names, &self.list, *number) == name;
        self.numbers_by_name.find(hashed, is_called).copied()
    }

    /// Returns a record by its number.
    pub fn get(&self, number: u32) -> Option<&StorageRecord> {
        self.list.get(number as usize)
    }

    /// Returns the name of a record as shown in messages.
    pub fn full_name(&self, number: u32) -> String {
        [&self.prefix, record_name_at(&self.names, &self.list, number)].concat()
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the source that holds a record.
    pub fn source_of(&self, record: &StorageRecord) -> Option<&Arc<dyn Source>> {
        if record.inflated { self.inflated.as_ref() } else { self.file.as_ref() }
    }
}

fn record_name_at<'n>(names: &'n str, records: &[StorageRecord], number: u32) -> &'n str {
    let number = number as usize;
    let before = number.checked_sub(1).and_then(|before| records.get(before));
    let start = before.map_or(0, |record| record.name_end as usize);
    records.get(number).and_then(|record| names.get(start..record.name_end as usize)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_by_their_names() {
        let mut records = StorageRecords::with_capacity("archive/data/", 0);
        let names = ["0", "1", "10", "", "ü"];
        for (number, name) in (0_u64..).zip(&names) {
            assert!(records.insert(name, StorageRecord::new(number..9, None)));
        }
        assert!(!records.insert("10", StorageRecord::new(0..1, None)));
        assert_eq!(records.len(), names.len());
        for (number, name) in (0_u64..).zip(&names) {
            let found = records.find(name).expect("it was inserted");
            assert_eq!(u64::from(found), number);
            assert_eq!(records.get(found).expect("a number of its own").range, number..9);
            assert_eq!(records.full_name(found), format!("archive/data/{name}"));
        }
        assert_eq!(records.find("2"), None);
    }
}

//! Index from texts to numbers whose memory does not grow with the number of texts.
//!
//! The newest entries are in memory. When there are too many, they are sorted and written to an unlinked temporary file, and
//! when there are several such files, they are merged into one.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use byte_source::{OwnedBlob, sha256};
use foldhash::{HashMap, HashMapExt};

/// Largest number of entries in memory, about 12 MB.
const RECENT_MAX: usize = 1 << 18;
/// Number of files that are merged into one.
const RUNS_MAX: usize = 8;
/// Length in bytes of an entry in a file: its key and its number.
const ENTRY_LEN: u64 = 24;
/// Number of entries that are read at once. The first key of each such block is in memory.
const BLOCK: u64 = 128;

/// First half of the SHA-256 of a text, which stands for the text.
type Key = [u8; 16];

#[derive(Debug)]
pub(crate) struct TextIndex {
    recent: HashMap<Key, u64>,
    /// Older entries, the oldest first. A newer entry of a key replaces an older one.
    runs: Vec<SortedRun>,
    recent_max: usize,
}

/// File with entries, sorted by key.
#[derive(Debug)]
struct SortedRun {
    file: File,
    count: u64,
    firsts: Vec<Key>,
}

impl Default for TextIndex {
    fn default() -> Self {
        Self { recent: HashMap::new(), runs: Vec::new(), recent_max: RECENT_MAX }
    }
}

impl TextIndex {
    /// Sets the number of a text, and returns the number that it had before.
    ///
    /// # Errors
    /// When a temporary file cannot be written or read.
    pub(crate) fn insert(&mut self, text: &str, number: u64) -> io::Result<Option<u64>> {
        let key = key_of(text)?;
        let before = self.find(&key)?;
        if self.recent.len() >= self.recent_max && !self.recent.contains_key(&key) {
            self.spill()?;
        }
        self.recent.insert(key, number);
        Ok(before)
    }

    /// Returns the number of a text.
    ///
    /// # Errors
    /// When a temporary file cannot be read.
    pub(crate) fn get(&mut self, text: &str) -> io::Result<Option<u64>> {
        self.find(&key_of(text)?)
    }

    fn find(&mut self, key: &Key) -> io::Result<Option<u64>> {
        if let Some(number) = self.recent.get(key) {
            return Ok(Some(*number));
        }
        for run in self.runs.iter_mut().rev() {
            if let Some(number) = run.find(key)? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Moves the entries in memory to a file.
    fn spill(&mut self) -> io::Result<()> {
        let mut entries: Vec<(Key, u64)> = self.recent.drain().collect();
        entries.sort_unstable();
        self.runs.push(SortedRun::write(entries.into_iter().map(Ok))?);
        if self.runs.len() >= RUNS_MAX {
            let merged = merge(&mut self.runs)?;
            self.runs = vec![merged];
        }
        Ok(())
    }
}

impl SortedRun {
    fn write(entries: impl Iterator<Item = io::Result<(Key, u64)>>) -> io::Result<Self> {
        let mut out = BufWriter::new(tempfile::tempfile()?);
        let (mut count, mut firsts) = (0_u64, Vec::new());
        for entry in entries {
            let (key, number) = entry?;
            if count.is_multiple_of(BLOCK) {
                firsts.push(key);
            }
            out.write_all(&key)?;
            out.write_all(&number.to_le_bytes())?;
            count = count.saturating_add(1);
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Self { file, count, firsts })
    }

    fn find(&mut self, key: &Key) -> io::Result<Option<u64>> {
        let blocks = self.firsts.partition_point(|first| first <= key) as u64;
        let Some(block) = blocks.checked_sub(1) else { return Ok(None) };
        let before = block.saturating_mul(BLOCK);
        self.file.seek(SeekFrom::Start(before.saturating_mul(ENTRY_LEN)))?;
        let left = self.count.saturating_sub(before).min(BLOCK);
        let mut bytes = vec![0; usize::try_from(left.saturating_mul(ENTRY_LEN)).unwrap_or(0)];
        self.file.read_exact(&mut bytes)?;
        let mut entries = RunEntries { reader: bytes.as_slice(), left };
        let found = entries.find(|entry| !entry.as_ref().is_ok_and(|(found, _)| found < key));
        Ok(found.transpose()?.and_then(|(found, number)| (found == *key).then_some(number)))
    }
}

/// Merges sorted runs. Of several entries of a key, that of the last run stays.
fn merge(runs: &mut [SortedRun]) -> io::Result<SortedRun> {
    let mut heads = Vec::with_capacity(runs.len());
    for run in runs {
        run.file.seek(SeekFrom::Start(0))?;
        let mut entries = RunEntries { reader: BufReader::new(&run.file), left: run.count };
        heads.push((entries.next().transpose()?, entries));
    }
    let smallest_of_all = || -> Option<io::Result<(Key, u64)>> {
        let smallest = heads.iter().filter_map(|(head, _)| head.map(|(key, _)| key)).min()?;
        let mut newest = None;
        for (head, entries) in &mut heads {
            if let Some((key, number)) = *head
                && key == smallest
            {
                newest = Some((key, number));
                match entries.next().transpose() {
                    Ok(next) => *head = next,
                    Err(error) => return Some(Err(error)),
                }
            }
        }
        newest.map(Ok)
    };
    SortedRun::write(std::iter::from_fn(smallest_of_all))
}

/// Entries of a run, in order.
struct RunEntries<R> {
    reader: R,
    left: u64,
}

impl<R: Read> Iterator for RunEntries<R> {
    type Item = io::Result<(Key, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(read_entry(&mut self.reader))
    }
}

fn read_entry(reader: &mut impl Read) -> io::Result<(Key, u64)> {
    let (mut key, mut number) = (Key::default(), [0; 8]);
    reader.read_exact(&mut key)?;
    reader.read_exact(&mut number)?;
    Ok((key, u64::from_le_bytes(number)))
}

fn key_of(text: &str) -> io::Result<Key> {
    let hash = sha256(&OwnedBlob(text.as_bytes().to_vec()), &())?;
    let mut key = Key::default();
    key.copy_from_slice(hash.first_chunk::<16>().expect("a hash has 32 bytes"));
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap as Model;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn an_index_is_a_map(entries in prop::collection::vec((0..300_u32, any::<u64>()), 0..600)) {
            let mut index = TextIndex { recent_max: 7, ..TextIndex::default() };
            let mut model = Model::new();
            for (text, number) in entries {
                let before = index.insert(&text.to_string(), number).expect("a temporary file");
                prop_assert_eq!(before, model.insert(text, number));
                prop_assert!(index.recent.len() <= 7 && index.runs.len() < RUNS_MAX);
            }
            for text in 0..300 {
                prop_assert_eq!(index.get(&text.to_string()).expect("a temporary file"), model.get(&text).copied());
            }
        }
    }
}

//! Storages: the bytes that tensors view.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use byte_source::{
    Blob, Crc32, Place, RecordDamaged, Region, Sink, Source, WINDOW, Window, each_window, window_ranges,
};

use crate::compute::{self, Compute, Inputs, RangeChecksums};
use crate::neg_conj::{NegConj, SignFlip};
use crate::records::StorageRecords;

/// Byte order of the numbers in a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// Bytes that tensors view. Clones are the same storage and have the same [`id`](Self::id).
#[derive(Clone, Debug)]
pub struct Storage {
    bytes: StorageBytes,
    /// Component size in bytes of a big-endian storage, whose components are reversed; 1 for little-endian storages.
    swap_size: u8,
}

#[derive(Clone, Debug)]
enum StorageBytes {
    Record(Arc<StorageRecords>, u32),
    Standalone(Arc<StorageContent>),
}

#[derive(Debug)]
enum StorageContent {
    Stored {
        region: Region,
        /// Checksum, and the range of the source that it covers: the region's, or a larger one for a slice.
        checksum: Option<(Checksum, Range<u64>)>,
    },
    Owned(Vec<u8>),
    Computed(Arc<dyn Compute>),
}

/// Range of a source that a storage consists of.
struct StoredRange<'s> {
    source: &'s Arc<dyn Source>,
    range: Range<u64>,
    /// CRC-32, and the range of the source that it covers: `range`, or a larger one for a slice.
    sum: Option<(u32, Range<u64>)>,
}

/// Expected checksum of a storage, compared whenever all of its bytes are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// CRC-32 of the bytes as stored in the file.
    pub crc: u32,
    /// Name of the storage in the file, for messages.
    pub record: Arc<str>,
}

/// Identity of a storage: equal only for clones of one storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorageId(usize);

impl Storage {
    /// Creates a storage of a byte range of a source, little-endian until [`with_byte_order`](Self::with_byte_order)
    /// says otherwise.
    pub fn stored(region: Region, checksum: Option<Checksum>) -> Self {
        let checksum = checksum.map(|checksum| (checksum, region.range()));
        Self::from(StorageContent::Stored { region, checksum })
    }

    /// Creates a storage of a record, little-endian until [`with_byte_order`](Self::with_byte_order) says otherwise;
    /// `None` if the record is not inside the file.
    pub fn record(records: &Arc<StorageRecords>, number: u32) -> Option<Self> {
        let record = records.get(number)?;
        Region::new(records.source_of(record)?, record.range.clone())?;
        Some(Self { bytes: StorageBytes::Record(Arc::clone(records), number), swap_size: 1 })
    }

    /// Creates a storage of little-endian bytes in memory.
    pub fn owned(bytes: Vec<u8>) -> Self {
        Self::from(StorageContent::Owned(bytes))
    }

    /// Creates a storage whose bytes are computed from other storages whenever they are read.
    pub fn computed(compute: Arc<dyn Compute>) -> Self {
        Self::from(StorageContent::Computed(compute))
    }

    /// Returns a new storage of the same floating-point numbers, of `component_size` bytes each, with some signs
    /// flipped.
    #[must_use]
    pub fn with_flipped_signs(&self, component_size: u64, signs: NegConj) -> Self {
        let component = usize::try_from(component_size).unwrap_or(1).max(1);
        Self::computed(Arc::new(SignFlip { base: self.clone(), component, signs }))
    }

    /// Returns a byte range as a storage of its own. `range` starts and ends at components. Sending all of the slice
    /// also reads the rest of the record, for its checksum. Returns `None` if `range` is not inside the storage, or the
    /// bytes are not contiguous.
    pub fn slice(&self, range: Range<u64>) -> Option<Self> {
        if let Some(stored) = self.in_source() {
            let region = Region::new(stored.source, stored.range)?.slice(range)?;
            let checksum = |(crc, whole)| (Checksum { crc, record: self.record_name().into() }, whole);
            let checksum = stored.sum.map(checksum);
            return Some(Self {
                swap_size: self.swap_size,
                ..Self::from(StorageContent::Stored { region, checksum })
            });
        }
        let part = match self.inner()? {
            StorageContent::Owned(bytes) => Self::owned(byte_source::slice_range(bytes, &range)?.to_vec()),
            StorageContent::Computed(compute) => compute.slice(range)?,
            StorageContent::Stored { .. } => return None,
        };
        Some(Self { swap_size: self.swap_size, ..part })
    }

    /// Returns the same bytes as a storage whose checksum is not compared, for parts of a record that another storage
    /// compares.
    #[must_use]
    pub fn without_checksum(&self) -> Self {
        let stored = self.in_source().filter(|stored| stored.sum.is_some());
        let region = stored.and_then(|stored| Region::new(stored.source, stored.range));
        region.map_or_else(
            || self.clone(),
            |region| Self {
                swap_size: self.swap_size,
                ..Self::from(StorageContent::Stored { region, checksum: None })
            },
        )
    }

    /// Returns the same storage, its bytes read as components of `component_size` bytes in `order`.
    #[must_use]
    pub fn with_byte_order(mut self, order: ByteOrder, component_size: u64) -> Self {
        self.swap_size = match order {
            ByteOrder::Little => 1,
            ByteOrder::Big => u8::try_from(component_size).unwrap_or(1).max(1),
        };
        self
    }

    /// Returns the identity of the storage, which two tensors share if they share memory.
    pub fn id(&self) -> StorageId {
        StorageId(match &self.bytes {
            // A record of a table has an address of its own, like any other storage.
            StorageBytes::Record(records, number) => {
                records.get(*number).map_or(0, |record| std::ptr::from_ref(record).addr())
            }
            StorageBytes::Standalone(inner) => Arc::as_ptr(inner).addr(),
        })
    }

    /// Returns true if the storage, or one that it is computed from, is the record at `place`.
    pub fn reads_record(&self, place: &Place) -> bool {
        match self.compute() {
            Some(compute) => compute.inputs().iter().any(|input| input.reads_record(place)),
            None => self.in_source().is_some_and(|stored| {
                place.path.as_deref() == Some(stored.source.path())
                    && place.record.as_ref() == Some(&self.record_name())
            }),
        }
    }

    /// Returns the computation of the bytes; `None` if they are stored.
    pub(crate) fn compute(&self) -> Option<&dyn Compute> {
        match self.inner() {
            Some(StorageContent::Computed(compute)) => Some(&**compute),
            _ => None,
        }
    }

    /// Returns the storage itself, or the first one that it is computed from.
    pub fn first_stored(&self) -> &Self {
        let mut storage = self;
        while let Some(input) = storage.compute().and_then(|compute| compute.inputs().first()) {
            storage = input;
        }
        storage
    }

    /// Returns the number of the record; `None` for a storage that is not a record.
    pub fn record_number(&self) -> Option<u32> {
        match &self.bytes {
            StorageBytes::Record(_, number) => Some(*number),
            StorageBytes::Standalone(_) => None,
        }
    }

    /// Returns the range of a source that the storage consists of; `None` for owned and computed storages.
    fn in_source(&self) -> Option<StoredRange<'_>> {
        match &self.bytes {
            StorageBytes::Record(records, number) => {
                let record = records.get(*number)?;
                let (source, range) = (records.source_of(record)?, record.range.clone());
                Some(StoredRange { source, range, sum: record.crc.map(|crc| (crc, record.range.clone())) })
            }
            StorageBytes::Standalone(inner) => match &**inner {
                StorageContent::Stored { region, checksum } => {
                    let sum = checksum.as_ref().map(|(checksum, whole)| (checksum.crc, whole.clone()));
                    Some(StoredRange { source: region.source(), range: region.range(), sum })
                }
                _ => None,
            },
        }
    }

    /// Returns what is read of a source when a range of the bytes is: all that the checksum covers, if that is compared. `None` for
    /// owned and computed storages.
    pub(crate) fn source_read(&self, range: Range<u64>) -> Option<(&Arc<dyn Source>, Range<u64>)> {
        let StoredRange { source, range: all, sum } = self.in_source()?;
        if let Some((_, whole)) = sum.filter(|_| range == (0..self.len())) {
            return Some((source, whole));
        }
        let at = |offset: u64| all.start.saturating_add(offset).min(all.end);
        Some((source, at(range.start)..at(range.end)))
    }

    /// Returns the name of the record, for messages; empty if it has none.
    fn record_name(&self) -> String {
        match &self.bytes {
            StorageBytes::Record(records, number) => records.full_name(*number),
            StorageBytes::Standalone(inner) => match &**inner {
                StorageContent::Stored { checksum: Some((checksum, _)), .. } => checksum.record.to_string(),
                _ => String::new(),
            },
        }
    }

    /// Returns the content of a storage that is not a record; `None` for a record.
    fn inner(&self) -> Option<&StorageContent> {
        match &self.bytes {
            StorageBytes::Record(..) => None,
            StorageBytes::Standalone(inner) => Some(inner),
        }
    }

    /// Returns the byte offset in the source; `None` for owned and computed storages.
    pub fn file_offset(&self) -> Option<u64> {
        self.in_source().map(|stored| stored.range.start)
    }

    /// Returns the part of a source that has exactly these bytes; `None` for owned, computed and big-endian storages.
    pub fn region(&self) -> Option<Region> {
        let stored = self.in_source().filter(|_| self.swap_size == 1)?;
        Region::new(stored.source, stored.range)
    }

    /// Returns the offset of the bytes in the whole file; `None` for owned and computed storages.
    ///
    /// # Errors
    /// Those of [`Source::locate`].
    pub fn locate(&self) -> Result<Option<u64>, byte_source::Error> {
        let Some(stored) = self.in_source() else { return Ok(None) };
        Ok(Some(stored.source.locate(stored.range)?.start))
    }

    /// Returns the bytes in memory, without reading, copying or checking them; `None` if no source has exactly these
    /// bytes in memory.
    pub fn mapped_bytes(&self) -> Option<&[u8]> {
        let stored = self.in_source().filter(|_| self.swap_size == 1)?;
        byte_source::slice_range(stored.source.in_memory()?, &stored.range)
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        match self.inner() {
            Some(StorageContent::Computed(compute)) => compute.len(),
            Some(StorageContent::Owned(bytes)) => bytes.len() as u64,
            Some(StorageContent::Stored { .. }) | None => self.in_source().map_or(0, |stored| stored.len()),
        }
    }

    /// Returns true if the bytes are computed, and take longer to compute than to copy.
    pub(crate) fn is_costly(&self) -> bool {
        self.compute().is_some_and(Compute::is_costly)
    }

    /// Returns true if the bytes are computed from those of other storages.
    pub fn is_computed(&self) -> bool {
        self.compute().is_some()
    }

    /// Returns true if the storage has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the range of the source that the checksum covers.
    pub(crate) fn checksum_range(&self) -> Option<Range<u64>> {
        Some(self.in_source()?.sum?.1)
    }

    /// Reads the ranges of the record that `sums` lacks, and compares the checksum.
    pub(crate) fn verify_checksum(&self, sums: RangeChecksums) -> Result<(), byte_source::Error> {
        let Some(StoredRange { source, .. }) = self.in_source() else { return Ok(()) };
        self.compare_crc(sums.finish(|range, sum| add_range_checksum(&**source, range, sum))?)
    }

    /// Compares the computed CRC-32 of the record with the one in the file.
    fn compare_crc(&self, found: u32) -> Result<(), byte_source::Error> {
        match self.in_source() {
            Some(StoredRange { source, sum: Some((expected, _)), .. }) if expected != found => {
                let damaged = RecordDamaged { record: self.record_name(), expected, found };
                Err(byte_source::Error::from(damaged).in_file(source.path()))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn read(&self, start: u64, out: &mut [u8]) -> Result<(), byte_source::Error> {
        let Some(compute) = self.compute() else { return self.read_stored(start, out, None) };
        compute::read_unaligned(compute, &mut Inputs::new(compute, false), out, start)?;
        self.swap_bytes(out);
        Ok(())
    }

    /// Copies bytes of a storage that is not computed, and adds them, as the source has them, to `sums`.
    pub(crate) fn read_stored(
        &self,
        start: u64,
        out: &mut [u8],
        sums: Option<&mut RangeChecksums>,
    ) -> Result<(), byte_source::Error> {
        let end = start.saturating_add(out.len() as u64);
        if let Some(StorageContent::Owned(bytes)) = self.inner() {
            out.copy_from_slice(
                byte_source::slice_range(bytes, &(start..end)).ok_or(io::ErrorKind::UnexpectedEof)?,
            );
        } else {
            let stored = self.in_source().filter(|stored| end <= stored.len());
            let StoredRange { source, range, .. } = stored.ok_or(io::ErrorKind::UnexpectedEof)?;
            let at = range.start.saturating_add(start);
            source.read_at(out, at)?;
            if let Some(sums) = sums {
                sums.add(at, out);
            }
        }
        self.swap_bytes(out);
        Ok(())
    }

    /// Returns true if components have another byte order in the source.
    pub(crate) fn is_swapped(&self) -> bool {
        self.swap_size > 1
    }

    pub(crate) fn swap_bytes(&self, bytes: &mut [u8]) {
        if self.swap_size > 1 {
            bytes.chunks_exact_mut(self.swap_size.into()).for_each(<[u8]>::reverse);
        }
    }

    /// Sends the bytes of `range` to `sink`, little-endian, in windows. `range` starts and ends at components.
    pub(crate) fn send_range(
        &self,
        range: Range<u64>,
        sink: &mut dyn Sink,
    ) -> Result<(), byte_source::Error> {
        if range.end > self.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(compute) = self.compute() {
            return compute::send(compute, range, &|bytes| self.swap_bytes(bytes), sink);
        }
        let is_whole = range == (0..self.len());
        let stored = self.in_source().filter(|_| is_whole);
        let Some(StoredRange { source, range: all, sum: Some((_, whole)) }) = stored else {
            if let Some(StoredRange { source, range: all, .. }) =
                self.in_source().filter(|_| self.swap_size == 1)
            {
                let at = |offset: u64| all.start.saturating_add(offset);
                return each_window(&**source, at(range.start)..at(range.end), |window| sink.write(window));
            }
            return window_ranges(range).try_for_each(|window| {
                sink.write(Window::filled(window_len(&window), |bytes| self.read(window.start, bytes))?)
            });
        };
        let mut sum = Crc32::default();
        add_range_checksum(&**source, whole.start..all.start, &mut sum)?;
        let mut send = |mut window: Window| {
            // A zip file needs the same CRC-32 of the bytes that are sent, so each window is summed only once.
            sum.add(&window);
            if self.swap_size > 1 {
                window = Window::filled(window.len(), |bytes| {
                    bytes.copy_from_slice(&window);
                    self.swap_bytes(bytes);
                    Ok(())
                })?;
            }
            sink.write(window)
        };
        if self.swap_size > 1 {
            // A window ends at a component.
            window_ranges(all.clone()).try_for_each(|window| send(Window::read(&**source, window)?))?;
        } else {
            each_window(&**source, all.clone(), send)?;
        }
        add_range_checksum(&**source, all.end..whole.end, &mut sum)?;
        self.compare_crc(sum.sum())
    }
}

impl StoredRange<'_> {
    fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }
}

impl From<StorageContent> for Storage {
    fn from(inner: StorageContent) -> Self {
        Self { bytes: StorageBytes::Standalone(Arc::new(inner)), swap_size: 1 }
    }
}

fn add_range_checksum(
    source: &dyn Source,
    range: Range<u64>,
    sum: &mut Crc32,
) -> Result<(), byte_source::Error> {
    window_ranges(range).try_for_each(|window| {
        sum.add(&Window::read(source, window)?);
        Ok(())
    })
}

fn window_len(window: &Range<u64>) -> usize {
    usize::try_from(window.end.saturating_sub(window.start)).unwrap_or(WINDOW)
}

/// Blob of all bytes of the storage, little-endian.
impl Blob for Storage {
    fn len(&self) -> u64 {
        Storage::len(self)
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), byte_source::Error> {
        self.send_range(0..self.len(), sink)
    }
}

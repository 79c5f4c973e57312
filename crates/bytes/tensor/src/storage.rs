//! The bytes that tensors are views of.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use byte_source::{Blob, Crc32, Damaged, ReadError, Region, Sink, Source, WINDOW, Window, windows};

use crate::compute::{self, Compute, Inputs, Sums};
use crate::records::Records;
use crate::signs::{Signed, Signs};

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The last byte is the most significant one.
    Little,
    /// The first byte is the most significant one.
    Big,
}

/// The bytes of one storage. Clones are the same storage and have the same [`id`](Self::id).
#[derive(Clone, Debug)]
pub struct Storage {
    bytes: Bytes,
    /// Bytes a component to reverse; 1 for little-endian storages.
    swap: u8,
}

#[derive(Clone, Debug)]
enum Bytes {
    /// A record of a file.
    Record(Arc<Records>, u32),
    Other(Arc<Inner>),
}

#[derive(Debug)]
enum Inner {
    Stored {
        region: Region,
        /// And the range of the source that it covers: the region's, or a larger one for a slice.
        checksum: Option<(Checksum, Range<u64>)>,
    },
    Owned(Vec<u8>),
    Computed(Arc<dyn Compute>),
}

/// A storage that is a part of a source.
struct Stored<'s> {
    source: &'s Arc<dyn Source>,
    range: Range<u64>,
    /// The CRC-32 of a range of the source: of `range`, or of a larger one for a slice.
    sum: Option<(u32, Range<u64>)>,
}

/// The checksum of a storage, compared whenever all of its bytes are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// The CRC-32 of the bytes as the file has them.
    pub crc: u32,
    /// The storage's name in the file, for messages.
    pub record: Arc<str>,
}

/// The identity of a storage: equal only for clones of one storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorageId(usize);

impl Storage {
    /// A range (bytes) of a source, little-endian until [`with_byte_order`](Self::with_byte_order) says otherwise.
    pub fn stored(region: Region, checksum: Option<Checksum>) -> Self {
        let checksum = checksum.map(|checksum| (checksum, region.range()));
        Self::from(Inner::Stored { region, checksum })
    }

    /// A record of a file, little-endian until [`with_byte_order`](Self::with_byte_order) says otherwise; `None` when it
    /// is not inside the file.
    pub fn record(records: &Arc<Records>, number: u32) -> Option<Self> {
        let record = records.get(number)?;
        Region::new(records.source_of(record)?, record.range.clone())?;
        Some(Self { bytes: Bytes::Record(Arc::clone(records), number), swap: 1 })
    }

    /// Little-endian bytes in memory.
    pub fn owned(bytes: Vec<u8>) -> Self {
        Self::from(Inner::Owned(bytes))
    }

    /// Bytes that are computed from other storages whenever they are read.
    pub fn computed(compute: Arc<dyn Compute>) -> Self {
        Self::from(Inner::Computed(compute))
    }

    /// The same floating-point numbers of `component_size` bytes, the signs of some flipped, as a storage of its own.
    #[must_use]
    pub fn with_signs(&self, component_size: u64, signs: Signs) -> Self {
        let component = usize::try_from(component_size).unwrap_or(1).max(1);
        Self::computed(Arc::new(Signed { base: self.clone(), component, signs }))
    }

    /// A part of the storage as a storage of its own. `range` is in bytes, and starts and ends at components. When all of
    /// the part is sent, the rest is read too, for the checksum. `None` if `range` is not inside the storage, or the bytes
    /// are not contiguous.
    pub fn slice(&self, range: Range<u64>) -> Option<Self> {
        if let Some(stored) = self.in_source() {
            let region = Region::new(stored.source, stored.range)?.slice(range)?;
            let checksum = |(crc, whole)| (Checksum { crc, record: self.record_name().into() }, whole);
            let checksum = stored.sum.map(checksum);
            return Some(Self { swap: self.swap, ..Self::from(Inner::Stored { region, checksum }) });
        }
        let part = match self.inner()? {
            Inner::Owned(bytes) => Self::owned(byte_source::part(bytes, &range)?.to_vec()),
            Inner::Computed(compute) => compute.slice(range)?,
            Inner::Stored { .. } => return None,
        };
        Some(Self { swap: self.swap, ..part })
    }

    /// The same storage, its bytes read as components of `component_size` bytes in `order`.
    #[must_use]
    pub fn with_byte_order(mut self, order: ByteOrder, component_size: u64) -> Self {
        self.swap = match order {
            ByteOrder::Little => 1,
            ByteOrder::Big => u8::try_from(component_size).unwrap_or(1).max(1),
        };
        self
    }

    /// An id that is equal for two tensors if they share memory.
    pub fn id(&self) -> StorageId {
        StorageId(match &self.bytes {
            // Each record has an address too.
            Bytes::Record(records, number) => {
                records.get(*number).map_or(0, |record| std::ptr::from_ref(record).addr())
            }
            Bytes::Other(inner) => Arc::as_ptr(inner).addr(),
        })
    }

    /// Returns whether the storage, or one that it is computed from, is this record.
    pub fn reads_record(&self, record: &Damaged) -> bool {
        match self.compute() {
            Some(compute) => compute.inputs().iter().any(|input| input.reads_record(record)),
            None => self.in_source().is_some_and(|stored| {
                stored.source.path() == record.file && self.record_name() == record.record
            }),
        }
    }

    /// The computation of its bytes; `None` if they are stored.
    pub(crate) fn compute(&self) -> Option<&dyn Compute> {
        match self.inner() {
            Some(Inner::Computed(compute)) => Some(&**compute),
            _ => None,
        }
    }

    /// The number of the record that it is; `None` for other storages.
    pub fn record_number(&self) -> Option<u32> {
        match &self.bytes {
            Bytes::Record(_, number) => Some(*number),
            Bytes::Other(_) => None,
        }
    }

    /// The part of a source that it is; `None` for other storages.
    fn in_source(&self) -> Option<Stored<'_>> {
        match &self.bytes {
            Bytes::Record(records, number) => {
                let record = records.get(*number)?;
                let (source, range) = (records.source_of(record)?, record.range.clone());
                Some(Stored { source, range, sum: record.crc.map(|crc| (crc, record.range.clone())) })
            }
            Bytes::Other(inner) => match &**inner {
                Inner::Stored { region, checksum } => {
                    let sum = checksum.as_ref().map(|(checksum, whole)| (checksum.crc, whole.clone()));
                    Some(Stored { source: region.source(), range: region.range(), sum })
                }
                _ => None,
            },
        }
    }

    /// The name of its record, for messages.
    fn record_name(&self) -> String {
        match &self.bytes {
            Bytes::Record(records, number) => records.full_name(*number),
            Bytes::Other(inner) => match &**inner {
                Inner::Stored { checksum: Some((checksum, _)), .. } => checksum.record.to_string(),
                _ => String::new(),
            },
        }
    }

    /// What it is if it is not a record.
    fn inner(&self) -> Option<&Inner> {
        match &self.bytes {
            Bytes::Record(..) => None,
            Bytes::Other(inner) => Some(inner),
        }
    }

    /// The offset of the bytes in their file.
    pub fn file_offset(&self) -> Option<u64> {
        self.in_source().map(|stored| stored.range.start)
    }

    /// The bytes in memory, without reading, copying or checking them; `None` if no source has exactly these bytes there.
    pub fn mapped_bytes(&self) -> Option<&[u8]> {
        let stored = self.in_source().filter(|_| self.swap == 1)?;
        byte_source::part(stored.source.in_memory()?, &stored.range)
    }

    /// The number of bytes.
    pub fn len(&self) -> u64 {
        match self.inner() {
            Some(Inner::Computed(compute)) => compute.len(),
            Some(Inner::Owned(bytes)) => bytes.len() as u64,
            Some(Inner::Stored { .. }) | None => self.in_source().map_or(0, |stored| stored.len()),
        }
    }

    /// Whether the bytes are computed from those of other storages.
    pub fn is_computed(&self) -> bool {
        self.compute().is_some()
    }

    /// Whether the storage has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The range of the source that its checksum is of.
    pub(crate) fn summed(&self) -> Option<Range<u64>> {
        Some(self.in_source()?.sum?.1)
    }

    /// Reads what was not summed of the record, and compares its checksum.
    pub(crate) fn verify(&self, sums: Sums) -> Result<(), ReadError> {
        let Some(Stored { source, .. }) = self.in_source() else { return Ok(()) };
        self.compare(sums.finish(|range, sum| add(&**source, range, sum))?)
    }

    /// Compares the CRC-32 of the record with the one in the file.
    fn compare(&self, found: u32) -> Result<(), ReadError> {
        match self.in_source() {
            Some(Stored { source, sum: Some((expected, _)), .. }) if expected != found => {
                let (file, record) = (source.path().to_owned(), self.record_name());
                Err(Damaged { file, record, expected, found, tensor: None }.into())
            }
            _ => Ok(()),
        }
    }

    /// Copies the bytes from `start` on into `out`, little-endian.
    pub(crate) fn read(&self, start: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let Some(compute) = self.compute() else { return self.read_stored(start, out, None) };
        compute::read(compute, &mut Inputs::new(compute, false), out, start)?;
        self.swap(out);
        Ok(())
    }

    /// Copies bytes of a storage that is not computed, and adds them to its checksum as the source has them.
    pub(crate) fn read_stored(
        &self,
        start: u64,
        out: &mut [u8],
        sums: Option<&mut Sums>,
    ) -> Result<(), ReadError> {
        let end = start.saturating_add(out.len() as u64);
        if let Some(Inner::Owned(bytes)) = self.inner() {
            out.copy_from_slice(byte_source::part(bytes, &(start..end)).ok_or(io::ErrorKind::UnexpectedEof)?);
        } else {
            let stored = self.in_source().filter(|stored| end <= stored.len());
            let Stored { source, range, .. } = stored.ok_or(io::ErrorKind::UnexpectedEof)?;
            let at = range.start.saturating_add(start);
            source.read_at(out, at)?;
            if let Some(sums) = sums {
                sums.add(at, out);
            }
        }
        self.swap(out);
        Ok(())
    }

    /// Reverses the bytes of each component if the storage is big-endian.
    pub(crate) fn swap(&self, bytes: &mut [u8]) {
        if self.swap > 1 {
            bytes.chunks_exact_mut(self.swap.into()).for_each(<[u8]>::reverse);
        }
    }

    /// Sends the bytes of `range` to `sink`, little-endian, in windows. Both ends are at components.
    pub(crate) fn send(&self, range: Range<u64>, sink: &mut dyn Sink) -> Result<(), ReadError> {
        if range.end > self.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_whole = range == (0..self.len());
        if let Some(compute) = self.compute() {
            let mut inputs = Inputs::new(compute, is_whole);
            windows(range).try_for_each(|window| {
                sink.write(Window::filled(len_of(&window), |bytes| {
                    compute::read(compute, &mut inputs, bytes, window.start)?;
                    self.swap(bytes);
                    Ok(())
                })?)
            })?;
            return inputs.verify();
        }
        let stored = self.in_source().filter(|_| is_whole);
        let Some(Stored { source, range: all, sum: Some((_, whole)) }) = stored else {
            return windows(range).try_for_each(|window| {
                sink.write(Window::filled(len_of(&window), |bytes| self.read(window.start, bytes))?)
            });
        };
        let mut sum = Crc32::default();
        add(&**source, whole.start..all.start, &mut sum)?;
        for window in windows(all.clone()) {
            let mut window = Window::read(&**source, window)?;
            // A zip file needs the same sum of the bytes as they are sent, so those are summed only once.
            sum.add(&window);
            if self.swap > 1 {
                window = Window::filled(window.len(), |bytes| {
                    bytes.copy_from_slice(&window);
                    self.swap(bytes);
                    Ok(())
                })?;
            }
            sink.write(window)?;
        }
        add(&**source, all.end..whole.end, &mut sum)?;
        self.compare(sum.sum())
    }
}

impl Stored<'_> {
    fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }
}

impl From<Inner> for Storage {
    fn from(inner: Inner) -> Self {
        Self { bytes: Bytes::Other(Arc::new(inner)), swap: 1 }
    }
}

/// Adds a range of a source to a checksum.
fn add(source: &dyn Source, range: Range<u64>, sum: &mut Crc32) -> Result<(), ReadError> {
    windows(range).try_for_each(|window| {
        sum.add(&Window::read(source, window)?);
        Ok(())
    })
}

/// The bytes of a window.
fn len_of(window: &Range<u64>) -> usize {
    usize::try_from(window.end.saturating_sub(window.start)).unwrap_or(WINDOW)
}

/// All bytes of the storage, little-endian.
impl Blob for Storage {
    fn len(&self) -> u64 {
        Storage::len(self)
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), ReadError> {
        self.send(0..self.len(), sink)
    }
}

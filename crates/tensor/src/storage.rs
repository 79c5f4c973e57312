//! The bytes that tensors are views of.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use mapped::{Blob, Crc32, MappedFile, Sink, WINDOW, Window};

use crate::cast::{Cast, OutOfRange, Seen};
use crate::concat::Concat;
use crate::records::Records;
use crate::signs::{Signed, Signs};
use crate::{Conversion, Error, Tensor};

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
    Mapped {
        file: Arc<MappedFile>,
        range: Range<usize>,
        /// And the range of the file that it covers: `range`, or a larger one for a slice.
        checksum: Option<(Checksum, Range<usize>)>,
    },
    Owned(Vec<u8>),
    Concat(Concat),
    Signed(Signed),
    Cast(Cast),
}

/// A storage that is a part of a file.
struct InFile<'s> {
    file: &'s Arc<MappedFile>,
    range: Range<usize>,
    /// The CRC-32 of a range of the file: of `range`, or of a larger one for a slice.
    sum: Option<(u32, Range<usize>)>,
}

/// The checksum of a storage, compared whenever all of its bytes are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// The CRC-32 of the bytes as the file has them.
    pub crc: u32,
    /// The storage's name in the file, for messages.
    pub record: Arc<str>,
}

/// The cause of an [`io::Error`] when the bytes of a storage do not match the checksum in their file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The file.
    pub file: PathBuf,
    /// The storage's name in the file.
    pub record: String,
    /// The CRC-32 that the file records.
    pub expected: u32,
    /// The CRC-32 of the bytes.
    pub found: u32,
    /// The storage that was read. One that is computed from others counts, not those others.
    pub storage: StorageId,
    /// A tensor over the storage, if a caller added its name.
    pub tensor: Option<String>,
}

impl Damaged {
    /// The damage that is the cause of an error.
    pub fn cause_of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The error, with the name of a tensor added if it is damage without one.
    #[must_use]
    pub fn with_tensor(error: io::Error, name: &str) -> io::Error {
        match Self::cause_of(&error) {
            Some(damaged @ Self { tensor: None, .. }) => {
                let named = Self { tensor: Some(name.to_owned()), ..damaged.clone() };
                io::Error::new(error.kind(), named)
            }
            _ => error,
        }
    }
}

impl std::error::Error for Damaged {}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { record, expected, found, tensor, .. } = self;
        if let Some(tensor) = tensor {
            write!(f, "tensor `{}`: ", tensor.escape_debug())?;
        }
        let name = self.file.file_name().unwrap_or(self.file.as_os_str()).display();
        let record = record.escape_debug();
        write!(f, "record `{record}` is damaged: its CRC-32 is {found:08x}, {name} records {expected:08x}")
    }
}

/// The identity of a storage: equal only for clones of one storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorageId(usize);

impl Storage {
    /// A range (bytes) of a mapped file, little-endian until [`with_byte_order`](Self::with_byte_order)
    /// says otherwise; `None` when it is not inside the file.
    pub fn mapped(file: &Arc<MappedFile>, range: Range<usize>, checksum: Option<Checksum>) -> Option<Self> {
        file.bytes().get(range.clone())?;
        let file = Arc::clone(file);
        let checksum = checksum.map(|checksum| (checksum, range.clone()));
        Some(Self::from(Inner::Mapped { file, range, checksum }))
    }

    /// A record of a file, little-endian until [`with_byte_order`](Self::with_byte_order) says otherwise; `None` when it
    /// is not inside the file.
    pub fn record(records: &Arc<Records>, number: u32) -> Option<Self> {
        let record = records.get(number)?;
        records.file_of(record)?.bytes().get(record.range.clone())?;
        Some(Self { bytes: Bytes::Record(Arc::clone(records), number), swap: 1 })
    }

    /// Little-endian bytes in memory.
    pub fn owned(bytes: Vec<u8>) -> Self {
        Self::from(Inner::Owned(bytes))
    }

    /// The elements of `parts` one after the other along dimension `dim`, in C order, as `torch.cat` lays
    /// them out; and their shape. Bytes are copied only when they are sent.
    ///
    /// # Errors
    /// When there are no parts, they differ in dtype or in shape along another dimension, or the size does not fit 63 bits.
    pub fn concat(dim: usize, parts: &[Tensor]) -> Result<(Self, Vec<u64>), Error> {
        let (concat, shape) = Concat::new(dim, parts)?;
        Ok((Self::from(Inner::Concat(concat)), shape))
    }

    /// The same floating-point numbers of `component_size` bytes, the signs of some flipped, as a storage of its own.
    #[must_use]
    pub fn with_signs(&self, component_size: u64, signs: Signs) -> Self {
        let component = usize::try_from(component_size).unwrap_or(1).max(1);
        let signed = Signed { base: self.clone(), component, signs };
        Self::from(Inner::Signed(signed))
    }

    /// The elements of `range` in another dtype, as a storage of its own; they are converted whenever they are read. Only
    /// what tensors have `seen`, counted in elements from the start of the range, is an error or counted where it is out of
    /// the dtype's range. `None` if `range` is not inside the storage.
    pub fn cast(&self, conversion: Conversion, range: &Range<u64>, seen: Seen) -> Option<Self> {
        Some(Self::from(Inner::Cast(Cast::new(self, conversion, range, seen)?)))
    }

    /// What [`cast`](Self::cast) could not keep of the numbers that were read, if it is such a storage. If there is
    /// something, it is read once more to be counted. `check` is called before each window.
    ///
    /// # Errors
    /// When the storage cannot be read, and those of `check`.
    pub fn out_of_range(&self, check: &dyn Fn() -> io::Result<()>) -> io::Result<Option<OutOfRange>> {
        match self.inner() {
            Some(Inner::Cast(cast)) => cast.out_of_range(check),
            _ => Ok(None),
        }
    }

    /// A part of the storage as a storage of its own. `range` is in bytes, and starts and ends at components. When all of
    /// the part is sent, the rest is read too, for the checksum. `None` if `range` is not inside the storage, or the bytes
    /// are not contiguous.
    pub fn slice(&self, range: Range<u64>) -> Option<Self> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        if let Some(mapped) = self.in_file() {
            if range.end > mapped.range.len() {
                return None;
            }
            let range = shift(&range, mapped.range.start);
            mapped.file.bytes().get(range.clone())?;
            let checksum = |(crc, whole)| (Checksum { crc, record: self.record_name().into() }, whole);
            let (file, checksum) = (Arc::clone(mapped.file), mapped.sum.map(checksum));
            return Some(Self { swap: self.swap, ..Self::from(Inner::Mapped { file, range, checksum }) });
        }
        let part = match self.inner()? {
            Inner::Owned(bytes) => Self::owned(bytes.get(range)?.to_vec()),
            // A part starts with a real number, or which signs flip would change.
            Inner::Signed(Signed { base, component, signs })
                if range.start.is_multiple_of(component.saturating_mul(2)) =>
            {
                base.slice(range.start as u64..range.end as u64)?.with_signs(*component as u64, *signs)
            }
            _ => return None,
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

    /// Whether bytes of the storage with this id are read for those of this one: it is the same, or is computed from it.
    pub fn reads(&self, id: StorageId) -> bool {
        let is_made_of_it = match self.inner() {
            Some(Inner::Concat(concat)) => concat.reads(id),
            Some(Inner::Signed(signed)) => signed.base.reads(id),
            Some(Inner::Cast(cast)) => cast.base().reads(id),
            _ => false,
        };
        is_made_of_it || self.id() == id
    }

    /// The number of the record that it is; `None` for other storages.
    pub fn record_number(&self) -> Option<u32> {
        match &self.bytes {
            Bytes::Record(_, number) => Some(*number),
            Bytes::Other(_) => None,
        }
    }

    /// The part of a file that it is; `None` for other storages.
    fn in_file(&self) -> Option<InFile<'_>> {
        match &self.bytes {
            Bytes::Record(records, number) => {
                let record = records.get(*number)?;
                let (file, range) = (records.file_of(record)?, record.range.clone());
                Some(InFile { file, range, sum: record.crc.map(|crc| (crc, record.range.clone())) })
            }
            Bytes::Other(inner) => match &**inner {
                Inner::Mapped { file, range, checksum } => {
                    let sum = checksum.as_ref().map(|(checksum, whole)| (checksum.crc, whole.clone()));
                    Some(InFile { file, range: range.clone(), sum })
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
                Inner::Mapped { checksum: Some((checksum, _)), .. } => checksum.record.to_string(),
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
        self.in_file().map(|mapped| mapped.range.start as u64)
    }

    /// The mapped bytes, without reading, copying or checking them; `None` if no file holds exactly these bytes.
    pub fn mapped_bytes(&self) -> Option<&[u8]> {
        let mapped = self.in_file().filter(|_| self.swap == 1)?;
        mapped.file.bytes().get(mapped.range)
    }

    /// The number of bytes.
    pub fn len(&self) -> u64 {
        match self.inner() {
            Some(Inner::Concat(concat)) => concat.len(),
            Some(Inner::Signed(signed)) => signed.base.len(),
            Some(Inner::Cast(cast)) => cast.len(),
            Some(Inner::Owned(bytes)) => bytes.len() as u64,
            Some(Inner::Mapped { .. }) | None => self.in_file().map_or(0, |mapped| mapped.range.len() as u64),
        }
    }

    /// Whether the bytes are computed from those of other storages.
    pub fn is_computed(&self) -> bool {
        matches!(self.inner(), Some(Inner::Concat(_) | Inner::Signed(_) | Inner::Cast(_)))
    }

    /// Whether the storage has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all bytes of the storage have a checksum of their own.
    pub(crate) fn is_summed(&self) -> bool {
        matches!(self.in_file(), Some(InFile { range, sum: Some((_, whole)), .. }) if whole == range)
    }

    /// Sums the bytes that a checksum is of and compares it.
    pub(crate) fn verify(&self) -> io::Result<()> {
        let Some(InFile { file, sum: Some((_, whole)), .. }) = self.in_file() else { return Ok(()) };
        let mut sum = Crc32::default();
        add(file, whole, &mut sum)?;
        self.compare(sum.sum())
    }

    /// Compares the CRC-32 of all bytes with the one in the file.
    pub(crate) fn compare(&self, found: u32) -> io::Result<()> {
        match self.in_file() {
            Some(InFile { file, sum: Some((expected, _)), .. }) if expected != found => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                Damaged {
                    file: file.path().to_owned(),
                    record: self.record_name(),
                    expected,
                    found,
                    storage: self.id(),
                    tensor: None,
                },
            )),
            _ => Ok(()),
        }
    }

    /// Copies the bytes from `start` on into `out`, little-endian. Both ends are at components.
    pub(crate) fn read(&self, start: usize, out: &mut [u8]) -> io::Result<()> {
        self.read_summed(start, out, None)
    }

    /// The same, and adds the bytes to a checksum as the file has them.
    pub(crate) fn read_summed(
        &self,
        start: usize,
        out: &mut [u8],
        sum: Option<&mut Crc32>,
    ) -> io::Result<()> {
        let range = start..start.saturating_add(out.len());
        match self.inner() {
            Some(Inner::Concat(concat)) => return concat.read(start as u64, out),
            Some(Inner::Signed(signed)) => return signed.read(start, out),
            Some(Inner::Cast(cast)) => return cast.read(start, out),
            Some(Inner::Owned(bytes)) => {
                out.copy_from_slice(bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
            }
            Some(Inner::Mapped { .. }) | None => {
                let mapped = self.in_file().filter(|mapped| range.end <= mapped.range.len());
                let Some(InFile { file, range: whole, .. }) = mapped else {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                };
                file.read_exact_at(whole.start.saturating_add(start) as u64, out)?;
            }
        }
        if let Some(sum) = sum {
            sum.add_bytes(out);
        }
        if self.swap > 1 {
            out.chunks_exact_mut(self.swap.into()).for_each(<[u8]>::reverse);
        }
        Ok(())
    }

    /// Sends the bytes of `range` to `sink`, little-endian, in windows.
    pub(crate) fn send(&self, range: Range<usize>, sink: &mut dyn Sink) -> io::Result<()> {
        match self.inner() {
            Some(Inner::Concat(concat)) => return concat.send(range.start as u64..range.end as u64, sink),
            Some(Inner::Signed(signed)) => return signed.send(range, sink),
            Some(Inner::Cast(cast)) => return cast.send(range, sink),
            _ => {}
        }
        let len = usize::try_from(self.len()).unwrap_or(usize::MAX);
        if range.end > len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let checked = match self.in_file() {
            Some(InFile { file, range: all, sum: Some((_, sum)) }) if range == (0..len) => {
                Some((file, sum.start..all.start, all.end..sum.end))
            }
            _ => None,
        };
        let mut crc = Crc32::default();
        if let Some((file, before, _)) = &checked {
            add(file, before.clone(), &mut crc)?;
        }
        // A multiple of every component size, so that no number is cut.
        for start in range.clone().step_by(WINDOW) {
            let len = range.end.saturating_sub(start).min(WINDOW);
            // A zip file needs the same sum of the bytes as they are sent, so those are summed only once.
            let is_sent_as_stored = self.swap == 1;
            let sum = (checked.is_some() && !is_sent_as_stored).then_some(&mut crc);
            let window = Window::filled(len, |bytes| self.read_summed(start, bytes, sum))?;
            if checked.is_some() && is_sent_as_stored {
                crc.add(&window);
            }
            sink.write(window)?;
        }
        let Some((file, _, after)) = checked else { return Ok(()) };
        add(file, after, &mut crc)?;
        self.compare(crc.sum())
    }
}

impl From<Inner> for Storage {
    fn from(inner: Inner) -> Self {
        Self { bytes: Bytes::Other(Arc::new(inner)), swap: 1 }
    }
}

/// Adds a range of a file to a checksum.
fn add(file: &Arc<MappedFile>, range: Range<usize>, sum: &mut Crc32) -> io::Result<()> {
    for start in range.clone().step_by(WINDOW) {
        let part = start..start.saturating_add(WINDOW).min(range.end);
        sum.add(&Window::read(file, part)?);
    }
    Ok(())
}

fn shift(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start.saturating_add(by)..range.end.saturating_add(by)
}

/// All bytes of the storage, little-endian.
impl Blob for Storage {
    fn len(&self) -> u64 {
        Storage::len(self)
    }

    fn write_to(&self, sink: &mut dyn Sink) -> io::Result<()> {
        let sent = self.send(0..usize::try_from(self.len()).unwrap_or(usize::MAX), sink);
        sent.map_err(|error| match Damaged::cause_of(&error) {
            Some(part) if part.storage != self.id() => {
                let whole = Damaged { storage: self.id(), ..part.clone() };
                io::Error::new(error.kind(), whole)
            }
            _ => error,
        })
    }
}

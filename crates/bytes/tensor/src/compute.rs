//! Storages whose bytes are computed from other storages whenever they are read: joined, cast, or with flipped signs.
//!
//! Computations nest, and are evaluated a window at a time. Each computation reads its inputs through [`Inputs`], which
//! compares checksums on the way, so that a storage is read once.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, TryRecvError};

use byte_source::{Crc32, Sink, WINDOW, Window, window_ranges_of};
use rayon::Yield;

use crate::Storage;

/// Computation of the bytes of a storage, which [`Storage::computed`] creates from it.
pub trait Compute: Debug + Send + Sync {
    /// Returns the number of bytes.
    fn len(&self) -> u64;

    /// Returns true if the computation has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the storages that the computation reads, each once.
    fn inputs(&self) -> &[Storage];

    /// Returns the number of bytes that are computed together: a power of two, at most [`WINDOW`].
    fn granule(&self) -> u64;

    /// Computes the bytes from `offset` on into `buffer`, little-endian. The range starts and ends at multiples of the
    /// [`granule`](Self::granule) or at the end.
    ///
    /// # Errors
    /// When an input cannot be read, or a number has no result.
    fn read_at(
        &self,
        inputs: &mut Inputs<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), byte_source::Error>;

    /// Returns true if the bytes take longer to compute than to copy, so that several windows are computed side by side.
    /// [`read_at`](Self::read_at) must not wait for a lock that it holds itself while other threads help it.
    fn is_costly(&self) -> bool {
        false
    }

    /// Returns the number of bytes of a window, at most [`WINDOW`]. A computation of blocks gives a multiple of their length, so
    /// that none is computed for two windows.
    fn window(&self) -> u64 {
        WINDOW as u64
    }

    /// Returns a byte range as a storage of its own, if that reads less than the whole; `None` otherwise.
    fn slice(&self, range: Range<u64>) -> Option<Storage> {
        let _ = range;
        None
    }

    /// Returns the blocks of `Q8_0` that all numbers are those of, in their order; `None` for other computations. See
    /// [`Tensor::q8_0_blocks`](crate::Tensor::q8_0_blocks).
    fn q8_0_blocks(&self) -> Option<Storage> {
        None
    }

    /// Returns true if files keep the numbers as these blocks. See
    /// [`Tensor::kept_q8_0_blocks`](crate::Tensor::kept_q8_0_blocks).
    fn keeps_q8_0_blocks(&self) -> bool {
        false
    }
}

/// Reads any range of a computation, aligned to its granule or not.
pub(crate) fn read_unaligned(
    compute: &dyn Compute,
    inputs: &mut Inputs<'_>,
    buffer: &mut [u8],
    offset: u64,
) -> Result<(), byte_source::Error> {
    let granule = compute.granule().clamp(1, WINDOW as u64);
    let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= compute.len());
    let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
    let is_edge = |at: u64| at.is_multiple_of(granule) || at == compute.len();
    if is_edge(offset) && is_edge(end) {
        return compute.read_at(inputs, buffer, offset);
    }
    let start = offset.saturating_sub(offset.checked_rem(granule).unwrap_or(0));
    let end = end.checked_next_multiple_of(granule).unwrap_or(u64::MAX).min(compute.len());
    let within = |n: u64| usize::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
    let mut whole = vec![0; within(end.saturating_sub(start))?];
    compute.read_at(inputs, &mut whole, start)?;
    let from = within(offset.saturating_sub(start))?;
    let part = whole.get(from..from.saturating_add(buffer.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
    buffer.copy_from_slice(part);
    Ok(())
}

/// Largest number of windows that are computed side by side.
const LANES_MAX: usize = 16;
/// Smallest number of windows that are computed side by side if there are several threads, so that a thread that is late
/// delays the others less.
const LANES_MIN: usize = 6;

/// Sends a range of a computation to `sink` in windows, which `finish` changes before they are sent. Windows of a costly
/// computation are computed side by side, on all threads of the pool.
pub(crate) fn send(
    compute: &dyn Compute,
    range: Range<u64>,
    finish: &(dyn Fn(&mut [u8]) + Sync),
    sink: &mut dyn Sink,
) -> Result<(), byte_source::Error> {
    let is_whole = range == (0..compute.len());
    let threads = if compute.is_costly() { rayon::current_num_threads() } else { 1 };
    let lanes = if threads > 1 { threads.saturating_add(2).clamp(LANES_MIN, LANES_MAX) } else { 1 };
    let fill = |inputs: &mut Inputs<'_>, window: &Range<u64>| {
        let len = usize::try_from(window.end.saturating_sub(window.start)).unwrap_or(WINDOW);
        Window::filled(len, |bytes| {
            read_unaligned(compute, inputs, bytes, window.start)?;
            finish(bytes);
            Ok(())
        })
    };
    let mut inputs = Inputs::new(compute, is_whole);
    let mut ranges = window_ranges_of(range, compute.window());
    let first: Vec<Range<u64>> = ranges.by_ref().take(lanes).collect();
    if first.len() < 2 {
        for window in first.into_iter().chain(ranges) {
            sink.write(fill(&mut inputs, &window)?)?;
        }
        return inputs.verify();
    }
    // Each lane has inputs of its own, and computes another window as soon as the one before is about to be written.
    let (fill, inputs_of_lane) = (&fill, || Inputs::new(compute, is_whole));
    rayon::in_place_scope_fifo(|scope| {
        let start = |window: Range<u64>, mut inputs| {
            let (done, computed) = mpsc::sync_channel(1);
            scope.spawn_fifo(move |_| {
                let filled = fill(&mut inputs, &window);
                let _ = done.send((inputs, filled)); // nobody waits for it after an error
            });
            computed
        };
        let mut lanes: VecDeque<_> =
            first.into_iter().map(|window| start(window, inputs_of_lane())).collect();
        while let Some(lane) = lanes.pop_front() {
            let (mut of_lane, filled) = wait(&lane).ok_or(io::ErrorKind::Interrupted)?;
            inputs.take_sums(&mut of_lane);
            lanes.extend(ranges.next().map(|window| start(window, of_lane)));
            sink.write(filled?)?;
        }
        Ok::<_, byte_source::Error>(())
    })?;
    inputs.verify()
}

/// Waits for a result of another task; `None` if it panicked. A thread of the pool runs tasks meanwhile, so that it does not
/// wait for one that no thread has begun.
fn wait<T>(result: &Receiver<T>) -> Option<T> {
    loop {
        match result.try_recv() {
            Ok(result) => return Some(result),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) if rayon::yield_now() == Some(Yield::Executed) => {}
            Err(TryRecvError::Empty) => return result.recv().ok(),
        }
    }
}

/// Inputs of a computation during its evaluation.
#[derive(Debug)]
pub struct Inputs<'i>(Vec<Input<'i>>);

#[derive(Debug)]
struct Input<'i> {
    storage: &'i Storage,
    /// Inputs of a storage that is computed itself.
    inputs: Option<Inputs<'i>>,
    /// Checksums of the ranges read so far, if they are compared.
    sums: Option<RangeChecksums>,
}

impl<'i> Inputs<'i> {
    /// Creates the inputs of `compute`. `is_whole` says that all bytes will be read, so that checksums are computed on
    /// the way.
    pub(crate) fn new(compute: &'i dyn Compute, is_whole: bool) -> Self {
        let input = |storage: &'i Storage| Input {
            storage,
            inputs: storage.compute().map(|compute| Self::new(compute, is_whole)),
            sums: if is_whole { storage.checksum_range().map(RangeChecksums::new) } else { None },
        };
        Self(compute.inputs().iter().map(input).collect())
    }

    /// Copies the bytes of input `number` from `offset` on into `buffer`, little-endian.
    ///
    /// # Errors
    /// When there is no such input, or it cannot be read.
    pub fn read(&mut self, number: usize, buffer: &mut [u8], offset: u64) -> Result<(), byte_source::Error> {
        let input = self.0.get_mut(number).ok_or(io::ErrorKind::InvalidInput)?;
        match (input.storage.compute(), &mut input.inputs) {
            (Some(compute), Some(inputs)) => {
                read_unaligned(compute, inputs, buffer, offset)?;
                input.storage.swap_bytes(buffer);
                Ok(())
            }
            _ => input.storage.read_stored(offset, buffer, input.sums.as_mut()),
        }
    }

    /// Takes the checksums of ranges that other inputs of the same computation have read.
    pub(crate) fn take_sums(&mut self, other: &mut Self) {
        for (input, other) in self.0.iter_mut().zip(&mut other.0) {
            if let (Some(sums), Some(read)) = (&mut input.sums, &mut other.sums) {
                sums.merge(read.take());
            }
            if let (Some(inputs), Some(others)) = (&mut input.inputs, &mut other.inputs) {
                inputs.take_sums(others);
            }
        }
    }

    /// Compares the checksums of the inputs, after reading the ranges that the computation did not read.
    pub(crate) fn verify(self) -> Result<(), byte_source::Error> {
        self.0.into_iter().try_for_each(|input| {
            if let Some(sums) = input.sums {
                input.storage.verify_checksum(sums)?;
            }
            input.inputs.map_or(Ok(()), Self::verify)
        })
    }
}

/// Checksums of the ranges of a record that were read.
#[derive(Debug)]
pub(crate) struct RangeChecksums {
    /// Range of the file that the checksum of the record covers, in bytes.
    whole: Range<u64>,
    /// Ranges in ascending order that do not touch each other, with their checksums.
    parts: Vec<(Range<u64>, Crc32)>,
}

impl RangeChecksums {
    /// Largest number of parts; beyond it, all are dropped, and the record is read once more.
    const RANGES_MAX: usize = 1 << 10;

    pub(crate) fn new(whole: Range<u64>) -> Self {
        Self { whole, parts: Vec::new() }
    }

    /// Adds bytes of the file, as the file has them, from file offset `start` on. Bytes that were added before are
    /// skipped.
    pub(crate) fn add(&mut self, start: u64, bytes: &[u8]) {
        let end = start.saturating_add(bytes.len() as u64);
        let (mut at, place) = (start, self.parts.partition_point(|(part, _)| part.end < start));
        while at < end {
            let known = self.parts.get(place).map_or(end..end, |(part, _)| part.clone());
            if known.contains(&at) {
                at = known.end;
                continue;
            }
            let next = place.saturating_add((known.end == at).into());
            let until = self.parts.get(next).map_or(end, |(part, _)| part.start.min(end));
            let within = |n: u64| usize::try_from(n.saturating_sub(start)).unwrap_or(usize::MAX);
            let new = bytes.get(within(at)..within(until)).unwrap_or_default();
            match self.parts.get_mut(place) {
                Some((part, sum)) if part.end == at => {
                    sum.add_bytes(new);
                    part.end = until;
                }
                _ => {
                    let mut sum = Crc32::default();
                    sum.add_bytes(new);
                    self.parts.insert(place, (at..until, sum));
                }
            }
            let after = place.saturating_add(1);
            if self.parts.get(after).is_some_and(|(part, _)| part.start == until) {
                let (part, sum) = self.parts.remove(after);
                if let Some((merged, before)) = self.parts.get_mut(place) {
                    before.append(&sum);
                    merged.end = part.end;
                }
            }
            at = until;
        }
        if self.parts.len() > Self::RANGES_MAX {
            self.parts.clear();
        }
    }

    /// Adds the ranges of other checksums of the same record. A range replaces those that it contains. If it overlaps
    /// another one, it is dropped, and is read once more.
    pub(crate) fn merge(&mut self, other: Self) {
        for (range, sum) in other.parts {
            self.parts.retain(|(part, _)| part.start < range.start || part.end > range.end);
            let place = self.parts.partition_point(|(part, _)| part.end < range.start);
            let before = self.parts.get(place).map(|(part, _)| part.clone());
            let joins = before.as_ref().is_some_and(|part| part.end == range.start);
            let next = place.saturating_add(joins.into());
            let after = self.parts.get(next).map_or(u64::MAX, |(part, _)| part.start);
            if after < range.end {
                continue;
            }
            let joins_next = after == range.end;
            match self.parts.get_mut(place).filter(|_| joins) {
                Some((part, known)) => {
                    known.append(&sum);
                    part.end = range.end;
                }
                None => self.parts.insert(place, (range, sum)),
            }
            if joins_next {
                let (part, sum) = self.parts.remove(place.saturating_add(1));
                if let Some((merged, known)) = self.parts.get_mut(place) {
                    known.append(&sum);
                    merged.end = part.end;
                }
            }
        }
        if self.parts.len() > Self::RANGES_MAX {
            self.parts.clear();
        }
    }

    /// Moves the checksums out, so that none are left.
    fn take(&mut self) -> Self {
        Self { whole: self.whole.clone(), parts: std::mem::take(&mut self.parts) }
    }

    /// Returns the checksum of the whole record. `add` adds a range of the file to a sum.
    ///
    /// # Errors
    /// The errors of `add`.
    pub(crate) fn finish(
        self,
        add: impl Fn(Range<u64>, &mut Crc32) -> Result<(), byte_source::Error>,
    ) -> Result<u32, byte_source::Error> {
        let (mut sum, mut at) = (Crc32::default(), self.whole.start);
        for (part, known) in self.parts {
            add(at..part.start, &mut sum)?;
            sum.append(&known);
            at = part.end;
        }
        add(at..self.whole.end, &mut sum)?;
        Ok(sum.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_summed_once_in_any_order() {
        let bytes: Vec<u8> = (0..=255).cycle().take(2000).collect();
        let mut seed = 1_u64;
        for _ in 0..200 {
            let mut sums = RangeChecksums::new(10..1990);
            let mut next = |most: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) % most
            };
            let mut read = vec![false; 2000];
            for _ in 0..next(30) {
                let start = 10 + next(1980);
                let end = (start + 1 + next(300)).min(1990);
                let range = usize::try_from(start).expect("small")..usize::try_from(end).expect("small");
                sums.add(start, &bytes[range.clone()]);
                read[range].fill(true);
            }
            let gaps = std::cell::RefCell::new(vec![false; 2000]);
            let sum = sums.finish(|range, sum| {
                let range =
                    usize::try_from(range.start).expect("small")..usize::try_from(range.end).expect("small");
                gaps.borrow_mut()[range.clone()].fill(true);
                sum.add_bytes(&bytes[range]);
                Ok(())
            });
            let mut whole = Crc32::default();
            whole.add_bytes(&bytes[10..1990]);
            assert_eq!(sum.expect("memory can be read"), whole.sum());
            let gaps = gaps.into_inner();
            assert!((10..1990).all(|at| gaps[at] != read[at]), "each byte is read once");
        }
    }

    #[test]
    fn checksums_of_threads_are_merged() {
        let bytes: Vec<u8> = (0..=255).cycle().take(2000).collect();
        let mut whole = Crc32::default();
        whole.add_bytes(&bytes);
        let expected = whole.sum();
        let mut seed = 1_u64;
        for _ in 0..200 {
            let mut next = |most: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) % most
            };
            let mut sums = RangeChecksums::new(0..2000);
            for _ in 0..next(20) {
                let mut part = RangeChecksums::new(0..2000);
                for _ in 0..next(4) {
                    let start = next(10) * 200;
                    let range =
                        usize::try_from(start).expect("small")..usize::try_from(start + 200).expect("small");
                    part.add(start, &bytes[range]);
                }
                sums.merge(part);
                assert!(sums.parts.windows(2).all(|pair| pair[0].0.end < pair[1].0.start), "{sums:?}");
            }
            let sum = sums.finish(|range, sum| {
                sum.add_bytes(
                    &bytes[usize::try_from(range.start).expect("small")
                        ..usize::try_from(range.end).expect("small")],
                );
                Ok(())
            });
            assert_eq!(sum.expect("memory can be read"), expected);
        }
    }

    #[test]
    fn neighbours_are_joined_in_any_order() {
        // Each order of four ranges, as the digits of a number.
        for order in (0..4_u32.pow(4)).map(|number| [0, 1, 2, 3].map(|digit| number / 4_u32.pow(digit) % 4)) {
            if (0..4).any(|range| !order.contains(&range)) {
                continue;
            }
            let mut sums = RangeChecksums::new(0..1000);
            for range in order {
                let mut part = RangeChecksums::new(0..1000);
                part.add(u64::from(range) * 100 + 300, &[7; 100]);
                sums.merge(part);
            }
            assert!(
                matches!(sums.parts.as_slice(), [(range, _)] if *range == (300..700)),
                "{order:?}: {sums:?}"
            );
        }
    }

    #[test]
    fn many_parts_are_forgotten() {
        let mut sums = RangeChecksums::new(0..10_000);
        for at in (0..9000).step_by(2) {
            sums.add(at, &[7]);
            assert!(sums.parts.len() <= RangeChecksums::RANGES_MAX);
        }
        let sum = sums.finish(|range, sum| {
            sum.add_bytes(&vec![7; usize::try_from(range.end - range.start).expect("small")]);
            Ok(())
        });
        let mut whole = Crc32::default();
        whole.add_bytes(&[7; 10_000]);
        assert_eq!(sum.expect("memory can be read"), whole.sum());
    }
}

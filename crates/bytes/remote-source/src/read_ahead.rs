//! Requests the ranges that sequential readers will ask for, in bounded memory.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::Result;
use crate::answer::Version;
use crate::client::Client;
use crate::fetcher::Fetcher;
use crate::memory_gate::MemoryGate;
use crate::planned::{PlannedReads, SKIP_MAX};
use crate::range_buffers::{CHUNK, PIECE};
use crate::slot::{Chunk, Slot, start_thread};

/// Number of bytes of the first range that is requested ahead; each further one is twice as long.
const FIRST: u64 = 1 << 20;
/// Largest number of bytes that all streams receive ahead or keep.
const BUDGET: u64 = 40 << 20;
/// The same, with the parts of outputs that are uploaded at the same time.
const SHARED_BUDGET: u64 = 48 << 20;
/// Smallest number of bytes that remains for the streams.
const BUDGET_MIN: u64 = 2 * CHUNK;
/// Largest number of streams; a reader in another place takes the oldest one.
const STREAMS_MAX: usize = 4;
/// Largest number of places where streams began that are known.
const STARTS_MAX: usize = 10_000;
/// Largest number of ranges that are requested at the same time by [`ReadAhead::fetch_all`].
const PARALLEL_MAX: usize = 8;

/// Consecutive chunks for one sequential reader.
#[derive(Debug)]
struct Stream {
    chunks: VecDeque<Chunk>,
    /// End of the last chunk, where the next one begins.
    end: u64,
    /// Number of bytes of the next chunk.
    next_len: u64,
}

#[derive(Debug, Default)]
struct Streams {
    /// The last used one is at the end.
    open: Vec<Stream>,
    /// Where streams began. Others do not read ahead into what is there, which is read already.
    starts: BTreeSet<u64>,
    /// What a reader said it will read, which no stream reads ahead.
    planned: PlannedReads,
}

/// Requests what sequential readers of one file will ask for.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    fetcher: Arc<Fetcher>,
    version: Arc<Version>,
    /// End of what is requested ahead: the last bytes of the file are known.
    end: u64,
    streams: Mutex<Streams>,
    /// Memory of the pieces of long ranges.
    gate: Arc<MemoryGate>,
}

impl ReadAhead {
    pub(crate) fn new(fetcher: Arc<Fetcher>, version: Arc<Version>, end: u64) -> Self {
        Self { fetcher, version, end, streams: Mutex::default(), gate: Arc::default() }
    }

    /// Plans to read `ranges` in this order, but none of `known`.
    pub(crate) fn plan(&self, ranges: &[Range<u64>], known: impl Iterator<Item = Range<u64>>) {
        self.lock().planned = PlannedReads::new(ranges, known, self.fetcher.run_len());
    }

    /// Returns true if it is planned to read the byte at `at`.
    pub(crate) fn is_planned(&self, at: u64) -> bool {
        self.lock().planned.has(at)
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills `buffer`, and requests what follows if the reader is sequential.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let mut rest = buffer;
        let mut at = offset;
        while !rest.is_empty() {
            let (range, slot) = self.chunk_at(at, rest.len() as u64);
            let bytes = self.wait(&slot)?;
            let bytes = self.consume(&bytes, range.start, at..at.saturating_add(rest.len() as u64));
            let len = bytes.len();
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(&bytes);
            rest = later;
            at = at.saturating_add(len as u64);
        }
        Ok(())
    }

    /// Returns the bytes of a range if one chunk has all of them, and requests what follows if the reader is sequential.
    pub(crate) fn part_at(&self, wanted: &Range<u64>) -> Result<Option<Bytes>> {
        let len = wanted.end.saturating_sub(wanted.start);
        let (range, slot) = self.chunk_at(wanted.start, len);
        if wanted.end > range.end {
            return Ok(None);
        }
        Ok(Some(self.consume(&self.wait(&slot)?, range.start, wanted.clone())))
    }

    /// Returns the first bytes of a range, as far as a chunk has them, and requests what follows if the reader is sequential.
    pub(crate) fn first_of(&self, wanted: &Range<u64>) -> Result<Bytes> {
        let len = wanted.end.saturating_sub(wanted.start);
        let (range, slot) = self.chunk_at(wanted.start, len);
        Ok(self.consume(&self.wait(&slot)?, range.start, wanted.clone()))
    }

    /// Returns the first bytes of the range `wanted`, as far as a chunk from `start` on has them, and counts them as read.
    fn consume(&self, chunk: &Bytes, start: u64, wanted: Range<u64>) -> Bytes {
        let at = |offset: u64| usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX);
        let (from, to) = (at(wanted.start), at(wanted.end).min(chunk.len()));
        let bytes = if from < to { chunk.slice(from..to) } else { Bytes::new() };
        self.lock().planned.consume(wanted.start, &bytes);
        bytes
    }

    /// Requests exactly these ranges in parallel.
    pub(crate) fn fetch_all(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let mut parts = Vec::with_capacity(ranges.len());
        for ranges in ranges.chunks(PARALLEL_MAX) {
            let slots: Vec<_> = ranges.iter().map(|range| self.request(range.clone())).collect();
            for slot in slots {
                parts.push(slot.wait(&self.fetcher.client.options)?);
            }
        }
        Ok(parts)
    }

    fn wait(&self, slot: &Slot) -> Result<Bytes> {
        slot.want();
        self.gate.notify();
        slot.wait(&self.fetcher.client.options)
    }

    /// Returns the number of bytes that may be received ahead or kept, besides the parts of outputs that are uploaded.
    fn budget(client: &Client) -> u64 {
        let uploaded = client.options.upload_memory.load(Ordering::Relaxed);
        SHARED_BUDGET.saturating_sub(uploaded).clamp(BUDGET_MIN, BUDGET)
    }

    /// Requests consecutive pieces by one request. Bytes of one are received once there is memory for it, or a reader waits for it.
    fn request_run(&self, ranges: Vec<Range<u64>>) -> Vec<Chunk> {
        let chunk = |range: &Range<u64>| Chunk { range: range.clone(), slot: Arc::new(Slot::empty()) };
        let chunks: Vec<Chunk> = ranges.iter().map(chunk).collect();
        let slots: Vec<Arc<Slot>> = chunks.iter().map(|chunk| Arc::clone(&chunk.slot)).collect();
        let (fetcher, version) = (Arc::clone(&self.fetcher), Arc::clone(&self.version));
        let (gate, to_fill) = (Arc::clone(&self.gate), slots.clone());
        let started = start_thread(move || {
            let (slots, client) = (to_fill, Arc::clone(&fetcher.client));
            let is_stopped = || client.options.is_stopped();
            let mut may_receive = |number: usize| match (slots.get(number), ranges.get(number)) {
                (Some(slot), Some(range)) => {
                    let count = range.end.saturating_sub(range.start);
                    gate.enter(count, slot, &|| Self::budget(&client), &is_stopped)
                }
                _ => false,
            };
            let mut done = |number: usize, bytes: Bytes| {
                if let Some(slot) = slots.get(number) {
                    slot.fill(Ok(gate.hold(bytes)));
                }
            };
            if let Err(error) = fetcher.fetch_run(&ranges, &version, &mut may_receive, &mut done) {
                for slot in &slots {
                    slot.fill(Err(error.clone()));
                }
            }
        });
        if let Err(error) = started {
            for slot in &slots {
                slot.fill(Err(error.clone()));
            }
        }
        chunks
    }

    /// Requests a range, which arrives in pieces if it is long.
    fn request_chunks(&self, range: Range<u64>) -> Vec<Chunk> {
        if range.end.saturating_sub(range.start) > PIECE && self.fetcher.has_pieces() {
            return self.request_run(pieces_of(range));
        }
        vec![Chunk { slot: self.request(range.clone()), range }]
    }

    fn request(&self, range: Range<u64>) -> Arc<Slot> {
        let (fetcher, version) = (Arc::clone(&self.fetcher), Arc::clone(&self.version));
        Slot::start(move || fetcher.fetch(range, &version))
    }

    /// Returns the chunk that has the byte at `at`, of which the reader wants `wanted` bytes.
    fn chunk_at(&self, at: u64, wanted: u64) -> (Range<u64>, Arc<Slot>) {
        let run_len = self.fetcher.run_len();
        let ahead = if run_len > CHUNK {
            // Pieces wait for memory, so two ranges are requested.
            run_len.saturating_mul(2)
        } else {
            Self::budget(&self.fetcher.client)
        };
        let mut streams = self.lock();
        let Streams { open: streams, starts, planned } = &mut *streams;
        if let Some(found) = planned.chunk_at((at, wanted), ahead, &mut |range| self.request_chunks(range)) {
            return found;
        }
        let planned = planned.next_start(at).unwrap_or(self.end);
        let wanted = wanted.min(planned.max(at).saturating_sub(at)).max(1);
        let continues = |stream: &Stream| {
            let start = stream.chunks.front().map_or(stream.end, |chunk| chunk.range.start);
            start <= at && at <= stream.end.saturating_add(SKIP_MAX)
        };
        let Some(number) = streams.iter().position(continues) else {
            if streams.len() >= STREAMS_MAX {
                streams.remove(0);
            }
            if starts.len() >= STARTS_MAX {
                starts.clear();
            }
            starts.insert(at);
            // Nothing shows yet that the reader is sequential.
            let range = at..at.saturating_add(wanted).min(self.version.len);
            let slot = self.request(range.clone());
            let chunks = VecDeque::from([Chunk { range: range.clone(), slot: Arc::clone(&slot) }]);
            streams.push(Stream { chunks, end: range.end, next_len: FIRST });
            return (range, slot);
        };
        let mut stream = streams.remove(number);
        while stream.chunks.front().is_some_and(|chunk| chunk.range.end <= at) {
            stream.chunks.pop_front();
        }
        if stream.chunks.is_empty() {
            stream.end = stream.end.max(at);
        }
        let others: u64 =
            streams.iter().flat_map(|stream| &stream.chunks).map(Chunk::len).fold(0, u64::saturating_add);
        let mut kept = stream.chunks.iter().map(Chunk::len).fold(others, u64::saturating_add);
        let end = self.end.min(planned);
        while stream.end < end {
            let has_chunks = !stream.chunks.is_empty();
            if has_chunks && starts.contains(&stream.end) {
                break;
            }
            let known = starts.range(stream.end.saturating_add(1)..).next().copied();
            let limit = known.unwrap_or(end).min(end);
            let len = if stream.next_len < CHUNK { stream.next_len } else { run_len };
            let range = stream.end..stream.end.saturating_add(len).min(limit);
            kept = kept.saturating_add(range.end.saturating_sub(range.start));
            if kept > ahead && has_chunks {
                break;
            }
            stream.end = range.end;
            stream.chunks.extend(self.request_chunks(range));
            stream.next_len = stream.next_len.saturating_mul(2).min(CHUNK);
            // Request more only once the first ranges show that they are read.
            if stream.next_len < CHUNK {
                break;
            }
        }
        let found = stream.chunks.front().map(|chunk| (chunk.range.clone(), Arc::clone(&chunk.slot)));
        streams.push(stream);
        found.unwrap_or_else(|| {
            let range = at..at.saturating_add(wanted);
            (range.clone(), self.request(range))
        })
    }
}

fn pieces_of(range: Range<u64>) -> Vec<Range<u64>> {
    let mut pieces = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let end = at.saturating_add(PIECE).min(range.end);
        pieces.push(at..end);
        at = end;
    }
    pieces
}

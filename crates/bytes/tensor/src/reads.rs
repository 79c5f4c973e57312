//! What will be read of sources, and in which order.

use std::ops::Range;
use std::sync::Arc;

use byte_source::Source;

use crate::Storage;

/// Ranges that will be read of a source.
type SourceReads<'s> = (&'s Arc<dyn Source>, Vec<Range<u64>>);

/// Says to the sources which ranges of storages will be read, in this order. Those whose reads are requests then ask for nothing else.
pub fn announce_reads<'s>(reads: impl Iterator<Item = (&'s Storage, Range<u64>)>) {
    let mut sources: Vec<SourceReads<'_>> = Vec::new();
    for (storage, range) in reads {
        let mut pending = vec![(storage, range)];
        while let Some((storage, range)) = pending.pop() {
            if let Some(compute) = storage.compute() {
                pending.extend(compute.inputs().iter().rev().map(|input| (input, 0..input.len())));
                continue;
            }
            let read = storage.source_read(range).filter(|(source, _)| source.has_latency());
            let Some((source, range)) = read else { continue };
            match sources.iter_mut().rev().find(|(known, _)| Arc::ptr_eq(known, source)) {
                Some((_, ranges)) => ranges.push(range),
                None => sources.push((source, vec![range])),
            }
        }
    }
    for (source, ranges) in sources {
        source.will_read(&ranges);
    }
}

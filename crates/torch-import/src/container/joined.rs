//! Several sources, one after another, as one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{Error, Source};

/// The bytes of several sources, one after another.
#[derive(Debug)]
pub(super) struct JoinedSource {
    path: PathBuf,
    /// Sources with the offsets of their ends, without empty ones.
    parts: Vec<(u64, Arc<dyn Source>)>,
}

impl JoinedSource {
    pub(super) fn new(path: &Path, sources: Vec<Arc<dyn Source>>) -> Self {
        let mut end = 0_u64;
        let filled = sources.into_iter().filter(|source| !source.is_empty());
        let parts = filled.map(|source| {
            end = end.saturating_add(source.len());
            (end, source)
        });
        Self { parts: parts.collect(), path: path.to_owned() }
    }
}

impl Source for JoinedSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.parts.last().map_or(0, |(end, _)| *end)
    }

    fn read_at(&self, buffer: &mut [u8], mut offset: u64) -> Result<(), Error> {
        let mut rest = buffer;
        let first = self.parts.partition_point(|(end, _)| *end <= offset);
        for (end, source) in self.parts.iter().skip(first) {
            let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at_mut(left.min(rest.len()));
            let start = end.saturating_sub(source.len());
            source.read_at(now, offset.saturating_sub(start))?;
            (rest, offset) = (later, *end);
            if rest.is_empty() {
                break;
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) }
    }

    fn has_latency(&self) -> bool {
        self.parts.iter().any(|(_, source)| source.has_latency())
    }

    fn check_unchanged(&self) -> Result<(), Error> {
        self.parts.iter().try_for_each(|(_, source)| source.check_unchanged())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_cross_the_ends_of_sources() {
        let sources: Vec<Arc<dyn Source>> = [&b"abc"[..], b"", b"d", b"efg"]
            .into_iter()
            .map(|bytes| Arc::new(test_support::RemoteSource::new("part", bytes.to_vec())) as Arc<dyn Source>)
            .collect();
        let joined = JoinedSource::new(Path::new("all"), sources);
        assert_eq!(joined.len(), 7);
        for start in 0..=7_usize {
            for end in start..=7 {
                let found = joined.read_range(start as u64..end as u64).expect("inside");
                assert_eq!(&found[..], &b"abcdefg"[start..end]);
            }
        }
        assert!(joined.read_at(&mut [0; 2], 6).is_err());
    }
}

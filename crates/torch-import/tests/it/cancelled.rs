//! Observers that stop the opening of a file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use byte_source::{BufferSource, Observer, Source};
use test_support::{RemoteSource, stored_zip};
use torch_import::{Container, Error, Result};

/// Observer that cancels the work when it is asked for the last time of `left`.
struct CancelAt {
    left: AtomicU32,
}

impl Observer for CancelAt {
    fn is_cancelled(&self) -> bool {
        self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

type Open = fn(Arc<dyn Source>, &dyn Observer) -> Result<Container>;

/// Returns how often the observer was asked while the file was opened, each time of which stops the work.
fn stops(bytes: &[u8], is_remote: bool, open: Open) -> u32 {
    let open_until = |times: u32| {
        let source: Arc<dyn Source> = if is_remote {
            Arc::new(RemoteSource::new("x", bytes))
        } else {
            Arc::new(BufferSource::new("x", bytes.to_vec()))
        };
        let observer = CancelAt { left: times.into() };
        (open(source, &observer), times.wrapping_sub(observer.left.into_inner()))
    };
    let (opened, asked) = open_until(u32::MAX);
    opened.expect("it is sound");
    for times in 1..=asked {
        let (stopped, _) = open_until(times);
        assert!(matches!(stopped, Err(Error::Cancelled(_))), "{times} of {asked}: {stopped:?}");
    }
    asked
}

#[test]
fn the_reading_of_a_large_directory_can_be_stopped() {
    let storages = (0..20_000).map(|number| (format!("a/data/{number}"), b"12345678".to_vec()));
    let bytes = stored_zip(std::iter::once(("a/data.pkl".to_owned(), b"}.".to_vec())).chain(storages));
    for (is_remote, open) in [
        (false, Container::from_source_with_observer as Open),
        (true, Container::from_source_with_observer),
        (false, Container::from_source_lazily),
    ] {
        let asked = stops(&bytes, is_remote, open);
        assert!(asked >= 6, "{asked}");
    }
}

#[test]
fn the_reading_of_legacy_pickles_can_be_stopped() {
    let numbers = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.M\xe9\x03.}.";
    let root = [&b"N0".repeat(2 << 20)[..], b"}."].concat();
    let bytes = [&numbers[..], &root, b"]."].concat();
    for is_remote in [false, true] {
        let asked = stops(&bytes, is_remote, Container::from_source_with_observer);
        assert!(asked >= 4, "{asked}");
    }
}

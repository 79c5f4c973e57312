//! Observers that stop the opening or the scan of a file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use byte_source::{BufferSource, Observer, Source};
use test_support::{RemoteSource, stored_zip};
use torch_import::{Container, Result, Scan, ScanDepth};

/// Observer that cancels the work from the last time of `left` on.
struct CancelAt {
    left: AtomicU32,
}

impl Observer for CancelAt {
    fn is_cancelled(&self) -> bool {
        let next = |left: u32| Some(left.saturating_sub(1));
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok_and(|left| left <= 1)
    }
}

type Open = fn(Arc<dyn Source>, &dyn Observer) -> Result<Container>;
type Work<'w> = dyn Fn(Arc<dyn Source>, &dyn Observer) -> Result<()> + 'w;

/// Returns how often the observer was asked during the work on a file. Each time stops the work, of which at most 24 are tried.
fn stops(bytes: &[u8], is_remote: bool, work: &Work<'_>) -> u32 {
    let work_until = |times: u32| {
        let source: Arc<dyn Source> = if is_remote {
            Arc::new(RemoteSource::new("x", bytes))
        } else {
            Arc::new(BufferSource::new("x", bytes.to_vec()))
        };
        let observer = CancelAt { left: times.into() };
        (work(source, &observer), times.wrapping_sub(observer.left.into_inner()))
    };
    let (done, asked) = work_until(u32::MAX);
    done.expect("it is sound");
    for times in (1..=asked).step_by(asked.div_ceil(24).max(1) as usize) {
        let (stopped, _) = work_until(times);
        assert!(
            stopped.as_ref().is_err_and(torch_import::Error::is_cancelled),
            "{times} of {asked}: {stopped:?}"
        );
    }
    asked
}

/// Returns an archive with many storages.
fn large_directory() -> Vec<u8> {
    let storages = (0..20_000).map(|number| (format!("a/data/{number}"), b"12345678".to_vec()));
    stored_zip(std::iter::once(("a/data.pkl".to_owned(), b"}.".to_vec())).chain(storages))
}

#[test]
fn the_reading_of_a_large_directory_can_be_stopped() {
    let bytes = large_directory();
    for (is_remote, open) in [
        (false, Container::from_source_with_observer as Open),
        (true, Container::from_source_with_observer),
        (false, Container::from_source_lazily),
    ] {
        let asked = stops(&bytes, is_remote, &|source, observer| open(source, observer).map(drop));
        assert!(asked >= 6, "{asked}");
    }
}

#[test]
fn the_reading_of_legacy_pickles_can_be_stopped() {
    let numbers = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.M\xe9\x03.}.";
    let root = [&b"N0".repeat(2 << 20)[..], b"}."].concat();
    let bytes = [&numbers[..], &root, b"]."].concat();
    for is_remote in [false, true] {
        let open = |source, observer: &dyn Observer| {
            Container::from_source_with_observer(source, observer).map(drop)
        };
        let asked = stops(&bytes, is_remote, &open);
        assert!(asked >= 4, "{asked}");
    }
}

#[test]
fn a_scan_of_a_large_directory_can_be_stopped() {
    let bytes = large_directory();
    // Without its end, the archive is a file that was cut short.
    let cut = &bytes[..bytes.len() - 100_000];
    for (bytes, is_remote, depth, least) in [
        (&bytes[..], false, ScanDepth::Everything, 20_000),
        (&bytes, false, ScanDepth::PicklesOnly, 6),
        (&bytes, true, ScanDepth::Everything, 6),
        (cut, false, ScanDepth::Everything, 40_000),
    ] {
        let scan = |source, observer: &dyn Observer| Scan::source(&source, depth, observer).map(drop);
        let asked = stops(bytes, is_remote, &scan);
        assert!(asked >= least, "{asked} of at least {least}");
    }
}

#[test]
fn a_scan_of_a_long_pickle_can_be_stopped() {
    let bytes = [&b"\x80\x02]"[..], &b"N0".repeat(1 << 20), b"."].concat();
    let scan =
        |source, observer: &dyn Observer| Scan::source(&source, ScanDepth::Everything, observer).map(drop);
    let asked = stops(&bytes, false, &scan);
    assert!(asked >= 32, "{asked}");
}

//! Sources and their parts: which ranges are read, where the bytes are in a file, and how much memory they take.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]
#![expect(clippy::single_range_in_vec_init, reason = "lists of ranges, of which some have one")]

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{
    Blob, BufferSource, Error, MappedFile, Prefetched, Region, SeekableSource, Source, Window, map_file,
};
use test_support::RemoteSource;

fn bytes() -> Vec<u8> {
    (0..1_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
}

#[test]
fn ranges_that_are_near_each_other_are_read_together() {
    let all = bytes();
    let source = RemoteSource::new("x", all.clone());
    let ranges = [
        900_000..900_010,
        0..10,
        20..20,
        5..30,
        70_000..70_001,
        999_999..1_000_000,
        465_538..465_539,
        400_000..400_002,
    ];
    let found = source.read_ranges(&ranges).expect("they are inside");
    for (range, found) in ranges.iter().zip(&found) {
        let expected =
            usize::try_from(range.start).expect("small")..usize::try_from(range.end).expect("small");
        assert_eq!(found[..], all[expected], "{range:?}");
    }
    // 30 + 65,536 is less than 70,000, and 400,002 + 65,536 is 465,538.
    assert_eq!(
        source.take_ranges(),
        [0..30, 70_000..70_001, 400_000..465_539, 900_000..900_010, 999_999..1_000_000]
    );
    source.read_ranges(&[10..20, 999_999..1_000_001]).expect_err("past the end");
    assert!(source.read_ranges(&[]).expect("nothing").is_empty());
    source.read_ranges(&[Range { start: 7, end: 3 }]).expect_err("it ends before it starts");
}

#[test]
fn prefetched_bytes_are_not_read_again() {
    let all = bytes();
    let remote = Arc::new(RemoteSource::new("x", all.clone()));
    let source = Prefetched::new(Arc::clone(&remote) as _, &[10..20]).expect("inside");
    let source = source.and(30..40).expect("inside").and(50..50).expect("nothing");
    assert_eq!(source.prefetched_start(), [0_u8; 0]);
    assert_eq!(remote.take_ranges(), [10..20, 30..40]);
    for (range, read) in [
        (12..18, vec![]),
        (32..40, vec![]),
        (0..10, vec![0..10]),
        (5..15, vec![5..10]),
        (15..35, vec![20..30]),
        (45..45, vec![45..45]),
    ] {
        let expected = &all[usize::try_from(range.start).expect("small")..][..range.clone().count()];
        assert_eq!(source.read_window(range.clone()).expect("inside")[..], *expected, "{range:?}");
        assert_eq!(remote.take_ranges(), read, "{range:?}");
        assert_eq!(source.read_first(range.clone()).expect("inside")[..], *expected, "{range:?}");
        assert_eq!(remote.take_ranges(), read, "{range:?}");
    }
    let windows = [(); 2].map(|()| source.read_window(32..40).expect("inside"));
    assert_eq!(windows[0].as_ptr(), windows[1].as_ptr(), "prefetched bytes are shared");
    let past = 999_999..1_000_001;
    source.read_window(past.clone()).expect_err("past the end");
    source.read_first(past).expect_err("past the end");
}

#[derive(Debug)]
struct SharesBytes(BufferSource);

impl Source for SharesBytes {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        self.0.read_at(buffer, offset)
    }

    fn read_first(&self, range: Range<u64>) -> Result<Window, Error> {
        self.read_window(range.start..range.start + 1)
    }

    fn check_unchanged(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[test]
fn parts_of_a_source_share_what_it_shares() {
    let source: Arc<dyn Source> = Arc::new(SharesBytes(BufferSource::new("x", b"0123456789".to_vec())));
    let region = Region::new(&source, 2..9).expect("inside");
    let kept = Prefetched::new(Arc::new(region.clone()), &[0..2]).expect("inside");
    assert_eq!(kept.read_first(2..7).expect("inside")[..], *b"4");
    assert_eq!(region.read_first(0..7).expect("inside")[..], *b"2");
    let mut sent: Vec<u8> = Vec::new();
    region.write_to(&mut sent).expect("inside");
    assert_eq!(sent, b"2345678");
}

/// A file of these bytes that is removed when the test has run.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("byte-source-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).expect("the temporary folder is writable");
        Self(path)
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn parts_of_a_file_are_found_in_the_file() {
    let all = bytes();
    let file = TestFile::new("parts", &all);
    let mapped = map_file(&file.0).expect("it was just written");
    let region = Arc::new(Region::new(&mapped, 100..900_000).expect("inside"));
    let kept = Prefetched::new(Arc::clone(&region) as _, &[0..10]).expect("inside");
    for source in [&*region as &dyn Source, &kept] {
        assert_eq!(source.path(), file.0);
        assert_eq!((source.len(), source.is_empty()), (899_900, false));
        assert_eq!(source.locate(3..5).expect("inside"), 103..105);
        source.locate(3..899_901).expect_err("past the end");
        assert_eq!(source.file().map(|(_, len)| len), Some(1_000_000));
        assert_eq!(source.in_memory(), Some(&all[100..900_000]));
        assert_eq!(source.read_range(899_899..899_900).expect("inside"), all[899_999..900_000]);
        source.read_range(899_899..899_901).expect_err("past the end");
        source.read_window(899_899..899_901).expect_err("past the end");
        source.read_first(899_899..899_901).expect_err("past the end");
        source.check_unchanged().expect("nobody wrote to it");
    }
    let written = std::fs::write(&file.0, &all[1..]);
    // Windows lets nobody cut a file that is mapped.
    assert_eq!(written.is_ok(), cfg!(unix), "{written:?}");
    for source in [&*mapped, &*region, &kept] {
        let changed = source.check_unchanged().map_err(|error| error.kind());
        assert_eq!(changed, if cfg!(unix) { Err(byte_source::ErrorKind::Changed) } else { Ok(()) });
    }
    let memory: Arc<dyn Source> = Arc::new(BufferSource::new("x", all));
    assert!(memory.file().is_none());
    memory.check_unchanged().expect("it cannot change");
    assert!(Source::is_empty(&Region::new(&memory, 7..7).expect("inside")));
}

/// Returns how many KiB of a mapped file are in memory.
#[cfg(target_os = "linux")]
fn resident(path: &Path) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
    let path = path.to_str().expect("it is ASCII");
    let mut of_file = maps.lines().skip_while(|line| !line.ends_with(path));
    let size = of_file.find_map(|line| line.strip_prefix("Rss:")).expect("Linux counts it");
    size.trim_end_matches("kB").trim().parse().expect("it is a number")
}

#[cfg(target_os = "linux")]
#[test]
fn released_bytes_take_no_memory() {
    const BLOCK: u64 = 64 << 10;
    // Linux maps 2 MiB as one page, and releases it as a whole.
    let file = TestFile::new("released", &vec![1; 31 << 16]);
    let mapped = map_file(&file.0).expect("it was just written");
    let region = Arc::new(Region::new(&mapped, 8 * BLOCK..30 * BLOCK).expect("inside"));
    let kept = Prefetched::new(Arc::clone(&region) as _, &[]).expect("there is nothing to read");
    let bytes = mapped.in_memory().expect("it is mapped");
    assert!(bytes.iter().all(|byte| *byte == 1));
    let blocks = |count: u64| (count * BLOCK) >> 10;
    assert_eq!(resident(&file.0), blocks(31));
    mapped.release(2 * BLOCK + BLOCK / 2..3 * BLOCK + BLOCK / 2);
    assert_eq!(resident(&file.0), blocks(29), "without the blocks in which the range starts and ends");
    region.release(0..1);
    assert_eq!(resident(&file.0), blocks(28));
    kept.release(BLOCK..BLOCK + 1);
    assert_eq!(resident(&file.0), blocks(27));
    region.release(21 * BLOCK..u64::MAX);
    assert_eq!(resident(&file.0), blocks(26), "with the block after the region");
    mapped.release(0..u64::MAX);
    assert_eq!(resident(&file.0), 0);

    let small = TestFile::new("kept", &vec![1; 1 << 20]);
    let mapped = MappedFile::open(&small.0).expect("it was just written");
    assert!(mapped.bytes().iter().all(|byte| *byte == 1));
    mapped.release(0..1 << 20);
    assert_eq!(resident(&small.0), 1024, "a file of 1 MiB stays in memory");
}

#[test]
fn a_seekable_source_reads_like_a_file() {
    let source = BufferSource::new("x", b"0123456789".to_vec());
    let mut reader = SeekableSource::new(&source);
    let mut read_at = |to: SeekFrom, count: usize| {
        let at = reader.seek(to)?;
        let mut bytes = vec![0; count];
        let count = reader.read(&mut bytes)?;
        Ok::<_, std::io::Error>((at, String::from_utf8_lossy(&bytes[..count]).into_owned()))
    };
    assert_eq!(read_at(SeekFrom::Current(0), 3).expect("inside"), (0, "012".to_owned()));
    assert_eq!(read_at(SeekFrom::Current(1), 2).expect("inside"), (4, "45".to_owned()));
    assert_eq!(read_at(SeekFrom::End(-2), 5).expect("inside"), (8, "89".to_owned()));
    assert_eq!(read_at(SeekFrom::Start(20), 5).expect("nothing is there"), (20, String::new()));
    let error = read_at(SeekFrom::End(-11), 1).expect_err("before the start");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

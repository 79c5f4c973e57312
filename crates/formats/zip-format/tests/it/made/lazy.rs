//! Archives that are not in memory: the directory first, each local header with its data.

use std::sync::Arc;

use byte_source::{Checks, Source};
use test_support::RemoteSource;
use zip_format::ZipIndex;

use super::archive::{End, Entry, ONE, archive, extra};

/// Data of 200,000 bytes, in which every byte tells where it is.
fn data() -> &'static [u8] {
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    bytes.leak()
}

fn entry(name: &'static str, local_extra: usize) -> Entry {
    let data = data();
    let len = u32::try_from(data.len()).expect("small");
    let entry = Entry::new(name).with(|header| (header.packed, header.len) = (len, len));
    let padded = entry.with_local(|header| header.extra = extra(0x4246, &vec![b'Z'; local_extra]));
    Entry { data, ..padded }
}

/// The index, the source that reads local headers with their data, and what it reads from.
type Opened = (ZipIndex, Arc<dyn Source>, Arc<RemoteSource>);

fn open(entries: &[Entry]) -> byte_source::Result<Opened> {
    let here = u16::try_from(entries.len()).expect("few");
    let bytes = archive(entries, &End { here, ..ONE });
    let remote = Arc::new(RemoteSource::new("a.zip", bytes));
    let (index, source) = ZipIndex::open(Arc::<RemoteSource>::clone(&remote), Checks::WhenRead, &())?;
    Ok((index, source, remote))
}

/// The entries with short and with long extra fields, between them one without data.
fn entries() -> Vec<Entry> {
    let mut empty = Entry::new("empty").with(|header| (header.packed, header.len) = (0, 0));
    empty.data = b"";
    vec![entry("a", 0), entry("b", 60), empty, entry("c", 124), entry("d", 125), entry("e", 65_000)]
}

#[test]
fn any_first_range_of_an_entry_has_its_bytes() {
    let lens = [0_u64, 1, 63, 64, 65_535, 65_536, 65_700, 199_999];
    for first in lens {
        for len in [1, 100, 70_000, 200_000] {
            let (index, source, _) = open(&entries()).expect("it is sound");
            for entry in index.entries.iter().filter(|entry| entry.len > 0) {
                let end = (first + len).min(200_000);
                let at = |n: u64| usize::try_from(n).expect("small");
                let range = entry.data.start + first..entry.data.start + end;
                let mut buffer = vec![0; at(end - first)];
                source.read_at(&mut buffer, range.start).expect("inside");
                assert_eq!(buffer, data()[at(first)..at(end)], "{} {range:?}", entry.name);
                // Again, now that the header was read, as a part of several and up to the end.
                let all = [range, entry.data.clone(), entry.data.end..entry.data.end];
                let read = source.read_ranges(&all).expect("inside");
                assert_eq!(read, [&data()[at(first)..at(end)], data(), &[]]);
            }
        }
    }
}

#[test]
fn bytes_are_read_once_in_order_and_with_their_header() {
    let (index, source, remote) = open(&entries()).expect("it is sound");
    remote.take_ranges();
    for entry in &index.entries {
        for window in byte_source::window_ranges(entry.data.clone()) {
            for half in [window.start..window.start + 70_000, window.start + 70_000..window.end] {
                let mut buffer = vec![0; usize::try_from(half.end - half.start).expect("small")];
                source.read_at(&mut buffer, half.start).expect("inside");
            }
        }
    }
    let read = remote.take_ranges();
    // Two requests for each entry, and another one for the long extra field and what it displaces.
    assert_eq!(read.len(), 2 * 5 + 2, "{read:?}");
    let mut bytes: Vec<u8> = vec![0; usize::try_from(source.len()).expect("small")];
    for range in read {
        let at = |n: u64| usize::try_from(n).expect("small");
        bytes[at(range.start)..at(range.end)].iter_mut().for_each(|count| *count += 1);
    }
    let lens = [0, 60, 0, 124, 125, 65_000];
    for (entry, extra) in index.entries.iter().zip(lens).filter(|(entry, _)| entry.len > 0) {
        let at = |n: u64| usize::try_from(n).expect("small") + 4 + extra;
        assert!(
            bytes[at(entry.data.start)..at(entry.data.end)].iter().all(|count| *count == 1),
            "{}",
            entry.name
        );
    }
}

#[test]
fn a_local_header_is_compared_with_its_line() {
    let wrong = [
        entry("b", 9).with_local(|header| header.crc ^= 1),
        entry("b", 9).with_local(|header| header.name = "x"),
        entry("b", 9).with_local(|header| header.len += 1),
        entry("b", 9).with_local(|header| header.flags = 1),
    ];
    for wrong in wrong {
        let (index, source, _) =
            open(&[entry("a", 0), wrong, entry("c", 0)]).expect("the directory is sound");
        let [a, b, c] = index.entries.as_slice() else { panic!("three entries") };
        source.read_range(a.data.clone()).expect("it is sound");
        source.read_range(c.data.clone()).expect("it is sound");
        for _ in 0..2 {
            source.read_range(b.data.clone()).expect_err("the header is wrong");
            source.read_at(&mut [0; 9], b.data.start + 100_000).expect_err("the header is wrong");
        }
    }
}

#[test]
fn data_that_do_not_fit_before_the_next_entry_are_an_error() {
    // The lengths fit without the extra field only.
    let mut long = entry("a", 1000);
    long.data = &long.data[..199_900];
    let (index, source, _) = open(&[long, entry("b", 0)]).expect("the directory is sound");
    let error = source.read_range(index.entries[0].data.clone()).expect_err("the extra field is too long");
    assert!(error.to_string().contains("`a`"), "{error}");
    source.read_range(index.entries[1].data.clone()).expect("it is sound");
    // Ranges that leave their entry.
    let data = index.entries[1].data.clone();
    source.read_range(data.start..data.end + 1).expect_err("past its end");
    source.read_at(&mut [0; 2], data.end - 1).expect_err("past its end");
}

#[test]
fn what_the_directory_alone_shows_is_an_error_at_once() {
    let text = |entries: &[Entry]| open(entries).map(|_| ()).expect_err("it is wrong").to_string();
    assert!(text(&[entry("a", 0), entry("a", 0)]).contains("`a`"));
    assert!(text(&[entry("../a", 0)]).contains("`../a`"));
    assert!(text(&[entry("a", 0).with_central(|header| header.len += 9)]).contains("`a`"));
    assert!(text(&[entry("a", 0).with_central(|header| header.flags = 1)]).contains("`a`"));
    let mut long = entry("a", 0).with(|header| (header.packed, header.len) = (400_000, 400_000));
    long.data = data();
    assert!(text(&[long, entry("b", 0)]).contains("`a`"));
    let bytes = archive(&[entry("a", 0)], &ONE);
    for end in [0, 1, 21, 22, bytes.len() - 1] {
        let remote: Arc<dyn Source> = Arc::new(RemoteSource::new("a.zip", &bytes[..end]));
        ZipIndex::open(remote, Checks::WhenRead, &()).map(|_| ()).expect_err("it is cut");
    }
}

#[test]
fn ranges_are_located_by_few_reads_where_entries_are_small() {
    let small = |name: &'static str, extra: usize| {
        let len = |header: &mut super::archive::Header| (header.packed, header.len) = (7, 7);
        Entry { data: &data()[..7], ..entry(name, extra).with(len) }
    };
    let wrong = small("d", 0).with_local(|header| header.crc ^= 1);
    let entries = [small("a", 0), small("b", 60), small("c", 9), wrong, small("e", 3), entry("f", 65_000)];
    let (index, source, remote) = open(&entries).expect("the directory is sound");
    remote.take_ranges();
    for (number, extra) in [(1, 60), (0, 0), (2, 9), (4, 3), (5, 65_000)] {
        let range = index.entries[number].data.start + 2..index.entries[number].data.start + 5;
        let located = source.locate(range.clone()).expect("it is sound");
        // The field has a header of four bytes.
        let start = range.start + 4 + extra;
        assert_eq!(located, start..start + 3, "{}", index.entries[number].name);
        let read = source.read_range(range).expect("inside");
        assert_eq!(read, data()[2..5]);
    }
    let entry = &index.entries[3];
    let error = source.locate(entry.data.clone()).expect_err("the header is wrong");
    assert!(error.to_string().contains("`d`"), "{error}");
}

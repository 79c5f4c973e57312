//! Two readers, the `zip` crate and our own strict index, read back what was written.

use std::io::{Read, Seek, Write};

use byte_source::{Blob, MappedFile, OwnedBlob, PRODUCER, Sink, WINDOW, Window};
use zip_format::{EntryContent, LayoutBuilder, NewZipEntry, ZipWriter};
use zip_format::{Survey, ZipIndex};

static ZEROS: &[u8; WINDOW] = &[0; WINDOW];

struct File(std::fs::File);

impl Sink for File {
    fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
        assert!(window.len() <= WINDOW, "a window of {} bytes", window.len());
        if *window == *ZEROS {
            // A hole on the disk reads the same.
            return Ok(self.0.seek_relative(i64::try_from(WINDOW).expect("a window"))?);
        }
        Ok(self.0.write_all(&window)?)
    }
}

struct Zeros(u64);

impl Blob for Zeros {
    fn len(&self) -> u64 {
        self.0
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), byte_source::Error> {
        let mut left = self.0;
        while left > 0 {
            let n = left.min(WINDOW as u64);
            sink.write(Window::owned(vec![0; usize::try_from(n).expect("a window")]))?;
            left = left.saturating_sub(n);
        }
        Ok(())
    }
}

fn write(entries: &[NewZipEntry<'_>]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut sink = File(file.reopen().expect("the file exists"));
    let mut zip = ZipWriter::new(&mut sink);
    for entry in entries {
        zip.add(entry).expect("the file can be written");
    }
    zip.finish().expect("the file can be written");
    let same = entries.iter().map(|entry| NewZipEntry { ..*entry });
    assert_eq!(
        zip_format::layout(same).expect("it fits").len,
        file.as_file().metadata().expect("there").len()
    );
    file
}

#[test]
fn two_readers_read_back_what_was_written() {
    let blob = OwnedBlob((0..100_000_u32).flat_map(u32::to_le_bytes).collect());
    let entries = [
        NewZipEntry { name: "a/version", alignment: 64, content: EntryContent::Bytes(b"3\n") },
        NewZipEntry { name: "a/é", alignment: 64, content: EntryContent::Blob(&blob) },
        NewZipEntry { name: "empty", alignment: 64, content: EntryContent::Blob(&OwnedBlob(Vec::new())) },
        NewZipEntry { name: "unaligned", alignment: 1, content: EntryContent::Bytes(b"x") },
    ];
    let file = write(&entries);
    let map = MappedFile::open(file.path()).expect("the file exists");
    let index = ZipIndex::read(&map).expect("it is strict");
    assert_eq!(index.entries.len(), entries.len());
    let layout = zip_format::layout(entries.iter().map(|entry| NewZipEntry { ..*entry })).expect("it fits");
    for ((found, entry), data) in index.entries.iter().zip(&entries).zip(layout.data) {
        assert_eq!(found.name, entry.name);
        assert_eq!(found.data, data, "{}", found.name);
        assert!(entry.alignment < 64 || found.data.start % 64 == 0, "{}", found.name);
    }
    assert_eq!(*index.entries[1].stored(map.bytes()), blob.0);

    let mut zip = zip::ZipArchive::new(file.reopen().expect("the file exists")).expect("a zip file");
    let mut bytes = Vec::new();
    // Reading to the end compares the CRC.
    zip.by_name("a/é").expect("there").read_to_end(&mut bytes).expect("its CRC is right");
    assert_eq!(bytes, blob.0);
    assert_eq!(zip.by_name("a/version").expect("there").size(), 2);
}

#[test]
fn zip64_counts_and_sizes_are_read_back() {
    let names: Vec<String> = (0..70_000).map(|i| i.to_string()).collect();
    let mut entries: Vec<NewZipEntry<'_>> = names
        .iter()
        .map(|name| NewZipEntry { name, alignment: 1, content: EntryContent::Bytes(b"") })
        .collect();
    let large = Zeros((1 << 32) + 5);
    entries.push(NewZipEntry { name: "large", alignment: 64, content: EntryContent::Blob(&large) });
    entries.push(NewZipEntry { name: "after", alignment: 64, content: EntryContent::Bytes(b"here") });
    let file = write(&entries);
    let map = MappedFile::open(file.path()).expect("the file exists");
    let index = ZipIndex::read(&map).expect("it is strict");
    assert_eq!(index.entries.len(), 70_002);
    assert_eq!(index.find("large").map(|entry| entry.len), Some((1 << 32) + 5));
    let after = index.find("after").expect("there");
    assert!(after.header_offset > 1 << 32);
    assert_eq!(after.stored(map.bytes()), b"here");
}

#[test]
fn a_comment_ends_the_file() {
    let entry = NewZipEntry { name: "x", alignment: 64, content: EntryContent::Bytes(b"here") };
    let too_long = "c".repeat(65_536);
    for comment in ["", PRODUCER, "another", &too_long[1..]] {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut sink = File(file.reopen().expect("the file exists"));
        let mut zip = ZipWriter::new(&mut sink);
        zip.add(&entry).expect("the file can be written");
        zip.finish_with_comment(comment).expect("the file can be written");
        let mut plan = LayoutBuilder::default();
        plan.add(&entry).expect("it fits");
        let map = MappedFile::open(file.path()).expect("the file exists");
        assert_eq!(plan.finish_with_comment(comment).expect("it fits"), map.bytes().len() as u64);
        assert!(map.bytes().ends_with(comment.as_bytes()));
        let index = ZipIndex::read(&map).expect("it is strict");
        assert_eq!(*index.entries[0].stored(map.bytes()), *b"here");
        let zip = zip::ZipArchive::new(file.reopen().expect("the file exists")).expect("a zip file");
        assert_eq!(zip.comment(), comment.as_bytes());
        // Only our own comment is not odd.
        let odd: Vec<_> = Survey::read(map.bytes()).oddities.iter().map(|oddity| oddity.kind).collect();
        assert_eq!(odd.is_empty(), ["", PRODUCER].contains(&comment), "{odd:?}");
    }
    let error = LayoutBuilder::default().finish_with_comment(&too_long).expect_err("its length has 16 bits");
    assert_eq!(error.to_string(), "a zip file holds a comment of at most 65535 bytes, not 65536");
}

#[test]
fn a_blob_with_a_wrong_length_is_rejected() {
    struct TooShort;
    impl Blob for TooShort {
        fn len(&self) -> u64 {
            2
        }
        fn write_to(&self, sink: &mut dyn Sink) -> Result<(), byte_source::Error> {
            sink.write(Window::owned(vec![0]))
        }
    }
    let mut sink = File(tempfile::tempfile().expect("a temporary file"));
    let mut zip = ZipWriter::new(&mut sink);
    let entry = NewZipEntry { name: "x", alignment: 1, content: EntryContent::Blob(&TooShort) };
    let error = zip.add(&entry).expect_err("one byte of two");
    assert_eq!(error.to_string(), "`x` announced 2 bytes and sent 1");
}

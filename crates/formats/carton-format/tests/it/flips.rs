//! Flips each bit of a carton: `verify` finds the change and names its entry.
//!
//! The exceptions are listed in `harmless`, each with its reason, or are bits of a compressed stream that
//! decompresses to the same bytes either way.

#![expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its counts"
)]

use std::io::{Cursor, Read, Seek, SeekFrom, Write};
use std::ops::Range;

use byte_source::{OwnedBlob, ProgressReporter, Sha256};
use carton_format::{Carton, VerifyFinding};
use carton_writer::{CartonMember, Compression, CompressionSpill};
use zip::{CompressionMethod, ZipArchive};
use zip_format::EntryContent;

const TOML: &[u8] = b"spec_version = 1\nmodel_description = 'a @misc/a'\n[[output]]\nname = 'y'\ndtype = 'int8'\n\
    shape = [2]\n[[self_test]]\ninputs = {}\nexpected_out = { y = '@tensor_data/t' }\n[runner]\nrunner_name = 'r'\n\
    required_framework_version = '*'\nrunner_compat_version = 1\n";
const INDEX: &[u8] = b"[[tensor]]\nname = 't'\ndtype = 'int8'\nshape = [2]\nfile = 't.bin'\ninner = []\n";

/// The files that can be compressed.
const COMPRESSED: [&str; 2] = ["carton.toml", "model/m"];

/// Every kind of entry: bytes, a blob with its descriptor, compressed data, a link; and LINKS.
fn carton(compression: Option<Compression>) -> Vec<u8> {
    let toml = Box::leak(Box::new(OwnedBlob(TOML.to_vec())));
    let misc = Box::leak(Box::new(OwnedBlob(b"misc".to_vec())));
    let model = OwnedBlob(b"weights ".repeat(9));
    let packed = compression.map(|compression| {
        let mut spill = CompressionSpill::create(&std::env::temp_dir()).expect("a temporary folder");
        let mut packed = |blob| spill.compress(blob, compression, ProgressReporter::unobserved());
        let packed = [packed(toml), packed(&model)].map(|it| it.expect("it can be read").expect("asked for"));
        (packed, spill.finish().expect("it can be mapped"))
    });
    let packed = packed
        .as_ref()
        .map(|(packed, spilled)| packed.each_ref().map(|it| (it, spilled.compressed_bytes(it))));
    let mut files = vec![
        CartonMember::new("tensor_data/index.toml", EntryContent::Bytes(INDEX)),
        CartonMember::new("tensor_data/t.bin", EntryContent::Bytes(b"\x01\x02")),
        CartonMember::new("misc/a", EntryContent::Blob(misc)),
    ];
    if let Some(packed) = &packed {
        for (path, (packed, part)) in COMPRESSED.iter().zip(packed) {
            let (content, sha256) = (packed.content(part), Some(packed.sha256()));
            files.push(CartonMember { path: (*path).to_owned(), content, sha256 });
        }
    } else {
        files.push(CartonMember::new("carton.toml", EntryContent::Blob(toml)));
        files.push(CartonMember::new("model/m", EntryContent::Bytes(&model.0)));
    }
    let sha256 = Some(Sha256::of(&model.0));
    files.push(CartonMember { path: "model/l".to_owned(), content: EntryContent::Link(b"m"), sha256 });
    let links = Some(format!("version = 1\n[urls]\n{} = [\"https://example.org/b\"]\n", "07".repeat(32)));
    let absent = vec![("misc/b".to_owned(), [7; 32])];
    let mut out = Vec::new();
    let written =
        carton_writer::CartonLayout { files, absent, links }.write(&mut out, ProgressReporter::unobserved());
    written.expect("they make a carton");
    out
}

/// Its name, the kind of file in its mode, its contents.
type Seen = (String, Option<u32>, Vec<u8>);

/// The contents as seen by a reader that trusts the directory.
fn contents(bytes: &[u8]) -> Option<Vec<Seen>> {
    let mut zip = ZipArchive::new(Cursor::new(bytes)).ok()?;
    let mut contents = Vec::new();
    for index in 0..zip.len() {
        let mut entry = zip.by_index_raw(index).ok()?;
        let (mut raw, mut data) = (Vec::new(), Vec::new());
        entry.read_to_end(&mut raw).ok()?;
        match entry.compression() {
            CompressionMethod::Stored => data = raw,
            CompressionMethod::Deflated => {
                flate2::read::DeflateDecoder::new(&*raw).read_to_end(&mut data).ok()?;
            }
            _ => data = zstd::decode_all(&*raw).ok()?,
        }
        let name = entry.name().ok()?.into_owned();
        contents.push((name, entry.unix_mode().map(|mode| mode & 0o170_000), data));
    }
    Some(contents)
}

/// The name of each entry, the start of its local header and the range of its data, in order; the start of
/// the directory.
fn places(bytes: &[u8]) -> (Vec<(String, usize, Range<usize>)>, usize) {
    let mut zip = ZipArchive::new(Cursor::new(bytes)).expect("a zip file");
    let at = |offset: u64| usize::try_from(offset).expect("a small file");
    let mut places: Vec<_> = (0..zip.len())
        .map(|index| {
            let entry = zip.by_index_raw(index).expect("its header is right");
            let data = at(entry.data_start().expect("its header was read"));
            let name = entry.name().expect("UTF-8").into_owned();
            (name, at(entry.header_start()), data..data + at(entry.compressed_size()))
        })
        .collect();
    places.sort_by_key(|(_, start, _)| *start);
    (places, at(zip.central_directory_start()))
}

/// The reason why a change of a bit in the directory may be missed: its field has no meaning for the file.
fn harmless(bytes: &[u8], directory: usize, at: usize, bit: u8) -> Option<&'static str> {
    let number = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let mut line = directory;
    while bytes[line..].starts_with(b"PK\x01\x02") {
        let len = 46 + number(line + 28) + number(line + 30) + number(line + 32);
        if (line..line + len).contains(&at) {
            return match (at - line, bit) {
                (4 | 5, _) => Some("which program made the entry on which system"),
                (36, 0) => Some("whether the file is text"),
                (38, 0 | 4 | 5) => Some("the attributes of DOS"),
                (40, _) | (41, 0) => Some("the permissions, which are not restored"),
                (41, 7) => Some("that a file is a file, which it is without this, too"),
                _ => None,
            };
        }
        line += len;
    }
    bytes[line..].starts_with(b"PK\x05\x06").then_some(())?;
    (at >= line + 22).then_some("which program made the archive")
}

#[test]
fn one_bit_flipped_anywhere_is_found() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.carton");
    for compression in [None, Some(Compression::Deflate), Some(Compression::Zstd)] {
        let whole = carton(compression);
        let mut file = std::fs::File::create(&path).expect("a temporary folder");
        let mut put = |at: usize, bytes: &[u8]| {
            file.seek(SeekFrom::Start(at as u64)).expect("a file");
            file.write_all(bytes).expect("a temporary folder");
        };
        put(0, &whole);
        let check = || match Carton::open(&path) {
            Ok(carton) => carton.verify(ProgressReporter::unobserved()).expect("nobody stops it").findings,
            Err(error) => {
                let entry = error.location().record.unwrap_or_default();
                vec![VerifyFinding { entry, what: error.to_string() }]
            }
        };
        assert!(check().is_empty(), "{:?}", check());
        let seen = contents(&whole);
        assert!(seen.is_some());
        let (places, directory) = places(&whole);
        let (mut found, mut missed) = (0, 0);
        for at in 0..whole.len() {
            let owner = places.iter().rev().find(|(_, start, _)| *start <= at && at < directory);
            let is_compressed = owner.is_some_and(|(name, ..)| COMPRESSED.contains(&name.as_str()));
            if compression.is_some() && !is_compressed {
                // It was flipped in the carton before.
                continue;
            }
            // All bits of a stored byte are alike to a checksum.
            let is_data = compression.is_none() && owner.is_some_and(|(_, _, data)| data.contains(&at));
            let only = u8::try_from(at % 8).expect("it is small");
            for bit in if is_data { only..only + 1 } else { 0..8 } {
                let byte = whole[at] ^ 1 << bit;
                put(at, &[byte]);
                let findings = check();
                let what = format!(
                    "{compression:?}: bit {bit} of byte 0x{at:x}, {owner:?}, directory at 0x{directory:x}: {findings:?}"
                );
                if findings.is_empty() {
                    let mut flipped = whole.clone();
                    flipped[at] = byte;
                    let is_same = owner.is_some() && compression.is_some() && contents(&flipped) == seen;
                    assert!(is_same || harmless(&whole, directory, at, bit).is_some(), "{what}");
                    missed += 1;
                } else {
                    let names =
                        |name: &str| findings.iter().any(|it| it.entry == name || it.what.contains(name));
                    assert!(owner.is_none_or(|(name, ..)| names(name)), "{what}");
                    found += 1;
                }
            }
            put(at, &whole[at..=at]);
        }
        println!("{compression:?}: {} bytes, {found} flips found, {missed} harmless", whole.len());
        assert!(found > missed * 20);
    }
}

//! Storages that are parts of files: which of them share memory, and how damage is found.

use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use byte_source::{Blob, Crc32, Error, MappedFile, RecordDamaged, Region, Source, WINDOW, Window};
use tempfile::NamedTempFile;
use tensor::{
    ByteOrder, Checksum, DimsInterner, Dtype, NegConj, Storage, StorageRecord, StorageRecords, Tensor,
};

type Change<'c> = &'c dyn Fn(Storage) -> Storage;
/// Makes a tensor over a storage with this checksum.
type Part<'c> = &'c dyn Fn(u32) -> Tensor;

fn sent(blob: &dyn Blob) -> Result<Vec<u8>, byte_source::Error> {
    let mut out: Vec<u8> = Vec::new();
    blob.write_to(&mut out).map(|()| out)
}

/// Twelve bytes after two others.
const BYTES: [u8; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

fn file() -> Arc<dyn Source> {
    let mut file = NamedTempFile::new().expect("a temporary file can be made");
    file.write_all(&[&[0, 0], &BYTES[..]].concat()).expect("it can be written");
    Arc::new(MappedFile::from_file(file.as_file(), Path::new("folder/a.pt")).expect("it can be mapped"))
}

fn right() -> u32 {
    let mut sum = Crc32::default();
    sum.add_bytes(&BYTES);
    sum.sum()
}

/// The twelve bytes, with this checksum.
fn storage(crc: u32) -> Storage {
    let checksum = Checksum { crc, record: "data/0".into() };
    Storage::stored(Region::new(&file(), 2..14).expect("it is inside the file"), Some(checksum))
}

fn view(shape: &[u64], stride: &[u64], offset: u64, storage: Storage) -> Tensor {
    let tensor = Tensor::new(Dtype::UInt8, shape.to_vec(), stride.to_vec(), offset, storage);
    tensor.expect("it is inside its storage")
}

/// The bytes, `None` if they are damaged.
fn checked(blob: &dyn Blob) -> Option<Vec<u8>> {
    match sent(blob) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            assert!(error.detail::<RecordDamaged>().is_some(), "{error}");
            None
        }
    }
}

#[test]
fn damage_is_found_whichever_bytes_of_a_storage_are_sent_whole() {
    let reversed: Vec<u8> = BYTES.chunks(2).flat_map(|pair| pair.iter().rev().copied()).collect();
    let flipped: Vec<u8> =
        BYTES.iter().enumerate().map(|(at, byte)| if at % 4 == 3 { byte ^ 0x80 } else { *byte }).collect();
    let slice = |storage: Storage, range: Range<u64>| storage.slice(range).expect("it is inside");
    let cases: [(Change<'_>, &[u8]); 7] = [
        (&|storage| storage, &BYTES),
        (&|storage| storage.with_byte_order(ByteOrder::Big, 2), &reversed),
        (&|storage| storage.with_flipped_signs(4, NegConj::All), &flipped),
        // The bytes before and after a part are read for the checksum.
        (&|storage| slice(storage, 0..5), &BYTES[..5]),
        (&|storage| slice(storage, 5..12), &BYTES[5..]),
        (&|storage| slice(storage, 4..6), &BYTES[4..6]),
        (&|storage| slice(storage.with_byte_order(ByteOrder::Big, 2), 4..6), &[6, 5]),
    ];
    for (change, expected) in cases {
        assert_eq!(checked(&change(storage(right()))).as_deref(), Some(expected));
        assert_eq!(checked(&change(storage(!right()))), None);
    }
    // A tensor over a part of the bytes is sent without the others.
    let part = |crc| checked(&view(&[3], &[1], 2, storage(crc)).gathered());
    assert_eq!((part(right()), part(!right())), (Some(vec![3, 4, 5]), Some(vec![3, 4, 5])));
}

/// A source that answers with five bytes at most, where it may answer with fewer than it was asked for.
#[derive(Debug)]
struct ShortAnswers(Arc<dyn Source>);

impl Source for ShortAnswers {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), byte_source::Error> {
        self.0.read_at(buffer, offset)
    }

    fn read_first(&self, range: Range<u64>) -> Result<Window, byte_source::Error> {
        self.0.read_window(range.start..range.end.min(range.start.saturating_add(5)))
    }

    fn check_unchanged(&self) -> Result<(), byte_source::Error> {
        self.0.check_unchanged()
    }
}

#[test]
fn numbers_are_reversed_as_wholes_however_short_the_answers_are() {
    let source: Arc<dyn Source> = Arc::new(ShortAnswers(file()));
    let region = Region::new(&source, 2..14).expect("inside the file");
    let checksum = Checksum { crc: right(), record: "a/data/0".into() };
    let storage = Storage::stored(region, Some(checksum)).with_byte_order(ByteOrder::Big, 4);
    assert_eq!(sent(&storage).expect("its checksum is right"), [4, 3, 2, 1, 8, 7, 6, 5, 12, 11, 10, 9]);
}

#[test]
fn damage_is_found_in_every_part_that_is_joined() {
    let two = || view(&[2, 2], &[2, 1], 0, Storage::owned(vec![21, 22, 23, 24]));
    let cases: [(Part<'_>, [u8; 4]); 4] = [
        // All of a storage, a part of one in order and not, and a slice with a checksum of more bytes.
        (&|crc| view(&[2, 6], &[6, 1], 0, storage(crc)), [1, 2, 7, 8]),
        (&|crc| view(&[2, 2], &[2, 1], 4, storage(crc)), [5, 6, 7, 8]),
        (&|crc| view(&[2, 2], &[1, 2], 0, storage(crc)), [1, 3, 2, 4]),
        (&|crc| view(&[2, 2], &[2, 1], 0, storage(crc).slice(4..8).expect("inside")), [5, 6, 7, 8]),
    ];
    for (part, expected) in cases {
        for dim in [0, 1] {
            if dim == 0 && part(right()).shape() != [2, 2] {
                continue;
            }
            for is_first in [true, false] {
                let joined = |crc| {
                    let parts = if is_first { [part(crc), two()] } else { [two(), part(crc)] };
                    Tensor::concat(dim, &parts).expect("they are alike")
                };
                let bytes = checked(&joined(right()).gathered()).expect("nothing is damaged");
                assert!(bytes.windows(2).any(|pair| pair == &expected[..2]), "{bytes:?}");
                assert!(bytes.windows(2).any(|pair| pair == &expected[2..]), "{bytes:?}");
                assert_eq!(checked(&joined(!right()).gathered()), None, "{expected:?} {dim}");
            }
        }
    }
    let whole = |crc| Tensor::concat(0, &[view(&[12], &[1], 0, storage(crc))]).expect("one is enough");
    assert_eq!(checked(&whole(right()).gathered()).as_deref(), Some(&BYTES[..]));
    assert_eq!(checked(&whole(!right()).gathered()), None);
    // A part of what was joined.
    let part = view(&[3], &[1], 4, whole(right()).storage().clone());
    assert_eq!(checked(&part.gathered()), Some(vec![5, 6, 7]));
}

#[test]
fn damage_names_the_record_the_file_and_the_tensor() {
    let error = sent(&storage(1)).expect_err("1 is not the checksum");
    let found = right();
    let text = format!("record `data/0` is damaged: its CRC-32 is {found:08x}, the archive records 00000001");
    assert_eq!(error.to_string(), format!("folder/a.pt: {text}"));
    assert_eq!(error.in_tensor("a\nb").to_string(), format!("folder/a.pt: tensor `a\\nb`: {text}"));
}

#[test]
fn a_computed_storage_reads_the_records_of_its_inputs() {
    let damage = |record: &str, file: &str| {
        let damaged = RecordDamaged { record: record.to_owned(), expected: 0, found: 0 };
        Error::from(damaged).in_file(file.as_ref()).location()
    };
    let joined = Tensor::concat(0, &[view(&[12], &[1], 0, storage(right()))]).expect("one is enough");
    let signed = joined.storage().with_flipped_signs(4, NegConj::All);
    for storage in [storage(right()), storage(right()).slice(1..3).expect("inside"), signed] {
        assert!(storage.reads_record(&damage("data/0", "folder/a.pt")));
        assert!(!storage.reads_record(&damage("data/1", "folder/a.pt")));
        assert!(!storage.reads_record(&damage("data/0", "folder/b.pt")));
    }
    assert!(!Storage::owned(vec![1]).reads_record(&damage("", "")));
}

#[test]
fn a_part_of_a_storage_is_inside_it() {
    let storage = storage(right());
    assert_eq!(storage.slice(0..12).map(|part| part.len()), Some(12));
    // Bytes of the file, but not of the storage.
    let short = Storage::stored(Region::new(&file(), 2..12).expect("it is inside the file"), None);
    assert!(short.slice(0..10).is_some() && short.slice(0..11).is_none());
    let owned = Storage::owned(BYTES.to_vec()).with_byte_order(ByteOrder::Big, 2);
    let part = owned.slice(2..6).expect("it is inside");
    assert_eq!(checked(&part), Some(vec![4, 3, 6, 5]));
    assert!(owned.slice(2..13).is_none());
}

#[test]
fn what_a_storage_says_about_its_bytes() {
    let (mapped, owned) = (storage(right()), Storage::owned(vec![1, 2]));
    let signed = owned.with_flipped_signs(2, NegConj::All);
    assert_eq!([mapped.is_computed(), owned.is_computed(), signed.is_computed()], [false, false, true]);
    assert_eq!((owned.is_empty(), Storage::owned(Vec::new()).is_empty()), (false, true));
    assert_eq!((mapped.file_offset(), owned.file_offset()), (Some(2), None));
    assert_eq!((mapped.mapped_bytes(), owned.mapped_bytes()), (Some(&BYTES[..]), None));
    let big = mapped.clone().with_byte_order(ByteOrder::Big, 2);
    assert_eq!(big.mapped_bytes(), None, "no file has these bytes in this order");
    let tensor = view(&[2, 2], &[2, 1], 3, mapped.clone());
    assert_eq!((tensor.mapped_bytes(), tensor.storage_offset()), (Some(&BYTES[3..7]), 3));
    assert_eq!(view(&[2, 2], &[1, 2], 3, mapped.clone()).mapped_bytes(), None);
    assert_eq!(view(&[0], &[1], 3, mapped).mapped_bytes(), Some(&[][..]));
}

#[test]
fn records_have_numbers() {
    let mut records = StorageRecords::with_capacity("archive/", 2);
    assert!(records.is_empty());
    assert!(
        records.insert("0", StorageRecord::new(2..6, None))
            && records.insert("1", StorageRecord::new(6..14, None))
    );
    assert!(records.insert("2", StorageRecord::inflated(0..3)));
    let mut other = NamedTempFile::new().expect("a temporary file can be made");
    other.write_all(&[7; 3]).expect("it can be written");
    let other = MappedFile::from_file(other.as_file(), Path::new("inflated")).expect("it can be mapped");
    let other: Arc<dyn Source> = Arc::new(other);
    records.set_sources(&file(), Some(&other));
    assert!(!records.is_empty());
    let records = Arc::new(records);
    let storages = [0, 1].map(|number| Storage::record(&records, number).expect("it is inside the file"));
    assert_eq!(storages.each_ref().map(Storage::record_number), [Some(0), Some(1)]);
    assert_eq!(Storage::owned(Vec::new()).record_number(), None);
    assert_ne!(storages[0].id(), storages[1].id());
    assert_eq!(checked(&storages[1]).as_deref(), Some(&BYTES[4..]));
    let inflated = Storage::record(&records, 2).expect("it is inside the other file");
    assert_eq!(checked(&inflated), Some(vec![7; 3]));
}

#[test]
fn a_span_is_from_the_first_element_to_the_last() {
    let span = |shape: &[u64], stride: &[u64], offset| view(shape, stride, offset, storage(right())).span();
    assert_eq!(span(&[2, 3], &[6, 1], 1), 1..10);
    assert_eq!(span(&[], &[], 11), 11..12);
    assert_eq!(span(&[0], &[1], 7), Range { start: 7, end: 7 });
}

#[test]
fn a_contiguous_view_is_in_c_order_without_gaps() {
    let is_contiguous =
        |shape: &[u64], stride: &[u64]| view(shape, stride, 0, storage(right())).is_contiguous();
    assert!(
        is_contiguous(&[2, 3], &[3, 1]) && is_contiguous(&[1, 3], &[9, 1]) && is_contiguous(&[0, 3], &[9, 9])
    );
    assert!(
        !is_contiguous(&[2, 3], &[4, 1]) && !is_contiguous(&[3, 2], &[1, 3]) && !is_contiguous(&[2], &[0])
    );
}

#[test]
fn tensors_differ_in_shape_or_dtype_alone() {
    let tensor = |dtype, shape: &[u64]| test_support::tensor(dtype, shape, BYTES.to_vec());
    let bytes = tensor(Dtype::UInt8, &[2, 2]);
    let is_same = |other: &Tensor| bytes.has_elements_of(other, &()).expect("memory can be read");
    assert!(is_same(&tensor(Dtype::UInt8, &[2, 2])));
    assert!(!is_same(&tensor(Dtype::UInt8, &[4])) && !is_same(&tensor(Dtype::Int8, &[2, 2])));
}

#[test]
fn equal_shapes_are_in_memory_once_up_to_a_limit() {
    let mut dims = DimsInterner::default();
    let mut shared = |size: u64| dims.intern(view(&[size, 0], &[1, 1], 0, Storage::owned(Vec::new())));
    let first: Vec<Tensor> = (0..1 << 12).map(&mut shared).collect();
    for (size, tensor) in
        (0..).zip(&first).step_by(1000).chain(first.last().map(|tensor| ((1 << 12) - 1, tensor)))
    {
        assert!(std::ptr::eq(shared(size).shape(), tensor.shape()), "{size}");
    }
    let late = shared(1 << 12);
    assert!(!std::ptr::eq(shared(1 << 12).shape(), late.shape()), "no more are kept");
}

#[test]
fn runs_longer_than_a_window_are_sent_too() {
    for run in [WINDOW / 2 + 1, WINDOW + WINDOW / 2, 2 * WINDOW + 1] {
        let bytes: Vec<u8> = (0..2 * (run + 1)).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
        let len = run as u64;
        let tensor = view(&[2, len], &[len + 1, 1], 0, Storage::owned(bytes.clone()));
        let found = sent(&tensor.gathered()).expect("memory can be read");
        assert!(found == [&bytes[..run], &bytes[run + 1..][..run]].concat(), "{run}");
    }
}

#[test]
fn signs_are_those_of_the_numbers_at_their_place() {
    let numbers = [1.0_f32, -2.0, 3.0, -4.0, 5.0, -6.0];
    let base = Storage::owned(numbers.iter().flat_map(|number| number.to_le_bytes()).collect());
    let tensor =
        Tensor::new(Dtype::Complex64, vec![1], vec![1], 2, base.with_flipped_signs(4, NegConj::Imaginary));
    let bytes = sent(&tensor.expect("it is inside").gathered()).expect("memory can be read");
    assert_eq!(bytes, [5.0_f32, 6.0].map(f32::to_le_bytes).concat());
}

#[test]
fn every_dtype_is_listed_once() {
    let all: Vec<Dtype> = Dtype::all().collect();
    assert!([Dtype::UInt8, Dtype::Float32, Dtype::Complex128].iter().all(|dtype| all.contains(dtype)));
    assert!(all.iter().enumerate().all(|(at, dtype)| !all[..at].contains(dtype)));
}

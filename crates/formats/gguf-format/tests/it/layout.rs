//! What the reader finds, and what the writer lays out.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use byte_source::{Blob, BufferSource, Error as SourceError, Source};
use bytes::Bytes;
use gguf_format::{
    EntryError, Error, GgmlType, GgufArchive, GgufArray, GgufHeader, GgufOutput, GgufValue, ValueType,
};
use tensor::{ByteOrder, Dtype, Storage, Tensor};

use crate::builder::File;

fn file(is_big: bool) -> File {
    let file = File::new(is_big, 3, 4)
        .key("general.architecture", 8)
        .text("llama")
        .key("a.tokens", 9)
        .u32(8)
        .u64(3)
        .text("<s>")
        .text("")
        .text("é");
    let file = file.key("a.count", 5).u32(7).key("a.nested", 9).u32(9).u64(2);
    file.u32(4)
        .u64(2)
        .u32(1)
        .u32(2)
        .u32(4)
        .u64(0)
        .tensor("w", &[32, 2], 2, 0)
        .tensor("b", &[3], 0, 64)
        .tensor("scalar", &[], 1, 96)
        .data(98)
}

#[test]
fn both_byte_orders_are_read() {
    for (is_big, order) in [(false, ByteOrder::Little), (true, ByteOrder::Big)] {
        let file = file(is_big);
        let header = file.parse().expect("it fits the format");
        assert_eq!((header.version, header.byte_order), (3, order));
        assert_eq!(header.get("general.architecture").and_then(GgufValue::text).as_deref(), Some("llama"));
        assert_eq!(header.get("a.tokens"), Some(&GgufValue::Array(GgufArray::from_texts(["<s>", "", "é"]))));
        assert_eq!(header.get("a.count"), Some(&GgufValue::Int32(7)));
        let Some(GgufValue::Array(nested)) = header.get("a.nested") else { panic!("an array") };
        let inner: Vec<Vec<GgufValue>> = nested
            .iter()
            .map(|it| if let GgufValue::Array(it) = it { it.iter().collect() } else { Vec::new() })
            .collect();
        assert_eq!(inner, [vec![GgufValue::UInt32(1), GgufValue::UInt32(2)], vec![]]);
        let start = file.bytes.len() as u64 - 98;
        let found: Vec<_> = header
            .tensors
            .iter()
            .map(|it| {
                (it.name.as_str(), it.kind.name, &*it.shape, it.range.start - start, it.range.end - start)
            })
            .collect();
        assert_eq!(
            found,
            [("w", "Q4_0", &[2, 32][..], 0, 36), ("b", "F32", &[3], 64, 76), ("scalar", "F16", &[], 96, 98)]
        );
    }
}

#[test]
fn what_is_written_is_read_again() {
    let read = file(true).parse().expect("it fits the format");
    let data = |len: u8| {
        let (size, bytes) = (u64::from(len), (0..len).collect());
        Tensor::new(Dtype::UInt8, vec![size], vec![1], 0, Storage::owned(bytes)).expect("bytes")
    };
    let tensors: Vec<GgufOutput> = read
        .tensors
        .iter()
        .zip([36, 12, 2])
        .map(|(it, len)| GgufOutput {
            name: it.name.clone(),
            kind: it.kind,
            shape: it.shape.clone(),
            data: data(len),
        })
        .collect();
    let archive = GgufArchive::new(&read.entries, &tensors).expect("it can be written");
    let mut written: Vec<u8> = Vec::new();
    archive.write_to(&mut written).expect("memory");
    assert_eq!(written.len() as u64, archive.len());
    assert!(written.len().is_multiple_of(32));
    let again = GgufHeader::read(&BufferSource::new("again", written.clone())).expect("it was written");
    assert_eq!(again.entries, read.entries);
    assert_eq!(again.byte_order, ByteOrder::Little);
    for (tensor, output) in again.tensors.iter().zip(&tensors) {
        let bytes = byte_source::slice_range(&written, &tensor.range).expect("inside");
        assert!(bytes.iter().copied().eq(0..u8::try_from(bytes.len()).expect("few")), "{}", output.name);
        assert_eq!((&tensor.name, tensor.kind, &tensor.shape), (&output.name, output.kind, &output.shape));
    }
}

#[test]
fn the_writer_refuses_what_does_not_fit() {
    let data = Tensor::new(Dtype::UInt8, vec![4], vec![1], 0, Storage::owned(vec![0; 4])).expect("bytes");
    let f32 = GgmlType::from_name("F32").expect("it is known");
    let output = |shape: &[u64]| GgufOutput {
        name: "w".to_owned(),
        kind: f32,
        shape: shape.to_vec(),
        data: data.clone(),
    };
    let error = |entries: &[(String, GgufValue)], tensors: &[GgufOutput]| {
        GgufArchive::new(entries, tensors).map(|it| it.len()).expect_err("it does not fit")
    };
    let reason = |shape: &[u64]| match error(&[], &[output(shape)]) {
        Error::Entry { reason, .. } => reason,
        other => panic!("{other}"),
    };
    assert_eq!(reason(&[2]), EntryError::Length { found: 4, needed: 8 });
    assert_eq!(reason(&[1; 5]), EntryError::Dimensions { dims: 5 });
    assert!(matches!(reason(&[u64::MAX]), EntryError::Shape { .. }));
    assert!(matches!(error(&[], &[output(&[1]), output(&[1])]), Error::DuplicateTensor { .. }));
    let entry = |key: &str| (key.to_owned(), GgufValue::Bool(true));
    assert!(matches!(error(&[entry("k"), entry("k")], &[]), Error::DuplicateKey { .. }));
    assert_eq!(error(&[entry("general.alignment")], &[]), Error::Alignment);
}

#[test]
fn files_that_are_no_models_are_named() {
    let role = |key: &str, value: &str| {
        let file = File::little(0, 1).key(key, 8).text(value);
        file.parse().expect("it fits the format").role()
    };
    assert_eq!(role("general.type", "adapter"), Some("a LoRA adapter"));
    assert!(role("general.type", "imatrix").is_some_and(|it| it.contains("imatrix")));
    assert!(role("general.type", "mmproj").is_some_and(|it| it.contains("mmproj")));
    assert!(role("general.architecture", "clip").is_some_and(|it| it.contains("mmproj")));
    assert_eq!(role("general.type", "model"), None);
}

#[test]
fn arrays_of_numbers_are_written() {
    let scores = GgufArray::from_float32([-1.5, 0.0]);
    assert_eq!((scores.element(), scores.len(), scores.is_empty()), (ValueType::Float32, 2, false));
    let types = GgufArray::from_int32([1, -1]);
    assert!(types.iter().eq([GgufValue::Int32(1), GgufValue::Int32(-1)]));
    assert_ne!(types, GgufArray::from_int32([1]));
    assert_eq!(ValueType::Text.name(), "text");
}

/// A source of which each read is a request.
#[derive(Debug)]
struct Counted(BufferSource, AtomicU64);

impl Source for Counted {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), SourceError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(buffer, offset)
    }

    fn has_latency(&self) -> bool {
        true
    }

    fn check_unchanged(&self) -> Result<(), SourceError> {
        Ok(())
    }
}

#[test]
fn a_header_takes_one_or_two_requests() {
    for (tokens, requests) in [(100, 1), (40_000, 2)] {
        let texts = GgufArray::from_texts((0..tokens).map(|number| format!("token {number}")));
        let entries = [("tokens".to_owned(), GgufValue::Array(texts))];
        let mut file: Vec<u8> = Vec::new();
        GgufArchive::new(&entries, &[]).expect("it fits").write_to(&mut file).expect("memory");
        file.shrink_to_fit();
        let source = Counted(BufferSource::new("x", Bytes::from(file)), AtomicU64::new(0));
        let header = GgufHeader::read(&source).expect("it was written");
        assert_eq!(header.entries, entries);
        assert_eq!(source.1.load(Ordering::Relaxed), requests);
    }
}

//! A header of GGUF is read or refused. Its tensors are inside of the file and apart from each other, and what is read can be written,
//! and is the same when it is read again. The numbers of blocks have the bytes of their shape, and two readings agree.

#![no_main]

use std::sync::Arc;

use byte_source::{Blob, BufferSource};
use bytes::Bytes;
use gguf_format::{ALIGNMENT_KEY, GgmlType, GgufArchive, GgufHeader, GgufOutput};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use quantization::{QuantizationDocuments, recognise};
use tensor::{Dtype, Storage, Tensor};
use torch_import::{Checkpoint, Container};
use torch2carton_fuzz::tensors::bytes as bytes_of;

fuzz_target!(|bytes: &[u8]| {
    if bytes.starts_with(b"GGUF") {
        check(bytes);
    } else if let Ok(bytes) = file(&mut Unstructured::new(bytes)) {
        check(&bytes);
    }
});

fn check(bytes: &[u8]) {
    let parsed = GgufHeader::parse(&Bytes::copy_from_slice(bytes), bytes.len() as u64);
    let read = GgufHeader::read(&BufferSource::new("file", bytes.to_vec()));
    assert_eq!(parsed.as_ref().ok().map(|it| it.tensors.len()), read.ok().map(|it| it.tensors.len()));
    let Ok(header) = parsed else { return };
    let mut in_order: Vec<_> = header.tensors.iter().filter(|it| !it.range.is_empty()).collect();
    in_order.sort_by_key(|it| it.range.start);
    assert!(in_order.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
    let outputs = header.tensors.iter().map(|it| {
        let data = byte_source::slice_range(bytes, &it.range).expect("it is inside of the file");
        let size = data.len() as u64;
        let data = Tensor::new(Dtype::UInt8, vec![size], vec![1], 0, Storage::owned(data.to_vec()));
        let data = data.expect("it has all bytes");
        GgufOutput { name: it.name.clone(), kind: it.kind, shape: it.shape.clone(), data }
    });
    let outputs: Vec<GgufOutput> = outputs.collect();
    let entries: Vec<_> = header.entries.iter().filter(|(key, _)| key != ALIGNMENT_KEY).cloned().collect();
    let archive = GgufArchive::new(&entries, &outputs).expect("what was read can be written");
    let mut written: Vec<u8> = Vec::new();
    archive.write_to(&mut written).expect("it is in memory");
    assert_eq!(written.len() as u64, archive.len());
    let again = GgufHeader::parse(&Bytes::from(written.clone()), archive.len()).expect("it was written");
    // A NaN differs from itself.
    assert_eq!(
        format!("{:?}", again.entries.iter().map(text).collect::<Vec<_>>()),
        format!("{:?}", entries.iter().map(text).collect::<Vec<_>>())
    );
    for ((again, first), output) in again.tensors.iter().zip(&header.tensors).zip(&outputs) {
        assert_eq!((&again.name, again.kind, &again.shape), (&first.name, first.kind, &first.shape));
        let stored = byte_source::slice_range(&written, &again.range).expect("it is inside of the file");
        assert_eq!(stored.len() as u64, output.data.nbytes());
    }
    check_numbers(bytes);
}

/// Computes the numbers of all blocks, unless the file has a type without numbers or a name that a part has, too.
fn check_numbers(bytes: &[u8]) {
    let source = Arc::new(BufferSource::new("file", bytes.to_vec()));
    let Ok(container) = Container::from_source(source) else { return };
    let tensors = Checkpoint::read(&container).expect("its header was read").to_tensors();
    let Ok(Some(model)) = recognise(&QuantizationDocuments::default(), &tensors) else { return };
    for quantized in &model.tensors {
        let numbers = quantized.tensor(Dtype::Float32).expect("its size was checked");
        let whole = bytes_of(&numbers.gathered()).expect("its blocks are there");
        assert_eq!(whole.len() as u64, numbers.nbytes());
        assert_eq!(bytes_of(&numbers.gathered()).ok(), Some(whole));
    }
}

/// A key with its value; the elements of an array, whose bytes depend on the order.
fn text((key, value): &(String, gguf_format::GgufValue)) -> String {
    match value {
        gguf_format::GgufValue::Array(array) if array.element() != gguf_format::ValueType::Array => {
            format!("{key} {:?} {:?}", array.element(), array.iter().collect::<Vec<_>>())
        }
        gguf_format::GgufValue::Array(array) => format!("{key} {}", array.len()),
        value => format!("{key} {value:?}"),
    }
}

/// A file whose parts mostly fit each other.
fn file(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let is_big: bool = u.arbitrary()?;
    let word = |little: &[u8]| -> Vec<u8> {
        if is_big { little.iter().rev().copied().collect() } else { little.to_vec() }
    };
    let text = |text: &str| [word(&(text.len() as u64).to_le_bytes()), text.as_bytes().to_vec()].concat();
    let (keys, tensors) = (u.int_in_range(0..=3_u64)?, u.int_in_range(0..=3_u64)?);
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(word(&u.int_in_range(2..=3_u32)?.to_le_bytes()));
    bytes.extend(word(&tensors.to_le_bytes()));
    bytes.extend(word(&keys.to_le_bytes()));
    for number in 0..keys {
        let key = if u.ratio(1, 6)? { ALIGNMENT_KEY.to_owned() } else { format!("k{number}") };
        bytes.extend(text(&key));
        let kind = u.int_in_range(0..=13_u32)?;
        bytes.extend(word(&kind.to_le_bytes()));
        match kind {
            8 => bytes.extend(text("é")),
            9 => {
                bytes.extend(word(&u.int_in_range(0..=9_u32)?.to_le_bytes()));
                bytes.extend(word(&u.int_in_range(0..=3_u64)?.to_le_bytes()));
                bytes.extend(u.bytes(u.len().min(24))?);
            }
            4 => bytes.extend(word(&u.choose(&[1_u32, 8, 32, 48])?.to_le_bytes())),
            0 | 1 | 7 => bytes.push(u.arbitrary()?),
            2 | 3 => bytes.extend([1, 2]),
            5 | 6 => bytes.extend([1, 2, 3, 4]),
            _ => bytes.extend([1, 2, 3, 4, 5, 6, 7, 8]),
        }
    }
    let mut end = 0_u64;
    for number in 0..tensors {
        let kind = if u.ratio(1, 16)? { u.arbitrary()? } else { u.choose(GgmlType::all())?.id };
        let mut shape = Vec::new();
        let dims = u.int_in_range(0..=3_u32)?;
        bytes.extend(text(&format!("t{number}")));
        bytes.extend(word(&dims.to_le_bytes()));
        for _ in 0..dims {
            let size = if u.ratio(1, 16)? { u.arbitrary()? } else { *u.choose(&[0_u64, 1, 2, 128, 256])? };
            shape.insert(0, size);
            bytes.extend(word(&size.to_le_bytes()));
        }
        bytes.extend(word(&kind.to_le_bytes()));
        let offset = if u.ratio(1, 16)? { u.arbitrary()? } else { end };
        bytes.extend(word(&offset.to_le_bytes()));
        let nbytes = GgmlType::from_id(kind).and_then(|kind| kind.nbytes(&shape));
        end += nbytes.filter(|nbytes| *nbytes < 1 << 12).unwrap_or(32).next_multiple_of(32);
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    let data: Vec<u8> = u.bytes(u.len().min(1 << 10))?.to_vec();
    bytes.extend(data.iter().chain([&7]).cycle().take(end as usize));
    Ok(bytes)
}

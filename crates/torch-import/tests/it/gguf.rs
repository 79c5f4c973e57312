//! GGUF files as checkpoints: keys are values, and blocks are parts of compound tensors.

use std::sync::Arc;

use byte_source::{Blob, BufferSource};
use gguf_format::{GgmlType, GgufArchive, GgufOutput, GgufValue};
use tensor::{CompoundKind, Dtype, Storage, Tensor};
use test_support::RemoteSource;
use torch_import::{Checkpoint, CheckpointValue, Container, ItemContent};

fn file(tensors: &[(&str, &str, &[u64])], entries: &[(String, GgufValue)]) -> Vec<u8> {
    let output = |(name, kind, shape): &(&str, &str, &[u64])| {
        let kind = GgmlType::from_name(kind).expect("a type");
        let size = kind.nbytes(shape).expect("whole blocks");
        let bytes = (0..size).map(|at| at.to_le_bytes()[0]).collect();
        let data = Tensor::new(Dtype::UInt8, vec![size], vec![1], 0, Storage::owned(bytes)).expect("bytes");
        GgufOutput { name: (*name).to_owned(), kind, shape: shape.to_vec(), data }
    };
    let tensors: Vec<GgufOutput> = tensors.iter().map(output).collect();
    let mut file: Vec<u8> = Vec::new();
    GgufArchive::new(entries, &tensors).expect("it fits").write_to(&mut file).expect("memory");
    file
}

fn open(bytes: Vec<u8>) -> Container {
    Container::from_source(Arc::new(BufferSource::new("x", bytes))).expect("it is GGUF")
}

#[test]
fn tensors_and_values_are_listed() {
    let entries = [
        ("general.name".to_owned(), GgufValue::Text("ä".into())),
        ("llama.block_count".to_owned(), GgufValue::UInt32(2)),
    ];
    let container = open(file(&[("w", "Q8_0", &[2, 64]), ("b", "BF16", &[3])], &entries));
    assert_eq!((container.format(), container.notes().len()), ("gguf", 0));
    let checkpoint = Checkpoint::read(&container).expect("it is GGUF");
    let names: Vec<_> = checkpoint.items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["__metadata__.general.name", "__metadata__.llama.block_count", "w", "b"]);
    let ItemContent::Value(CheckpointValue::Gguf(number)) = &checkpoint.items[1].content else {
        panic!("a number")
    };
    assert_eq!(number, &GgufValue::UInt32(2));
    let (_, blocks) = checkpoint.compounds().next().expect("one is");
    assert_eq!(blocks.kind, CompoundKind::Blocks { scheme: "Q8_0".to_owned() });
    assert_eq!((blocks.dtype, blocks.shape.as_slice()), (Dtype::Float32, [2, 64].as_slice()));
    let shapes: Vec<_> =
        checkpoint.tensors().map(|(name, it)| (name.into_owned(), it.shape().to_vec())).collect();
    assert_eq!(shapes, [("w.blocks".to_owned(), vec![2, 68]), ("b".to_owned(), vec![3])]);
}

#[test]
fn what_is_no_model_is_noted() {
    let entries = [("general.type".to_owned(), GgufValue::Text("adapter".into()))];
    let notes: Vec<String> = open(file(&[], &entries)).notes().iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["it is a LoRA adapter"]);
}

#[test]
fn files_that_are_cut_are_unfinished_downloads() {
    let whole = file(&[("w", "F32", &[64])], &[]);
    for len in [5, 30, whole.len() - 1] {
        let error = Container::from_source(Arc::new(BufferSource::new("x", whole[..len].to_vec())));
        let error = error.expect_err("it is cut").to_string();
        assert!(error.contains("cut short"), "{error}");
    }
    let twice = file(&[("w", "Q8_0", &[32]), ("w.blocks", "F32", &[1])], &[]);
    let error = Container::from_source(Arc::new(BufferSource::new("x", twice))).expect_err("two names");
    assert!(error.to_string().contains("two tensors have the name `w.blocks`"), "{error}");
}

#[test]
fn the_words_of_big_endian_blocks_are_swapped() {
    let little = file(&[("w", "Q4_K", &[1, 512])], &[]);
    let at = little.len() - 288;
    // Every number of the header is written by hand, in the other order.
    let number = |number: u64| number.to_be_bytes();
    let mut big = [b"GGUF", &3_u32.to_be_bytes()[..], &number(1), &number(0), &number(1), b"w"].concat();
    big.extend(2_u32.to_be_bytes());
    big.extend([512, 1].map(number).concat());
    big.extend(12_u32.to_be_bytes());
    big.extend(number(0));
    big.resize(big.len().next_multiple_of(32), 0);
    big.extend(&little[at..]);
    let bytes = |bytes: Vec<u8>| {
        let checkpoint = Checkpoint::read(&open(bytes)).expect("it is GGUF");
        let (_, blocks) = checkpoint.tensors().next().expect("the blocks");
        let mut read: Vec<u8> = Vec::new();
        blocks.gathered().write_to(&mut read).expect("memory");
        // From any byte on.
        let part = blocks.storage().slice(143..147).map(|part| {
            let mut read: Vec<u8> = Vec::new();
            part.write_to(&mut read).expect("memory");
            read
        });
        assert!(part.is_none_or(|part| part == read[143..147]));
        read
    };
    let (little, big) = (bytes(little), bytes(big));
    assert_eq!((&big[..5], &big[144..149]), (&[1, 0, 3, 2, 4][..], &[145, 144, 147, 146, 148][..]));
    assert_eq!((&little[4..144], &little[148..]), (&big[4..144], &big[148..]));
}

#[test]
fn a_header_at_an_address_takes_two_requests() {
    let tokens = gguf_format::GgufArray::from_texts((0..20_000).map(|number| format!("token {number}")));
    let entries = [("tokens".to_owned(), GgufValue::Array(tokens))];
    let source = Arc::new(RemoteSource::new("x", file(&[("w", "F32", &[1 << 20])], &entries)));
    let container = Container::from_source(source.clone()).expect("it is GGUF");
    Checkpoint::read(&container).expect("it is GGUF");
    let ranges = source.take_ranges();
    assert_eq!(ranges.len(), 2, "{ranges:?}");
}

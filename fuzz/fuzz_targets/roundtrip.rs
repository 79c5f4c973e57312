//! Tensors that become a TorchScript archive, and a carton around it, are read back with the same names, dtypes, shapes,
//! strides and elements; and `verify` finds nothing in the carton.

#![no_main]

use std::collections::BTreeMap;

use byte_source::ProgressReporter;
use carton_format::{Carton, Config, MODEL_PT, Runner, TensorIndex};
use carton_writer::{CartonMember, EntryContent};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};
use tensor::{Storage, Tensor, Tensors};
use torch_import::{Checkpoint, Container};
use torch2carton_fuzz::input::source;
use torch2carton_fuzz::tensors::{bytes, dtype, layout, naive, needed};

type Facts = (String, Vec<u64>, Vec<u64>, Vec<u8>);

fuzz_target!(|input: &[u8]| -> Corpus {
    match tensors(&mut Unstructured::new(input)) {
        // Writing and verifying a carton starts threads, which takes most of the time.
        Ok((tensors, facts)) => check(&tensors, &facts, input.len() % 8 == 0),
        Err(_) => return Corpus::Reject,
    }
    Corpus::Keep
});

fn check(tensors: &Tensors, facts: &BTreeMap<String, Facts>, with_carton: bool) {
    // Some dtypes and names cannot be in an archive.
    let Ok(converted) = torchscript::weights_module(tensors, torchscript::OnInvalidInput::Return) else {
        return;
    };
    let archive = bytes(&converted.archive).expect("nothing is damaged");
    let input = source(&archive);
    let container = Container::from_source(input).expect("it was just written");
    compare(&read(&container), facts);
    if !with_carton {
        return;
    }
    let config = Config::new(Runner::new("torchscript", "=2.0", 1)).to_toml().expect("TOML holds it");
    let index = TensorIndex::default().to_toml().expect("TOML holds it");
    let files = vec![
        CartonMember::new(Config::PATH, EntryContent::Bytes(config.as_bytes())),
        CartonMember::new(TensorIndex::PATH, EntryContent::Bytes(index.as_bytes())),
        CartonMember::new(MODEL_PT, EntryContent::Blob(&converted.archive)),
    ];
    let carton = carton_writer::CartonLayout::new(files);
    let mut out = Vec::new();
    let written = carton.write(&mut out, ProgressReporter::unobserved()).expect("memory takes everything");
    assert_eq!((written.len, carton.len().expect("it was written")), (out.len() as u64, out.len() as u64));
    let input = source(&out);
    let carton = Carton::from_source(input).expect("it was just written");
    let report = carton.verify(ProgressReporter::unobserved()).expect("nothing cancels");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    compare(
        &read(
            &Container::from_source(carton.source(MODEL_PT, &()).expect("it is stored"))
                .expect("it is a checkpoint"),
        ),
        facts,
    );
}

/// Every tensor is there, and all others are those of the module's dict, which holds each a second time.
fn compare(found: &BTreeMap<String, Facts>, facts: &BTreeMap<String, Facts>) {
    for (name, facts) in facts {
        assert_eq!(found.get(name), Some(facts), "{name:?}");
    }
    for (name, copy) in found.iter().filter(|(name, _)| !facts.contains_key(*name)) {
        assert!(name.starts_with("__tensors__") && facts.values().any(|facts| facts == copy), "{name:?}");
    }
}

fn read(container: &Container) -> BTreeMap<String, Facts> {
    let checkpoint = Checkpoint::read(container).expect("it was just written");
    let facts = checkpoint.tensors().map(|(name, tensor)| {
        let elements = bytes(&tensor.gathered()).expect("nothing is damaged");
        (name.into_owned(), facts(tensor, elements))
    });
    facts.collect()
}

fn facts(tensor: &Tensor, elements: Vec<u8>) -> Facts {
    (tensor.dtype().to_string(), tensor.shape().to_vec(), tensor.stride().to_vec(), elements)
}

/// Tensors with different names over a few storages, and the facts of each.
fn tensors(u: &mut Unstructured<'_>) -> Result<(Tensors, BTreeMap<String, Facts>)> {
    let (mut tensors, mut known) = (Tensors::default(), BTreeMap::new());
    for _ in 0..u.int_in_range(1..=3)? {
        let dtype = dtype(u)?;
        let layouts = (0..u.int_in_range(1..=3)?).map(|_| layout(u)).collect::<Result<Vec<_>>>()?;
        let need =
            |(shape, stride, offset): &(Vec<u64>, Vec<u64>, u64)| needed(dtype, shape, stride, *offset);
        let len = layouts.iter().map(need).max().unwrap_or(0) + u.int_in_range(0..=9_u64)?;
        let seed: u8 = u.arbitrary()?;
        let raw: Vec<u8> = (0..len).map(|index| (index as u8).wrapping_mul(31) ^ seed).collect();
        let storage = Storage::owned(raw.clone());
        for (shape, stride, offset) in layouts {
            let name = name(u)?;
            let tensor = Tensor::new(dtype, shape, stride, offset, storage.clone()).expect("it fits");
            let elements = naive(&tensor, &raw);
            if known.insert(name.clone(), facts(&tensor, elements)).is_none() {
                tensors.push(name, tensor);
            } else {
                return Err(libfuzzer_sys::arbitrary::Error::IncorrectFormat);
            }
        }
    }
    Ok((tensors, known))
}

fn name(u: &mut Unstructured<'_>) -> Result<String> {
    let parts = [
        "a",
        "b",
        "0",
        "1",
        "weight",
        "x y",
        "",
        "é",
        "training",
        "forward",
        "__tensors__",
        "'",
        "\n",
        "self",
    ];
    let parts = (0..u.int_in_range(1..=3)?).map(|_| u.choose(&parts).copied()).collect::<Result<Vec<_>>>()?;
    Ok(parts.join("."))
}

//! Quantized weights are recognised or refused. Computed numbers have the bytes of their shape, and two readings agree.

#![no_main]

use std::sync::Arc;

use byte_source::BufferSource;
use libfuzzer_sys::{Corpus, fuzz_target};
use quantization::{QuantizationDocuments, recognise};
use torch_import::{Checkpoint, Container};
use torch2carton_fuzz::tensors::bytes;

/// Larger tensors are not read: a scale for the whole tensor takes few bytes.
const MAX: u64 = 1 << 16;

// The first two bytes are the length of `config.json`; the rest is a file of safetensors.
fuzz_target!(|input: &[u8]| -> Corpus {
    let &[low, high, ref rest @ ..] = input else { return Corpus::Reject };
    let Some((config, file)) = rest.split_at_checked(u16::from_le_bytes([low, high]).into()) else {
        return Corpus::Reject;
    };
    let Ok(config) = String::from_utf8(config.to_vec()) else { return Corpus::Reject };
    let source = Arc::new(BufferSource::new("model.safetensors", file.to_vec()));
    let Ok(container) = Container::from_source(source) else { return Corpus::Reject };
    let Ok(checkpoint) = Checkpoint::read(&container) else { return Corpus::Reject };
    let tensors = checkpoint.to_tensors();
    let documents = QuantizationDocuments { config: Some(config), ..QuantizationDocuments::default() };
    let Ok(Some(model)) = recognise(&documents, &tensors) else { return Corpus::Keep };
    let Ok((numbers, origins)) = model.dequantize(&tensors, |it| it.default_dtype) else {
        return Corpus::Keep;
    };
    assert_eq!(numbers.len(), origins.len());
    for (name, tensor) in numbers.iter().filter(|(_, tensor)| tensor.nbytes() <= MAX) {
        let whole = bytes(&tensor.gathered()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(whole.len() as u64, tensor.nbytes(), "{name}");
        assert_eq!(bytes(&tensor.gathered()).ok(), Some(whole), "{name}");
    }
    Corpus::Keep
});

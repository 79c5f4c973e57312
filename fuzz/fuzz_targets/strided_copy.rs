//! The elements of a tensor in C order are those that a naive loop copies, whatever the storage: in memory, in a file,
//! big-endian, with signs flipped, or joined from parts.

#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::{Corpus, fuzz_target};
use torch2carton_fuzz::tensors::{bytes, tensor};

fuzz_target!(|input: &[u8]| -> Corpus {
    let Ok((tensor, expected)) = tensor(&mut Unstructured::new(input)) else { return Corpus::Reject };
    let found = bytes(&tensor.gathered()).unwrap_or_else(|error| panic!("{error}: {tensor:?}"));
    assert_eq!(found, expected, "{tensor:?}");
    if let Some(mapped) = tensor.mapped_bytes() {
        assert_eq!(mapped, expected);
    }
    Corpus::Keep
});

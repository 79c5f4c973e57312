//! A file of `torch.save` before PyTorch 1.6: an error, or tensors inside their storages. An input without the magic
//! number gets it, with a version and system information.

#![no_main]

use torch2carton_fuzz::checkpoints;

/// The pickles before the root object: the magic number, version 1001, and an empty dict.
const HEAD: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}.";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if bytes.starts_with(&HEAD[..14]) {
        checkpoints::check(bytes);
    } else {
        checkpoints::check(&[HEAD, bytes].concat());
    }
});

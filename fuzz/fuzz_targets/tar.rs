//! A tar archive of `torch.save` in PyTorch 0.1: an error, or tensors inside their storages. An input that is not a tar
//! archive is cut into the members of one.

#![no_main]

use torch2carton_fuzz::checkpoints;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if bytes.get(257..262) == Some(b"ustar") {
        checkpoints::check(bytes);
    } else {
        checkpoints::check(&archive(bytes));
    }
});

/// The members, from the parts of an input between the texts `|||`.
fn archive(bytes: &[u8]) -> Vec<u8> {
    let mut parts = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(3).position(|window| window == b"|||").filter(|_| parts.len() < 2) {
        parts.push(&rest[..at]);
        rest = &rest[at + 3..];
    }
    parts.push(rest);
    let mut builder = tar::Builder::new(Vec::new());
    for (name, part) in ["pickle", "tensors", "storages"].into_iter().zip(parts) {
        let mut header = tar::Header::new_ustar();
        header.set_size(part.len() as u64);
        builder.append_data(&mut header, name, part).expect("memory takes everything");
    }
    builder.into_inner().expect("memory takes everything")
}

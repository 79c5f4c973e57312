//! An archive of a trainer is read or refused. Its members can be opened and joined, or are refused.

#![no_main]

use std::sync::Arc;

use byte_source::BufferSource;
use libfuzzer_sys::fuzz_target;
use open::trainers::TrainerArchive;

fuzz_target!(|input: &[u8]| {
    // Gzip would repeat what the fuzzer finds in plain archives.
    if input.starts_with(b"\x1f\x8b") {
        return;
    }
    let Ok(archive) = TrainerArchive::from_source(Arc::new(BufferSource::new("model.nemo", input.to_vec())))
    else {
        return;
    };
    let Ok(containers) = archive.containers() else { return };
    if let Some(layout) = archive.layout {
        let _ = layout.join(&containers, &()).map(|joined| joined.checkpoint.tensors().count());
    }
});

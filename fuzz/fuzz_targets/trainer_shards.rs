//! Files of ranks are joined or refused. A joined tensor has the bytes of its shape, and two readings agree.

#![no_main]

use std::path::Path;
use std::sync::Arc;

use byte_source::BufferSource;
use libfuzzer_sys::{Corpus, fuzz_target};
use open::trainers::{JoinedCheckpoint, LAYOUTS};
use torch_import::Container;
use torch2carton_fuzz::tensors::bytes;

/// Larger tensors are not read: a part of a few bytes can repeat one element to any size.
const MAX: u64 = 1 << 16;

// The first byte chooses the layout; the next two are the length of the first file, and the rest is the second.
fuzz_target!(|input: &[u8]| -> Corpus {
    let &[layout, low, high, ref rest @ ..] = input else { return Corpus::Reject };
    let Some((first, second)) = rest.split_at_checked(u16::from_le_bytes([low, high]).into()) else {
        return Corpus::Reject;
    };
    let number = usize::from(layout) % LAYOUTS.len();
    let names = match number {
        0 => [".metadata", "__0_0.distcp"],
        1 => ["model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"],
        2 => ["shard-00001-model-00001-of-00001.safetensors", "shard-00002-model-00001-of-00001.safetensors"],
        3 => ["zero/w/fp32.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt"],
        4 => ["zero_pp_rank_0_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt"],
        _ => ["mp_rank_00/model_optim_rng.pt", "mp_rank_01/model_optim_rng.pt"],
    };
    let open = |name: &str, bytes: &[u8]| {
        let source = Arc::new(BufferSource::new(name, bytes.to_vec()));
        if Path::new(name).extension().is_some_and(|extension| extension == "distcp") {
            return Some(Container::parts_from_source(source));
        }
        Container::from_source(source).ok()
    };
    let (Some(first), Some(second)) = (open(names[0], first), open(names[1], second)) else {
        return Corpus::Reject;
    };
    let containers = [first, second];
    let join = || LAYOUTS[number].join(&containers, &());
    match (join(), join()) {
        (Ok(one), Ok(other)) => assert_eq!(listing(&one), listing(&other)),
        (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
        _ => panic!("two readings differ"),
    }
    Corpus::Keep
});

/// The facts of all tensors, and the bytes of small ones that can be read.
fn listing(joined: &JoinedCheckpoint) -> Vec<(String, Option<Vec<u8>>)> {
    let tensors = joined.checkpoint.tensors();
    let facts = tensors.map(|(name, tensor)| {
        assert!(tensor.nbytes() <= i64::MAX as u64);
        let read = (tensor.nbytes() <= MAX).then(|| bytes(&tensor.gathered()).ok()).flatten();
        if let Some(read) = &read {
            assert_eq!(read.len() as u64, tensor.nbytes());
        }
        (format!("{name} {} {:?}", tensor.dtype(), tensor.shape()), read)
    });
    facts.collect()
}

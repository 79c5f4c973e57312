//! The properties of every checkpoint that is read, whatever its container.

use std::collections::HashSet;

use tensor::Tensor;
use torch_import::{Checkpoint, Container};

use crate::input::{remote, source};
use crate::tensors::{bytes, naive};

/// Larger tensors and storages are not read: an input of a few bytes can expand one element to any size.
const MAX: u64 = 1 << 16;

/// Reads the bytes as a checkpoint. If they are one, two readings agree, also one that does not have the bytes in memory, names
/// differ, and each tensor is inside its storage and consists of the elements that a naive reader finds there. Returns the
/// format.
pub fn check(bytes: &[u8]) -> Option<&'static str> {
    let container = Container::from_source(source(bytes));
    // It may be an error that is found later: a local header is read with its data.
    let from_ranges = Container::from_source(remote(bytes));
    let container = container.ok()?;
    let from_ranges = from_ranges.expect("the bytes in memory are a checkpoint");
    let (Ok(checkpoint), again) = (Checkpoint::read(&container), Checkpoint::read(&container)) else {
        return Some(container.format());
    };
    let again = again.expect("the first reading succeeded");
    assert_eq!(listing(&checkpoint), listing(&again));
    let again = Checkpoint::read(&from_ranges).expect("the bytes in memory are a checkpoint");
    assert_eq!(listing(&checkpoint), listing(&again));
    for ((name, tensor), (_, again)) in checkpoint.tensors().zip(again.tensors()) {
        if tensor.storage().len() <= MAX {
            assert_eq!(bytes_of(tensor), bytes_of(again), "{name}");
        }
    }
    let mut names = HashSet::new();
    for (name, tensor) in checkpoint.tensors() {
        assert!(names.insert(name.clone()), "{name} appears twice");
        check_tensor(tensor);
    }
    Some(container.format())
}

/// The facts of all tensors.
fn listing(checkpoint: &Checkpoint) -> Vec<String> {
    let tensors = checkpoint.tensors();
    tensors.map(|(name, t)| format!("{name} {} {:?} {:?}", t.dtype(), t.shape(), t.stride())).collect()
}

/// The bytes of a tensor's storage; `None` if they cannot be read.
fn bytes_of(tensor: &Tensor) -> Option<Vec<u8>> {
    bytes(tensor.storage()).ok()
}

fn check_tensor(tensor: &Tensor) {
    let storage = tensor.storage();
    assert!(tensor.span().end <= storage.len() || tensor.numel() == 0);
    assert!(tensor.nbytes() <= i64::MAX as u64);
    if tensor.nbytes() > MAX || storage.len() > MAX {
        return;
    }
    // A storage whose checksum is wrong is an error; a part of it may be read all the same.
    let Ok(whole) = bytes(storage) else { return };
    let gathered = bytes(&tensor.gathered()).expect("all of the storage could be read");
    assert_eq!(gathered, naive(tensor, &whole));
    if let Some(mapped) = tensor.mapped_bytes() {
        assert_eq!(mapped, gathered);
    }
}

//! Finds the blocks of `Q8_0` in the modules of decoders that the crate `torchscript` writes, and puts the numbers in their place.
//!
//! Facts: the module has the weights of a decoder in lists in the attribute `__tensors__`, whose name may end in more underscores. Weights
//! are floating-point numbers, so bytes among them are blocks.

use pickle_vm::{Heap, ObjectId};
use tensor::{BlockStorages, Dtype};

use crate::item::{CheckpointItem, ItemContent};

/// Namespace of the modules, and the class of those that are not decoders.
const NAMESPACE: &str = "__torch__.torch2carton";
const WEIGHTS_CLASS: &str = "Weights";
const LISTS_ATTRIBUTE: &str = "__tensors__";

/// Replaces the bytes of blocks by their numbers, in the lists and wherever else the storages of the lists are viewed.
pub(crate) fn replace_blocks(heap: &Heap<'_>, root: ObjectId, items: &mut [CheckpointItem]) {
    let class = heap.instance(root).and_then(|module| heap.global(module.callable));
    if class.is_none_or(|(namespace, class)| namespace != NAMESPACE || class == WEIGHTS_CLASS) {
        return;
    }
    let mut storages = BlockStorages::default();
    for item in &*items {
        if let ItemContent::Tensor(tensor) = &item.content
            && tensor.dtype() == Dtype::UInt8
            && is_in_list(&item.name)
        {
            storages.add(tensor.storage());
        }
    }
    for item in items {
        if let ItemContent::Tensor(tensor) = &mut item.content
            && let Some(numbers) = storages.numbers(tensor)
        {
            *tensor = numbers;
        }
    }
}

/// Returns true for names such as `__tensors__.wq.0`.
fn is_in_list(name: &str) -> bool {
    let mut parts = name.split('.');
    let attribute = parts.next().and_then(|first| first.strip_prefix(LISTS_ATTRIBUTE));
    let is_attribute = attribute.is_some_and(|end| end.bytes().all(|byte| byte == b'_'));
    is_attribute
        && parts.next().is_some()
        && parts.next().is_some_and(|number| number.parse::<u64>().is_ok())
        && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_lists_have_three_parts() {
        for (name, expected) in [
            ("__tensors__.wq.0", true),
            ("__tensors____.expert_w1.12", true),
            ("__tensors__.wq.x", false),
            ("__tensors__.wq", false),
            ("__tensors__.wq.0.1", false),
            ("__tensors__a.wq.0", false),
            ("forward.__tensors__.wq.0", false),
            ("layers.0.wq", false),
        ] {
            assert_eq!(is_in_list(name), expected, "{name}");
        }
    }
}

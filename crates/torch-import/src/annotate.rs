//! Describes storages and tensors in traces of the pickle machine, which has no notion of either.

use pickle_vm::{Heap, Instance, Object, ObjectId};
use tensor::Dtype;

use crate::Container;
use crate::persistent::StorageRef;
use crate::rebuild::RebuildFunction;

/// Describes the object `id` for a trace: the record, dtype and file offset of a storage, or the dtype and shape of a
/// rebuilt tensor. Returns `None` for all other objects.
pub fn annotate(container: Option<&Container>, heap: &Heap<'_>, id: ObjectId) -> Option<String> {
    match heap.get(id) {
        Object::Persistent(_) => {
            let reference = StorageRef::read(heap, id).ok()?;
            let dtype = reference.dtype.unwrap_or(Dtype::UInt8);
            let located = container.filter(|container| container.has_file_offsets());
            let file_offset = || located?.storage(&reference, dtype).ok()?.file_offset();
            let record = container.and_then(|container| container.storage_record(&reference.key));
            let record = record.as_deref().unwrap_or(&reference.key);
            let at = file_offset().map_or_else(String::new, |at| format!(", at byte {at} of the file"));
            let dtype = reference.dtype.map_or("untyped", Dtype::name);
            Some(format!("Storage({record}, {dtype}, {} elements{at})", reference.numel))
        }
        Object::Instance(instance) => describe_tensor(heap, instance),
        _ => None,
    }
}

fn describe_tensor(heap: &Heap<'_>, instance: &Instance) -> Option<String> {
    let args = heap.items(instance.args)?;
    let dtype = match RebuildFunction::called_by(heap, instance)? {
        RebuildFunction::Wrapper | RebuildFunction::ParameterWithState => {
            return Some("Parameter".to_owned());
        }
        RebuildFunction::Tensor | RebuildFunction::TensorV2 | RebuildFunction::Quantized => {
            StorageRef::read(heap, *args.first()?).ok()?.dtype?.name()
        }
        RebuildFunction::TensorV3 => heap.global(*args.get(6)?)?.1,
        _ => return None,
    };
    let size: Option<Vec<i64>> = heap.items(*args.get(2)?)?.iter().map(|n| heap.int(*n)).collect();
    Some(format!("Tensor({dtype}, {:?})", size?))
}

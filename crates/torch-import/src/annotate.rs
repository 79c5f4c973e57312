//! What a trace says of storages and tensors, which the pickle machine does not know.

use pickle_vm::{Heap, Instance, Object, ObjectId};

use crate::Container;
use crate::persistent::StorageRef;
use crate::rebuild::Function;

/// What a trace calls the object `id`: a storage by its dtype, its record and its place in the file; a
/// rebuilt tensor by its dtype and shape. `None` for all other objects.
pub fn annotate(container: Option<&Container>, heap: &Heap<'_>, id: ObjectId) -> Option<String> {
    match heap.get(id) {
        Object::Persistent(_) => {
            let StorageRef { dtype, key, numel } = StorageRef::read(heap, id).ok()?;
            let file_offset = || container?.storage(&key, dtype, numel).ok()?.file_offset();
            let record = container.and_then(|container| container.storage_record(&key)).unwrap_or(&key);
            let at = file_offset().map_or_else(String::new, |at| format!(" at byte {at} of the file"));
            Some(format!("Storage({record}, {dtype}, {numel} elements{at})"))
        }
        Object::Instance(instance) => tensor(heap, instance),
        _ => None,
    }
}

fn tensor(heap: &Heap<'_>, instance: &Instance) -> Option<String> {
    match Function::of(heap, instance)? {
        Function::Parameter => Some("Parameter".to_owned()),
        Function::Unread => None,
        Function::Tensor | Function::TensorV2 => {
            let &[storage, _, size, ..] = heap.items(instance.args)? else { return None };
            let dtype = StorageRef::read(heap, storage).ok()?.dtype;
            let size: Option<Vec<i64>> = heap.items(size)?.iter().map(|n| heap.int(*n)).collect();
            Some(format!("Tensor({dtype}, {:?})", size?))
        }
    }
}

/// How many tensors a pickle makes; a parameter is the tensor that it wraps.
pub fn count_tensors(heap: &Heap<'_>) -> u64 {
    let makes_one = |id: &ObjectId| {
        let function = heap.instance(*id).and_then(|instance| Function::of(heap, instance));
        function.is_some_and(|function| function != Function::Parameter)
    };
    heap.ids().filter(makes_one).count() as u64
}

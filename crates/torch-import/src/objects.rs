//! The objects of a checkpoint's pickle as they are, with the storages and tensors that its persistent ids describe: for a
//! caller that builds the whole object, such as `torch.load` does.
//!
//! Facts: the functions `persistent_load` in `torch/serialization.py` of PyTorch 2.15.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use byte_source::Observer;
use pickle_vm::{Heap, ObjectId, Pickle};
use self_cell::self_cell;
use tensor::{Dtype, Storage, Tensor};

use crate::container::ContainerContents;
use crate::persistent::{PersistentTensor, StorageRef, key_text, module_class};
use crate::{Container, Result, wrapper};

/// The objects of a pickle, which nothing interprets, and the container that holds its storages.
///
/// ```no_run
/// # fn main() -> Result<(), torch_import::Error> {
/// let container = torch_import::Container::open("model.pt".as_ref())?;
/// if let Some(objects) = torch_import::PickledObjects::read(&container)? {
///     println!("{}", objects.heap().display(objects.root()));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PickledObjects {
    container: Container,
    pickle: OwnedPickle,
}

self_cell!(
    /// A pickle, and the container contents whose bytes its objects borrow.
    struct OwnedPickle {
        owner: Arc<ContainerContents>,
        #[covariant]
        dependent: Pickle,
    }

    impl { Debug }
);

/// What a persistent id stands for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PersistentObject {
    /// A storage, or a part of one.
    Storage(PickledStorage),
    /// A tensor, in a file from PyTorch 0.1.
    Tensor {
        tensor: Tensor,
        /// Key of the tensor in the file: ids with the same key are one tensor.
        key: String,
        /// Key of the tensor's storage in the file.
        storage_key: String,
    },
    /// A class, in a file from before PyTorch 1.6 that keeps the class's source code.
    Class(ObjectId),
}

/// A storage that a persistent id describes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PickledStorage {
    /// Dtype of the storage's class; `None` for an `UntypedStorage`.
    pub dtype: Option<Dtype>,
    /// Key in the file: ids with the same key are one storage.
    pub key: String,
    /// Device tag as PyTorch wrote it, such as `cpu` or `cuda:0`.
    pub location: String,
    /// All bytes of the storage.
    pub storage: Storage,
    /// Part that the id refers to: its own key, and its range of the storage in bytes. `None` for all of the storage.
    pub view: Option<(String, Range<u64>)>,
}

impl PickledObjects {
    /// Reads the objects of the pickle in `container`. Returns `None` for a file without a pickle.
    ///
    /// # Errors
    /// When the pickle is damaged.
    pub fn read(container: &Container) -> Result<Option<Self>> {
        Self::read_with_observer(container, &())
    }

    /// Reads the objects like [`read`](Self::read), with an observer that can stop it.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), and [`Cancelled`](byte_source::Cancelled).
    pub fn read_with_observer(container: &Container, observer: &dyn Observer) -> Result<Option<Self>> {
        if container.contents().as_named().is_some() {
            return Ok(None);
        }
        let contents = Arc::clone(container.contents());
        let pickle = OwnedPickle::try_new(contents, |contents| contents.load(observer))?;
        Ok(Some(Self { container: container.clone(), pickle }))
    }

    /// Returns the container.
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// Returns the objects.
    pub fn heap(&self) -> &Heap<'_> {
        &self.pickle.borrow_dependent().heap
    }

    /// Returns the object that the pickle returns. Of a module that a conversion wrapped, the module itself.
    pub fn root(&self) -> ObjectId {
        let Pickle { heap, root, .. } = self.pickle.borrow_dependent();
        wrapper::unwrap_module(heap, *root).unwrap_or(*root)
    }

    /// Returns the key and the length in bytes of each storage that a persistent id describes.
    pub fn storages(&self) -> HashSet<(String, u64)> {
        let heap = self.heap();
        let storages = heap.ids().filter_map(|id| {
            heap.persistent(id)?;
            let storage = StorageRef::read(heap, id).ok()?;
            Some((storage.nbytes()?, storage.key.into_owned()))
        });
        storages.map(|(nbytes, key)| (key, nbytes)).collect()
    }

    /// Returns what the persistent object `id` stands for.
    ///
    /// # Errors
    /// When the persistent id is malformed, or its storage is not in the file or too short.
    pub fn persistent(&self, id: ObjectId) -> Result<PersistentObject> {
        let (heap, container) = (self.heap(), &self.container);
        if let Some(class) = module_class(heap, id) {
            return Ok(PersistentObject::Class(class));
        }
        if let Some(found) = container.persistent_tensor(heap, id) {
            let PersistentTensor { storage, shape, stride, offset } = found;
            let dtype = storage.dtype.unwrap_or(Dtype::UInt8);
            let bytes = container.storage(storage, dtype)?;
            let tensor = Tensor::new(dtype, shape.clone(), stride.clone(), *offset, bytes)?;
            let key = heap.persistent(id).and_then(|pid| key_text(heap, pid)).unwrap_or_default();
            let storage_key = storage.identity().clone().into_owned();
            return Ok(PersistentObject::Tensor { tensor, key: key.into_owned(), storage_key });
        }
        let reference = StorageRef::read(heap, id)?;
        let view = reference.view.as_ref().map(|view| view.key.clone().into_owned());
        let whole = StorageRef { view: None, ..reference.clone() };
        let fields = heap.persistent(id).and_then(|pid| heap.items(pid)).unwrap_or_default();
        let location = fields.get(3).and_then(|location| heap.text(*location)).unwrap_or_default();
        Ok(PersistentObject::Storage(PickledStorage {
            dtype: reference.dtype,
            key: reference.key.clone().into_owned(),
            location: location.into_owned(),
            storage: container.storage(&whole, reference.dtype.unwrap_or(Dtype::UInt8))?,
            view: view.zip(reference.byte_range()),
        }))
    }
}

//! Omissions: the contents of a file that its checkpoint does not list, in the form of a report.

use pickle_vm::ObjectId;
use serde::Serialize;

/// Maximum number of omissions listed one by one; the totals count all of them.
const LISTED_OMISSIONS_MAX: usize = 10_000;

/// The contents of a file that [`Checkpoint::items`](crate::Checkpoint::items) does not list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Omissions {
    /// Tensors and then other objects, in the order of the pickle, followed by storages and records, in the order of
    /// the file. At most 10,000 for each file.
    pub listed: Vec<Omission>,
    /// Number of omissions and their bytes, for each kind and reason.
    pub totals: Vec<OmissionTotal>,
}

/// A tensor, object, storage or record that a checkpoint does not list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Omission {
    /// File that holds the omission, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    pub kind: OmissionKind,
    /// Known part of the path from the root to a tensor or an object; the name in the file of a storage or record.
    pub name: String,
    /// Bytes of the tensor's elements, of the storage or record, or of the texts, byte strings and numbers of an object
    /// (8 for each number, dict keys not counted); `None` for a tensor that cannot be read.
    pub nbytes: Option<u64>,
    pub reason: OmissionReason,
    /// Id of an object in [`Checkpoint::heap`](crate::Checkpoint::heap), if `kind` is [`OmissionKind::Object`].
    #[serde(skip)]
    pub object: Option<ObjectId>,
}

/// The number of omissions of one kind and reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmissionTotal {
    pub kind: OmissionKind,
    pub reason: OmissionReason,
    pub count: usize,
    /// Sum of the known sizes, in bytes.
    pub nbytes: u64,
}

/// The kind of an [`Omission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OmissionKind {
    /// Tensor that the pickle creates.
    Tensor,
    /// Any other object of the pickle, with its contents, that is not part of a tensor or value.
    Object,
    /// Storage of the file that no tensor in [`Omissions`] or in the checkpoint uses.
    Storage,
    Record,
}

/// The reason why an [`Omission`] is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OmissionReason {
    /// Attribute of a module other than a parameter, buffer or submodule; `state_dict()` does not return it.
    Attribute,
    /// Buffer registered with `persistent=False`.
    NonPersistentBuffer,
    /// Hook of a module, or an object that the hook refers to.
    Hook,
    /// Value of a dict key that a later entry replaces.
    Replaced,
    /// Attribute of another tensor, or an object that belongs to its hooks.
    TensorAttribute,
    /// Attribute of a dict, such as an `OrderedDict`.
    DictAttribute,
    /// Key of a dict, or a part of a key.
    DictKey,
    /// Argument of a recorded call, which is kept as a value.
    InValue,
    /// Not reachable from the root object.
    Unreferenced,
    /// Referred to by the pickle, but not as the storage of a tensor.
    Unreached,
    /// Part of the constants of TorchScript code.
    Constant,
    /// Code of TorchScript for mobile devices.
    MobileCode,
    /// One of the extra files passed to `torch.jit.save`.
    ExtraFile,
    /// Part of the inputs with which a TorchScript model was traced.
    TracedInput,
    /// Object of an exported program that is no tensor, or whose pickle makes none.
    Pickled,
    /// Compiled code of an exported program, which may have weights in it.
    CompiledCode,
    /// Record of an archive that PyTorch does not write.
    UnknownRecord,
}

impl Omissions {
    /// Returns true if nothing is omitted.
    pub fn is_empty(&self) -> bool {
        self.totals.is_empty()
    }

    /// Returns the number of omissions, listed or not.
    pub fn count(&self) -> usize {
        self.totals.iter().fold(0, |sum, total| sum.saturating_add(total.count))
    }

    /// Returns true if the next omission will be listed and not only counted.
    pub(crate) fn has_listing_room(&self) -> bool {
        self.listed.len() < LISTED_OMISSIONS_MAX
    }

    pub(crate) fn add(&mut self, omission: Omission) {
        let Omission { kind, reason, nbytes, .. } = omission;
        self.add_to_totals(OmissionTotal { kind, reason, count: 1, nbytes: nbytes.unwrap_or(0) });
        if self.has_listing_room() {
            self.listed.push(omission);
        }
    }

    fn add_to_totals(&mut self, more: OmissionTotal) {
        let same = |total: &&mut OmissionTotal| (total.kind, total.reason) == (more.kind, more.reason);
        match self.totals.iter_mut().find(same) {
            Some(total) => {
                total.count = total.count.saturating_add(more.count);
                total.nbytes = total.nbytes.saturating_add(more.nbytes);
            }
            None => self.totals.push(more),
        }
    }

    /// Sets the file of each omission that has none yet.
    pub fn name_file(&mut self, file: &str) {
        for omission in self.listed.iter_mut().filter(|omission| omission.file.is_none()) {
            omission.file = Some(file.to_owned());
        }
    }

    /// Removes the attributes of tensors, for a caller that has used them.
    pub fn remove_tensor_attributes(&mut self) {
        self.listed.retain(|omission| omission.reason != OmissionReason::TensorAttribute);
        self.totals.retain(|total| total.reason != OmissionReason::TensorAttribute);
    }

    /// Adds further omissions of the same file.
    pub(crate) fn append(&mut self, mut other: Self) {
        other.listed.truncate(LISTED_OMISSIONS_MAX.saturating_sub(self.listed.len()));
        self.merge(other);
    }

    /// Adds the omissions of another file of the set.
    pub(crate) fn merge(&mut self, other: Self) {
        other.totals.into_iter().for_each(|total| self.add_to_totals(total));
        self.listed.extend(other.listed);
    }
}

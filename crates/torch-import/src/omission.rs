//! The things that a file holds and a checkpoint does not list, as a report names them.

use serde::Serialize;

/// The most things that are listed one by one; the totals count the others too.
const LISTED: usize = 10_000;

/// What a file holds and [`Checkpoint::items`](crate::Checkpoint::items) does not list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// One by one: tensors, then other objects, in the order of the pickle, then storages and records in the order of the file. At most
    /// 10,000 for each file.
    pub listed: Vec<Omission>,
    /// How many there are of each kind, for each reason, and how many bytes they have.
    pub totals: Vec<OmissionTotal>,
}

/// Something that a checkpoint does not list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Omission {
    /// The file that holds it, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What it is.
    pub kind: OmissionKind,
    /// The path to a tensor or an object from the root, as far as it is known; the name of a storage or record in the file.
    pub name: String,
    /// Bytes of its elements, of the storage or record, or of the texts, byte strings and numbers of an object (8 for each
    /// number, keys of dicts not counted); `None` for a tensor that cannot be read.
    pub nbytes: Option<u64>,
    /// Why it is not listed.
    pub reason: OmissionReason,
}

/// How many things of a kind are left out for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmissionTotal {
    /// What they are.
    pub kind: OmissionKind,
    /// Why they are left out.
    pub reason: OmissionReason,
    /// How many there are.
    pub count: usize,
    /// Their bytes, as far as they are known.
    pub nbytes: u64,
}

/// What an [`Omission`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OmissionKind {
    /// A tensor that the pickle makes.
    Tensor,
    /// Any other object of the pickle that neither a tensor nor a value has, with what is in it.
    Object,
    /// A storage of the file that no tensor in [`LeftOut`] or in the checkpoint uses.
    Storage,
    /// A record of an archive.
    Record,
}

/// Why something is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OmissionReason {
    /// It is an attribute of a module, but not a parameter, buffer or submodule: `state_dict()` does not return it.
    Attribute,
    /// It is a buffer that was registered with `persistent=False`.
    NonPersistentBuffer,
    /// It belongs to a hook.
    Hook,
    /// A later value of the same dict key replaces it.
    Replaced,
    /// It is an attribute of another tensor, or belongs to its hooks.
    TensorAttribute,
    /// It is an attribute of a dict, such as an `OrderedDict`.
    DictAttribute,
    /// It is a key of a dict, or a part of one.
    DictKey,
    /// It is an argument of a recorded call, which is kept as a value.
    InValue,
    /// Nothing that the root object refers to refers to it.
    Unreferenced,
    /// The pickle refers to it, but not as a tensor's storage.
    Unreached,
    /// It belongs to the constants of TorchScript code.
    Constant,
    /// It is the code of TorchScript for mobile devices.
    MobileCode,
    /// `torch.jit.save` wrote it as one of the extra files that it was given.
    ExtraFile,
    /// It belongs to the inputs that a TorchScript model was traced with.
    TracedInput,
    /// It is a record of an archive that PyTorch does not write.
    UnknownRecord,
}

impl LeftOut {
    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.totals.is_empty()
    }

    /// How many things are left out.
    pub fn count(&self) -> usize {
        self.totals.iter().fold(0, |sum, total| sum.saturating_add(total.count))
    }

    /// Whether the next thing is listed, not only counted.
    pub(crate) fn lists_more(&self) -> bool {
        self.listed.len() < LISTED
    }

    pub(crate) fn add(&mut self, omission: Omission) {
        let Omission { kind, reason, nbytes, .. } = omission;
        self.count_in(OmissionTotal { kind, reason, count: 1, nbytes: nbytes.unwrap_or(0) });
        if self.lists_more() {
            self.listed.push(omission);
        }
    }

    fn count_in(&mut self, more: OmissionTotal) {
        let same = |total: &&mut OmissionTotal| (total.kind, total.reason) == (more.kind, more.reason);
        match self.totals.iter_mut().find(same) {
            Some(total) => {
                total.count = total.count.saturating_add(more.count);
                total.nbytes = total.nbytes.saturating_add(more.nbytes);
            }
            None => self.totals.push(more),
        }
    }

    /// Names the file of everything that has none yet.
    pub fn name_file(&mut self, file: &str) {
        for omission in self.listed.iter_mut().filter(|omission| omission.file.is_none()) {
            omission.file = Some(file.to_owned());
        }
    }

    /// Adds what else the file leaves out.
    pub(crate) fn append(&mut self, mut other: Self) {
        other.listed.truncate(LISTED.saturating_sub(self.listed.len()));
        self.merge(other);
    }

    /// Adds what another file of the set leaves out.
    pub(crate) fn merge(&mut self, other: Self) {
        other.totals.into_iter().for_each(|total| self.count_in(total));
        self.listed.extend(other.listed);
    }
}

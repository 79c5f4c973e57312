//! Sums over the tensors of an inspected checkpoint.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use serde::{Serialize, Serializer};
use tensor::{Dtype, StorageId, Tensor};

/// Totals over tensors. A tensor with several names counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Number of elements of all tensors.
    pub parameters: u64,
    /// Bytes of the elements by dtype, in the order in which the dtypes first appear.
    #[serde(serialize_with = "as_map")]
    pub bytes_by_dtype: Vec<(&'static str, u64)>,
}

fn as_map<S: Serializer>(pairs: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().copied())
}

impl Totals {
    /// Sums up the elements and bytes of `tensors`.
    pub fn from_tensors<'t>(tensors: impl Iterator<Item = &'t Tensor>) -> Self {
        Self::from_rows(tensors.map(|tensor| (tensor.dtype(), tensor)))
    }

    /// Sums up the elements and bytes of tensors, each with the dtype that its row shows.
    pub(crate) fn from_rows<'t>(tensors: impl Iterator<Item = (Dtype, &'t Tensor)>) -> Self {
        let mut first_of: HashMap<StorageId, &Tensor> = HashMap::with_capacity(tensors.size_hint().0);
        let mut seen = HashSet::new();
        let mut totals = Self::default();
        for (dtype, tensor) in tensors {
            // Most storages have one tensor, for which no view has to be hashed.
            let first = *first_of.entry(tensor.storage().id()).or_insert(tensor);
            if !std::ptr::eq(first, tensor) {
                seen.insert(first.view_id());
                if !seen.insert(tensor.view_id()) {
                    continue;
                }
            }
            totals.parameters = totals.parameters.saturating_add(tensor.numel());
            let (dtype, nbytes) = (dtype.name(), tensor.nbytes());
            match totals.bytes_by_dtype.iter_mut().find(|(name, _)| *name == dtype) {
                Some((_, sum)) => *sum = sum.saturating_add(nbytes),
                None => totals.bytes_by_dtype.push((dtype, nbytes)),
            }
        }
        totals
    }
}

//! Sums over the tensors of a model: elements, and bytes by dtype.

use foldhash::{HashMap, HashMapExt, HashSet};
use serde::{Serialize, Serializer};
use tensor::{StorageId, Tensor, ViewId};

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
        let mut first_of: HashMap<StorageId, &Tensor> = HashMap::with_capacity(tensors.size_hint().0);
        let mut sums = TotalsBuilder::default();
        for tensor in tensors {
            let first = *first_of.entry(tensor.storage().id()).or_insert(tensor);
            sums.add(tensor.dtype().name(), tensor, first);
        }
        sums.totals
    }

    /// Sums up the elements and bytes of tensors by the dtypes that are shown for them. Each comes with the number of its storage,
    /// which is below `storages`.
    pub fn from_shown<'t>(
        tensors: impl Iterator<Item = (&'static str, usize, &'t Tensor)>,
        storages: usize,
    ) -> Self {
        let mut first_of: Vec<Option<&Tensor>> = vec![None; storages];
        let mut sums = TotalsBuilder::default();
        for (dtype, number, tensor) in tensors {
            let Some(first) = first_of.get_mut(number) else { continue };
            sums.add(dtype, tensor, first.get_or_insert(tensor));
        }
        sums.totals
    }
}

/// Sums so far.
#[derive(Default)]
struct TotalsBuilder {
    totals: Totals,
    /// Views of the storages that several tensors have.
    seen: HashSet<ViewId>,
}

impl TotalsBuilder {
    /// Adds a tensor, unless it is one of those before it; `first` is the first tensor with its storage.
    fn add(&mut self, dtype: &'static str, tensor: &Tensor, first: &Tensor) {
        // Most storages have one tensor, for which no view has to be hashed.
        if !std::ptr::eq(first, tensor) {
            self.seen.insert(first.view_id());
            if !self.seen.insert(tensor.view_id()) {
                return;
            }
        }
        let (totals, nbytes) = (&mut self.totals, tensor.nbytes());
        totals.parameters = totals.parameters.saturating_add(tensor.numel());
        match totals.bytes_by_dtype.iter_mut().find(|(name, _)| *name == dtype) {
            Some((_, sum)) => *sum = sum.saturating_add(nbytes),
            None => totals.bytes_by_dtype.push((dtype, nbytes)),
        }
    }
}

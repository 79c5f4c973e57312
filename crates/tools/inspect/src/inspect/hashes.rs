//! Hashes of the rows of an inspection, computed on all cores.

use byte_source::{Action, ProgressReporter, format_bytes};
use foldhash::{HashMap, HashMapExt};
use pickle_vm::PickleLimits;
use tensor::{Budget, Tensor, UnreadTensor, ViewId, hash_elements};

use open::Result;

use crate::{InspectOptions, Observer, TensorHash, TensorRow};

/// Sets the hash of each row that is a single view. `nbytes` is the total length of the files, which limits the bytes hashed,
/// because a scalar can be expanded to terabytes.
///
/// # Errors
/// When a tensor cannot be read, or `observer` stops the work.
pub(crate) fn hash_rows(
    rows: &mut [TensorRow],
    options: &InspectOptions,
    nbytes: u64,
    observer: &dyn Observer,
) -> Result<()> {
    let mut budget = Budget::new(PickleLimits::default().repeat_budget(nbytes));
    let mut is_within: HashMap<ViewId, bool> = HashMap::with_capacity(rows.len());
    let mut within =
        |tensor: &Tensor| *is_within.entry(tensor.view_id()).or_insert_with(|| budget.spend(tensor));
    let (mut hashed, mut tensors) = (Vec::new(), Vec::new());
    for (number, row) in rows.iter_mut().enumerate() {
        row.sha256 = TensorHash::TooLarge;
        let Some(tensor) = row.stored() else { continue };
        if within(tensor) {
            hashed.push(number);
            tensors.push(tensor.clone());
        } else {
            let (view, storage) = (format_bytes(tensor.nbytes()), format_bytes(tensor.storage().len()));
            row.note =
                Some(format!("not hashed: an expanded view of {view} over a storage of {storage}").into());
        }
    }
    let name = output::file_name(options.input.path());
    let work = ProgressReporter::new(observer, &name, Action::Hash, None);
    let found = hash_elements(&tensors.iter().collect::<Vec<_>>(), work);
    let found = found.map_err(|UnreadTensor { position, reason }| {
        let row = hashed.get(position).and_then(|number| rows.get(*number));
        let name = row.map_or_else(String::new, |row| row.name.clone());
        reason.in_tensor(&name).in_file(options.input.path())
    })?;
    for (number, hash) in hashed.into_iter().zip(found) {
        if let Some(row) = rows.get_mut(number) {
            row.sha256 = TensorHash::Hex(byte_source::hex(&hash).into());
        }
    }
    Ok(())
}

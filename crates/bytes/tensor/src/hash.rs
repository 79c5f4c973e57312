//! SHA-256 of the elements of many tensors, computed on all cores.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use byte_source::{Blob, ProgressReporter, Sha256, Sink, Window, on_all_cores};
use foldhash::{HashMap, HashMapExt};

use crate::{Tensor, ViewId};

/// Error of reading one of several tensors.
#[derive(Debug)]
pub struct UnreadTensor {
    /// Position of the tensor in the list.
    pub position: usize,
    pub reason: byte_source::Error,
}

/// Returns the SHA-256 of the elements of each tensor in C order, little-endian. A view that occurs several times is
/// hashed once.
///
/// # Errors
/// Returns an error if a tensor cannot be read, or the observer of `work` stops it.
pub fn hash_elements(tensors: &[&Tensor], work: ProgressReporter<'_>) -> Result<Vec<[u8; 32]>, UnreadTensor> {
    let mut first_of: HashMap<ViewId, usize> = HashMap::with_capacity(tensors.len());
    let firsts: Vec<usize> = (0_usize..)
        .zip(tensors)
        .map(|(position, tensor)| *first_of.entry(tensor.view_id()).or_insert(position))
        .collect();
    drop(first_of);
    let mut order: Vec<usize> =
        (0_usize..).zip(&firsts).filter(|(own, first)| own == *first).map(|(own, _)| own).collect();
    let nbytes = |position: &usize| tensors.get(*position).map_or(0, |tensor| tensor.nbytes());
    let total = order.iter().map(nbytes).fold(0, u64::saturating_add);
    // A large tensor that is started last would keep one core busy alone. The others stay in the order of the file.
    let is_large = |position: &usize| nbytes(position) >= total / 16;
    order.sort_by_key(|position| Reverse(if is_large(position) { nbytes(position) } else { 0 }));
    let (done, hashes) = (AtomicU64::new(0), Mutex::new(vec![[0; 32]; tensors.len()]));
    let work = work.with_total(Some(total));
    on_all_cores(
        order.len() as u64,
        || (),
        |(), number| {
            let position = usize::try_from(number).ok().and_then(|number| order.get(number)).copied();
            let found = position.and_then(|position| Some((position, tensors.get(position)?)));
            let Some((position, tensor)) = found else { return Ok(()) };
            let mut sink = ProgressSink { sink: Sha256::default(), done: &done, work };
            tensor.gathered().write_to(&mut sink).map_err(|reason| UnreadTensor { position, reason })?;
            let mut hashes = hashes.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(hash) = hashes.get_mut(position) {
                *hash = sink.sink.digest();
            }
            Ok(())
        },
    )?;
    let mut hashes = hashes.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (position, first) in firsts.iter().enumerate().filter(|(own, first)| own != *first) {
        if let Some(known) = hashes.get(*first).copied()
            && let Some(hash) = hashes.get_mut(position)
        {
            *hash = known;
        }
    }
    Ok(hashes)
}

struct ProgressSink<'w> {
    sink: Sha256,
    done: &'w AtomicU64,
    work: ProgressReporter<'w>,
}

impl Sink for ProgressSink<'_> {
    fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
        let len = window.len() as u64;
        self.sink.write(window)?;
        let done = self.done.fetch_add(len, Ordering::Relaxed).saturating_add(len);
        Ok(self.work.advance(done)?)
    }
}

#[cfg(test)]
mod tests {
    use byte_source::{Action, Observer, hex};

    use super::*;
    use crate::{Dtype, Storage};

    fn tensors() -> Vec<Tensor> {
        let storage = Storage::owned((0..3000_u16).flat_map(u16::to_le_bytes).collect());
        let view = |shape: &[u64], stride: &[u64], offset| {
            Tensor::new(Dtype::Int16, shape.to_vec(), stride.to_vec(), offset, storage.clone())
                .expect("inside")
        };
        vec![
            view(&[3000], &[1], 0),
            view(&[2, 2], &[1, 2], 0),
            view(&[0], &[1], 0),
            view(&[2, 2], &[1, 2], 0),
            view(&[], &[], 7),
        ]
    }

    #[test]
    fn each_tensor_has_the_hash_of_its_elements() {
        let tensors = tensors();
        let found = hash_elements(&tensors.iter().collect::<Vec<_>>(), ProgressReporter::unobserved());
        let found = found.expect("in memory");
        for (tensor, found) in tensors.iter().zip(&found) {
            let expected = byte_source::sha256(&tensor.gathered(), &()).expect("in memory");
            assert_eq!(hex(found), hex(&expected));
        }
        assert!(hex(&found[2]).starts_with("e3b0c442"), "the hash of no bytes");
        assert_eq!(found[1], found[3]);
    }

    #[test]
    fn hashing_can_be_stopped() {
        struct Stop;
        impl Observer for Stop {
            fn is_cancelled(&self) -> bool {
                true
            }
        }
        let tensors = tensors();
        let work = ProgressReporter::new(&Stop, "x", Action::Hash, None);
        let error = hash_elements(&tensors.iter().collect::<Vec<_>>(), work).expect_err("it was stopped");
        assert!(error.reason.is_cancelled());
    }
}

//! Recognises archives that this project wrote: an archive is recognised if its code and objects are, byte for byte, the
//! output of a current or earlier conversion of its tensors.
//!
//! The names and numbers in the archive only select the module to make, which is then made again and compared. So nothing
//! that is not understood here can hide in it: other code, other lists of weights, other constants. The record of a decoder
//! is compared by its meaning, because later versions may write more into it.

use ::decoder::{Assignment, Decoder};
use std::borrow::Cow;
use tensor::Tensors;

use super::attributes::{DATA_PKL, RootAttributes};
use super::{decoder, weights};

/// Result of recognising an archive.
#[derive(Debug)]
pub enum Recognised {
    /// Decoder module that a conversion wrote.
    Decoder(Box<RecognisedModel>),
    /// Weights module that a conversion wrote.
    Weights {
        /// Tensors under their own names, in the order in which `forward` returns them.
        tensors: Tensors,
    },
    /// Archive that no conversion of its tensors writes.
    Other {
        /// Name of a record that differs from the output of all conversions.
        record: String,
    },
}

/// Recognised decoder, with the tensors of its archive.
#[derive(Debug)]
pub struct RecognisedModel {
    pub decoder: Decoder,
    /// Assignment of the tensors to the decoder's weights.
    pub assignment: Assignment,
    /// Tensors of the archive, under their own names.
    pub tensors: Tensors,
}

/// Recognises the archive with these records. `tensors` are all tensors that `data.pkl` names, in its order.
///
/// # Errors
/// None: an archive that cannot be read is [`Recognised::Other`].
pub fn recognise(records: &[(String, Option<Cow<'_, [u8]>>)], tensors: Tensors) -> Recognised {
    let other = |record: &str| Recognised::Other { record: record.to_owned() };
    let data_pkl = records.iter().find(|(name, _)| name == DATA_PKL).and_then(|(_, bytes)| bytes.as_deref());
    let Some(pickle) = data_pkl.and_then(|bytes| pickle_vm::load(bytes).ok()) else { return other(DATA_PKL) };
    let Some(root) = RootAttributes::from_pickle_root(&pickle) else { return other(DATA_PKL) };
    if root.class == weights::WEIGHTS_CLASS {
        let tensors = root.indexed_tensors(tensors);
        return match weights::closest_difference(&tensors, records) {
            Ok(None) => Recognised::Weights { tensors },
            Ok(Some(difference)) => Recognised::Other { record: difference.record },
            Err(_) => other(DATA_PKL),
        };
    }
    let tensors = root.attribute_tensors(tensors);
    match decoder::recognise(&root, records, &tensors) {
        Ok((decoder, assignment)) => {
            Recognised::Decoder(Box::new(RecognisedModel { decoder, assignment, tensors }))
        }
        Err(record) => Recognised::Other { record },
    }
}

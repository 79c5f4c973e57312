//! Recognises archives that this project wrote: an archive is recognised if its code and objects are, byte for byte, the
//! output of a conversion of its tensors.
//!
//! The names and numbers in the archive only select the module to make, which is then made again and compared. So nothing
//! that is not understood here can hide in it: other code, other lists of weights, other constants.

use ::decoder::{Assignment, Decoder};
use bytes::Bytes;
use tensor::Tensors;

use super::attributes::{DATA_PKL, NamedRecords, RootAttributes};
use super::{CallingConvention, decoder, weights};
use crate::{ModuleNote, OnInvalidInput, Result, ScriptArchive};

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
pub fn recognise(records: &[(String, Option<Bytes>)], tensors: Tensors) -> Recognised {
    let other = |record: &str| Recognised::Other { record: record.to_owned() };
    let data_pkl = records.iter().find(|(name, _)| name == DATA_PKL).and_then(|(_, bytes)| bytes.as_deref());
    let Some(pickle) = data_pkl.and_then(|bytes| pickle_vm::load(bytes).ok()) else { return other(DATA_PKL) };
    let Some(root) = RootAttributes::from_pickle_root(&pickle) else { return other(DATA_PKL) };
    if root.class == weights::WEIGHTS_CLASS {
        let tensors = root.indexed_tensors(tensors);
        return match differing_record(records, |errors| weights::weights_archive(&tensors, errors)) {
            None => Recognised::Weights { tensors },
            Some(record) => Recognised::Other { record },
        };
    }
    let tensors = root.attribute_tensors(tensors);
    let decoder = root.own_text("record").and_then(|record| Decoder::from_record(&record, &tensors).ok());
    let Some(decoder) = decoder else { return other(DATA_PKL) };
    let Ok(assignment) = decoder.assign(&tensors, true) else { return other(DATA_PKL) };
    let archive =
        |errors| decoder::decoder_archive(&decoder, CallingConvention::Dict(errors), &assignment, &tensors);
    match differing_record(records, archive) {
        None => Recognised::Decoder(Box::new(RecognisedModel { decoder, assignment, tensors })),
        Some(record) => Recognised::Other { record },
    }
}

/// Makes the archives that return and that raise errors, and returns `None` if one of them has these records; otherwise the
/// name of the first record in which the more similar one differs.
fn differing_record(
    records: &NamedRecords,
    archive: impl Fn(OnInvalidInput) -> Result<(ScriptArchive, Vec<ModuleNote>)>,
) -> Option<String> {
    let mut closest = None;
    for errors in [OnInvalidInput::Return, OnInvalidInput::Raise] {
        let Ok((archive, _)) = archive(errors) else { return Some(DATA_PKL.to_owned()) };
        closest = closest.max(Some(archive.first_difference(records)?));
    }
    closest.map(|difference| difference.record)
}

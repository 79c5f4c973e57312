//! Recognises the archives of this project by what they run: an archive whose code and objects are, byte for byte, what a
//! conversion of its tensors writes now or wrote before.
//!
//! Names and numbers of the archive only say which module to make. It is then made again and compared, so that what is not
//! understood here cannot hide in it: other code, other lists of weights, other constants. The record of a decoder is compared
//! by its meaning, because later versions may write more into it.

use ::decoder::{Assignment, Decoder};
use std::borrow::Cow;
use tensor::Tensors;

use super::attributes::{Attributes, DATA_PKL};
use super::{decoder, weights};

/// What an archive is.
#[derive(Debug)]
pub enum Recognised {
    /// A decoder that a conversion wrote.
    Decoder(Box<Model>),
    /// A module that returns tensors, which a conversion wrote.
    Weights {
        /// The tensors under their own names, in the order in which `forward` returns them.
        tensors: Tensors,
    },
    /// Anything else.
    Other {
        /// A record that no conversion of these tensors writes like this.
        record: String,
    },
}

/// A decoder and its tensors.
#[derive(Debug)]
pub struct Model {
    /// What it computes.
    pub decoder: Decoder,
    /// Which of the tensors is which weight.
    pub assignment: Assignment,
    /// The tensors under their own names.
    pub tensors: Tensors,
}

/// Recognises the archive with these records. `tensors` are all that `data.pkl` names, in its order.
///
/// # Errors
/// None: what cannot be read is [`Recognised::Other`].
pub fn recognise(records: &[(String, Option<Cow<'_, [u8]>>)], tensors: Tensors) -> Recognised {
    let other = |record: &str| Recognised::Other { record: record.to_owned() };
    let data_pkl = records.iter().find(|(name, _)| name == DATA_PKL).and_then(|(_, bytes)| bytes.as_deref());
    let Some(pickle) = data_pkl.and_then(|bytes| pickle_vm::load(bytes).ok()) else { return other(DATA_PKL) };
    let Some(root) = Attributes::of_root(&pickle) else { return other(DATA_PKL) };
    if root.class == weights::CLASS {
        let tensors = root.index(tensors);
        return match weights::difference(&tensors, records) {
            Ok(None) => Recognised::Weights { tensors },
            Ok(Some(difference)) => Recognised::Other { record: difference.record },
            Err(_) => other(DATA_PKL),
        };
    }
    let tensors = root.own(tensors);
    match decoder::recognise(&root, records, &tensors) {
        Ok((decoder, assignment)) => Recognised::Decoder(Box::new(Model { decoder, assignment, tensors })),
        Err(record) => Recognised::Other { record },
    }
}

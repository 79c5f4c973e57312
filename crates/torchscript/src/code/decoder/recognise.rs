//! Which decoder a module was made of, from the attributes of its root.
//!
//! Facts: `module.rs` writes them.

use decoder::{Assignment, Biases, Decoder, Llama3, Part, Recorded, Rope, Scaling, Windowed, Windows};
use tensor::Tensor;

use super::lists::{biases_of, weights_of};
use super::module::{Signature, archive};
use super::older;
use crate::Errors;
use crate::code::recognise::{Attributes, DATA_PKL, Records};

/// The decoder whose module has these attributes, if the archive is what a conversion of these tensors writes or wrote;
/// otherwise, the record that differs.
pub(in crate::code) fn recognise(
    root: &Attributes<'_>,
    records: &Records<'_>,
    tensors: &[(String, Tensor)],
) -> Result<(Decoder, Assignment), String> {
    let data_pkl = || DATA_PKL.to_owned();
    let end = root.end_of("cat_dim").ok_or_else(data_pkl)?;
    let record = root.text(&format!("record{end}"));
    let decoder = match &record {
        Some(record) => Decoder::from_record(record, tensors).ok(),
        None => recorded(root, &end).and_then(|recorded| Decoder::from_recorded(recorded, tensors).ok()),
    };
    let decoder = decoder.ok_or_else(data_pkl)?;
    let assignment = decoder.assign(tensors, true).map_err(|_| data_pkl())?;
    let new = |errors| archive(Signature::Dict(errors), &decoder, &assignment, tensors);
    let old = |text| older::archive(text, &decoder, &assignment, tensors);
    let made = match record {
        Some(_) => [Errors::Return, Errors::Raise].map(new).into_iter().collect::<Vec<_>>(),
        None => older::TEXTS.map(old).into_iter().collect::<Vec<_>>(),
    };
    let mut closest = None;
    for made in made {
        let (archive, _) = made.map_err(|_| data_pkl())?;
        let Some(difference) = archive.first_difference(records) else { return Ok((decoder, assignment)) };
        closest = closest.max(Some(difference));
    }
    Err(closest.map_or_else(data_pkl, |difference| difference.record))
}

/// What archives of earlier versions record: separate numbers.
fn recorded(root: &Attributes<'_>, end: &str) -> Option<Recorded> {
    let named = |name: &str| format!("{name}{end}");
    let size = |name: &str| u64::try_from(root.int(&named(name))?).ok();
    let number = |name: &str| root.float(&named(name));
    let scaling = Llama3 {
        factor: number("rope_factor")?,
        low: number("rope_low")?,
        high: number("rope_high")?,
        old: number("rope_old")?,
    };
    let windowed = root.ints(&named("windowed"))?;
    let window = size("window")?;
    let has_biases = |part| root.has_list(&biases_of(weights_of(part)), end);
    Some(Recorded {
        class: root.class.clone(),
        n_layers: windowed.len() as u64,
        n_kv_heads: size("n_kv_heads")?,
        head_dim: size("head_dim")?,
        vocab: size("vocab")?,
        norm_eps: number("norm_eps")?,
        rope: Rope {
            theta: number("rope_theta")?,
            scaling: root.bool(&named("rope_scaled"))?.then_some(Scaling::Llama3(scaling)),
        },
        windows: Windows {
            size: (window > 0).then_some(window),
            layers: Windowed::Listed(windowed.into_iter().map(|layer| layer == 1).collect()),
        },
        biases: Biases {
            qkv: has_biases(Part::Wq),
            output: has_biases(Part::Wo),
            feed_forward: has_biases(Part::W1),
        },
    })
}

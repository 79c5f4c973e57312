//! Recognises the decoder that a module was made of, from the attributes of its root.
//!
//! Facts: `module.rs` writes the attributes; its earlier versions wrote those that `older/` makes.

use decoder::{
    Assignment, Biases, Decoder, DecoderSpec, Llama3, Part, Recorded, Rope, Scaling, Windowed, Windows,
};
use tensor::Tensors;

use super::lists::{biases_of, weights_of};
use super::module::archive;
use super::signature::Signature;
use super::version::Version;
use super::{older, text};
use crate::Errors;
use crate::code::attributes::{Attributes, DATA_PKL, Records};

/// Code versions of modules that have a record. When the newest version changes, its copy in `older/` becomes an element.
pub(super) static VERSIONS: [&Version; 1] = [&text::VERSION];

/// Code version of modules whose record does not name it.
const UNNUMBERED: u32 = 4;

/// Returns the decoder and its assigned tensors if the archive is the output of a current or earlier conversion of these
/// tensors; otherwise, the name of the record that differs.
pub(in crate::code) fn recognise(
    root: &Attributes<'_>,
    records: &Records<'_>,
    tensors: &Tensors,
) -> Result<(Decoder, Assignment), String> {
    let data_pkl = || DATA_PKL.to_owned();
    let end = root.end_of("cat_dim").ok_or_else(data_pkl)?;
    let record = root.text(&format!("record{end}"));
    let found = match &record {
        Some(record) => {
            numbered(record, tensors).map(|(version, decoder)| (Some((version, record)), decoder))
        }
        None => unrecorded(root, &end, tensors).map(|decoder| (None, decoder)),
    };
    let (version, decoder) = found.ok_or_else(data_pkl)?;
    let assignment = decoder.assign(tensors, true).map_err(|_| data_pkl())?;
    let made = match version {
        Some((version, record)) => [Errors::Return, Errors::Raise]
            .map(|errors| archive(version, Signature::Dict(errors), (&decoder, record), &assignment, tensors))
            .into_iter()
            .collect::<Vec<_>>(),
        None => older::TEXTS
            .map(|text| older::archive(text, &decoder, &assignment, tensors))
            .into_iter()
            .collect(),
    };
    let mut closest = None;
    for made in made {
        let (archive, _) = made.map_err(|_| data_pkl())?;
        let Some(difference) = archive.first_difference(records) else { return Ok((decoder, assignment)) };
        closest = closest.max(Some(difference));
    }
    Err(closest.map_or_else(data_pkl, |difference| difference.record))
}

/// Returns the code version and the decoder of a module with this record. The module is made again with the same record,
/// because this program may write more into a record than the program that wrote it.
fn numbered(record: &str, tensors: &Tensors) -> Option<(&'static Version, Decoder)> {
    let spec = DecoderSpec::parse(record).ok()?;
    let number = spec.code_version().unwrap_or(UNNUMBERED);
    let version = VERSIONS.into_iter().find(|version| version.number == number)?;
    Some((version, spec.into_decoder(tensors).ok()?))
}

/// Returns the decoder of a module that has no record.
fn unrecorded(root: &Attributes<'_>, end: &str, tensors: &Tensors) -> Option<Decoder> {
    Decoder::from_recorded(recorded(root, end)?, tensors).ok()
}

/// Reads the separate attributes that describe the decoder in modules without a record.
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

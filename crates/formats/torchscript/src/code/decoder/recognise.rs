//! Recognises the decoder that a module was made of, from the attributes of its root.
//!
//! Facts: `module.rs` writes the attributes; its earlier versions wrote those that `older/` makes.

use decoder::{
    Assignment, AttentionWindows, Biases, Decoder, DecoderSpec, LayerPart, LegacyAttributes, Llama3, Rope,
    RopeScaling, WindowedLayers,
};
use tensor::Tensors;

use super::calling_convention::CallingConvention;
use super::lists::{bias_list_name, weight_list_name};
use super::module::decoder_archive;
use super::version::CodeVersion;
use super::{older, text};
use crate::OnInvalidInput;
use crate::code::attributes::{DATA_PKL, NamedRecords, RootAttributes};

/// Code versions of modules that have a record, newest last. When the newest version changes, its copy in `older/` becomes an
/// element.
pub(super) static VERSIONS: [&CodeVersion; 2] = [&older::fourth::VERSION, &text::VERSION];

/// Code version of modules whose record does not name it.
const UNNUMBERED_CODE_VERSION: u32 = 4;

/// Returns the decoder and its assigned tensors if the archive is the output of a current or earlier conversion of these
/// tensors; otherwise, the name of the record that differs.
pub(in crate::code) fn recognise(
    root: &RootAttributes<'_>,
    records: &NamedRecords<'_>,
    tensors: &Tensors,
) -> Result<(Decoder, Assignment), String> {
    let data_pkl = || DATA_PKL.to_owned();
    let end = root.attribute_suffix("cat_dim").ok_or_else(data_pkl)?;
    let record = root.text(&format!("record{end}"));
    let found = match &record {
        Some(record) => {
            decoder_of_record(record, tensors).map(|(version, decoder)| (Some((version, record)), decoder))
        }
        None => decoder_without_record(root, &end, tensors).map(|decoder| (None, decoder)),
    };
    let (version, decoder) = found.ok_or_else(data_pkl)?;
    let assignment = decoder.assign(tensors, true).map_err(|_| data_pkl())?;
    let made = match version {
        Some((version, record)) => [OnInvalidInput::Return, OnInvalidInput::Raise]
            .map(|errors| {
                decoder_archive(
                    version,
                    CallingConvention::Dict(errors),
                    (&decoder, record),
                    &assignment,
                    tensors,
                )
            })
            .into_iter()
            .collect::<Vec<_>>(),
        None => older::LEGACY_TEXTS
            .map(|text| older::legacy_archive(text, &decoder, &assignment, tensors))
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
fn decoder_of_record(record: &str, tensors: &Tensors) -> Option<(&'static CodeVersion, Decoder)> {
    let spec = DecoderSpec::parse(record).ok()?;
    let number = spec.code_version().unwrap_or(UNNUMBERED_CODE_VERSION);
    let version = VERSIONS.into_iter().find(|version| version.number == number)?;
    Some((version, spec.into_decoder(tensors).ok()?))
}

fn decoder_without_record(root: &RootAttributes<'_>, end: &str, tensors: &Tensors) -> Option<Decoder> {
    Decoder::from_legacy_attributes(read_legacy_attributes(root, end)?, tensors).ok()
}

/// Reads the separate attributes that describe the decoder in modules without a record.
fn read_legacy_attributes(root: &RootAttributes<'_>, end: &str) -> Option<LegacyAttributes> {
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
    let has_biases = |part| root.has_list(&bias_list_name(weight_list_name(part)), end);
    Some(LegacyAttributes {
        class: root.class.clone(),
        n_layers: windowed.len() as u64,
        n_kv_heads: size("n_kv_heads")?,
        head_dim: size("head_dim")?,
        vocab: size("vocab")?,
        norm_eps: number("norm_eps")?,
        rope: Rope {
            theta: number("rope_theta")?,
            scaling: root.bool(&named("rope_scaled"))?.then_some(RopeScaling::Llama3(scaling)),
        },
        windows: AttentionWindows {
            size: (window > 0).then_some(window),
            layers: WindowedLayers::Listed(windowed.into_iter().map(|layer| layer == 1).collect()),
        },
        biases: Biases {
            qkv: has_biases(LayerPart::Wq),
            output: has_biases(LayerPart::Wo),
            feed_forward: has_biases(LayerPart::W1),
        },
    })
}

//! Descriptions of the layers of HQQ: small tensors in safetensors, values in a pickle.

use byte_source::Blob;
use tensor::Dtype;

use crate::survey::Survey;
use crate::{Error, Problem, Result};

/// Suffixes of the tensors and values that describe a layer.
pub(crate) const DESCRIPTIONS: &[&str] = &[
    ".nbits",
    ".group_size",
    ".shape",
    ".axis",
    ".packing",
    ".compute_dtype",
    ".unpack_view_dtype",
    ".view_as_float",
    ".quant_scale",
    ".quant_zero",
    ".offload_meta",
    ".encoded_state_dict",
    ".stores_quant_config",
    ".channel_wise",
    ".optimize",
    ".round_zero",
];

/// Names of the dicts that describe codes, scales and zero points, in a checkpoint that is pickled.
const DICTS: &[&str] = &[".meta_scale", ".meta_zero", ".meta"];

/// Returns the name of the codes that a value describes, such as `layers.0.q_proj.W_q` for `layers.0.q_proj.meta_scale.nbits`;
/// `None` if its name is not that of a description.
pub(crate) fn described_codes(value: &str) -> Option<String> {
    let described = DESCRIPTIONS.iter().find_map(|suffix| value.strip_suffix(suffix))?;
    let strip = |name, dict: &&'static str| str::strip_suffix(name, dict).unwrap_or(name);
    Some(format!("{}.W_q", DICTS.iter().fold(described, strip)))
}

/// Small tensors that describe a layer, read as values.
pub(crate) struct Description<'s, 't> {
    pub(crate) survey: &'s Survey<'t>,
    pub(crate) module: &'s str,
}

impl Description<'_, '_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.module)
    }

    /// Returns the bytes and the dtype of a description; `None` if there is none.
    fn read(&self, key: &str) -> Result<Option<(Vec<u8>, Dtype)>> {
        let Some(tensor) = self.survey.get(&self.name(key)) else { return Ok(None) };
        if tensor.nbytes() > 1 << 10 {
            return Err(self.content(key, "it has more than 1 KiB".to_owned()));
        }
        let mut bytes: Vec<u8> = Vec::new();
        tensor.gathered().write_to(&mut bytes)?;
        Ok(Some((bytes, tensor.dtype())))
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>> {
        let bytes = self.read(key)?;
        Ok(bytes.map(|(bytes, _)| bytes.iter().map(|byte| char::from(*byte)).collect()))
    }

    pub(crate) fn numbers(&self, key: &str) -> Result<Option<Vec<u64>>> {
        let Some((bytes, dtype)) = self.read(key)? else { return Ok(None) };
        let numbers: Option<Vec<i64>> = match dtype {
            Dtype::Int64 => Some(bytes.as_chunks().0.iter().map(|it| i64::from_le_bytes(*it)).collect()),
            Dtype::Int32 => {
                Some(bytes.as_chunks().0.iter().map(|it| i32::from_le_bytes(*it).into()).collect())
            }
            Dtype::UInt8 | Dtype::Bool => Some(bytes.iter().map(|it| i64::from(*it)).collect()),
            _ => None,
        };
        let numbers = numbers.and_then(|it| it.into_iter().map(|it| u64::try_from(it).ok()).collect());
        let wrong = || self.content(key, "it is not a list of integers that are not negative".to_owned());
        numbers.map(Some).ok_or_else(wrong)
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>> {
        Ok(self.numbers(key)?.and_then(|numbers| numbers.first().copied()))
    }

    pub(crate) fn content(&self, key: &str, problem: String) -> Error {
        Problem::Content { tensor: self.name(key), problem }.into()
    }
}

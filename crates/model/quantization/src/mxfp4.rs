//! MXFP4 of gpt-oss: experts in FP4 with an exponent for each 32 input channels.
//!
//! Facts: `convert_moe_packed_tensors` in `integrations/mxfp4.py` of `transformers` 5.23. `NAME_blocks` is
//! `[experts, out, groups, 16]`, two codes in a byte, the low one first; `NAME_scales` is `[experts, out, groups]`. The
//! numbers are `[experts, in, out]`, the layout of the parameter in the model. A number is a table entry in the dtype of the
//! result times a power of two in float32.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use byte_source::ReadError;
use tensor::{Dtype, Inputs};

use crate::code_values::E2M1;
use crate::dequantized::{Area, Encoder, Kernel, Loaded, Matrices, NIBBLES, NibbleTable};
use crate::gptq::check;
use crate::operand::{ByteRows, Operand};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Error, Result};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &["_blocks", "_scales"];
/// Input channels with one exponent.
const GROUP: u64 = 32;
/// Bytes of the codes of a group.
const GROUP_BYTES: u64 = 16;
/// Output channels that are computed together, so that their codes stay in the cache for all input channels of a group.
const PATCH_COLS: usize = 64;

/// Adds all experts with `_blocks` and `_scales`.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    survey.stems("_blocks").iter().try_for_each(|name| add(survey, name))
}

/// Returns true if a list of tensors has experts with `_blocks` and `_scales`.
pub(crate) fn is_present(tensors: &tensor::Tensors) -> bool {
    tensors.iter().any(|(name, tensor)| {
        tensor.dtype() == Dtype::UInt8
            && tensor.shape().last() == Some(&GROUP_BYTES)
            && name.strip_suffix("_blocks").is_some_and(|stem| tensors.contains(&format!("{stem}_scales")))
    })
}

/// Kernel whose rows are input channels.
#[derive(Debug)]
struct ExpertBlocks {
    blocks: Operand,
    scales: Operand,
    /// Output channels and groups of an expert.
    outputs: u64,
    groups: u64,
    /// Encoded numbers of all codes by their exponents, for the encoder that asked first.
    tables: OnceLock<(Encoder, Vec<NibbleTable>)>,
}

fn add(survey: &mut Survey<'_>, name: &str) -> Result<()> {
    let (blocks_name, scales_name) = (format!("{name}_blocks"), format!("{name}_scales"));
    let mut draft = Draft::new(name);
    let blocks = survey.companion(name, &blocks_name)?;
    let wrong = || Error::Shape {
        tensor: blocks_name.clone(),
        found: blocks.shape().to_vec(),
        expected: format!("[experts, outputs, groups, {GROUP_BYTES}]"),
    };
    let [experts, outputs, groups, GROUP_BYTES] = *blocks.shape() else { return Err(wrong()) };
    check(blocks, &blocks_name, Dtype::UInt8, &[experts, outputs, groups, GROUP_BYTES])?;
    check(survey.companion(name, &scales_name)?, &scales_name, Dtype::UInt8, &[experts, outputs, groups])?;
    let shape = vec![experts, groups.checked_mul(GROUP).ok_or_else(wrong)?, outputs];
    let matrices = Matrices::from_shape(&shape).filter(|it| it.elements > 0).ok_or_else(wrong)?;
    let kernel = ExpertBlocks {
        blocks: survey.operand(&mut draft, &blocks_name)?,
        scales: survey.operand(&mut draft, &scales_name)?,
        outputs,
        groups,
        tables: OnceLock::new(),
    };
    let recognised = Recognised {
        scheme: format!("MXFP4, groups of {GROUP}"),
        shape,
        library_dtype: Dtype::Float32,
        default_dtype: Dtype::BFloat16,
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

impl ExpertBlocks {
    /// Returns the groups of input channels.
    fn groups_of(rows: &Range<u64>) -> Range<u64> {
        rows.start / GROUP..rows.end.div_ceil(GROUP)
    }
}

/// Returns the encoded numbers of all codes, for each exponent: a number depends only on its code and its exponent.
fn tables(encoder: Encoder) -> Vec<NibbleTable> {
    let mut tables: Vec<NibbleTable> = vec![[[0; 2]; NIBBLES]; 256];
    let exponents = (0..=u8::MAX).map(|exponent| (f32::from(exponent) - 127.0).exp2());
    let mut numbers: Vec<f32> = exponents.flat_map(|scale| E2M1.map(|value| value * scale)).collect();
    encoder.encode_tables(&mut numbers, &mut tables);
    tables
}

impl Kernel for ExpertBlocks {
    fn col_granule(&self) -> u64 {
        1
    }

    fn scattered_bits(&self) -> Option<u64> {
        Some(4)
    }

    fn load(&self, inputs: &mut Inputs<'_>, area: &Area) -> Result<Loaded, ReadError> {
        let Area { matrix, rows, cols } = area;
        let groups = Self::groups_of(rows);
        let first =
            matrix.saturating_mul(self.outputs).saturating_add(cols.start).saturating_mul(self.groups);
        let first = first.saturating_add(groups.start);
        let part = |size: u64| ByteRows {
            start: first.saturating_mul(size),
            rows: cols.end.saturating_sub(cols.start),
            pitch: self.groups.saturating_mul(size),
            len: groups.end.saturating_sub(groups.start).saturating_mul(size),
        };
        let codes = self.blocks.read_rows(inputs, &part(GROUP_BYTES))?;
        let exponents = self.scales.read_rows(inputs, &part(1))?;
        let scales = exponents.iter().map(|exponent| (f32::from(*exponent) - 127.0).exp2()).collect();
        Ok(Loaded { codes, scales, exponents, ..Loaded::default() })
    }

    fn decode(&self, loaded: &Loaded, area: &Area, row: usize, out: &mut [f32]) {
        let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let groups = Self::groups_of(&area.rows);
        let width = within(groups.end.saturating_sub(groups.start)).max(1);
        let channel = area.rows.start.saturating_add(row as u64);
        let group = within((channel / GROUP).saturating_sub(groups.start));
        let in_group = within(channel % GROUP);
        let byte = group.saturating_mul(16).saturating_add(in_group / 2);
        let shift: u32 = if in_group.is_multiple_of(2) { 0 } else { 4 };
        let codes = loaded.codes.iter().skip(byte).step_by(width.saturating_mul(16));
        let scales = loaded.scales.iter().skip(group).step_by(width);
        for ((out, code), scale) in out.iter_mut().zip(codes).zip(scales) {
            let value = E2M1.get(usize::from(code.checked_shr(shift).unwrap_or(0) & 15)).copied();
            *out = value.unwrap_or_default() * scale;
        }
    }

    fn decode_by_table(
        &self,
        loaded: &Loaded,
        area: &Area,
        rows: Range<usize>,
        encoder: Encoder,
        out: &mut [u8],
    ) -> bool {
        let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let (groups, cols) = (Self::groups_of(&area.rows), area.cols.end.saturating_sub(area.cols.start));
        let (width, cols) = (within(groups.end.saturating_sub(groups.start)).max(1), within(cols));
        if encoder.size() != 2 {
            return false;
        }
        let known = self.tables.get_or_init(|| (encoder, tables(encoder)));
        let other;
        let tables = if known.0 == encoder {
            &known.1
        } else {
            other = tables(encoder);
            &other
        };
        let (blocks, _) = loaded.codes.as_chunks::<16>();
        let mut columns = [([0_u8; 16], 0_u8); PATCH_COLS];
        let mut left = rows;
        let mut out = out;
        while !left.is_empty() && !out.is_empty() {
            let channel = area.rows.start.saturating_add(left.start as u64);
            let group = within((channel / GROUP).saturating_sub(groups.start));
            let in_group = within(channel % GROUP);
            let count = left.len().min(within(GROUP).saturating_sub(in_group));
            left.start = left.start.saturating_add(count);
            let bytes = count.saturating_mul(cols).saturating_mul(2).min(out.len());
            let (now, later) = std::mem::take(&mut out).split_at_mut_checked(bytes).unwrap_or_default();
            out = later;
            for first in (0..cols).step_by(PATCH_COLS) {
                let len = PATCH_COLS.min(cols.saturating_sub(first));
                let skipped = first.saturating_mul(width).saturating_add(group);
                let codes = blocks.get(skipped..).unwrap_or_default().iter().step_by(width);
                let exponents = loaded.exponents.get(skipped..).unwrap_or_default().iter().step_by(width);
                for (column, (codes, exponent)) in columns.iter_mut().zip(codes.zip(exponents)) {
                    *column = (*codes, *exponent);
                }
                let columns = columns.get(..len).unwrap_or_default();
                for (row, out) in now.chunks_mut(cols.saturating_mul(2)).enumerate() {
                    let out = out.get_mut(first.saturating_mul(2)..).unwrap_or_default();
                    let place = in_group.saturating_add(row);
                    let (at, shift) = ((place / 2) % 16, if place.is_multiple_of(2) { 0 } else { 4 });
                    for (out, (codes, exponent)) in out.as_chunks_mut::<2>().0.iter_mut().zip(columns) {
                        let code = (codes.get(at).copied().unwrap_or_default() >> shift) & 15;
                        *out = tables.get(usize::from(*exponent)).map_or([0; 2], |table| {
                            table.get(usize::from(code)).copied().unwrap_or_default()
                        });
                    }
                }
            }
        }
        true
    }
}

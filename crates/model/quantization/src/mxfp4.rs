//! MXFP4 of gpt-oss: experts in FP4 with an exponent for each 32 input channels.
//!
//! Facts: `convert_moe_packed_tensors` in `integrations/mxfp4.py` of `transformers` 5.23. `NAME_blocks` is
//! `[experts, out, groups, 16]`, two codes in a byte, the low one first; `NAME_scales` is `[experts, out, groups]`. The
//! numbers are `[experts, in, out]`, the layout of the parameter in the model. A number is a table entry in the dtype of the
//! result times a power of two in float32.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "the sizes of a tensor were compared with those of its parts when it was recognised"
)]
#![expect(
    clippy::inline_always,
    reason = "a function for vectors is only compiled for them within its caller"
)]

use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use kernels::{EncodedNumber, NIBBLES, NibbleKernel, NibbleLookup, NibbleTable, RUNS, run_nibbles};
use tensor::{Dtype, Inputs};

use crate::code_values::E2M1;
use crate::dequantized::{Area, Encoder, Kernel, Loaded, Matrices};
use crate::gptq::check;
use crate::operand::{ByteRows, Operand};
use crate::row_part::{RowPart, copy_from};
use crate::survey::{Draft, Recognised, Survey};
use crate::{Problem, Result};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = &["_blocks", "_scales"];
/// Input channels with one exponent.
const GROUP: u64 = GROUP_CHANNELS as u64;
const GROUP_CHANNELS: usize = 32;
const GROUP_BYTES: u64 = 16;
/// Output channels that are read together: so few that their codes are still in the processor's cache when they are sorted.
const STAGED_COLS: usize = 64;
/// Output channels that are computed together: as many as fill a cache line.
const PATCH_COLS: usize = 32;

/// Adds all experts with `_blocks` and `_scales`.
///
/// # Errors
/// When a companion is missing, or has another shape or dtype than the scheme.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    survey.stems("_blocks").iter().try_for_each(|name| add(survey, name))
}

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
    /// Power of two that each exponent stands for.
    powers: Box<[f32; 256]>,
    /// Encoded numbers of all codes by their exponents, for the encoder that asked first.
    tables: OnceLock<(Encoder, Vec<NibbleTable>)>,
}

fn add(survey: &mut Survey<'_>, name: &str) -> Result<()> {
    let (blocks_name, scales_name) = (format!("{name}_blocks"), format!("{name}_scales"));
    let mut draft = Draft::new(name);
    let blocks = survey.companion(name, &blocks_name)?;
    let wrong = || Problem::Shape {
        tensor: blocks_name.clone(),
        found: blocks.shape().to_vec(),
        expected: format!("[experts, outputs, groups, {GROUP_BYTES}]"),
    };
    let [experts, outputs, groups, GROUP_BYTES] = *blocks.shape() else { return Err(wrong().into()) };
    check(blocks, &blocks_name, Dtype::UInt8, &[experts, outputs, groups, GROUP_BYTES])?;
    check(survey.companion(name, &scales_name)?, &scales_name, Dtype::UInt8, &[experts, outputs, groups])?;
    let shape = vec![experts, groups.checked_mul(GROUP).ok_or_else(wrong)?, outputs];
    let matrices = Matrices::from_shape(&shape).filter(|it| it.elements > 0).ok_or_else(wrong)?;
    let kernel = ExpertBlocks {
        blocks: survey.operand(&mut draft, &blocks_name)?,
        scales: survey.operand(&mut draft, &scales_name)?,
        outputs,
        groups,
        powers: powers(),
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
    fn groups_of(rows: &Range<u64>) -> Range<u64> {
        rows.start / GROUP..rows.end.div_ceil(GROUP)
    }
}

impl ExpertBlocks {
    /// Reads `SIZE` bytes for each group and output channel of an area, group by group.
    ///
    /// # Errors
    /// When they cannot be read.
    fn load_groups<const SIZE: usize>(
        &self,
        operand: &Operand,
        inputs: &mut Inputs<'_>,
        area: &Area,
    ) -> byte_source::Result<Vec<u8>> {
        let within = |n: u64| usize::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
        let (groups, cols) = (Self::groups_of(&area.rows), &area.cols);
        let width = groups.end - groups.start;
        let count = within(cols.end - cols.start)?;
        let size = within(width)?.checked_mul(count).ok_or(io::ErrorKind::InvalidInput)?;
        let mut loaded = vec![[0; SIZE]; size];
        for first in cols.clone().step_by(STAGED_COLS) {
            let last = (first + STAGED_COLS as u64).min(cols.end);
            let before = area.matrix * self.outputs + first;
            let start = before * self.groups + groups.start;
            let part = ByteRows {
                start: start * SIZE as u64,
                rows: last - first,
                pitch: self.groups * SIZE as u64,
                len: width * SIZE as u64,
            };
            let staged = operand.read_rows(inputs, &part)?;
            let (staged, skipped) = (staged.as_chunks::<SIZE>().0, within(first - cols.start)?);
            for (group, out) in loaded.chunks_mut(count.max(1)).enumerate() {
                let staged = staged.get(group..).unwrap_or_default().iter().step_by(within(width)?.max(1));
                for (out, staged) in out.get_mut(skipped..).unwrap_or_default().iter_mut().zip(staged) {
                    *out = *staged;
                }
            }
        }
        Ok(loaded.into_flattened())
    }
}

fn powers() -> Box<[f32; 256]> {
    let mut powers = Box::new([0.0; 256]);
    for (power, exponent) in powers.iter_mut().zip(0..=u8::MAX) {
        *power = (f32::from(exponent) - 127.0).exp2();
    }
    powers
}

impl ExpertBlocks {
    /// Returns the encoded numbers of all codes, for each exponent: a number depends only on its code and its exponent.
    fn encoded_numbers(&self, encoder: Encoder) -> Vec<NibbleTable> {
        let mut tables: Vec<NibbleTable> = vec![[[0; 2]; NIBBLES]; 256];
        let mut numbers: Vec<f32> =
            self.powers.iter().flat_map(|power| E2M1.map(|value| value * power)).collect();
        encoder.encode_tables(&mut numbers, &mut tables);
        tables
    }
}

impl Kernel for ExpertBlocks {
    fn col_granule(&self) -> u64 {
        1
    }

    fn row_granule(&self) -> u64 {
        GROUP
    }

    fn scattered_bits(&self) -> Option<u64> {
        Some(4)
    }

    /// Reads the codes and exponents group by group, and within a group output channel by output channel, in which order they
    /// are decoded. They are stored the other way round.
    fn load(&self, inputs: &mut Inputs<'_>, area: &Area) -> byte_source::Result<Loaded> {
        Ok(Loaded {
            codes: self.load_groups::<16>(&self.blocks, inputs, area)?,
            exponents: self.load_groups::<1>(&self.scales, inputs, area)?,
            ..Loaded::default()
        })
    }

    fn decode(&self, loaded: &Loaded, area: &Area, row: usize, out: &mut [f32]) {
        let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let channel = area.rows.start + row as u64;
        let group = within(channel / GROUP - Self::groups_of(&area.rows).start);
        let in_group = within(channel % GROUP);
        let shift: u32 = if in_group.is_multiple_of(2) { 0 } else { 4 };
        let first = group * out.len();
        let blocks = loaded.codes.as_chunks::<16>().0.get(first..).unwrap_or_default();
        let codes = blocks.iter().map(|block| block.get(in_group / 2).copied().unwrap_or_default());
        let exponents = loaded.exponents.get(first..).unwrap_or_default();
        for ((out, code), exponent) in out.iter_mut().zip(codes).zip(exponents) {
            let value = E2M1.get(usize::from(code.checked_shr(shift).unwrap_or(0) & 15)).copied();
            let scale = self.powers.get(usize::from(*exponent)).copied();
            *out = value.unwrap_or_default() * scale.unwrap_or_default();
        }
    }

    fn decode_by_table(
        &self,
        loaded: &Loaded,
        area: &Area,
        place: (usize, usize),
        encoder: Encoder,
        out: &mut [u8],
    ) -> bool {
        let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let cols = within(area.cols.end - area.cols.start);
        if encoder.size() != 2 {
            return false;
        }
        let known = self.tables.get_or_init(|| (encoder, self.encoded_numbers(encoder)));
        let other;
        let tables = if known.0 == encoder {
            &known.1
        } else {
            other = self.encoded_numbers(encoder);
            &other
        };
        let patches = Patches {
            tables,
            blocks: loaded.codes.as_chunks().0,
            exponents: &loaded.exponents,
            cols,
            before: within(area.rows.start % GROUP),
            parts: RowPart::split(place, cols, out),
        };
        run_nibbles(patches);
        true
    }
}

/// Numbers of 32 input channels, each with 32 output channels in runs.
type Patch = [[[EncodedNumber; RUNS]; PATCH_COLS / RUNS]; GROUP_CHANNELS];

/// Computation of numbers by tables, in patches of 32 input and 32 output channels.
struct Patches<'p> {
    tables: &'p [NibbleTable],
    /// Codes and exponents of the output channels, group by group.
    blocks: &'p [[u8; 16]],
    exponents: &'p [u8],
    cols: usize,
    /// Input channels of the first group that come before the loaded ones.
    before: usize,
    parts: Vec<RowPart<'p>>,
}

impl NibbleKernel for Patches<'_> {
    #[inline(always)]
    fn run<S: NibbleLookup>(mut self, simd: S) {
        let mut parts = std::mem::take(&mut self.parts);
        let group = |part: &RowPart<'_>| (part.row + self.before) / GROUP_CHANNELS;
        // Each patch overwrites the one before.
        let mut patch: Patch = [[[[0; 2]; RUNS]; PATCH_COLS / RUNS]; GROUP_CHANNELS];
        for rows in parts.chunk_by_mut(|one, other| group(one) == group(other)) {
            let Some(group) = rows.first().map(group) else { continue };
            for first in (0..self.cols).step_by(PATCH_COLS) {
                self.compute_patch(simd, (group, first), &mut patch);
                let columns = first..first + PATCH_COLS;
                for row in &mut *rows {
                    let channel = (row.row + self.before) % GROUP_CHANNELS;
                    let numbers = patch.get(channel).map(|numbers| numbers.as_flattened().first_chunk());
                    let Some(Some(numbers)) = numbers else { continue };
                    if let Some(out) = row.whole_columns::<PATCH_COLS>(first) {
                        *out = *numbers;
                    } else {
                        let (from, out) = row.columns(&columns);
                        copy_from(numbers, from - first, out);
                    }
                }
            }
        }
    }
}

impl Patches<'_> {
    /// Computes the numbers of a group of input channels, for output channels from `first` on.
    #[inline(always)]
    fn compute_patch<S: NibbleLookup>(&self, simd: S, (group, first): (usize, usize), patch: &mut Patch) {
        let skipped = group * self.cols + first;
        let blocks = self.blocks.get(skipped..).unwrap_or_default();
        let mut columns = blocks.iter().zip(self.exponents.get(skipped..).unwrap_or_default());
        let mut runs = [[[0; 2]; 32]; RUNS];
        for part in 0..PATCH_COLS / RUNS {
            for pair in runs.as_chunks_mut::<2>().0 {
                let mut column = || {
                    let (codes, exponent) = columns.next().unwrap_or((&[0; 16], &0));
                    (*codes, self.tables.get(usize::from(*exponent)).unwrap_or(&[[0; 2]; NIBBLES]))
                };
                let ((first, first_table), (second, second_table)) = (column(), column());
                *pair = simd.look_up([first_table, second_table], [first, second]);
            }
            for (row, numbers) in patch.iter_mut().zip(simd.transpose_runs(&runs)) {
                if let Some(place) = row.get_mut(part) {
                    *place = numbers;
                }
            }
        }
    }
}

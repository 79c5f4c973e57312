//! Casts tensors to other dtypes.
//!
//! Facts: `Tensor.to(dtype)`. Elements are cast when a back end reads them; see [`Storage::cast`](tensor::Storage::cast).

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use byte_source::Observer;
use quantization::Codes;
use serde::Serialize;
use tensor::{DimsInterner, Dtype, DtypeConversion, Tensors};
use torch_import::CompoundKind;

use super::cast_groups::{CastGroups, CastRow};
use super::cast_options::target_dtype;
use crate::{Cast, CastFrom, CastOptions, Context, Error, Model, Note, Problem, Result, Step, StepReport};

/// Name of the blocks that matrices of decoders can have.
const Q8_0: &str = "q8_0";

/// Result of casting the tensors of one dtype.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CastReport {
    /// PyTorch's name of the original dtype, or `q8_0`.
    pub from: &'static str,
    /// PyTorch's name of the new dtype, or `q8_0`.
    pub to: &'static str,
    /// Number of tensors that were cast.
    pub tensors: usize,
    /// Number of elements out of the range of the new dtype; `None` after a dry run.
    pub out_of_range: Option<u64>,
    /// Name of the tensor with the first element out of range.
    pub first_out_of_range: Option<String>,
}

/// Casts of tensors, grouped by dtype.
#[derive(Debug, Default)]
pub struct Casts {
    rows: Vec<CastRow>,
    /// Elements out of range, one count per row; unset before [`count`](Self::count_out_of_range).
    counts: OnceLock<Vec<OutOfRangeCount>>,
    /// Number of tensors that became blocks after the casts.
    quantized: usize,
}

#[derive(Clone, Debug, Default)]
struct OutOfRangeCount {
    numbers: u64,
    first: Option<Arc<str>>,
}

impl Step for CastOptions {
    fn apply(&self, model: &mut Model, _: &Context<'_>) -> Result<StepReport> {
        self.check()?;
        let all = self.all();
        let mut notes = std::mem::take(&mut model.notes);
        let casts = apply_casts(&all, model.tensors_mut(), &mut notes, false);
        model.notes = notes;
        Ok(StepReport::Cast(casts.map_err(|error| error.in_file(model.root()))?))
    }
}

/// Casts the tensors lazily. Tensors that share memory still share it if they have the same dtype. Numbers that are kept as blocks become
/// plain ones if they are cast to float32, which they are, unless `keeps_blocks` is set.
///
/// # Errors
/// When a tensor cannot be cast to its new dtype.
pub(super) fn apply_casts(
    casts: &[Cast],
    tensors: &mut Tensors,
    notes: &mut Vec<Note>,
    keeps_blocks: bool,
) -> Result<Casts> {
    let mut kept = parts_to_keep(casts, tensors);
    let codes = Codes::new(tensors);
    kept.extend(tensors.iter().flat_map(|(name, tensor)| codes.companions(name, tensor.dtype())));
    let mut groups = CastGroups::default();
    let mut found: HashSet<Dtype> = HashSet::new();
    let mut kept_parts = 0_usize;
    let mut vectors: Vec<(String, Dtype)> = Vec::new();
    for (name, tensor) in &*tensors {
        let from = tensor.dtype();
        found.insert(from);
        groups.record_dtype(tensor);
        let is_changed = |to: &Dtype| *to != from || !keeps_blocks && tensor.kept_q8_0_blocks().is_some();
        let Some(to) = target_dtype(casts, from).filter(is_changed) else { continue };
        if kept.contains(name) {
            kept_parts = kept_parts.saturating_add(1);
        } else if DtypeConversion::new(from, to).is_none() {
            return Err(Error::from(Problem::CannotCast { from, to }).in_tensor(name));
        } else if let Some(companion) = codes.companion(name, from) {
            return Err(Error::from(Problem::CodesCast { from, to, companion }).in_tensor(name));
        } else {
            groups.add(name, tensor);
            if to.size() == 1 && to.is_floating_point() && tensor.shape().len() == 1 {
                vectors.push((name.clone(), to));
            }
        }
    }
    for (kind, dtype) in tensors.compounds_mut() {
        let is_quantized = matches!(kind, CompoundKind::Quantized { .. } | CompoundKind::Blocks { .. });
        if let Some(to) = target_dtype(casts, *dtype).filter(|_| !is_quantized) {
            *dtype = to;
        }
    }
    if kept_parts > 0 {
        notes.push(Note::PartsNotCast { parts: kept_parts });
    }
    if let Some((first, to)) = vectors.first().cloned() {
        notes.push(Note::VectorsCast { to, count: vectors.len(), first });
    }
    for cast in casts {
        let is_there = match cast.from {
            CastFrom::Dtype(from) => found.contains(&from),
            CastFrom::FloatingPoint => found.iter().any(|dtype| dtype.is_floating_point()),
        };
        if !is_there {
            notes.push(Note::NothingToCast { from: cast.from });
        }
    }
    let mut made = groups.cast_storages(casts)?;
    let mut dims = DimsInterner::default();
    for (name, tensor) in tensors.tensors_mut().filter(|(name, _)| !kept.contains(*name)) {
        if let Some(new) = made.cast_tensor(name, tensor)? {
            *tensor = dims.intern(new);
        }
    }
    Ok(Casts { rows: made.rows, counts: OnceLock::new(), quantized: 0 })
}

/// Returns the names of the parts of compound tensors that are not values: scales, zero points and indices keep their dtype.
fn parts_to_keep(casts: &[Cast], tensors: &Tensors) -> HashSet<String> {
    let mut kept = HashSet::new();
    for compound in tensors.compounds() {
        let is_value = |part: &str| match compound.kind {
            CompoundKind::Quantized { .. } | CompoundKind::Blocks { .. } => false,
            CompoundKind::Sparse { .. } | CompoundKind::Nested | CompoundKind::Jagged => part == "values",
            _ => true,
        };
        let parts = tensors.parts(compound).iter().filter(|(name, tensor)| {
            let part = name.rsplit_once('.').map_or(name.as_str(), |(_, part)| part);
            !is_value(part) && target_dtype(casts, tensor.dtype()).is_some_and(|to| to != tensor.dtype())
        });
        kept.extend(parts.map(|(name, _)| name.clone()));
    }
    kept
}

impl Casts {
    /// Counts the elements out of range in the data read so far.
    ///
    /// # Errors
    /// When data cannot be read once more, or `observer` stops the work.
    pub fn count_out_of_range(&self, observer: &dyn Observer) -> Result<(), byte_source::Error> {
        let mut counts = vec![OutOfRangeCount::default(); self.rows.len()];
        for (row, count) in self.rows.iter().zip(&mut counts) {
            for cast in &row.casts {
                if let Some(found) = cast.recount_out_of_range(observer)? {
                    count.numbers = count.numbers.saturating_add(found.count);
                    count.first.get_or_insert(found.first);
                }
            }
        }
        // A repeated count has the same result, so it is dropped.
        let _ = self.counts.set(counts);
        Ok(())
    }

    /// Returns a note for each dtype with elements out of range.
    pub fn notes(&self) -> Vec<Note> {
        let counts = self.counts.get().map(Vec::as_slice).unwrap_or_default();
        let note = |(row, count): (&CastRow, &OutOfRangeCount)| {
            let first = count.first.as_ref()?.to_string();
            Some(Note::OutOfRange { to: row.conversion.to(), count: count.numbers, first })
        };
        self.rows.iter().zip(counts).filter_map(note).collect()
    }

    /// Sets the number of tensors that became blocks of `Q8_0` after the casts.
    pub(super) fn set_quantized(&mut self, tensors: usize) {
        self.quantized = tensors;
    }

    /// Returns a report for each pair of dtypes.
    pub fn reports(&self) -> Vec<CastReport> {
        let report = |(number, row): (usize, &CastRow)| {
            let count = self.counts.get().and_then(|counts| counts.get(number));
            let (from, to) = (row.conversion.from(), row.conversion.to());
            CastReport {
                // Only numbers of blocks are cast to their own dtype.
                from: if from == to { Q8_0 } else { from.name() },
                to: to.name(),
                tensors: row.tensors,
                out_of_range: count.map(|count| count.numbers),
                first_out_of_range: count.and_then(|count| Some(count.first.as_ref()?.to_string())),
            }
        };
        let quantized = CastReport {
            from: Dtype::Float32.name(),
            to: Q8_0,
            tensors: self.quantized,
            // Such an element is an error.
            out_of_range: self.counts.get().map(|_| 0),
            first_out_of_range: None,
        };
        let quantized = Some(quantized).filter(|row| row.tensors > 0);
        self.rows.iter().enumerate().map(report).chain(quantized).collect()
    }
}

#[cfg(test)]
mod tests {
    use byte_source::Blob;
    use tensor::{Storage, Tensor};

    use super::*;
    use crate::check_casts;

    fn bytes(tensor: &Tensor) -> Vec<u8> {
        let mut out: Vec<u8> = Vec::new();
        tensor.gathered().write_to(&mut out).expect("memory can be read");
        out
    }

    fn tensor(dtype: Dtype, shape: &[u64], stride: &[u64], offset: u64, storage: &Storage) -> Tensor {
        Tensor::new(dtype, shape.to_vec(), stride.to_vec(), offset, storage.clone()).expect("it is inside")
    }

    fn floats(numbers: &[f32]) -> Storage {
        Storage::owned(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    fn bf16(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes().into_iter().skip(2)).collect()
    }

    const ALL_BF16: Cast = Cast { from: CastFrom::FloatingPoint, to: Dtype::BFloat16 };

    fn exact(from: Dtype, to: Dtype) -> Cast {
        Cast { from: CastFrom::Dtype(from), to }
    }

    fn cast(casts: &[Cast], tensors: &[(&str, Tensor)]) -> (Vec<Tensor>, Casts, Vec<Note>) {
        let mut tensors = tensors.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect();
        let mut notes = Vec::new();
        let casts = apply_casts(casts, &mut tensors, &mut notes, false).expect("it can be cast");
        (tensors.into_iter().map(|(_, tensor)| tensor).collect(), casts, notes)
    }

    #[test]
    fn tensors_that_share_memory_still_do() {
        let storage = floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let tensors = [
            ("a", tensor(Dtype::Float32, &[2, 3], &[3, 1], 0, &storage)),
            ("tied", tensor(Dtype::Float32, &[2, 3], &[3, 1], 0, &storage)),
            ("transposed", tensor(Dtype::Float32, &[3, 2], &[1, 3], 0, &storage)),
            ("none", tensor(Dtype::Float32, &[0], &[1], 6, &storage)),
        ];
        let (made, casts, notes) = cast(&[ALL_BF16], &tensors);
        assert_eq!(notes, []);
        let [a, tied, transposed, none] = made.as_slice() else { panic!("{made:?}") };
        assert_eq!(a.view_id(), tied.view_id());
        assert!(made.iter().all(|tensor| tensor.dtype() == Dtype::BFloat16));
        assert!(made.iter().all(|tensor| tensor.storage().id() == a.storage().id()));
        assert_eq!(bytes(transposed), bf16(&[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
        assert_eq!((transposed.stride(), none.numel()), ([1, 3].as_slice(), 0));
        let reports = casts.reports();
        assert_eq!((reports.len(), reports.first().map(|report| report.tensors)), (1, Some(4)));
    }

    #[test]
    fn a_storage_of_several_dtypes_is_cut() {
        let storage = floats(&[1.0, 2.0, 3.0, 4.0]);
        let tensors = [
            ("ints", tensor(Dtype::Int32, &[2], &[1], 0, &storage)),
            ("floats", tensor(Dtype::Float32, &[2], &[1], 2, &storage)),
            ("last", tensor(Dtype::Float32, &[1], &[1], 3, &storage)),
        ];
        let (made, ..) = cast(&[ALL_BF16], &tensors);
        let [ints, floats, last] = made.as_slice() else { panic!("{made:?}") };
        assert_eq!(ints.view_id(), tensors[0].1.view_id());
        assert_eq!((floats.storage().len(), floats.storage_offset(), last.storage_offset()), (4, 0, 1));
        assert_eq!((bytes(floats), bytes(last)), (bf16(&[3.0, 4.0]), bf16(&[4.0])));
    }

    #[test]
    fn a_cast_of_one_dtype_comes_before_that_of_all_floats() {
        let one = |dtype: Dtype| tensor(dtype, &[1], &[1], 0, &Storage::owned(vec![0; 16]));
        let dtypes = [Dtype::Float32, Dtype::Float64, Dtype::Float16, Dtype::Int64, Dtype::Complex64];
        let tensors = dtypes.map(|dtype| (dtype.name(), one(dtype)));
        let casts = [
            ALL_BF16,
            exact(Dtype::Float64, Dtype::Float64),
            exact(Dtype::Float16, Dtype::Float32),
            exact(Dtype::Bool, Dtype::Int8),
        ];
        let (made, _, notes) = cast(&casts, &tensors);
        let found: Vec<Dtype> = made.iter().map(Tensor::dtype).collect();
        let expected = [Dtype::BFloat16, Dtype::Float64, Dtype::Float32, Dtype::Int64, Dtype::Complex64];
        assert_eq!(found, expected);
        assert_eq!(notes, [Note::NothingToCast { from: CastFrom::Dtype(Dtype::Bool) }]);
        let (_, _, notes) = cast(&[ALL_BF16], &tensors[3..]);
        assert_eq!(notes, [Note::NothingToCast { from: CastFrom::FloatingPoint }]);
    }

    #[test]
    fn what_is_out_of_range_is_counted_by_dtype() {
        let big = floats(&[1.0, 1e6, -1e6]);
        let small = floats(&[1.0]);
        let doubles = Storage::owned([1e300_f64, 2.0].iter().flat_map(|n| n.to_le_bytes()).collect());
        let tensors = [
            ("small", tensor(Dtype::Float32, &[1], &[1], 0, &small)),
            ("big", tensor(Dtype::Float32, &[3], &[1], 0, &big)),
            ("tied", tensor(Dtype::Float32, &[3], &[1], 0, &big)),
            ("doubles", tensor(Dtype::Float64, &[2], &[1], 0, &doubles)),
        ];
        let casts = [exact(Dtype::Float32, Dtype::Float16), exact(Dtype::Float64, Dtype::Float32)];
        let (made, casts, _) = cast(&casts, &tensors);
        assert!(casts.reports().iter().all(|report| report.out_of_range.is_none()));
        for tensor in made.iter().chain(&made) {
            bytes(tensor);
        }
        casts.count_out_of_range(&()).expect("memory can be read");
        let row = |from, to, tensors, count, first: &str| CastReport {
            from,
            to,
            tensors,
            out_of_range: Some(count),
            first_out_of_range: Some(first.to_owned()),
        };
        let expected = [row("float32", "float16", 3, 2, "big"), row("float64", "float32", 1, 1, "doubles")];
        assert_eq!(casts.reports(), expected);
        assert_eq!(casts.notes().len(), 2);
    }

    #[test]
    fn blocks_become_plain_numbers_where_float32_is_asked_for() {
        let bytes_of_blocks = Storage::owned([[0, 0x3c].as_slice(), &[2; 32]].concat());
        let blocks = tensor(Dtype::UInt8, &[1, 34], &[34, 1], 0, &bytes_of_blocks);
        let numbers = Tensor::from_q8_0_blocks(&blocks).expect("a whole block");
        let to_float32 = [Cast { from: CastFrom::FloatingPoint, to: Dtype::Float32 }];
        let (made, casts, _) = cast(&to_float32, &[("w", numbers.clone()), ("tied", numbers.clone())]);
        let [plain, tied] = made.as_slice() else { panic!("{made:?}") };
        assert!(plain.kept_q8_0_blocks().is_none() && plain.view_id() == tied.view_id());
        assert_eq!(bytes(plain), bytes(&numbers));
        assert_eq!(casts.reports().first().map(|row| (row.from, row.to)), Some(("q8_0", "float32")));
        let mut tensors = Tensors::from([("w".to_owned(), numbers.clone())]);
        apply_casts(&to_float32, &mut tensors, &mut Vec::new(), true).expect("nothing to do");
        assert_eq!(tensors.get("w").map(Tensor::view_id), Some(numbers.view_id()));
    }

    #[test]
    fn a_scale_is_not_cast() {
        let one = |dtype: Dtype| tensor(dtype, &[1], &[1], 0, &Storage::owned(vec![0; 8]));
        let quantized = CompoundKind::Quantized { scheme: "per_tensor_affine".to_owned(), axis: None };
        let sparse = CompoundKind::Sparse { layout: "sparse_coo".to_owned() };
        let mut tensors = Tensors::default();
        let parts = [("q.int_repr", Dtype::Int8), ("q.scale", Dtype::Float64)]
            .map(|(name, dtype)| (name.to_owned(), one(dtype)));
        tensors.push_compound("q".to_owned(), (quantized, Dtype::QInt8, vec![1]), parts);
        let parts = [("s.indices", Dtype::Int64), ("s.values", Dtype::Float32)]
            .map(|(name, dtype)| (name.to_owned(), one(dtype)));
        tensors.push_compound("s".to_owned(), (sparse, Dtype::Float32, vec![1]), parts);
        let mut notes = Vec::new();
        let casts = [ALL_BF16, exact(Dtype::Int64, Dtype::Int32)];
        apply_casts(&casts, &mut tensors, &mut notes, false).expect("it can be cast");
        let dtypes: Vec<Dtype> = tensors.iter().map(|(_, tensor)| tensor.dtype()).collect();
        assert_eq!(dtypes, [Dtype::Int8, Dtype::Float64, Dtype::Int64, Dtype::BFloat16]);
        let dtypes: Vec<Dtype> = tensors.compounds().iter().map(|compound| compound.dtype).collect();
        assert_eq!(dtypes, [Dtype::QInt8, Dtype::BFloat16]);
        assert_eq!(notes, [Note::PartsNotCast { parts: 2 }]);
    }

    #[test]
    fn a_scale_of_codes_is_not_cast() {
        let one = |dtype: Dtype| tensor(dtype, &[1], &[1], 0, &Storage::owned(vec![0; 4]));
        let rows =
            [("a.weight", Dtype::Int8), ("a.weight_scale", Dtype::Float32), ("b.weight", Dtype::Float32)];
        let mut tensors: Tensors = rows.map(|(name, dtype)| (name.to_owned(), one(dtype))).into();
        let mut notes = Vec::new();
        apply_casts(&[ALL_BF16], &mut tensors, &mut notes, false).expect("it can be cast");
        let dtypes: Vec<Dtype> = tensors.iter().map(|(_, tensor)| tensor.dtype()).collect();
        assert_eq!(dtypes, [Dtype::Int8, Dtype::Float32, Dtype::BFloat16]);
        assert_eq!(notes, [Note::PartsNotCast { parts: 1 }]);
    }

    #[test]
    fn impossible_casts_are_refused() {
        let texts = |casts: &[Cast]| check_casts(casts).expect_err("it is refused").to_string();
        assert!(texts(&[exact(Dtype::Complex64, Dtype::Float32)]).contains("complex64"));
        assert!(texts(&[Cast { from: CastFrom::FloatingPoint, to: Dtype::Int8 }]).contains("int8"));
        assert!(texts(&[ALL_BF16, ALL_BF16]).contains("twice"));
        assert!(check_casts(&[ALL_BF16, exact(Dtype::Float32, Dtype::Float32)]).is_ok());
        let packed = tensor(Dtype::Float4E2M1FnX2, &[1], &[1], 0, &Storage::owned(vec![0]));
        let refused =
            apply_casts(&[ALL_BF16], &mut Tensors::from([("w".to_owned(), packed)]), &mut Vec::new(), false);
        let refused = refused.expect_err("several numbers in a byte").to_string();
        assert_eq!(refused, "tensor `w`: float4_e2m1fn_x2 cannot be cast to bfloat16");
    }
}

//! Sums of checkpoints: differences of other checkpoints that are added to a base, and means.
//!
//! Facts: `task_arithmetic` in `mergekit/merge_methods/generalized_task_arithmetic.py` of mergekit 0.1 (Ilharco et al., "Editing
//! models with task arithmetic", 2022), and `torch.optim.swa_utils.AveragedModel` of PyTorch, which averages parameters.

use std::collections::HashMap;
use std::sync::Arc;

use byte_source::Observer;
use tensor::{Dtype, Storage, Tensor, Tensors, ViewId, contiguous_strides};

use crate::change::contiguous_storage;
use crate::weighted_sum::{Numbers, WeightedSum};
use crate::{Error, Problem, Result, SumReport, SummedFile};

/// Checkpoint that is summed with a base.
#[derive(Clone, Debug)]
pub struct Summand {
    /// Path for reports and errors.
    pub path: String,
    pub tensors: Tensors,
}

/// What is computed from a base and other checkpoints.
#[derive(Clone, Debug, PartialEq)]
pub enum SumRule {
    /// The base and, for each checkpoint, this weight times its difference from the base.
    Differences { weights: Vec<f64> },
    /// The mean of the base and all checkpoints.
    Mean,
}

/// Sums the tensors of `base` with those of `summands`, in double precision and rounded once to the dtype of the base. Tensors
/// that are shared in all checkpoints stay shared. Those that are not floating-point or complex numbers must be equal; a single
/// number, such as a counter, may differ, and is that of the base.
///
/// With `only_common`, tensors that only some checkpoints have, or that have another shape or kind of numbers in one, are summed
/// over the others, and dtypes may differ.
///
/// # Errors
/// When the checkpoints differ in a name, a shape or a dtype, or a tensor cannot be read.
pub fn sum(
    base: &Tensors,
    summands: &[Summand],
    rule: &SumRule,
    only_common: bool,
    observer: &dyn Observer,
) -> Result<(Tensors, SumReport)> {
    let weight = |number: usize| match rule {
        SumRule::Differences { weights } => weights.get(number).copied(),
        SumRule::Mean => None,
    };
    let mut files: Vec<SummedFile> = (0..)
        .zip(summands)
        .map(|(number, summand)| SummedFile::new(summand.path.clone(), weight(number)))
        .collect();
    for (summand, file) in summands.iter().zip(&mut files) {
        let added = || summand.tensors.names().filter(|name| !base.contains(name));
        if only_common {
            file.left_out.extend(added().map(str::to_owned));
        } else if let Some(tensor) = added().next() {
            return Err(
                summand.error(Problem::NotInBase { tensor: tensor.to_owned(), count: added().count() })
            );
        }
    }
    let mut kept: Vec<String> = Vec::new();
    let mut sums: HashMap<(ViewId, Vec<Option<ViewId>>), Tensor> = HashMap::new();
    let mut result = base.clone();
    for (name, tensor) in result.tensors_mut() {
        let (mut others, mut views) = (Vec::new(), Vec::new());
        for (number, (summand, file)) in summands.iter().zip(&mut files).enumerate() {
            let found = summand.tensors.get(name);
            let compared = compare(name, tensor, found, only_common, observer);
            let mut view = None;
            match (compared.map_err(|error| summand.error(error))?, found) {
                (Comparison::Summed, Some(other)) => {
                    file.tensors = file.tensors.saturating_add(1);
                    view = Some(other.view_id());
                    others.push((number, other));
                }
                (Comparison::LeftOut, _) => file.left_out.push(name.to_owned()),
                (Comparison::Kept, _) if kept.last().is_none_or(|known| known != name) => {
                    kept.push(name.to_owned());
                }
                _ => {}
            }
            views.push(view);
        }
        if others.is_empty() || tensor.numel() == 0 {
            continue;
        }
        let key = (tensor.view_id(), views);
        if let Some(known) = sums.get(&key) {
            *tensor = known.clone();
            continue;
        }
        let weights = others.iter().map(|(number, _)| weight(*number)).collect();
        let tensors: Vec<&Tensor> = others.iter().map(|(_, other)| *other).collect();
        let summed = sum_tensors(tensor, &tensors, weights);
        let summed = summed.map_err(|error| Error::from(error).in_tensor(name))?;
        sums.insert(key, summed.clone());
        *tensor = summed;
    }
    let nothing =
        summands.iter().zip(&files).find(|(_, file)| file.tensors == 0 && !file.left_out.is_empty());
    if let Some((summand, _)) = nothing {
        return Err(summand.error(Problem::NothingInCommon));
    }
    Ok((result, SumReport { only_common, files, kept }))
}

impl Summand {
    fn error(&self, error: impl Into<Error>) -> Error {
        error.into().in_file(self.path.as_ref())
    }
}

/// What happens to a tensor of the base and the one of the same name in another checkpoint.
enum Comparison {
    Summed,
    /// The numbers are equal, and not summed.
    Equal,
    Kept,
    /// The other checkpoint has no such tensor, or a different one.
    LeftOut,
}

fn compare(
    name: &str,
    base: &Tensor,
    other: Option<&Tensor>,
    only_common: bool,
    observer: &dyn Observer,
) -> Result<Comparison> {
    let tensor = || name.to_owned();
    let Some(other) = other else {
        return if only_common {
            Ok(Comparison::LeftOut)
        } else {
            Err(Problem::NotInFile { tensor: tensor() }.into())
        };
    };
    let kinds = (number_dtype(base.dtype()), number_dtype(other.dtype()));
    let (found, expected) = (other.shape().to_vec(), base.shape().to_vec());
    if found != expected {
        return if only_common {
            Ok(Comparison::LeftOut)
        } else {
            Err(Problem::OtherShape { tensor: tensor(), found, expected }.into())
        };
    }
    if base.dtype() != other.dtype() && !only_common {
        return Err(
            Problem::OtherDtype { tensor: tensor(), found: other.dtype(), expected: base.dtype() }.into()
        );
    }
    match kinds {
        (Some((_, count)), Some((_, others))) if count == others => return Ok(Comparison::Summed),
        (None, None) if base.dtype() == other.dtype() => {}
        _ => return Ok(Comparison::LeftOut),
    }
    let equal = base.has_elements_of(other, observer);
    let equal = equal.map_err(|error| error.in_tensor(name))?;
    match (equal, base.numel()) {
        (true, _) => Ok(Comparison::Equal),
        (false, 1) => Ok(Comparison::Kept),
        _ if only_common => Ok(Comparison::LeftOut),
        _ => Err(Problem::NotSummed { tensor: tensor(), dtype: base.dtype() }.into()),
    }
}

/// Returns the dtype of the numbers that are summed, and how many an element has; `None` if elements have no sums.
fn number_dtype(dtype: Dtype) -> Option<(Dtype, u64)> {
    match dtype {
        Dtype::Float64 | Dtype::Float32 | Dtype::BFloat16 | Dtype::Float16 => Some((dtype, 1)),
        Dtype::Complex128 => Some((Dtype::Float64, 2)),
        Dtype::Complex64 => Some((Dtype::Float32, 2)),
        Dtype::Complex32 => Some((Dtype::Float16, 2)),
        Dtype::BComplex32 => Some((Dtype::BFloat16, 2)),
        _ => None,
    }
}

/// Returns the sum of tensors of the same shape. `weights` are those of the differences; the sum is a mean if there are none.
fn sum_tensors(
    base: &Tensor,
    others: &[&Tensor],
    weights: Option<Vec<f64>>,
) -> std::result::Result<Tensor, tensor::Error> {
    let numbers = |tensor: &Tensor| -> std::result::Result<Numbers, tensor::Error> {
        let (dtype, _) = number_dtype(tensor.dtype()).unwrap_or((tensor.dtype(), 1));
        Ok((contiguous_storage(tensor)?, dtype))
    };
    let others = others.iter().map(|other| numbers(other)).collect::<std::result::Result<_, _>>()?;
    let sum = WeightedSum::new(numbers(base)?, others, weights);
    let shape = base.shape().to_vec();
    let stride = contiguous_strides(&shape);
    Tensor::new(base.dtype(), shape, stride, 0, Storage::computed(Arc::new(sum)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: Dtype, bytes: Vec<u8>) -> Tensor {
        let numbers = (bytes.len() as u64).div_euclid(dtype.size());
        Tensor::new(dtype, vec![numbers], vec![1], 0, Storage::owned(bytes)).expect("inside its storage")
    }

    fn floats(numbers: &[f32]) -> Tensor {
        tensor(Dtype::Float32, numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    fn numbers(tensor: &Tensor) -> Vec<f32> {
        let mut bytes: Vec<u8> = Vec::new();
        byte_source::Blob::write_to(&tensor.gathered(), &mut bytes).expect("memory can be read");
        bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect()
    }

    fn named(tensors: &[(&str, &Tensor)]) -> Tensors {
        tensors.iter().map(|(name, tensor)| ((*name).to_owned(), (*tensor).clone())).collect()
    }

    fn summands(all: &[Tensors]) -> Vec<Summand> {
        all.iter().map(|tensors| Summand { path: "other".to_owned(), tensors: tensors.clone() }).collect()
    }

    #[test]
    fn differences_and_means_are_rounded_once() {
        let base = named(&[("a", &floats(&[1.0, f32::NEG_INFINITY, 0.1]))]);
        let others = summands(&[
            named(&[("a", &floats(&[3.0, f32::NEG_INFINITY, 0.3]))]),
            named(&[("a", &floats(&[-1.0, f32::NEG_INFINITY, 0.7]))]),
        ]);
        let rule = SumRule::Differences { weights: vec![0.5, -0.25] };
        let (sum, report) = super::sum(&base, &others, &rule, false, &()).expect("they fit");
        #[expect(clippy::cast_possible_truncation, reason = "rounded once")]
        let rounded = |value: f64| value as f32;
        let [first, second, third] = [0.1_f32, 0.3, 0.7].map(f64::from);
        let expected = rounded(first + 0.5 * (second - first) - 0.25 * (third - first));
        assert_eq!(numbers(sum.get("a").expect("summed")), [2.5, f32::NEG_INFINITY, expected]);
        assert_eq!(report.files.iter().map(|file| file.tensors).collect::<Vec<_>>(), [1, 1]);
        let (mean, _) = super::sum(&base, &others, &SumRule::Mean, false, &()).expect("they fit");
        let expected = rounded((first + second + third) / 3.0);
        assert_eq!(numbers(mean.get("a").expect("summed")), [1.0, f32::NEG_INFINITY, expected]);
    }

    #[test]
    fn shared_tensors_stay_shared_if_all_checkpoints_share_them() {
        let (base, other, alone) = (floats(&[1.0]), floats(&[2.0]), floats(&[5.0]));
        let base = named(&[("a", &base), ("b", &base)]);
        let is_shared = |other: Tensors| {
            let (sum, _) = sum(&base, &summands(&[other]), &SumRule::Mean, false, &()).expect("they fit");
            let views: Vec<ViewId> = sum.iter().map(|(_, tensor)| tensor.view_id()).collect();
            views[0] == views[1]
        };
        assert!(is_shared(named(&[("a", &other), ("b", &other)])));
        assert!(!is_shared(named(&[("a", &other), ("b", &alone)])));
    }

    #[test]
    fn differing_checkpoints_are_refused_or_summed_where_they_are_common() {
        let (one, two) = (floats(&[1.0]), floats(&[1.0, 2.0]));
        let counter = |count: u8| tensor(Dtype::UInt8, vec![count]);
        let codes = |last: u8| tensor(Dtype::UInt8, vec![0, last]);
        let half = tensor(Dtype::Float16, vec![0, 0x42]);
        let base = named(&[("a", &one), ("n", &counter(1)), ("q", &codes(1))]);
        let run = |other: &[(&str, &Tensor)], only_common| {
            sum(&base, &summands(&[named(other)]), &SumRule::Mean, only_common, &())
        };
        for (other, expected) in [
            (&[("a", &one), ("n", &counter(1))][..], "other: it has no `q`, which the base has"),
            (
                &[("a", &one), ("n", &counter(1)), ("q", &codes(1)), ("x", &one)],
                "other: it has `x`, which the base does not have",
            ),
            (
                &[("a", &two), ("n", &counter(1)), ("q", &codes(1))],
                "other: `a` has shape [2], and [1] in the base",
            ),
            (
                &[("a", &half), ("n", &counter(1)), ("q", &codes(1))],
                "other: `a` has dtype float16, and float32 in the base",
            ),
            (
                &[("a", &one), ("n", &counter(1)), ("q", &codes(2))],
                "other: `q` differs from the base, and uint8 has no sums",
            ),
        ] {
            let error = run(other, false).expect_err("refused").to_string();
            assert_eq!(error, expected);
        }
        let (sum, report) =
            run(&[("a", &half), ("n", &counter(2)), ("q", &codes(2)), ("x", &one)], true).expect("asked for");
        assert_eq!(numbers(sum.get("a").expect("summed")), [2.0]);
        assert_eq!(
            (&report.files[0].left_out[..], &report.kept[..]),
            (&["x".to_owned(), "q".to_owned()][..], &["n".to_owned()][..])
        );
    }
}

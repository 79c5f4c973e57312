//! State of the merge of one adapter: names, used bytes, rows of the report, and the sums that are added to the base.

use std::sync::{Arc, OnceLock};

use tensor::Tensor;

use crate::adapter::{Adapter, AdapterTensor};
use crate::base_changes::BaseChanges;
use crate::base_names::BaseNames;
use crate::change::check_dtype;
use crate::low_rank::WeightDims;
use crate::magnitudes::{Axis, Magnitudes};
use crate::matrix::Matrix;
use crate::term::Term;
use crate::used_bytes::UsedBytes;
use crate::{MergeKind, MergedTensor, Problem, Result};

/// Rows of a report, and their norms, which are known after the tensors were read.
pub(crate) type ComputedRows = Vec<(usize, Arc<OnceLock<f64>>)>;

/// Reason for which numbers of an adapter are not merged.
const NOT_FINITE: &str = "some of its numbers are infinite or not numbers";

pub(crate) struct MergeState<'m, 'a> {
    pub(crate) adapter: &'a Adapter,
    pub(crate) changes: &'m mut BaseChanges<'a>,
    pub(crate) names: BaseNames<'a>,
    pub(crate) used: UsedBytes,
    pub(crate) rows: Vec<MergedTensor>,
    pub(crate) computed: ComputedRows,
    /// True if the base has the weights of linear layers as `in × out`.
    pub(crate) is_transposed: bool,
}

pub(crate) struct FactorPair<'a> {
    pub(crate) a: AdapterTensor<'a>,
    pub(crate) b: AdapterTensor<'a>,
    pub(crate) scale: f64,
}

impl<'a> MergeState<'_, 'a> {
    pub(crate) fn base_tensor(&self, name: &str) -> Option<&'a Tensor> {
        self.changes.base.get(name)
    }

    pub(crate) fn find_base(
        &self,
        source: AdapterTensor<'_>,
        name: &str,
    ) -> Result<(usize, String, &'a Tensor)> {
        let found = self.names.find(name).and_then(|(place, name)| {
            let tensor = self.base_tensor(&name)?;
            Some((place, name, tensor))
        });
        Ok(found.ok_or_else(|| Problem::NoBase {
            tensor: source.name.to_owned(),
            expected: self.names.rewritten(name),
        })?)
    }

    pub(crate) fn factors(&self, target: &str, a: usize, b: usize) -> FactorPair<'a> {
        let (_, scale) = self.adapter.config.rank_and_scale(target);
        let scale = scale * self.adapter.weight;
        FactorPair { a: self.adapter.tensor(a), b: self.adapter.tensor(b), scale }
    }

    /// Returns the square of the norm of a product; an error if it is not a finite number.
    pub(crate) fn finite_norm(&self, term: &Term) -> byte_source::Result<Result<f64>> {
        let squared = term.squared_norm()?;
        if squared.is_finite() {
            return Ok(Ok(squared));
        }
        let mut sources = [&term.left, &term.right].into_iter().filter_map(Matrix::source_part);
        let position = sources.next().map_or(0, |(position, _)| position);
        let reason =
            format!("{NOT_FINITE}, or those of the factor next to it, or the scale {:?}", term.scale);
        Ok(Err(self.adapter.tensor(position).unusable(reason)))
    }

    /// Checks the rows of A: the rank of the configuration for each expert.
    pub(crate) fn check_rank(
        &self,
        target: &str,
        source: AdapterTensor<'_>,
        rows: u64,
        experts: u64,
        (base_name, base): (&str, &Tensor),
    ) -> Result<()> {
        let (rank, _) = self.adapter.config.rank_and_scale(target);
        #[expect(clippy::cast_precision_loss, reason = "sizes of tensors are below 2^53")]
        let expected = rank * experts as f64;
        #[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "both are whole numbers")]
        let is_right = rows as f64 == expected && rows > 0;
        if is_right {
            return Ok(());
        }
        if rank < 1.0 {
            return Err(source.unusable(format!("adapter_config.json says that its rank is {rank}")));
        }
        let expected = match experts {
            1 if rank < 2.0 => format!("{rank} row, the rank of adapter_config.json,"),
            1 => format!("{rank} rows, the rank of adapter_config.json,"),
            _ => format!("{expected} rows, the rank {rank} of adapter_config.json for {experts} experts,"),
        };
        Err(source.shape_error(expected, base_name, base))
    }

    pub(crate) fn add_terms(
        &mut self,
        (place, base_name): (usize, String),
        dims: WeightDims,
        terms: Vec<(usize, Term)>,
        magnitude: Option<(usize, Axis)>,
    ) -> Result<()> {
        let read = |error: byte_source::Error| error.in_tensor(&base_name);
        let (mut squared, mut rank, mut scale) = (0.0, 0, 0.0);
        for (_, term) in &terms {
            squared += self.finite_norm(term).map_err(read)??;
        }
        let Some((changed, cache)) = self.changes.changed(place) else { return Ok(()) };
        check_dtype(&base_name, changed.dtype())?;
        if magnitude.is_some() {
            changed.finish_products(cache)?;
        }
        for (block, term) in terms {
            (rank, scale) = (term.right.rows(), term.scale);
            for part in [&term.left, &term.right].into_iter().filter_map(Matrix::source_part) {
                self.used.add(part.0, part.1);
            }
            changed.add(dims, block, term, cache)?;
        }
        let kind = if let Some((position, axis)) = magnitude {
            let source = self.adapter.tensor(position);
            let tensor = source.tensor;
            let count = if axis == Axis::Rows { dims.rows_per_block } else { dims.columns };
            if tensor.numel() != count {
                let shape = tensor.shape();
                return Err(source.unusable(format!("it has shape {shape:?}, expected {count} numbers")));
            }
            let values = Matrix::new(source, (1, count), (count, 1), 0)?;
            let numbers = values.read_doubles().map_err(read)?;
            if numbers.iter().any(|number| !number.is_finite()) {
                return Err(source.unusable(NOT_FINITE));
            }
            let norm = Arc::default();
            self.computed.push((self.rows.len(), Arc::clone(&norm)));
            changed.set_magnitudes(Magnitudes { values, axis, norm });
            self.used.add_whole(position, tensor);
            MergeKind::Dora { rank, scale }
        } else {
            MergeKind::LowRank { rank, scale }
        };
        let norm = magnitude.is_none().then_some(squared.sqrt());
        match self.rows.last_mut() {
            // Another expert of the same tensor.
            Some(row) if row.name == base_name && row.kind == kind && magnitude.is_none() => {
                row.norm = row.norm.map(|norm| norm.hypot(squared.sqrt()));
            }
            _ => self.rows.push(MergedTensor::new(base_name, kind, norm)),
        }
        Ok(())
    }
}

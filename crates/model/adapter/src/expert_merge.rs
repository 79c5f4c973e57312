//! Changes of parameters: the fused weights of experts, and the weights of experts that a base has one by one.

use tensor::Tensor;

use crate::adapter_name::{AdapterName, Role};
use crate::experts::{containers, expert_names, projections, sort_parameters};
use crate::low_rank::WeightDims;
use crate::matrix::Matrix;
use crate::merge_state::{FactorPair, MergeState};
use crate::term::Term;
use crate::{Problem, Result};

/// Module whose parameters are changed, each by one wrapper around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrappedModule<'n> {
    pub(crate) name: &'n str,
    /// Number of wrappers around the changed parameter inside of this one.
    pub(crate) depth: usize,
    pub(crate) wrappers: usize,
}

impl<'a> MergeState<'_, 'a> {
    /// Changes the rows of one expert in a weight that has all experts: the whole matrix, or one of two groups of rows.
    pub(crate) fn change_one_expert(
        &mut self,
        name: &str,
        expert: u64,
        group: Option<usize>,
        pair: &FactorPair<'a>,
    ) -> Result<()> {
        let (a, b) = (pair.a, pair.b);
        let (place, base_name, base) = self.find_base(a, name)?;
        let (&[experts, rows, columns], &[rank, input], &[output, b_rank]) =
            (base.shape(), a.tensor.shape(), b.tensor.shape())
        else {
            return Err(a.shape_error("two dimensions", &base_name, base));
        };
        let groups = if group.is_some() { 2 } else { 1 };
        if input != columns || expert >= experts {
            return Err(a.shape_error(format!("{columns} inputs"), &base_name, base));
        }
        if output.checked_mul(groups) != Some(rows) || b_rank != rank {
            let expected = format!("[{}, {rank}]", rows.checked_div(groups).unwrap_or(0));
            return Err(b.shape_error(expected, &base_name, base));
        }
        let start = output.saturating_mul(group.unwrap_or(0) as u64);
        let left = Matrix::new(b, (output, rank), (rank, 1), 0)?;
        let right = Matrix::new(a, (rank, columns), (columns, 1), 0)?;
        let term = Term { rows: start..start.saturating_add(output), left, right, scale: pair.scale };
        let dims = WeightDims { rows_per_block: rows, columns };
        let block = usize::try_from(expert).unwrap_or(usize::MAX);
        self.add_terms((place, base_name), dims, vec![(block, term)], None)
    }

    /// Changes a parameter that is not the weight of a layer, such as the fused weights of experts.
    pub(crate) fn change_parameter(
        &mut self,
        wrapped: WrappedModule<'_>,
        (a, b): (usize, usize),
    ) -> Result<()> {
        let module = wrapped.name;
        let parameter = self.parameter(wrapped, self.adapter.tensor(a).name)?;
        let pair = self.factors(&format!("{module}.{parameter}"), a, b);
        let (a, b) = (pair.a, pair.b);
        let (&[a_rows, _], &[_, b_columns]) = (a.tensor.shape(), b.tensor.shape()) else {
            return Err(a.unusable("it has not two dimensions"));
        };
        if a_rows != b_columns {
            let reason = format!("it has {a_rows} rows, and {} has {b_columns} columns", b.name);
            return Err(a.unusable(reason));
        }
        let mut names = containers(module).map(|container| format!("{container}.{parameter}"));
        let Some(name) = names.find(|name| self.names.find(name).is_some()) else {
            return self.change_each_expert((module, &parameter), &pair);
        };
        let (place, base_name, base) = self.find_base(a, &name)?;
        if let &[rows, columns] = base.shape() {
            let (output, input) = (b.tensor.shape().first().copied(), a.tensor.shape().get(1).copied());
            if (output, input) != (Some(rows), Some(columns)) {
                return Err(a.shape_error(format!("{columns} inputs"), &base_name, base));
            }
            self.check_rank(&name, a, a_rows, 1, (&base_name, base))?;
            let left = Matrix::new(b, (rows, a_rows), (a_rows, 1), 0)?;
            let right = Matrix::new(a, (a_rows, columns), (columns, 1), 0)?;
            let term = Term { rows: 0..rows, left, right, scale: pair.scale };
            let dims = WeightDims { rows_per_block: rows, columns };
            return self.add_terms((place, base_name), dims, vec![(0, term)], None);
        }
        let &[experts, rows, columns] = base.shape() else {
            return Err(a.shape_error("two or three dimensions", &base_name, base));
        };
        self.check_rank(&name, a, a_rows, experts, (&base_name, base))?;
        let is_swapped = self.is_swapped(&pair, (&base_name, base), (rows, columns))?;
        let mut terms = Vec::new();
        for expert in 0..experts {
            let (left, right) = expert_factors(&pair, expert, experts, is_swapped)?;
            let term = Term { rows: 0..rows, left, right, scale: pair.scale };
            terms.push((usize::try_from(expert).unwrap_or(usize::MAX), term));
        }
        let dims = WeightDims { rows_per_block: rows, columns };
        self.add_terms((place, base_name), dims, terms, None)
    }

    /// Changes the weights of experts that the base has one by one, with factors for the fused weight.
    fn change_each_expert(&mut self, (module, parameter): (&str, &str), pair: &FactorPair<'a>) -> Result<()> {
        let (a, b) = (pair.a, pair.b);
        let missing = || Problem::NoBase {
            tensor: a.name.to_owned(),
            expected: self.names.rewritten(&format!("{module}.{parameter}")),
        };
        let projections = projections(parameter);
        let first = projections.first().ok_or_else(missing)?;
        let find = |expert: u64, projection| {
            let mut names = expert_names(module, expert, projection);
            names.find(|name| self.names.find(name).is_some())
        };
        let experts = (0..self.changes.base.len() as u64)
            .take_while(|expert| find(*expert, *first).is_some())
            .count() as u64;
        if experts == 0 {
            return Err(missing().into());
        }
        let groups = projections.len() as u64;
        let mut changes = Vec::new();
        for expert in 0..experts {
            for (group, projection) in (0..).zip(projections) {
                let name = find(expert, *projection).ok_or_else(missing)?;
                let (place, base_name, base) = self.find_base(a, &name)?;
                let &[rows, columns] = base.shape() else {
                    return Err(a.shape_error("two dimensions", &base_name, base));
                };
                if expert == 0 && group == 0 {
                    let rank = a.rows();
                    self.check_rank(&format!("{module}.{parameter}"), a, rank, experts, (&base_name, base))?;
                }
                let fused_rows = rows.saturating_mul(groups);
                let is_swapped = self.is_swapped(pair, (&base_name, base), (fused_rows, columns))?;
                let (left, right) = expert_factors(pair, expert, experts, is_swapped)?;
                let start = rows.saturating_mul(group);
                let left = left.rows_in(&(start..start.saturating_add(rows)));
                let left =
                    left.ok_or_else(|| b.shape_error(format!("{fused_rows} rows"), &base_name, base))?;
                let term = Term { rows: 0..rows, left, right, scale: pair.scale };
                changes.push(((place, base_name), WeightDims { rows_per_block: rows, columns }, term));
            }
        }
        for (target, dims, term) in changes {
            self.add_terms(target, dims, vec![(0, term)], None)?;
        }
        Ok(())
    }

    /// Returns the name of the parameter that a wrapper changes; the innermost one changes the first.
    fn parameter(&self, wrapped: WrappedModule<'_>, tensor: &str) -> Result<String> {
        let WrappedModule { name: module, depth, wrappers } = wrapped;
        let targets = self.adapter.config.target_parameters.iter().flatten();
        let mut parameters: Vec<&str> = targets
            .filter_map(|target| {
                let (path, leaf) = target.rsplit_once('.').unwrap_or(("", target));
                let is_here = path.is_empty() || module == path || module.ends_with(&format!(".{path}"));
                is_here.then_some(leaf)
            })
            .collect();
        sort_parameters(&mut parameters);
        parameters.dedup();
        // A target without a path is for any module; those of other modules do not have such a parameter.
        if parameters.len() > wrappers {
            let has = |leaf: &&str| {
                containers(module).any(|container| self.names.find(&format!("{container}.{leaf}")).is_some())
                    || projections(leaf).first().is_some_and(|projection| {
                        expert_names(module, 0, *projection).any(|name| self.names.find(&name).is_some())
                    })
            };
            parameters.retain(has);
        }
        let place = wrappers.checked_sub(depth).and_then(|place| place.checked_sub(1));
        match place.and_then(|place| parameters.get(place)).filter(|_| parameters.len() == wrappers) {
            Some(parameter) => Ok((*parameter).to_owned()),
            None if parameters.is_empty() => {
                let expected = self.names.rewritten(&format!("{module}.weight"));
                Err(Problem::NoBase { tensor: tensor.to_owned(), expected }.into())
            }
            None => Err(Problem::UnknownParameter {
                tensor: tensor.to_owned(),
                module: module.to_owned(),
                found: parameters.len(),
                wrappers,
            }
            .into()),
        }
    }

    /// Returns true if the factors are for a weight of experts as `out × in`, whose matrices have these dimensions.
    ///
    /// peft before 0.19 took the first dimension of each matrix for the input, as it is in gpt-oss.
    fn is_swapped(
        &self,
        pair: &FactorPair<'a>,
        (base_name, base): (&str, &Tensor),
        (rows, columns): (u64, u64),
    ) -> Result<bool> {
        let (a, b) = (pair.a, pair.b);
        let (input, output) = (a.tensor.shape().get(1).copied(), b.tensor.shape().first().copied());
        let is_swapped = (input, output) == (Some(columns), Some(rows));
        let is_plain = (input, output) == (Some(rows), Some(columns));
        match (is_swapped, is_plain) {
            (true, false) => Ok(true),
            (false, true) => Ok(false),
            (false, false) => Err(a.shape_error(format!("{columns} inputs"), base_name, base)),
            (true, true) => self.square_is_swapped(base_name, base),
        }
    }

    /// Returns how square weights of experts are changed: as those that are not square, or as the version of peft says.
    fn square_is_swapped(&self, base_name: &str, base: &Tensor) -> Result<bool> {
        let votes = self.changes.base.iter().filter(|(name, _)| name.ends_with(".experts.gate_up_proj"));
        let votes = votes.filter_map(|(name, fused)| {
            let module = name.strip_suffix(".gate_up_proj")?;
            let &[_, rows, columns] = fused.shape() else { return None };
            let inner = self.adapter.tensors.iter().find(|(name, _)| {
                let parsed = AdapterName::parse(name);
                parsed.role == Role::A && parsed.depth > 0 && self.names.rewritten(&parsed.module) == module
            });
            let input = *inner?.1.shape().get(1)?;
            (rows != columns).then_some(input == columns)
        });
        if let Some(vote) = votes.into_iter().next() {
            return Ok(vote);
        }
        let direction = || Problem::Direction { base: base_name.to_owned(), shape: base.shape().to_vec() };
        let version = self.adapter.config.peft_version.as_deref().ok_or_else(direction)?;
        let mut numbers = version.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
        let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Ok((major, minor) >= (0, 19))
    }
}

/// Returns the factors of one expert. A has the experts slowest in its rows, B has them fastest in its columns.
fn expert_factors(
    pair: &FactorPair<'_>,
    expert: u64,
    experts: u64,
    is_swapped: bool,
) -> Result<(Matrix, Matrix)> {
    let (a, b) = (pair.a, pair.b);
    let (input, output) = (a.columns(), b.rows());
    let all = a.rows();
    let rank = all.checked_div(experts).unwrap_or(0);
    let a_start = expert.saturating_mul(rank).saturating_mul(input);
    if is_swapped {
        let left = Matrix::new(b, (output, rank), (all, experts), expert)?;
        return Ok((left, Matrix::new(a, (rank, input), (input, 1), a_start)?));
    }
    let left = Matrix::new(a, (input, rank), (1, input), a_start)?;
    Ok((left, Matrix::new(b, (rank, output), (experts, all), expert)?))
}

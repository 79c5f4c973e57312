//! Merge of one adapter: finds what each of its tensors changes, and proves that all of them are used.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tensor::{Storage, Tensor, Tensors};

use crate::adapter_name::{AdapterName, Role};
use crate::base_names::BaseNames;
use crate::change::check_dtype;
use crate::experts::{containers, expert_names, parse_expert, projections, sort_parameters};
use crate::low_rank::{Axis, LowRankUpdate, Magnitudes, Term, WeightDims};
use crate::matrix::Matrix;
use crate::merge::{Adapter, Merge};
use crate::{Error, MergeKind, MergedTensor, Result};

/// Rows of a report whose norms the computations know after they were read.
pub(crate) type ComputedRows = Vec<(usize, Arc<LowRankUpdate>)>;

/// Tensors of an adapter that change one module.
type Parts = BTreeMap<Role, usize>;

/// Bytes of an adapter that were used.
#[derive(Debug, Default)]
struct UsedParts {
    /// Parts of tensors by position, and by where they begin and what they have.
    parts: HashSet<(usize, PartId)>,
    nbytes: HashMap<usize, u64>,
}

/// Offset, rows and columns of a factor in its tensor.
type PartId = (u64, u64, u64);

impl UsedParts {
    fn add(&mut self, position: usize, part: PartId, nbytes: u64) {
        if self.parts.insert((position, part)) {
            let used = self.nbytes.entry(position).or_default();
            *used = used.saturating_add(nbytes);
        }
    }

    /// Fails if a tensor was not used completely.
    fn check(&self, tensors: &Tensors) -> Result<()> {
        for (position, (name, tensor)) in tensors.iter().enumerate() {
            let unused = tensor.nbytes().saturating_sub(self.nbytes.get(&position).copied().unwrap_or(0));
            if unused > 0 {
                return Err(Error::Unused { tensor: name.clone(), unused, nbytes: tensor.nbytes() });
            }
        }
        Ok(())
    }
}

/// Returns the number of changes of each module that is wrapped for each of its parameters.
fn count_wrappers(modules: &BTreeMap<(String, usize), Parts>) -> HashMap<String, usize> {
    let mut wrappers: HashMap<String, usize> = HashMap::new();
    for (module, depth) in modules.keys() {
        let count = wrappers.entry(module.clone()).or_default();
        *count = (*count).max(depth.saturating_add(1));
    }
    wrappers
}

/// Merge of one adapter.
pub(crate) struct AdapterMerge<'a> {
    adapter: &'a Adapter,
    base: &'a Tensors,
    names: BaseNames<'a>,
    used: UsedParts,
    rows: Vec<MergedTensor>,
    computed: ComputedRows,
    wrappers: HashMap<String, usize>,
    /// True if the base has the weights of linear layers as `in × out`.
    is_transposed: bool,
}

/// Factors of a module with their names.
struct FactorPair<'a> {
    a: (usize, &'a str, &'a Tensor),
    b: (usize, &'a str, &'a Tensor),
    scale: f64,
}

impl<'a> AdapterMerge<'a> {
    /// Adds the changes of `adapter` to `merge`, and returns a row for each changed tensor, and the computations that know the
    /// norm of a row later.
    ///
    /// # Errors
    /// When a tensor of the adapter fits nothing in the base, or is not used completely.
    pub(crate) fn run(
        adapter: &'a Adapter,
        merge: &mut Merge<'a>,
    ) -> Result<(Vec<MergedTensor>, ComputedRows)> {
        let mut modules: BTreeMap<(String, usize), Parts> = BTreeMap::new();
        let mut replacements = Vec::new();
        for (position, name) in adapter.tensors.names().enumerate() {
            let AdapterName { module, depth, role } = AdapterName::parse(name);
            if role == Role::Replacement {
                replacements.push((module, position));
            } else {
                modules.entry((module, depth)).or_default().insert(role, position);
            }
        }
        let names = modules.keys().map(|(module, _)| module.as_str());
        let names = names.chain(replacements.iter().map(|(name, _)| name.as_str()));
        let mut user = Self {
            adapter,
            base: merge.base,
            names: BaseNames::new(merge.base, names),
            used: UsedParts::default(),
            rows: Vec::new(),
            computed: Vec::new(),
            wrappers: count_wrappers(&modules),
            is_transposed: false,
        };
        user.is_transposed = user.is_transposed(&modules);
        for (name, position) in replacements {
            user.replace(merge, &name, position)?;
        }
        for ((module, depth), parts) in &modules {
            user.change_module(merge, (module, *depth), parts)?;
        }
        user.used.check(&adapter.tensors)?;
        Ok((user.rows, user.computed))
    }

    fn tensor(&self, position: usize) -> (usize, &'a str, &'a Tensor) {
        let found = self.adapter.tensors.get_index(position);
        let (name, tensor) = found.expect("the position comes from this list");
        (position, name, tensor)
    }

    /// Returns true if weights that are not square show that the base has them as `in × out`, as GPT-2 does.
    fn is_transposed(&self, modules: &BTreeMap<(String, usize), Parts>) -> bool {
        let votes = modules.iter().filter_map(|((module, _), parts)| {
            let (_, base) = self.names.find(&format!("{module}.weight"))?;
            let base = self.base_tensor(&base)?;
            let &[first, second] = base.shape() else { return None };
            let input = *self.tensor(*parts.get(&Role::A)?).2.shape().get(1)?;
            let output = *self.tensor(*parts.get(&Role::B)?).2.shape().first()?;
            (input != output && [first, second] == [input, output])
                .then_some(true)
                .or((input != output && [first, second] == [output, input]).then_some(false))
        });
        let votes: Vec<bool> = votes.collect();
        match votes.as_slice() {
            [] => self.adapter.config.fan_in_fan_out,
            _ => votes.contains(&true) && (self.adapter.config.fan_in_fan_out || !votes.contains(&false)),
        }
    }

    fn base_tensor(&self, name: &str) -> Option<&'a Tensor> {
        self.base.get(name)
    }

    /// Replaces a tensor of the base.
    fn replace(&mut self, merge: &mut Merge<'a>, name: &str, position: usize) -> Result<()> {
        let (_, adapter_name, tensor) = self.tensor(position);
        if self.names.find(name).is_none() && self.adapter.config.saves_module(name) {
            // The base has no head of its own: it is tied to the embedding, or the task is a new one.
            let name = self.names.rewritten(name);
            merge.add_tensor(&name, tensor);
            self.used.add(position, (0, 0, 0), tensor.nbytes());
            self.rows.push(MergedTensor::new(name, MergeKind::Added, None));
            return Ok(());
        }
        let (place, base_name, old) = self.find_base(adapter_name, name)?;
        if old.shape() != tensor.shape() {
            return Err(shape_error(adapter_name, tensor, "the same shape".to_owned(), &base_name, old));
        }
        let new = tensor.cast(old.dtype()).ok_or_else(|| Error::Factor {
            tensor: adapter_name.to_owned(),
            reason: format!("its dtype {} cannot be cast to {}", tensor.dtype(), old.dtype()),
        })?;
        if let Some((changed, _)) = merge.changed(place) {
            changed.replace(new);
        }
        self.used.add(position, (0, 0, 0), tensor.nbytes());
        self.rows.push(MergedTensor::new(base_name, MergeKind::Replaced, None));
        Ok(())
    }

    fn find_base(&self, tensor: &str, name: &str) -> Result<(usize, String, &'a Tensor)> {
        let found = self.names.find(name).and_then(|(place, name)| {
            let tensor = self.base_tensor(&name)?;
            Some((place, name, tensor))
        });
        found.ok_or_else(|| Error::NoBase { tensor: tensor.to_owned(), expected: self.names.rewritten(name) })
    }

    /// Applies the tensors that change one module or one of its parameters.
    fn change_module(
        &mut self,
        merge: &mut Merge<'a>,
        (module, depth): (&str, usize),
        parts: &Parts,
    ) -> Result<()> {
        if let Some(position) = parts.get(&Role::TokenRows) {
            self.replace_rows(merge, module, *position)?;
        }
        for (role, partner, what) in [
            (Role::A, Role::B, "lora_B"),
            (Role::B, Role::A, "lora_A"),
            (Role::EmbeddingA, Role::EmbeddingB, "lora_embedding_B"),
            (Role::EmbeddingB, Role::EmbeddingA, "lora_embedding_A"),
            (Role::BiasOfB, Role::B, "lora_B.weight"),
        ] {
            if let Some(position) = parts.get(&role).filter(|_| !parts.contains_key(&partner)) {
                let tensor = self.tensor(*position).1.to_owned();
                return Err(Error::NoPartner { tensor, partner: what });
            }
        }
        let pair = |a, b| Some((*parts.get(&a)?, *parts.get(&b)?));
        let magnitude = parts.get(&Role::Magnitude).copied();
        if let Some((a, b)) = pair(Role::EmbeddingA, Role::EmbeddingB) {
            let pair = self.factors(module, a, b)?;
            self.change_embedding(merge, module, &pair, magnitude)?;
        }
        let Some((a, b)) = pair(Role::A, Role::B) else {
            if let (Some(position), None) = (magnitude, parts.get(&Role::EmbeddingA)) {
                let tensor = self.tensor(position).1.to_owned();
                return Err(Error::NoPartner { tensor, partner: "lora_A" });
            }
            return Ok(());
        };
        if let Some(position) = parts.get(&Role::BiasOfB) {
            self.add_bias(merge, module, *position)?;
        }
        if self.names.find(&format!("{module}.weight")).is_some() {
            let pair = self.factors(module, a, b)?;
            return self.change_weight(merge, module, &pair, magnitude);
        }
        if let Some((container, expert, projection)) = parse_expert(module) {
            let (parameter, group) = projection.fused();
            let mut names = containers(container).map(|container| format!("{container}.{parameter}"));
            if let Some(name) = names.find(|name| self.names.find(name).is_some()) {
                let pair = self.factors(module, a, b)?;
                return self.change_one_expert(merge, &name, (expert, group), &pair);
            }
        }
        self.change_parameter(merge, (module, depth), (a, b))
    }

    /// Returns the factors of a module, or of a parameter with its name.
    fn factors(&self, target: &str, a: usize, b: usize) -> Result<FactorPair<'a>> {
        let (_, scale) = self.adapter.config.rank_and_scale(target)?;
        let scale = scale * self.adapter.weight;
        Ok(FactorPair { a: self.tensor(a), b: self.tensor(b), scale })
    }

    /// Changes a weight of a linear layer or a convolution.
    fn change_weight(
        &mut self,
        merge: &mut Merge<'a>,
        module: &str,
        pair: &FactorPair<'a>,
        magnitude: Option<usize>,
    ) -> Result<()> {
        let ((_, a_name, a), (_, b_name, b)) = (pair.a, pair.b);
        let (place, base_name, base) = self.find_base(a_name, &format!("{module}.weight"))?;
        let product = |sizes: &[u64]| sizes.iter().fold(1, |all: u64, size| all.saturating_mul(*size));
        let flat = |tensor: &Tensor| {
            let (rows, rest) = tensor.shape().split_first()?;
            Some((*rows, product(rest)))
        };
        let (Some((rows, columns)), Some((rank, input)), Some((output, b_rank))) =
            (flat(base), flat(a), flat(b))
        else {
            return Err(shape_error(a_name, a, "two dimensions".to_owned(), &base_name, base));
        };
        self.check_rank(module, (a_name, a), rank, 1, (&base_name, base))?;
        if b_rank != rank {
            let expected = format!("{rank} columns, the rank of {a_name},");
            return Err(shape_error(b_name, b, expected, &base_name, base));
        }
        let is_transposed = base.shape().len() == 2
            && (rows, columns) == (input, output)
            && ((rows, columns) != (output, input) || self.is_transposed);
        let (left, right) = if is_transposed {
            let left = Matrix::new(a_name, a, (rows, rank), (1, columns_of(a)), 0)?;
            (left, Matrix::new(b_name, b, (rank, columns), (1, rank), 0)?)
        } else {
            if input != columns {
                let expected = format!("{columns} inputs");
                return Err(shape_error(a_name, a, expected, &base_name, base));
            }
            if output != rows {
                return Err(shape_error(b_name, b, format!("{rows} rows"), &base_name, base));
            }
            let left = Matrix::new(b_name, b, (rows, rank), (rank, 1), 0)?;
            (left, Matrix::new(a_name, a, (rank, columns), (columns, 1), 0)?)
        };
        let axis = if is_transposed { Axis::Columns } else { Axis::Rows };
        let dims = WeightDims { rows_per_block: rows, columns };
        self.use_pair(pair);
        let term = Term { rows: 0..rows, left, right, scale: pair.scale };
        self.add_terms(merge, (place, base_name), dims, vec![(0, term)], magnitude.map(|m| (m, axis)))
    }

    /// Changes an embedding: `W[token] += scale · B · A[:, token]`.
    fn change_embedding(
        &mut self,
        merge: &mut Merge<'a>,
        module: &str,
        pair: &FactorPair<'a>,
        magnitude: Option<usize>,
    ) -> Result<()> {
        let ((_, a_name, a), (_, b_name, b)) = (pair.a, pair.b);
        let (place, base_name, base) = self.find_base(a_name, &format!("{module}.weight"))?;
        let (&[tokens, size], &[rank, a_tokens], &[b_size, b_rank]) = (base.shape(), a.shape(), b.shape())
        else {
            return Err(shape_error(a_name, a, "two dimensions".to_owned(), &base_name, base));
        };
        self.check_rank(module, (a_name, a), rank, 1, (&base_name, base))?;
        if a_tokens != tokens {
            return Err(shape_error(a_name, a, format!("{tokens} columns"), &base_name, base));
        }
        if (b_size, b_rank) != (size, rank) {
            return Err(shape_error(b_name, b, format!("[{size}, {rank}]"), &base_name, base));
        }
        let left = Matrix::new(a_name, a, (tokens, rank), (1, tokens), 0)?;
        let right = Matrix::new(b_name, b, (rank, size), (1, rank), 0)?;
        self.use_pair(pair);
        let term = Term { rows: 0..tokens, left, right, scale: pair.scale };
        let dims = WeightDims { rows_per_block: tokens, columns: size };
        self.add_terms(
            merge,
            (place, base_name),
            dims,
            vec![(0, term)],
            magnitude.map(|m| (m, Axis::Columns)),
        )
    }

    /// Changes the rows of one expert in a weight that has all experts: the whole matrix, or one of two groups of rows.
    fn change_one_expert(
        &mut self,
        merge: &mut Merge<'a>,
        name: &str,
        (expert, group): (u64, Option<usize>),
        pair: &FactorPair<'a>,
    ) -> Result<()> {
        let ((_, a_name, a), (_, b_name, b)) = (pair.a, pair.b);
        let (place, base_name, base) = self.find_base(a_name, name)?;
        let (&[experts, rows, columns], &[rank, input], &[output, b_rank]) =
            (base.shape(), a.shape(), b.shape())
        else {
            return Err(shape_error(a_name, a, "two dimensions".to_owned(), &base_name, base));
        };
        let groups = if group.is_some() { 2 } else { 1 };
        if input != columns || expert >= experts {
            return Err(shape_error(a_name, a, format!("{columns} inputs"), &base_name, base));
        }
        if output.checked_mul(groups) != Some(rows) || b_rank != rank {
            let expected = format!("[{}, {rank}]", rows.checked_div(groups).unwrap_or(0));
            return Err(shape_error(b_name, b, expected, &base_name, base));
        }
        let start = output.saturating_mul(group.unwrap_or(0) as u64);
        let left = Matrix::new(b_name, b, (output, rank), (rank, 1), 0)?;
        let right = Matrix::new(a_name, a, (rank, columns), (columns, 1), 0)?;
        self.use_pair(pair);
        let term = Term { rows: start..start.saturating_add(output), left, right, scale: pair.scale };
        let dims = WeightDims { rows_per_block: rows, columns };
        let block = usize::try_from(expert).unwrap_or(usize::MAX);
        self.add_terms(merge, (place, base_name), dims, vec![(block, term)], None)
    }

    /// Changes a parameter that is not the weight of a layer, such as the fused weights of experts.
    fn change_parameter(
        &mut self,
        merge: &mut Merge<'a>,
        (module, depth): (&str, usize),
        (a, b): (usize, usize),
    ) -> Result<()> {
        let (a_name, b_name) = (self.tensor(a).1, self.tensor(b).1);
        let parameter = self.parameter(module, depth, a_name)?;
        let pair = self.factors(&format!("{module}.{parameter}"), a, b)?;
        let ((_, _, a), (_, _, b)) = (pair.a, pair.b);
        let (&[a_rows, _], &[_, b_columns]) = (a.shape(), b.shape()) else {
            return Err(Error::Factor {
                tensor: a_name.to_owned(),
                reason: "it has not two dimensions".to_owned(),
            });
        };
        if a_rows != b_columns {
            let reason = format!("it has {a_rows} rows, and {b_name} has {b_columns} columns");
            return Err(Error::Factor { tensor: a_name.to_owned(), reason });
        }
        let mut names = containers(module).map(|container| format!("{container}.{parameter}"));
        let Some(name) = names.find(|name| self.names.find(name).is_some()) else {
            return self.change_each_expert(merge, (module, &parameter), &pair);
        };
        let (place, base_name, base) = self.find_base(a_name, &name)?;
        if let &[rows, columns] = base.shape() {
            let (output, input) = (b.shape().first().copied(), a.shape().get(1).copied());
            if (output, input) != (Some(rows), Some(columns)) {
                return Err(shape_error(a_name, a, format!("{columns} inputs"), &base_name, base));
            }
            self.check_rank(&name, (a_name, a), a_rows, 1, (&base_name, base))?;
            let left = Matrix::new(b_name, b, (rows, a_rows), (a_rows, 1), 0)?;
            let right = Matrix::new(a_name, a, (a_rows, columns), (columns, 1), 0)?;
            self.use_pair(&pair);
            let term = Term { rows: 0..rows, left, right, scale: pair.scale };
            let dims = WeightDims { rows_per_block: rows, columns };
            return self.add_terms(merge, (place, base_name), dims, vec![(0, term)], None);
        }
        let &[experts, rows, columns] = base.shape() else {
            return Err(shape_error(a_name, a, "two or three dimensions".to_owned(), &base_name, base));
        };
        self.check_rank(&name, (a_name, a), a_rows, experts, (&base_name, base))?;
        let is_swapped = self.is_swapped(&pair, (&base_name, base), (rows, columns))?;
        let mut terms = Vec::new();
        for expert in 0..experts {
            let (left, right) = expert_factors(&pair, (expert, experts), is_swapped)?;
            let term = Term { rows: 0..rows, left, right, scale: pair.scale };
            terms.push((usize::try_from(expert).unwrap_or(usize::MAX), term));
        }
        self.use_pair(&pair);
        let dims = WeightDims { rows_per_block: rows, columns };
        self.add_terms(merge, (place, base_name), dims, terms, None)
    }

    /// Changes the weights of experts that the base has one by one, with factors for the fused weight.
    fn change_each_expert(
        &mut self,
        merge: &mut Merge<'a>,
        (module, parameter): (&str, &str),
        pair: &FactorPair<'a>,
    ) -> Result<()> {
        let ((a_place, a_name, a), (b_place, b_name, b)) = (pair.a, pair.b);
        let missing = || Error::NoBase {
            tensor: a_name.to_owned(),
            expected: self.names.rewritten(&format!("{module}.{parameter}")),
        };
        let projections = projections(parameter);
        let first = projections.first().ok_or_else(missing)?;
        let find = |expert: u64, projection| {
            let mut names = expert_names(module, expert, projection);
            names.find(|name| self.names.find(name).is_some())
        };
        let experts =
            (0..self.base.len() as u64).take_while(|expert| find(*expert, *first).is_some()).count() as u64;
        if experts == 0 {
            return Err(missing());
        }
        let groups = projections.len() as u64;
        let mut changes = Vec::new();
        for expert in 0..experts {
            for (group, projection) in (0..).zip(projections) {
                let name = find(expert, *projection).ok_or_else(missing)?;
                let (place, base_name, base) = self.find_base(a_name, &name)?;
                let &[rows, columns] = base.shape() else {
                    return Err(shape_error(a_name, a, "two dimensions".to_owned(), &base_name, base));
                };
                if expert == 0 && group == 0 {
                    let rank = a.shape().first().copied().unwrap_or(0);
                    self.check_rank(
                        &format!("{module}.{parameter}"),
                        (a_name, a),
                        rank,
                        experts,
                        (&base_name, base),
                    )?;
                }
                let fused_rows = rows.saturating_mul(groups);
                let is_swapped = self.is_swapped(pair, (&base_name, base), (fused_rows, columns))?;
                let (left, right) = expert_factors(pair, (expert, experts), is_swapped)?;
                let start = rows.saturating_mul(group);
                let left = left.rows_in(&(start..start.saturating_add(rows)));
                let left = left
                    .ok_or_else(|| shape_error(b_name, b, format!("{fused_rows} rows"), &base_name, base))?;
                let term = Term { rows: 0..rows, left, right, scale: pair.scale };
                changes.push(((place, base_name), WeightDims { rows_per_block: rows, columns }, term));
            }
        }
        for (target, dims, term) in changes {
            self.add_terms(merge, target, dims, vec![(0, term)], None)?;
        }
        self.used.add(a_place, (0, 0, 0), a.nbytes());
        self.used.add(b_place, (0, 0, 0), b.nbytes());
        Ok(())
    }

    /// Returns the name of the parameter that the wrapper at `depth` changes; the innermost one changes the first.
    fn parameter(&self, module: &str, depth: usize, tensor: &str) -> Result<String> {
        let wrappers = self.wrappers.get(module).copied().unwrap_or(0);
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
                Err(Error::NoBase { tensor: tensor.to_owned(), expected })
            }
            None => Err(Error::UnknownParameter {
                tensor: tensor.to_owned(),
                module: module.to_owned(),
                found: parameters.len(),
                wrappers,
            }),
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
        let ((_, a_name, a), (_, _, b)) = (pair.a, pair.b);
        let (input, output) = (a.shape().get(1).copied(), b.shape().first().copied());
        let is_swapped = (input, output) == (Some(columns), Some(rows));
        let is_plain = (input, output) == (Some(rows), Some(columns));
        match (is_swapped, is_plain) {
            (true, false) => Ok(true),
            (false, true) => Ok(false),
            (false, false) => Err(shape_error(a_name, a, format!("{columns} inputs"), base_name, base)),
            (true, true) => self.square_is_swapped(base_name, base),
        }
    }

    /// Returns how square weights of experts are changed: as those that are not square, or as the version of peft says.
    fn square_is_swapped(&self, base_name: &str, base: &Tensor) -> Result<bool> {
        let votes = self.base.iter().filter(|(name, _)| name.ends_with(".experts.gate_up_proj"));
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
        let direction = || Error::Direction { base: base_name.to_owned(), shape: base.shape().to_vec() };
        let version = self.adapter.config.peft_version.as_deref().ok_or_else(direction)?;
        let mut numbers = version.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
        let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Ok((major, minor) >= (0, 19))
    }

    /// Checks the rows of A: the rank of the configuration for each expert.
    fn check_rank(
        &self,
        target: &str,
        (name, tensor): (&str, &Tensor),
        rows: u64,
        experts: u64,
        (base_name, base): (&str, &Tensor),
    ) -> Result<()> {
        let (rank, _) = self.adapter.config.rank_and_scale(target)?;
        #[expect(clippy::cast_precision_loss, reason = "sizes of tensors are below 2^53")]
        let expected = rank * experts as f64;
        #[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "both are whole numbers")]
        let is_right = rows as f64 == expected && rows > 0;
        if is_right {
            return Ok(());
        }
        let expected = match experts {
            1 if rank <= 1.0 => format!("{rank} row, the rank of adapter_config.json,"),
            1 => format!("{rank} rows, the rank of adapter_config.json,"),
            _ => format!("{expected} rows, the rank {rank} of adapter_config.json for {experts} experts,"),
        };
        Err(shape_error(name, tensor, expected, base_name, base))
    }

    /// Adds the bias of B to that of the module.
    fn add_bias(&mut self, merge: &mut Merge<'a>, module: &str, position: usize) -> Result<()> {
        let (_, name, bias) = self.tensor(position);
        let (place, base_name, base) = self.find_base(name, &format!("{module}.bias"))?;
        let rows = base.numel();
        if bias.shape() != base.shape() {
            return Err(shape_error(name, bias, "the same shape".to_owned(), &base_name, base));
        }
        let (_, scale) = self.adapter.config.rank_and_scale(module)?;
        let scale = scale * self.adapter.weight;
        let one = Storage::owned(1.0_f32.to_le_bytes().to_vec());
        let one = Tensor::new(tensor::Dtype::Float32, vec![1, 1], vec![1, 1], 0, one);
        let one = one.map_err(|reason| Error::Base { base: base_name.clone(), reason })?;
        let left = Matrix::new(name, bias, (rows, 1), (1, 1), 0)?;
        let term = Term { rows: 0..rows, left, right: Matrix::new(name, &one, (1, 1), (1, 1), 0)?, scale };
        let squared =
            term.squared_norm().map_err(|reason| Error::Read { tensor: name.to_owned(), reason })?;
        self.used.add(position, (0, 0, 0), bias.nbytes());
        check_dtype(&base_name, base.dtype())?;
        if let Some((changed, cache)) = merge.changed(place) {
            changed.add(WeightDims { rows_per_block: rows, columns: 1 }, 0, term, cache)?;
        }
        self.rows.push(MergedTensor::new(base_name, MergeKind::Bias { scale }, Some(squared.sqrt())));
        Ok(())
    }

    /// Replaces rows of an embedding.
    fn replace_rows(&mut self, merge: &mut Merge<'a>, module: &str, position: usize) -> Result<()> {
        let (_, name, values) = self.tensor(position);
        let (place, base_name, base) = self.find_base(name, &format!("{module}.weight"))?;
        let rows = self.adapter.config.token_indices(module).ok_or_else(|| Error::Factor {
            tensor: name.to_owned(),
            reason: format!("trainable_token_indices of adapter_config.json has no entry for {module}"),
        })?;
        let (Some((tokens, rest)), Some((count, size))) =
            (base.shape().split_first(), values.shape().split_first())
        else {
            return Err(shape_error(name, values, "two dimensions".to_owned(), &base_name, base));
        };
        if *count != rows.len() as u64 || rest != size {
            let expected = format!("{} rows of the embedding", rows.len());
            return Err(shape_error(name, values, expected, &base_name, base));
        }
        if let Some(token) = rows.iter().find(|row| *row >= tokens) {
            return Err(Error::Token {
                tensor: name.to_owned(),
                token: *token,
                base: base_name,
                rows: *tokens,
            });
        }
        let cast = values
            .cast(base.dtype())
            .ok_or_else(|| Error::BaseDtype { base: base_name.clone(), dtype: base.dtype() })?;
        if let Some((changed, cache)) = merge.changed(place) {
            changed.replace_rows(rows, &cast, cache)?;
        }
        self.used.add(position, (0, 0, 0), values.nbytes());
        self.rows.push(MergedTensor::new(base_name, MergeKind::Rows { rows: rows.len() }, None));
        Ok(())
    }

    fn use_pair(&mut self, pair: &FactorPair<'a>) {
        for (position, _, tensor) in [pair.a, pair.b] {
            self.used.add(position, (0, 0, 0), tensor.nbytes());
        }
    }

    /// Adds the terms of one tensor of the base, and a row to the report.
    fn add_terms(
        &mut self,
        merge: &mut Merge<'a>,
        (place, base_name): (usize, String),
        dims: WeightDims,
        terms: Vec<(usize, Term)>,
        magnitude: Option<(usize, Axis)>,
    ) -> Result<()> {
        let Some((changed, cache)) = merge.changed(place) else { return Ok(()) };
        check_dtype(&base_name, changed.tensor().dtype())?;
        let read = |reason| Error::Read { tensor: base_name.clone(), reason };
        let (mut squared, mut rank, mut scale) = (0.0, 0, 0.0);
        if magnitude.is_some() {
            changed.evaluate(None, cache)?;
        }
        for (block, term) in terms {
            squared += term.squared_norm().map_err(read)?;
            (rank, scale) = (term.right.rows(), term.scale);
            changed.add(dims, block, term, cache)?;
        }
        let kind = if let Some((position, axis)) = magnitude {
            let (_, name, tensor) = self.tensor(position);
            let count = if axis == Axis::Rows { dims.rows_per_block } else { dims.columns };
            if tensor.numel() != count || !tensor.is_contiguous() {
                return Err(Error::Factor {
                    tensor: name.to_owned(),
                    reason: format!("it has shape {:?}, expected {count} numbers", tensor.shape()),
                });
            }
            let values = Matrix::new(name, tensor, (1, count), (count, 1), 0)?;
            let update = changed.evaluate(Some(Magnitudes { values, axis }), cache)?;
            self.computed.extend(update.map(|update| (self.rows.len(), update)));
            self.used.add(position, (0, 0, 0), tensor.nbytes());
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

/// Returns the factors of one expert. A has the experts slowest in its rows, B has them fastest in its columns.
fn expert_factors(
    pair: &FactorPair<'_>,
    (expert, experts): (u64, u64),
    is_swapped: bool,
) -> Result<(Matrix, Matrix)> {
    let ((_, a_name, a), (_, b_name, b)) = (pair.a, pair.b);
    let (input, output) = (columns_of(a), b.shape().first().copied().unwrap_or(0));
    let all = a.shape().first().copied().unwrap_or(0);
    let rank = all.checked_div(experts).unwrap_or(0);
    let a_start = expert.saturating_mul(rank).saturating_mul(input);
    if is_swapped {
        let left = Matrix::new(b_name, b, (output, rank), (all, experts), expert)?;
        return Ok((left, Matrix::new(a_name, a, (rank, input), (input, 1), a_start)?));
    }
    let left = Matrix::new(a_name, a, (input, rank), (1, input), a_start)?;
    Ok((left, Matrix::new(b_name, b, (rank, output), (experts, all), expert)?))
}

fn shape_error(name: &str, tensor: &Tensor, expected: String, base: &str, old: &Tensor) -> Error {
    Error::Shape {
        tensor: name.to_owned(),
        found: tensor.shape().to_vec(),
        expected,
        base: base.to_owned(),
        base_shape: old.shape().to_vec(),
    }
}

/// Returns the number of elements of a row.
fn columns_of(tensor: &Tensor) -> u64 {
    tensor.shape().iter().skip(1).fold(1, |all, size| all.saturating_mul(*size))
}

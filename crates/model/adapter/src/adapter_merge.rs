//! Merge of one adapter: finds what each of its tensors changes, and proves that all of them are used.

use std::collections::{BTreeMap, HashMap};

use tensor::Tensor;

use crate::adapter::Adapter;
use crate::adapter_name::{AdapterName, Role};
use crate::base_changes::BaseChanges;
use crate::base_names::BaseNames;
use crate::change::check_dtype;
use crate::expert_merge::WrappedModule;
use crate::experts::{containers, parse_expert};
use crate::low_rank::WeightDims;
use crate::magnitudes::Axis;
use crate::matrix::Matrix;
use crate::merge_state::{ComputedRows, FactorPair, MergeState};
use crate::term::Term;
use crate::used_bytes::UsedBytes;
use crate::{Error, MergeKind, MergedTensor, Problem, Result};

type Parts = BTreeMap<Role, usize>;

/// Adds the changes of `adapter` to `changes`, and returns a row for each changed tensor, and the computations that know the
/// norm of a row later.
///
/// # Errors
/// When a tensor of the adapter fits nothing in the base, or is not used completely.
pub(crate) fn merge_adapter<'a>(
    adapter: &'a Adapter,
    changes: &mut BaseChanges<'a>,
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
    let names = BaseNames::new(changes.base, names);
    let mut state = MergeState {
        adapter,
        changes,
        names,
        used: UsedBytes::default(),
        rows: Vec::new(),
        computed: Vec::new(),
        is_transposed: false,
    };
    state.is_transposed = state.is_transposed(&modules);
    for (name, position) in replacements {
        state.replace(&name, position)?;
    }
    let wrappers = count_wrappers(&modules);
    for ((module, depth), parts) in &modules {
        let wrappers = wrappers.get(module).copied().unwrap_or(0);
        state.change_module(WrappedModule { name: module, depth: *depth, wrappers }, parts)?;
    }
    state.used.check(&adapter.tensors)?;
    Ok((state.rows, state.computed))
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

impl<'a> MergeState<'_, 'a> {
    /// Returns true if weights that are not square show that the base has them as `in × out`, as GPT-2 does.
    fn is_transposed(&self, modules: &BTreeMap<(String, usize), Parts>) -> bool {
        let votes = modules.iter().filter_map(|((module, _), parts)| {
            let (_, base) = self.names.find(&format!("{module}.weight"))?;
            let base = self.base_tensor(&base)?;
            let &[first, second] = base.shape() else { return None };
            let input = *self.adapter.tensor(*parts.get(&Role::A)?).tensor.shape().get(1)?;
            let output = *self.adapter.tensor(*parts.get(&Role::B)?).tensor.shape().first()?;
            (input != output && [first, second] == [input, output])
                .then_some(true)
                .or((input != output && [first, second] == [output, input]).then_some(false))
        });
        let votes: Vec<bool> = votes.collect();
        match votes.as_slice() {
            // Old versions of peft wrote `fan_in_fan_out` for other layers, too, and take the class of the layer instead.
            [] => self.names.has_biases_of_columns(),
            _ => votes.contains(&true) && (self.adapter.config.fan_in_fan_out || !votes.contains(&false)),
        }
    }

    fn replace(&mut self, name: &str, position: usize) -> Result<()> {
        let source = self.adapter.tensor(position);
        let tensor = source.tensor;
        if self.names.find(name).is_none() && self.adapter.config.saves_module(name) {
            // The base has no head of its own: it is tied to the embedding, or the task is a new one.
            let name = self.names.rewritten(name);
            self.changes.add_tensor(&name, tensor);
            self.used.add_whole(position, tensor);
            self.rows.push(MergedTensor::new(name, MergeKind::Added, None));
            return Ok(());
        }
        let (place, base_name, old) = self.find_base(source, name)?;
        if old.shape() != tensor.shape() {
            return Err(source.shape_error("the same shape", &base_name, old));
        }
        let new = tensor.cast(old.dtype()).ok_or_else(|| {
            source.unusable(format!("its dtype {} cannot be cast to {}", tensor.dtype(), old.dtype()))
        })?;
        if let Some((changed, _)) = self.changes.changed(place) {
            changed.replace(new);
        }
        self.used.add_whole(position, tensor);
        self.rows.push(MergedTensor::new(base_name, MergeKind::Replaced, None));
        Ok(())
    }

    fn change_module(&mut self, wrapped: WrappedModule<'_>, parts: &Parts) -> Result<()> {
        let module = wrapped.name;
        if let Some(position) = parts.get(&Role::TokenRows) {
            self.replace_rows(module, *position)?;
        }
        for (role, partner, what) in [
            (Role::A, Role::B, "lora_B"),
            (Role::B, Role::A, "lora_A"),
            (Role::EmbeddingA, Role::EmbeddingB, "lora_embedding_B"),
            (Role::EmbeddingB, Role::EmbeddingA, "lora_embedding_A"),
            (Role::BiasOfB, Role::B, "lora_B.weight"),
        ] {
            if let Some(position) = parts.get(&role).filter(|_| !parts.contains_key(&partner)) {
                let tensor = self.adapter.tensor(*position).name.to_owned();
                return Err(Problem::NoPartner { tensor, partner: what }.into());
            }
        }
        let pair = |a, b| Some((*parts.get(&a)?, *parts.get(&b)?));
        let magnitude = parts.get(&Role::Magnitude).copied();
        let needs_magnitude = parts.contains_key(&Role::A) || parts.contains_key(&Role::EmbeddingA);
        match magnitude {
            Some(position) if !self.adapter.config.use_dora => {
                let reason = "adapter_config.json does not say that the adapter uses DoRA (use_dora)";
                return Err(self.adapter.tensor(position).unusable(reason));
            }
            None if self.adapter.config.use_dora && needs_magnitude => {
                let factor = parts.get(&Role::A).or_else(|| parts.get(&Role::EmbeddingA)).copied();
                let tensor = self.adapter.tensor(factor.unwrap_or_default()).name.to_owned();
                return Err(Problem::NoPartner { tensor, partner: "lora_magnitude_vector" }.into());
            }
            _ => {}
        }
        if let Some((a, b)) = pair(Role::EmbeddingA, Role::EmbeddingB) {
            let pair = self.factors(module, a, b);
            self.change_embedding(module, &pair, magnitude)?;
        }
        let Some((a, b)) = pair(Role::A, Role::B) else {
            if let (Some(position), None) = (magnitude, parts.get(&Role::EmbeddingA)) {
                let tensor = self.adapter.tensor(position).name.to_owned();
                return Err(Problem::NoPartner { tensor, partner: "lora_A" }.into());
            }
            return Ok(());
        };
        if let Some(position) = parts.get(&Role::BiasOfB) {
            self.add_bias(module, *position)?;
        }
        if self.names.find(&format!("{module}.weight")).is_some() {
            let pair = self.factors(module, a, b);
            return self.change_weight(module, &pair, magnitude);
        }
        if let Some((container, expert, projection)) = parse_expert(module) {
            let (parameter, group) = projection.fused();
            let mut names = containers(container).map(|container| format!("{container}.{parameter}"));
            if let Some(name) = names.find(|name| self.names.find(name).is_some()) {
                let pair = self.factors(module, a, b);
                return self.change_one_expert(&name, expert, group, &pair);
            }
        }
        self.change_parameter(wrapped, (a, b))
    }

    fn change_weight(&mut self, module: &str, pair: &FactorPair<'a>, magnitude: Option<usize>) -> Result<()> {
        let (a, b) = (pair.a, pair.b);
        let (place, base_name, base) = self.find_base(a, &format!("{module}.weight"))?;
        let product = |sizes: &[u64]| sizes.iter().fold(1, |all: u64, size| all.saturating_mul(*size));
        let flat = |tensor: &Tensor| {
            let (rows, rest) = tensor.shape().split_first()?;
            Some((*rows, product(rest)))
        };
        let (Some((rows, columns)), Some((rank, input)), Some((output, b_rank))) =
            (flat(base), flat(a.tensor), flat(b.tensor))
        else {
            return Err(a.shape_error("two dimensions", &base_name, base));
        };
        self.check_rank(module, a, rank, 1, (&base_name, base))?;
        if b_rank != rank {
            let expected = format!("{rank} columns, the rank of {},", a.name);
            return Err(b.shape_error(expected, &base_name, base));
        }
        let is_transposed = base.shape().len() == 2
            && (rows, columns) == (input, output)
            && ((rows, columns) != (output, input) || self.is_transposed);
        let (left, right) = if is_transposed {
            let left = Matrix::new(a, (rows, rank), (1, a.columns()), 0)?;
            (left, Matrix::new(b, (rank, columns), (1, rank), 0)?)
        } else {
            if input != columns {
                let expected = format!("{columns} inputs");
                return Err(a.shape_error(expected, &base_name, base));
            }
            if output != rows {
                return Err(b.shape_error(format!("{rows} rows"), &base_name, base));
            }
            let left = Matrix::new(b, (rows, rank), (rank, 1), 0)?;
            (left, Matrix::new(a, (rank, columns), (columns, 1), 0)?)
        };
        let axis = if is_transposed { Axis::Columns } else { Axis::Rows };
        let dims = WeightDims { rows_per_block: rows, columns };
        let term = Term { rows: 0..rows, left, right, scale: pair.scale };
        self.add_terms((place, base_name), dims, vec![(0, term)], magnitude.map(|m| (m, axis)))
    }

    /// Changes an embedding: `W[token] += scale · B · A[:, token]`.
    fn change_embedding(
        &mut self,
        module: &str,
        pair: &FactorPair<'a>,
        magnitude: Option<usize>,
    ) -> Result<()> {
        let (a, b) = (pair.a, pair.b);
        let (place, base_name, base) = self.find_base(a, &format!("{module}.weight"))?;
        let (&[tokens, size], &[rank, a_tokens], &[b_size, b_rank]) =
            (base.shape(), a.tensor.shape(), b.tensor.shape())
        else {
            return Err(a.shape_error("two dimensions", &base_name, base));
        };
        self.check_rank(module, a, rank, 1, (&base_name, base))?;
        if a_tokens != tokens {
            return Err(a.shape_error(format!("{tokens} columns"), &base_name, base));
        }
        if (b_size, b_rank) != (size, rank) {
            return Err(b.shape_error(format!("[{size}, {rank}]"), &base_name, base));
        }
        let left = Matrix::new(a, (tokens, rank), (1, tokens), 0)?;
        let right = Matrix::new(b, (rank, size), (1, rank), 0)?;
        let term = Term { rows: 0..tokens, left, right, scale: pair.scale };
        let dims = WeightDims { rows_per_block: tokens, columns: size };
        self.add_terms((place, base_name), dims, vec![(0, term)], magnitude.map(|m| (m, Axis::Columns)))
    }

    fn add_bias(&mut self, module: &str, position: usize) -> Result<()> {
        let source = self.adapter.tensor(position);
        let bias = source.tensor;
        let (place, base_name, base) = self.find_base(source, &format!("{module}.bias"))?;
        let rows = base.numel();
        if bias.shape() != base.shape() {
            return Err(source.shape_error("the same shape", &base_name, base));
        }
        let (_, scale) = self.adapter.config.rank_and_scale(module);
        let scale = scale * self.adapter.weight;
        let one = Matrix::one().map_err(|error| Error::from(error).in_tensor(&base_name))?;
        let left = Matrix::new(source, (rows, 1), (1, 1), 0)?;
        let term = Term { rows: 0..rows, left, right: one, scale };
        let squared = self.finite_norm(&term).map_err(|error| error.in_tensor(source.name))??;
        self.used.add_whole(position, bias);
        check_dtype(&base_name, base.dtype())?;
        if let Some((changed, cache)) = self.changes.changed(place) {
            changed.add(WeightDims { rows_per_block: rows, columns: 1 }, 0, term, cache)?;
        }
        self.rows.push(MergedTensor::new(base_name, MergeKind::Bias { scale }, Some(squared.sqrt())));
        Ok(())
    }

    fn replace_rows(&mut self, module: &str, position: usize) -> Result<()> {
        let source = self.adapter.tensor(position);
        let values = source.tensor;
        let (place, base_name, base) = self.find_base(source, &format!("{module}.weight"))?;
        let rows = self.adapter.config.token_indices(module).ok_or_else(|| {
            source
                .unusable(format!("trainable_token_indices of adapter_config.json has no entry for {module}"))
        })?;
        let (Some((tokens, rest)), Some((count, size))) =
            (base.shape().split_first(), values.shape().split_first())
        else {
            return Err(source.shape_error("two dimensions", &base_name, base));
        };
        if *count != rows.len() as u64 || rest != size {
            let expected = format!("{} rows of the embedding", rows.len());
            return Err(source.shape_error(expected, &base_name, base));
        }
        if let Some(token) = rows.iter().find(|row| *row >= tokens) {
            return Err(Problem::Token {
                tensor: source.name.to_owned(),
                token: *token,
                base: base_name,
                rows: *tokens,
            }
            .into());
        }
        if let Some((changed, cache)) = self.changes.changed(place) {
            changed.replace_rows(rows, values, cache)?;
        }
        self.used.add_whole(position, values);
        self.rows.push(MergedTensor::new(base_name, MergeKind::Rows { rows: rows.len() }, None));
        Ok(())
    }
}

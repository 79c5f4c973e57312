//! The table of families for the tensors of an open model: which layout their names have, and how they get another one.

use families::{LayoutId, MadeTensor, Recipe};
use tensor::{Tensor, Tensors, Tile, contiguous_strides};

use super::rename::same_name;
use crate::files::CheckpointSources;
use crate::{Error, Problem, Result};

/// Model of a configuration, and the layout that tensors of it have.
pub(crate) struct Family {
    pub(crate) model: families::Model,
    pub(crate) layout: LayoutId,
}

/// Returns the names and shapes of tensors.
pub(crate) fn shapes(tensors: &Tensors) -> Vec<(&str, &[u64])> {
    tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.shape())).collect()
}

/// Returns the text of the `config.json` next to a checkpoint.
///
/// # Errors
/// When there is none, or it cannot be read.
pub(crate) fn configuration(sources: &CheckpointSources) -> Result<&str> {
    Ok(sources.documents.config()?.ok_or(Problem::NoConfiguration)?)
}

/// Returns true if most names are those of a model.
pub(crate) fn is_of(model: &families::Model, tensors: &[(&str, &[u64])]) -> bool {
    has_most(model.layout_of(tensors).1, tensors)
}

/// Returns true if the model has most of the tensors. Scales do not count, because quantization methods add their own.
fn has_most(known: usize, tensors: &[(&str, &[u64])]) -> bool {
    let is_scale = |name: &str| name.rsplit('.').next().is_some_and(|last| last.contains("scale"));
    let others = tensors.iter().filter(|(name, _)| !is_scale(name)).count();
    known > 0 && known.saturating_mul(2) > others
}

impl Family {
    /// Finds the family of tensors by the `config.json` next to them.
    ///
    /// # Errors
    /// When there is none, its model type is not known, or most names are not those of the model.
    pub(crate) fn find(sources: &CheckpointSources, tensors: &Tensors) -> Result<Self> {
        let model = families::Model::from_config(configuration(sources)?);
        Self::of(model.map_err(|reason| Problem::Configuration { reason })?, tensors)
    }

    /// Finds the layout of tensors of a model.
    ///
    /// # Errors
    /// When most names are not those of the model.
    pub(crate) fn of(model: families::Model, tensors: &Tensors) -> Result<Self> {
        let shapes = shapes(tensors);
        let (layout, known) = model.layout_of(&shapes);
        if !has_most(known, &shapes) || !tensors.compounds().is_empty() {
            let model_type = model.model_type;
            return Err(Problem::NamesOfAnother { model_type, known, of: tensors.len() }.into());
        }
        Ok(Self { model, layout })
    }

    /// Returns true if the tensors have the names that `to` stands for: a released form is as good as another.
    pub(crate) fn has(&self, to: LayoutId) -> bool {
        self.model.is_modules(self.layout) == self.model.is_modules(to)
    }

    /// Changes the tensors into the layout `to`. Also returns the place of the tensor before that each is made of; `None` for several.
    ///
    /// # Errors
    /// When tensors that become one are not all there or differ in shape or dtype, or two get the same name.
    pub(crate) fn translate(&self, tensors: &Tensors, to: LayoutId) -> Result<(Tensors, Vec<Option<usize>>)> {
        let mut changed = (tensors.clone(), (0..tensors.len()).map(Some).collect());
        if self.layout != to && !self.model.is_modules(self.layout) {
            changed = change(changed, |all| self.model.to_modules(self.layout, all))?;
        }
        if self.layout != to && !self.model.is_modules(to) {
            changed = change(changed, |all| self.model.from_modules(to, all))?;
        }
        Ok(changed)
    }
}

/// Makes the tensors of another layout.
fn change(
    (tensors, origins): (Tensors, Vec<Option<usize>>),
    made: impl FnOnce(&[(&str, &[u64])]) -> families::Result<Vec<MadeTensor>>,
) -> Result<(Tensors, Vec<Option<usize>>)> {
    let made = made(&shapes(&tensors)).map_err(|reason| Problem::Untranslatable { reason })?;
    let first = |tensor: &MadeTensor| tensors.get_index(*tensor.from.first()?).map(|(name, _)| name);
    let names = made.iter().filter_map(|tensor| Some((tensor.name.as_str(), first(tensor)?)));
    if let Some([_, first, second]) = same_name(names) {
        return Err(Problem::InTwoLayouts { first, second }.into());
    }
    let mut changed = Tensors::with_capacity(made.len());
    let mut places = Vec::with_capacity(made.len());
    for MadeTensor { name, from, recipe, .. } in made {
        let (names, parts): (Vec<_>, Vec<_>) =
            from.iter().filter_map(|place| tensors.get_index(*place)).unzip();
        let tensor = make(&parts, recipe).map_err(|reason| {
            // The part that differs is what the user has; the whole is not in the input.
            let differs =
                parts.iter().position(|part| parts.first().is_some_and(|first| !is_alike(first, part)));
            let part = differs.and_then(|place| names.get(place)).map(ToString::to_string);
            Error::from(reason).in_tensor(part.as_ref().unwrap_or(&name))
        })?;
        changed.push(name, tensor);
        let only = if let [place] = from.as_slice() { origins.get(*place) } else { None };
        places.push(only.copied().flatten());
    }
    Ok((changed, places))
}

fn is_alike(first: &Tensor, second: &Tensor) -> bool {
    (first.dtype(), first.shape()) == (second.dtype(), second.shape())
}

/// Makes a tensor. Its elements are computed when they are read.
fn make(from: &[&Tensor], recipe: Recipe) -> Result<Tensor, tensor::Error> {
    let Some(first) = from.first() else { return Tensor::tiled(tensor::Dtype::UInt8, &[0], Vec::new()) };
    match recipe {
        Recipe::Same => Ok((*first).clone()),
        Recipe::Transposed => {
            let rank = first.shape().len();
            let last = rank.saturating_sub(1);
            Ok(first.transpose(last.saturating_sub(1), last).unwrap_or_else(|| (*first).clone()))
        }
        Recipe::Stacked { parts } => stack(from, parts.max(1)),
        Recipe::Part { index, part, parts } => part_of(first, index, part as u64, parts as u64),
    }
}

/// Concatenates the rows of each `parts` tensors, and stacks these.
fn stack(from: &[&Tensor], parts: usize) -> Result<Tensor, tensor::Error> {
    let Some(first) = from.first() else { return Tensor::concat(0, &[]) };
    let rows = first.shape().first().copied().unwrap_or_default();
    let count = from.len().checked_div(parts).unwrap_or_default() as u64;
    let mut shape = vec![count, rows.saturating_mul(parts as u64)];
    shape.extend(first.shape().iter().skip(1));
    let tiles = from.iter().enumerate().map(|(number, tensor)| {
        let at = |place: Option<usize>| place.unwrap_or_default() as u64;
        let mut start = vec![0; shape.len()];
        for (start, place) in start
            .iter_mut()
            .zip([at(number.checked_div(parts)), at(number.checked_rem(parts)).saturating_mul(rows)])
        {
            *start = place;
        }
        Tile { tensor: tensor.unsqueeze(0).unwrap_or_else(|| (*tensor).clone()), start }
    });
    Tensor::tiled(first.dtype(), &shape, tiles.collect())
}

/// Returns a part of the rows of an index of the first dimension.
fn part_of(whole: &Tensor, index: u64, part: u64, parts: u64) -> Result<Tensor, tensor::Error> {
    let mut shape: Vec<u64> = whole.shape().iter().skip(1).copied().collect();
    let stride: Vec<u64> = whole.stride().iter().skip(1).copied().collect();
    if let Some(rows) = shape.first_mut() {
        *rows = rows.checked_div(parts).unwrap_or_default();
    }
    let step = |stride: Option<&u64>, count: u64| stride.map_or(0, |stride| stride.saturating_mul(count));
    let rows = shape.first().copied().unwrap_or_default();
    let offset = whole
        .storage_offset()
        .saturating_add(step(whole.stride().first(), index))
        .saturating_add(step(stride.first(), rows.saturating_mul(part)));
    let view = Tensor::new(whole.dtype(), shape, stride, offset, whole.storage().clone())?;
    // A storage of its own: the parts are not views of each other.
    let own = view.is_contiguous().then(|| whole.storage().slice(view.span())).flatten();
    match own {
        // A slice is read with all that its checksum covers, which is compared once.
        Some(own) => {
            let own = if index == 0 && part == 0 { own } else { own.without_checksum() };
            Tensor::new(view.dtype(), view.shape().to_vec(), contiguous_strides(view.shape()), 0, own)
        }
        None => Tensor::concat(0, std::slice::from_ref(&view)).or(Ok(view)),
    }
}

#[cfg(test)]
mod tests {
    use byte_source::Blob;
    use tensor::{Dtype, Storage};

    use super::*;

    fn numbers(shape: &[u64], first: u8) -> Tensor {
        let len = usize::try_from(shape.iter().product::<u64>()).expect("small");
        let storage = Storage::owned((first..).take(len).collect());
        Tensor::new(Dtype::UInt8, shape.to_vec(), contiguous_strides(shape), 0, storage).expect("inside")
    }

    fn bytes(tensor: &Tensor) -> Vec<u8> {
        let mut out: Vec<u8> = Vec::new();
        tensor.gathered().write_to(&mut out).expect("memory can be read");
        out
    }

    #[test]
    fn stacks_have_the_numbers_of_their_parts() {
        let parts: Vec<Tensor> = [0, 6, 12, 18].map(|first| numbers(&[2, 3], first)).to_vec();
        let from: Vec<&Tensor> = parts.iter().collect();
        let whole = make(&from, Recipe::Stacked { parts: 2 }).expect("they are alike");
        assert_eq!(whole.shape(), [2, 4, 3]);
        assert_eq!(bytes(&whole), (0..24).collect::<Vec<u8>>());
        for whole in
            [whole, numbers(&[2, 4, 3], 0), numbers(&[2, 3, 4], 0).transpose(1, 2).expect("three dimensions")]
        {
            let all = bytes(&whole);
            let parts = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(index, part)| {
                make(&[&whole], Recipe::Part { index, part, parts: 2 }).expect("it is there")
            });
            assert!(
                parts
                    .iter()
                    .all(|part| part.shape() == [2, 3] && part.storage().id() != whole.storage().id())
            );
            assert_eq!(parts.iter().flat_map(bytes).collect::<Vec<u8>>(), all);
        }
        let turned = make(&[&numbers(&[1, 2, 3], 0)], Recipe::Transposed).expect("a view");
        assert_eq!((turned.shape(), bytes(&turned)), ([1, 3, 2].as_slice(), vec![0, 3, 1, 4, 2, 5]));
    }
}

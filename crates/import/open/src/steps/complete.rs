//! Completion of a model by its base: tensors that a training or a merge dropped.

use std::path::PathBuf;

use byte_source::Observer;
use families::{LayoutId, MissingTensor, different_keys};
use foldhash::{HashMap, HashMapExt};
use tensor::{Dtype, Tensor, Tensors};

use super::adapter_overview::refuse_adapter;
use super::family::{Family, configuration, shapes};
use crate::{Context, Error, Model, Note, Problem, Result, Selection, Step, StepReport};

/// Takes the tensors that a model lacks from its base. A base has the same configuration and shapes, and some tensors that are equal bit
/// for bit. It may have another layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Complete {
    pub base: PathBuf,
}

impl Complete {
    /// Creates the step for the base at a path.
    pub fn new(base: PathBuf) -> Self {
        Self { base }
    }
}

impl Step for Complete {
    fn apply(&self, model: &mut Model, context: &Context<'_>) -> Result<StepReport> {
        model.tensors_mut();
        let in_root = |error: Error| error.in_file(model.root());
        let family = Family::find(&model.sources, model.tensors()).map_err(in_root)?;
        let mut options = context.open_options(&self.base)?;
        options.documents = true;
        let mut base = Model::open(&options, context.observer)?;
        refuse_adapter(&base.sources, options.inputs.first())?;
        base.apply(&[Box::new(Selection::default())], context)?;
        let in_base = |error: Error| error.in_file(base.root());
        let (tensors, layout) = translated(model, &base, &family).map_err(in_base)?;
        let missing = family.model.missing_in(layout, &shapes(model.tensors()));
        let taken = taken(&missing, model.tensors(), &tensors).map_err(in_base)?;
        let Agreement { agree, of, is_proof } = Agreement::new(model.tensors(), &tensors, context.observer)?;
        if !is_proof {
            return Err(in_base(Problem::NotItsBase { agree, of }.into()));
        }
        let shown = output::shown_path(&self.base).display().to_string();
        let names = taken.iter().map(|(name, _)| name.clone()).collect();
        model.notes.push(Note::Completed { base: shown, names, agree, of });
        if let Some(origins) = &mut model.origins {
            origins.extend(taken.iter().map(|_| None));
        }
        model.tensors_mut().extend(taken);
        model.containers.append(&mut base.containers);
        Ok(StepReport::Names)
    }
}

/// Returns the tensors of a base in the layout of a model with the same configuration, and the layout. Heads that the model lost have
/// the form of the base.
fn translated(model: &Model, base: &Model, family: &Family) -> Result<(Tensors, LayoutId)> {
    let keys = different_keys(configuration(&model.sources)?, configuration(&base.sources)?)
        .map_err(|reason| Problem::Configuration { reason })?;
    if !keys.is_empty() {
        return Err(Problem::OtherConfiguration { keys }.into());
    }
    let found = Family::find(&base.sources, base.tensors())?;
    let lost = family.model.compare(&shapes(model.tensors())).absent;
    let has_heads = !lost.contains(&"mtp");
    let layout =
        if has_heads { family.layout } else { family.model.with_heads_of(family.layout, found.layout) };
    Ok((found.translate(base.tensors(), layout)?.0, layout))
}

/// Returns the tensors that are taken from a base.
///
/// # Errors
/// When the base lacks one of them, or tensors have other shapes or dtypes than the model's.
fn taken(missing: &[MissingTensor], ours: &Tensors, base: &Tensors) -> Result<Vec<(String, Tensor)>> {
    for (name, tensor) in ours {
        let other = base.get(name).filter(|other| other.shape() != tensor.shape());
        if let Some(other) = other {
            let (expected, found) = (tensor.shape().to_vec(), other.shape().to_vec());
            return Err(Problem::OtherShape { name: name.clone(), expected, found }.into());
        }
    }
    let mut pairs: Vec<(Dtype, Dtype)> = Vec::new();
    let mut of_kind: HashMap<String, Vec<(Dtype, Dtype)>> = HashMap::new();
    for (name, tensor) in ours {
        if let Some(other) = base.get(name) {
            let pair = (other.dtype(), tensor.dtype());
            pairs.push(pair);
            of_kind.entry(kind(name)).or_default().push(pair);
        }
    }
    let take = |MissingTensor { name, shape, .. }: &MissingTensor| {
        let Some(tensor) = base.get(name) else {
            return Err(Problem::NotInBase { name: name.clone() }.into());
        };
        if tensor.shape() != shape.as_slice() {
            let (expected, found) = (shape.clone(), tensor.shape().to_vec());
            return Err(Problem::OtherShape { name: name.clone(), expected, found }.into());
        }
        // The same tensors of other layers say which dtype it would have now. Without them, it may have a dtype of its own, unless the
        // others were cast.
        let (others, is_own) = match of_kind.get(&kind(name)) {
            Some(others) => (others, false),
            None => (&pairs, pairs.iter().all(|(base, ours)| base == ours)),
        };
        let of_dtype = others.iter().filter(|(base, _)| *base == tensor.dtype());
        let expected = most_frequent(of_dtype).or_else(|| most_frequent(others.iter().filter(|_| !is_own)));
        if let Some(expected) = expected.filter(|expected| *expected != tensor.dtype()) {
            return Err(Problem::OtherDtype { name: name.clone(), expected, found: tensor.dtype() }.into());
        }
        Ok((name.clone(), tensor.clone()))
    };
    missing.iter().map(take).collect()
}

/// Returns a name without its numbers.
fn kind(name: &str) -> String {
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    name.split('.').filter(|part| !is_number(part)).collect::<Vec<_>>().join(".")
}

/// Returns the dtype that tensors have in the model most often. Each pair is that in the base and that in the model.
fn most_frequent<'p>(pairs: impl Iterator<Item = &'p (Dtype, Dtype)>) -> Option<Dtype> {
    let mut counts: Vec<(Dtype, usize)> = Vec::new();
    for (_, found) in pairs {
        match counts.iter_mut().find(|(dtype, _)| dtype == found) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => counts.push((*found, 1)),
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(dtype, _)| dtype)
}

/// How many tensors of a model and a base are equal bit for bit.
struct Agreement {
    agree: usize,
    /// Number of tensors that both have.
    of: usize,
    /// True if one of those that agree has several numbers: norms of ones agree by chance.
    is_proof: bool,
}

impl Agreement {
    /// Compares the tensors that both have.
    fn new(ours: &Tensors, base: &Tensors, observer: &dyn Observer) -> Result<Self> {
        let mut found = Self { agree: 0, of: 0, is_proof: false };
        for (name, tensor) in ours {
            let Some(other) = base.get(name) else { continue };
            found.of = found.of.saturating_add(1);
            if tensor.has_elements_of(other, observer).map_err(|error| error.in_tensor(name))? {
                found.agree = found.agree.saturating_add(1);
                found.is_proof = found.is_proof || has_several_numbers(tensor)?;
            }
        }
        Ok(found)
    }
}

/// Returns true if the first numbers of a tensor are not all equal.
fn has_several_numbers(tensor: &Tensor) -> Result<bool> {
    let window = tensor.gathered().window(0)?;
    let mut numbers = window.chunks_exact(usize::try_from(tensor.dtype().size()).unwrap_or(1).max(1));
    let first = numbers.next();
    Ok(numbers.any(|number| Some(number) != first))
}

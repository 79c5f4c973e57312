//! Comparison of two checkpoints or cartons.

use byte_source::{Action, NotRepresentable, Observer, ProgressReporter};
use foldhash::{HashMap, HashMapExt, HashSet};
use tensor::{CompoundKind, CompoundTensor, RecordChecks, Tensor, Tensors, ViewId};

use open::{Error, Note, Result};

use crate::compare::SCHEMA_VERSION;
use crate::compare::bytes::first_differences;
use crate::compare::diff_options::DiffOptions;
use crate::compare::input::OpenedInput;
use crate::compare::matching::{ContentMatches, NamedPair, Unmatched};
use crate::compare::numbers::{PairNumbers, are_comparable, compare_numbers};
use crate::compare::report::{Change, ComparedInput, DiffCounts, DiffReport, TensorChange, TensorSummary};
use crate::compare::segments::UnreadItem;
use crate::compare::values::{ValueDifferences, compare_values};

/// Compares the tensors that conversions of two inputs select, and their values. All cores are used, and the elements of no
/// tensor are kept in memory.
///
/// # Errors
/// When an input cannot be read, is damaged or changes, a selection does not fit it, or `observer` stops the work.
pub fn diff(options: &DiffOptions, observer: &dyn Observer) -> Result<DiffReport> {
    options.check()?;
    let [a, b] = [options.input_a(), options.input_b()];
    let (a, b) = (OpenedInput::open(&a, true, observer)?, OpenedInput::open(&b, true, observer)?);
    for input in [&a, &b] {
        input.check_views()?;
    }
    let checks = RecordChecks::new(a.tensors().iter().chain(b.tensors().iter()).map(|(_, tensor)| tensor));
    let comparison = Comparison { a: &a, b: &b, checks: &checks, tolerance: options.tolerance, observer };
    let (mut tensors, mut counts) = comparison.run()?;
    checks.verify(observer).map_err(|error| error.in_file(&b.path))?;
    a.check_unchanged()?;
    b.check_unchanged()?;
    let ValueDifferences { rows: mut values, cut } =
        if options.no_values { ValueDifferences::default() } else { compare_values(&a.values, &b.values) };
    counts.values = values.len();
    counts.values_cut = cut;
    tensors.sort_by(|first, second| {
        let order = first.changes.first().cmp(&second.changes.first());
        order.then(second.relative_norm().total_cmp(&first.relative_norm()))
    });
    for change in tensors.iter().flat_map(|row| &row.changes) {
        let count = counts.get_mut(*change);
        *count = count.saturating_add(1);
    }
    let limit = options.limit.unwrap_or(usize::MAX);
    let unlisted = tensors.len().saturating_sub(limit).saturating_add(values.len().saturating_sub(limit));
    let same = tensors.is_empty() && values.is_empty();
    tensors.truncate(limit);
    values.truncate(limit);
    let summary = |input: &OpenedInput| ComparedInput {
        file: input.path.display().to_string(),
        format: input.model.format(),
        tensors: input.tensors().len(),
        nbytes: input.model.input_nbytes(),
    };
    Ok(DiffReport {
        schema_version: SCHEMA_VERSION,
        same,
        counts,
        tensors,
        values,
        unlisted,
        a: summary(&a),
        b: summary(&b),
        notes: notes(options, &a, &b),
    })
}

/// Returns the notes on both inputs. Those that both have name their file.
fn notes(options: &DiffOptions, a: &OpenedInput, b: &OpenedInput) -> Vec<Note> {
    let [method_a, method_b] = [a, b].map(|input| open::quantized_method(&input.model));
    let as_stored = |input: &OpenedInput, method: Option<String>| {
        let method = method.filter(|_| !options.dequantize && method_a != method_b)?;
        let note = Box::new(Note::ComparedAsStored { method });
        Some(Note::OfInput { file: input.path.display().to_string(), note })
    };
    let of = |input: &OpenedInput, other: &OpenedInput| {
        let file = input.path.display().to_string();
        let named = |note: &Note| {
            if other.model.notes.contains(note) {
                Note::OfInput { file: file.clone(), note: Box::new(note.clone()) }
            } else {
                note.clone()
            }
        };
        input.model.notes.iter().map(named).collect::<Vec<_>>()
    };
    let mut notes = [of(a, b), of(b, a)].concat();
    notes.extend(as_stored(a, method_a.clone()));
    notes.extend(as_stored(b, method_b.clone()));
    notes
}

impl DiffCounts {
    fn get_mut(&mut self, change: Change) -> &mut usize {
        match change {
            Change::OnlyInA => &mut self.only_in_a,
            Change::OnlyInB => &mut self.only_in_b,
            Change::Changed => &mut self.changed,
            Change::Shape => &mut self.shape,
            Change::Structure => &mut self.structure,
            Change::Permuted => &mut self.permuted,
            Change::Transposed => &mut self.transposed,
            Change::Reshaped => &mut self.reshaped,
            Change::Dtype => &mut self.dtype,
            Change::Renamed => &mut self.renamed,
        }
    }
}

struct Comparison<'c> {
    a: &'c OpenedInput,
    b: &'c OpenedInput,
    checks: &'c RecordChecks,
    tolerance: Option<f64>,
    observer: &'c dyn Observer,
}

impl Comparison<'_> {
    /// Compares the tensors, and returns those that differ, and the counts of those that do not.
    fn run(&self) -> Result<(Vec<TensorChange>, DiffCounts)> {
        let (a, b) = (self.a.tensors(), self.b.tensors());
        let mut counts = DiffCounts::default();
        let mut matched = vec![false; b.len()];
        let (mut named, mut only_a) = (Vec::new(), Vec::new());
        for (position, name) in a.names().enumerate() {
            let found = b.position(name).filter(|found| matched.get(*found) == Some(&false));
            match found {
                Some(found) => {
                    if let Some(matched) = matched.get_mut(found) {
                        *matched = true;
                    }
                    named.push((position, found));
                }
                None => only_a.push(position),
            }
        }
        let only_b: Vec<usize> =
            matched.iter().enumerate().filter(|(_, matched)| !**matched).map(|(number, _)| number).collect();
        let differing = self.differing_pairs(named, &mut counts)?;
        let unmatched = Unmatched { pairs: differing, only_a, only_b };
        let by_contents = ContentMatches::find(unmatched, (a, b), self.checks, self.observer)
            .map_err(|unread| self.unread(unread))?;
        let ContentMatches { moved, left } = by_contents;
        let mut rows = Vec::new();
        for pair in left.pairs {
            rows.extend(self.changed_row(pair, &mut counts)?);
        }
        let found = moved.iter().map(|found| (tensor_at(a, found.a), tensor_at(b, found.b)));
        let casts: Vec<(&Tensor, &Tensor)> =
            found.filter_map(|(a, b)| a.zip(b)).filter(|(a, b)| a.dtype() != b.dtype()).collect();
        let mut numbers = self.numbers(&casts)?.into_iter();
        for found in moved {
            let (Some(first), Some(second)) = (tensor_at(a, found.a), tensor_at(b, found.b)) else {
                continue;
            };
            let is_cast = first.dtype() != second.dtype();
            let mut row = self.row(found.changes, Some(found.a), Some(found.b));
            row.elements = if is_cast { numbers.next().map(|numbers| numbers.change) } else { None };
            row.rearrangement = found.rearrangement;
            rows.push(row);
        }
        rows.extend(
            left.only_a.into_iter().map(|position| self.row(vec![Change::OnlyInA], Some(position), None)),
        );
        rows.extend(
            left.only_b.into_iter().map(|position| self.row(vec![Change::OnlyInB], None, Some(position))),
        );
        rows.extend(compare_structures(a, b));
        Ok((rows, counts))
    }

    /// Compares the pairs of tensors with the same name, counts those that are the same, and returns the others.
    fn differing_pairs(&self, named: Vec<(usize, usize)>, counts: &mut DiffCounts) -> Result<Vec<NamedPair>> {
        let (a, b) = (self.a.tensors(), self.b.tensors());
        // Tensors with the same memory are compared once.
        let mut distinct: HashMap<(ViewId, ViewId), usize> = HashMap::with_capacity(named.len());
        let mut compared: Vec<(Tensor, Tensor)> = Vec::new();
        let mut number_of = Vec::with_capacity(named.len());
        for (position, found) in &named {
            let pair = tensor_at(a, *position).zip(tensor_at(b, *found));
            let alike = pair.filter(|(a, b)| a.dtype() == b.dtype() && a.shape() == b.shape());
            number_of.push(alike.map(|(a, b)| {
                *distinct.entry((a.view_id(), b.view_id())).or_insert_with(|| {
                    compared.push(without_common_repeats(a, b));
                    compared.len().saturating_sub(1)
                })
            }));
        }
        drop(distinct);
        let pairs: Vec<(&Tensor, &Tensor)> = compared.iter().map(|(a, b)| (a, b)).collect();
        let work = self.work("");
        let first = first_differences(&pairs, self.checks, work).map_err(|unread| {
            let place = number_of.iter().position(|number| *number == Some(unread.item));
            let place = place.and_then(|place| named.get(place)).copied().unwrap_or_default();
            self.unread_at(place, unread)
        })?;
        let mut differing = Vec::new();
        let mut comparable = Vec::new();
        for ((position, found), number) in named.into_iter().zip(number_of) {
            let is_same = number.is_some_and(|number| first.get(number) == Some(&None));
            if is_same {
                counts.same = counts.same.saturating_add(1);
                continue;
            }
            let Some((first, second)) = tensor_at(a, position).zip(tensor_at(b, found)) else { continue };
            if first.shape() == second.shape() && are_comparable(first.dtype(), second.dtype()) {
                comparable.push((differing.len(), first, second));
            }
            differing.push(NamedPair { a: position, b: found, numbers: None });
        }
        let pairs: Vec<(&Tensor, &Tensor)> = comparable.iter().map(|(_, a, b)| (*a, *b)).collect();
        for ((place, ..), numbers) in comparable.iter().zip(self.numbers(&pairs)?) {
            if let Some(pair) = differing.get_mut(*place) {
                pair.numbers = Some(numbers);
            }
        }
        Ok(differing)
    }

    fn numbers(&self, pairs: &[(&Tensor, &Tensor)]) -> Result<Vec<PairNumbers>> {
        compare_numbers(pairs, self.checks, self.work("")).map_err(|unread| {
            let is_pair = |tensors: &Tensors, tensor: &Tensor| {
                tensors.iter().position(|(_, other)| other.view_id() == tensor.view_id()).unwrap_or(0)
            };
            let pair = pairs.get(unread.item);
            let place =
                pair.map_or((0, 0), |(a, b)| (is_pair(self.a.tensors(), a), is_pair(self.b.tensors(), b)));
            self.unread_at(place, unread)
        })
    }

    /// Creates the row of a pair with the same name; `None` if the difference is within the tolerance.
    fn changed_row(&self, pair: NamedPair, counts: &mut DiffCounts) -> Result<Option<TensorChange>> {
        let found = tensor_at(self.a.tensors(), pair.a).zip(tensor_at(self.b.tensors(), pair.b));
        let Some((a, b)) = found else { return Ok(None) };
        let elements = pair.numbers.map(|numbers| numbers.change);
        let is_close = elements.as_ref().zip(self.tolerance).is_some_and(|(elements, tolerance)| {
            elements.not_finite == 0 && elements.max_abs <= tolerance && has_numbers(a, b)
        });
        let mut changes = Vec::new();
        if a.shape() != b.shape() {
            changes.push(Change::Shape);
        }
        if a.dtype() != b.dtype() {
            changes.push(Change::Dtype);
            let is_equal = elements.as_ref().is_some_and(|elements| elements.count == 0);
            if a.shape() == b.shape() && !is_equal && !is_close && !self.is_cast(a, b, (pair.a, pair.b))? {
                changes.insert(0, Change::Changed);
            }
        } else if a.shape() == b.shape() && is_close {
            counts.within_tolerance = counts.within_tolerance.saturating_add(1);
            return Ok(None);
        } else if a.shape() == b.shape() {
            changes.push(Change::Changed);
        }
        let mut row = self.row(changes, Some(pair.a), Some(pair.b));
        row.elements = elements;
        Ok(Some(row))
    }

    /// Returns true if one of the tensors is the other one cast to its dtype.
    fn is_cast(&self, a: &Tensor, b: &Tensor, place: (usize, usize)) -> Result<bool> {
        for (from, to) in [(a, b), (b, a)] {
            let Some(cast) = from.cast(to.dtype()) else { continue };
            match first_differences(&[(&cast, to)], self.checks, self.work("")) {
                Ok(first) if first == [None] => return Ok(true),
                // A number may be out of the range of the integers.
                Ok(_) => {}
                Err(unread) if unread.reason.detail::<NotRepresentable>().is_some() => {}
                Err(unread) => return Err(self.unread_at(place, unread)),
            }
        }
        Ok(false)
    }

    fn row(&self, changes: Vec<Change>, a: Option<usize>, b: Option<usize>) -> TensorChange {
        let summary = |tensors: &Tensors, position: usize| {
            let (name, tensor) = tensors.get_index(position)?;
            let (name, dtype, shape) = (name.to_owned(), tensor.dtype().name(), tensor.shape().to_vec());
            Some(TensorSummary { name, dtype, shape, kind: None })
        };
        TensorChange {
            changes,
            a: a.and_then(|position| summary(self.a.tensors(), position)),
            b: b.and_then(|position| summary(self.b.tensors(), position)),
            elements: None,
            rearrangement: None,
        }
    }

    fn work<'s>(&'s self, name: &'s str) -> ProgressReporter<'s> {
        ProgressReporter::new(self.observer, name, Action::Compare, None)
    }

    fn unread(&self, (place, unread): ((usize, usize), UnreadItem)) -> Error {
        self.unread_at(place, unread)
    }

    /// Adds the name of the tensor and the path of its file to an error.
    fn unread_at(&self, (a, b): (usize, usize), unread: UnreadItem) -> Error {
        let (input, position) = if unread.is_second { (self.b, b) } else { (self.a, a) };
        let name = input.tensors().get_index(position).map_or("", |(name, _)| name);
        unread.reason.in_tensor(name).in_file(&input.path)
    }
}

/// Returns true if the elements of both tensors are numbers.
fn has_numbers(a: &Tensor, b: &Tensor) -> bool {
    are_comparable(a.dtype(), b.dtype()) && tensor::DtypeConversion::new(a.dtype(), a.dtype()).is_some()
}

fn tensor_at(tensors: &Tensors, position: usize) -> Option<&Tensor> {
    tensors.get_index(position).map(|(_, tensor)| tensor)
}

/// Returns the tensors with size 1 along the dimensions along which both repeat their elements.
fn without_common_repeats(a: &Tensor, b: &Tensor) -> (Tensor, Tensor) {
    let once = (a.without_repeats(), b.without_repeats());
    if once.0.shape() == once.1.shape() { once } else { (a.clone(), b.clone()) }
}

/// Compares the compound tensors, whose parts are compared as tensors.
fn compare_structures(a: &Tensors, b: &Tensors) -> Vec<TensorChange> {
    let facts = |compound: &CompoundTensor| {
        let kind = match &compound.kind {
            CompoundKind::Quantized { scheme, axis: None } => scheme.clone(),
            CompoundKind::Quantized { scheme, axis: Some(axis) } => format!("{scheme} axis {axis}"),
            CompoundKind::Sparse { layout } | CompoundKind::Blocks { scheme: layout } => layout.clone(),
            CompoundKind::Nested => "nested".to_owned(),
            CompoundKind::Jagged => "jagged".to_owned(),
            // The parts of these are plain tensors wherever they are stored.
            _ => return None,
        };
        let (name, dtype, shape) = (compound.name.clone(), compound.dtype.name(), compound.shape.clone());
        Some(TensorSummary { name, dtype, shape, kind: Some(kind) })
    };
    let theirs: HashMap<String, TensorSummary> =
        b.compounds().iter().filter_map(facts).map(|facts| (facts.name.clone(), facts)).collect();
    let ours: Vec<TensorSummary> = a.compounds().iter().filter_map(facts).collect();
    let names: HashSet<String> = ours.iter().map(|facts| facts.name.clone()).collect();
    let row = |a: Option<TensorSummary>, b: Option<TensorSummary>| TensorChange {
        changes: vec![Change::Structure],
        a,
        b,
        elements: None,
        rearrangement: None,
    };
    let mut rows: Vec<TensorChange> = ours
        .into_iter()
        .filter(|facts| theirs.get(&facts.name) != Some(facts))
        .map(|facts| {
            let other = theirs.get(&facts.name).cloned();
            row(Some(facts), other)
        })
        .collect();
    let mut others: Vec<TensorSummary> =
        theirs.into_values().filter(|facts| !names.contains(&facts.name)).collect();
    others.sort_by(|first, second| first.name.cmp(&second.name));
    rows.extend(others.into_iter().map(|facts| row(None, Some(facts))));
    rows
}

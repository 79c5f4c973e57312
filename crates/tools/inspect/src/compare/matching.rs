//! Finds tensors by their contents: renamed, reshaped, transposed and permuted ones.
//!
//! Only tensors of equal dtype and size are compared, and of those only the ones with equal norms, as far as the norms are
//! known. Fingerprints find candidates without comparing all pairs; each candidate is then compared itself.

use byte_source::{Action, Observer, ProgressReporter};
use foldhash::{HashMap, HashMapExt, HashSet};
use tensor::{Dtype, DtypeConversion, RecordChecks, Tensor, Tensors};

use crate::compare::fingerprint::{Fingerprint, HashKeys, SizeKey, fingerprints, size_key};
use crate::compare::numbers::PairNumbers;
use crate::compare::rearrangement::{Rearrangement, find_rearrangement, have_same_order};
use crate::compare::report::Change;
use crate::compare::segments::UnreadItem;

/// Largest relative difference of the norms of the same elements, summed in different orders.
const NORM_TOLERANCE: f64 = 1e-9;
/// Largest number of pairs of a group whose order of elements is looked for.
const ATTEMPTS_MAX: usize = 64;

/// Pair of tensors with the same name, by position, that is not the same.
pub(crate) struct NamedPair {
    pub(crate) a: usize,
    pub(crate) b: usize,
    /// Numeric difference; `None` if the shapes differ, or the dtypes cannot be compared.
    pub(crate) numbers: Option<PairNumbers>,
}

/// Error of reading a tensor of the pair with these positions.
type Unread = ((usize, usize), UnreadItem);

/// Tensors that are not the same in both inputs, by position.
pub(crate) struct Unmatched {
    pub(crate) pairs: Vec<NamedPair>,
    pub(crate) only_a: Vec<usize>,
    pub(crate) only_b: Vec<usize>,
}

/// Tensor that was found by its contents.
pub(crate) struct Moved {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) changes: Vec<Change>,
    pub(crate) rearrangement: Option<Rearrangement>,
}

/// Tensors found by their contents, and those that are left.
pub(crate) struct ContentMatches {
    pub(crate) moved: Vec<Moved>,
    pub(crate) left: Unmatched,
}

/// Tensor whose contents may be in the other input.
#[derive(Clone, Copy)]
struct Candidate {
    position: usize,
    pair: Option<usize>,
    /// Norm of the finite elements, if it is known.
    norm: Option<f64>,
    fingerprint: Fingerprint,
}

/// Candidates of both inputs.
#[derive(Default)]
struct Group {
    a: Vec<Candidate>,
    b: Vec<Candidate>,
}

struct Search<'s> {
    a: &'s Tensors,
    b: &'s Tensors,
    keys: HashKeys,
    checks: &'s RecordChecks,
    observer: &'s dyn Observer,
    moved: Vec<Moved>,
}

impl ContentMatches {
    /// Finds the contents of unmatched tensors of `a` in `b`.
    ///
    /// # Errors
    /// When a tensor cannot be read, or `observer` stops the work.
    pub(crate) fn find(
        unmatched: Unmatched,
        (a, b): (&Tensors, &Tensors),
        checks: &RecordChecks,
        observer: &dyn Observer,
    ) -> Result<Self, Unread> {
        let keys = HashKeys::random();
        let mut search = Search { a, b, keys, checks, observer, moved: Vec::new() };
        for group in search.groups(&unmatched)? {
            search.match_group(group)?;
        }
        let mut left = search.left(unmatched);
        search.match_casts(&left)?;
        let (in_a, in_b) = search.found();
        left.only_a.retain(|position| !in_a.contains(position));
        left.only_b.retain(|position| !in_b.contains(position));
        Ok(Self { moved: search.moved, left })
    }
}

impl Search<'_> {
    /// Returns groups of tensors with the same elements in any order, each with tensors of both inputs.
    fn groups(&self, unmatched: &Unmatched) -> Result<Vec<Group>, Unread> {
        let mut by_size: HashMap<SizeKey, Group> = HashMap::new();
        let mut sizes = Vec::new();
        let mut add =
            |tensors: &Tensors, is_second: bool, position: usize, pair: Option<usize>, norm: Option<f64>| {
                let Some((_, tensor)) = tensors.get_index(position).filter(|(_, tensor)| tensor.numel() > 0)
                else {
                    return;
                };
                let key = size_key(tensor);
                let group = by_size.entry(key).or_insert_with(|| {
                    sizes.push(key);
                    Group::default()
                });
                let list = if is_second { &mut group.b } else { &mut group.a };
                list.push(Candidate { position, pair, norm, fingerprint: Fingerprint::default() });
            };
        for (number, pair) in unmatched.pairs.iter().enumerate() {
            let norms = pair.numbers.as_ref().and_then(|numbers| numbers.norms);
            add(self.a, false, pair.a, Some(number), norms.map(|norms| norms.0));
            add(self.b, true, pair.b, Some(number), norms.map(|norms| norms.1));
        }
        unmatched.only_a.iter().for_each(|position| add(self.a, false, *position, None, None));
        unmatched.only_b.iter().for_each(|position| add(self.b, true, *position, None, None));
        let mut groups = Vec::new();
        for size in sizes {
            let Some(Group { a, b }) = by_size.remove(&size) else { continue };
            let (kept_a, kept_b) = (with_partner(&a, &b), with_partner(&b, &a));
            groups.push(Group { a: kept_a, b: kept_b });
        }
        self.split_by_contents(groups)
    }

    /// Computes the fingerprints of all candidates, and splits each group by them.
    fn split_by_contents(&self, groups: Vec<Group>) -> Result<Vec<Group>, Unread> {
        let mut tensors = Vec::new();
        let mut places = Vec::new();
        for group in &groups {
            for (is_second, list, all) in [(false, &group.a, self.a), (true, &group.b, self.b)] {
                for candidate in list {
                    if let Some((_, tensor)) = all.get_index(candidate.position) {
                        tensors.push(tensor.clone());
                        places.push((is_second, candidate.position));
                    }
                }
            }
        }
        let found = self.fingerprints(&tensors, &places)?;
        let by_place: HashMap<(bool, usize), Fingerprint> = places.into_iter().zip(found).collect();
        let mut split = Vec::new();
        for group in groups {
            let mut numbers: HashMap<[u64; 2], usize> = HashMap::new();
            let mut parts: Vec<Group> = Vec::new();
            for (is_second, list) in [(false, group.a), (true, group.b)] {
                for candidate in list {
                    let place = (is_second, candidate.position);
                    let Some(fingerprint) = by_place.get(&place).copied() else { continue };
                    let number = *numbers.entry(fingerprint.unordered).or_insert_with(|| {
                        parts.push(Group::default());
                        parts.len().saturating_sub(1)
                    });
                    if let Some(part) = parts.get_mut(number) {
                        let list = if is_second { &mut part.b } else { &mut part.a };
                        list.push(Candidate { fingerprint, ..candidate });
                    }
                }
            }
            split.extend(parts.into_iter().filter(|part| !part.a.is_empty() && !part.b.is_empty()));
        }
        Ok(split)
    }

    fn fingerprints(&self, tensors: &[Tensor], places: &[(bool, usize)]) -> Result<Vec<Fingerprint>, Unread> {
        let work = ProgressReporter::new(self.observer, "", Action::Compare, None);
        fingerprints(tensors, self.keys, self.checks, work).map_err(|unread| {
            let (is_second, position) = places.get(unread.item).copied().unwrap_or_default();
            ((position, position), UnreadItem { is_second, ..unread })
        })
    }

    /// Matches tensors with the same elements in any order.
    fn match_group(&mut self, mut group: Group) -> Result<(), Unread> {
        // The same name says more than any other similarity.
        let by_pair: HashMap<usize, Candidate> =
            group.b.iter().filter_map(|candidate| Some((candidate.pair?, *candidate))).collect();
        for a in group.a.clone() {
            if let Some(b) = a.pair.and_then(|pair| by_pair.get(&pair)) {
                self.add(a, *b, &mut group)?;
            }
        }
        // Tensors that are all zeros or ones are found everywhere.
        let is_evidence =
            |candidate: &Candidate| !candidate.fingerprint.is_constant || candidate.pair.is_none();
        group.a.retain(is_evidence);
        group.b.retain(is_evidence);
        for with_shape in [true, false] {
            let key = |tensors: &Tensors, candidate: &Candidate| {
                let shape = tensors.get_index(candidate.position).map(|(_, tensor)| tensor.shape().to_vec());
                (shape.filter(|_| with_shape), candidate.fingerprint.ordered)
            };
            let mut by_order: HashMap<_, Vec<Candidate>> = HashMap::new();
            // The first tensor of `b` is taken first.
            for b in group.b.iter().rev() {
                by_order.entry(key(self.b, b)).or_default().push(*b);
            }
            for a in group.a.clone() {
                if !with_shape && a.fingerprint.is_constant {
                    continue;
                }
                if let Some(b) = by_order.get_mut(&key(self.a, &a)).and_then(Vec::pop) {
                    self.add(a, b, &mut group)?;
                }
            }
        }
        let mut attempts = 0;
        let candidates: Vec<Candidate> =
            group.a.iter().filter(|a| !a.fingerprint.is_constant).copied().collect();
        for a in candidates {
            let mut best: Option<(Candidate, Rearrangement)> = None;
            for b in group.b.clone() {
                attempts = usize::saturating_add(attempts, 1);
                if attempts > ATTEMPTS_MAX && best.is_some() {
                    break;
                }
                let found = self.rearrangement(a, b)?;
                let is_known = found != Rearrangement::Elements;
                if best.is_none() || is_known {
                    best = Some((b, found));
                }
                if is_known {
                    break;
                }
            }
            if let Some((b, found)) = best {
                self.push(a, b, Some(found), &mut group);
            }
        }
        Ok(())
    }

    fn rearrangement(&self, a: Candidate, b: Candidate) -> Result<Rearrangement, Unread> {
        let tensors = self.a.get_index(a.position).zip(self.b.get_index(b.position));
        let Some(((_, first), (_, second))) = tensors else { return Ok(Rearrangement::Elements) };
        find_rearrangement(first, second, self.keys, self.observer)
            .map_err(|reason| ((a.position, b.position), UnreadItem { item: 0, is_second: false, reason }))
    }

    /// Adds a pair of tensors with the same elements, in the same order or in another one.
    fn add(&mut self, a: Candidate, b: Candidate, group: &mut Group) -> Result<(), Unread> {
        let tensors = self.a.get_index(a.position).zip(self.b.get_index(b.position));
        let Some(((_, first), (_, second))) = tensors else { return Ok(()) };
        let is_same_order = a.fingerprint.ordered == b.fingerprint.ordered
            && have_same_order(first, second, self.observer).map_err(|reason| {
                ((a.position, b.position), UnreadItem { item: 0, is_second: false, reason })
            })?;
        let found = if is_same_order { None } else { Some(self.rearrangement(a, b)?) };
        self.push(a, b, found, group);
        Ok(())
    }

    fn push(&mut self, a: Candidate, b: Candidate, found: Option<Rearrangement>, group: &mut Group) {
        let tensors = self.a.get_index(a.position).zip(self.b.get_index(b.position));
        let Some(((name, first), (other_name, second))) = tensors else { return };
        let mut changes = Vec::new();
        changes.extend(found.as_ref().map(|found| match found {
            Rearrangement::Transposed { .. } => Change::Transposed,
            _ => Change::Permuted,
        }));
        let is_transposed = changes.first() == Some(&Change::Transposed);
        if first.shape() != second.shape() && !is_transposed {
            changes.push(Change::Reshaped);
        }
        if name != other_name {
            changes.push(Change::Renamed);
        }
        group.a.retain(|candidate| candidate.position != a.position);
        group.b.retain(|candidate| candidate.position != b.position);
        self.moved.push(Moved { a: a.position, b: b.position, changes, rearrangement: found });
    }

    /// Returns the positions in `a` and in `b` of the tensors that were found.
    fn found(&self) -> (HashSet<usize>, HashSet<usize>) {
        let in_a = self.moved.iter().map(|found| found.a).collect();
        (in_a, self.moved.iter().map(|found| found.b).collect())
    }

    /// Returns the tensors that were not found. A pair of which one tensor was found under another name is split.
    fn left(&self, unmatched: Unmatched) -> Unmatched {
        let (in_a, in_b) = self.found();
        let Unmatched { pairs, mut only_a, mut only_b } = unmatched;
        let mut left = Vec::new();
        for pair in pairs {
            match (in_a.contains(&pair.a), in_b.contains(&pair.b)) {
                (false, false) => left.push(pair),
                (true, false) => only_b.push(pair.b),
                (false, true) => only_a.push(pair.a),
                (true, true) => {}
            }
        }
        only_a.retain(|position| !in_a.contains(position));
        only_b.retain(|position| !in_b.contains(position));
        only_a.sort_unstable();
        only_b.sort_unstable();
        Unmatched { pairs: left, only_a, only_b }
    }

    /// Matches renamed tensors that were also cast to another dtype.
    fn match_casts(&mut self, left: &Unmatched) -> Result<(), Unread> {
        let mut by_shape: HashMap<Vec<u64>, (Vec<usize>, Vec<usize>)> = HashMap::new();
        for (is_second, list, tensors) in [(false, &left.only_a, self.a), (true, &left.only_b, self.b)] {
            for position in list {
                let tensor = tensors.get_index(*position).map(|(_, tensor)| tensor);
                let Some(tensor) = tensor.filter(|tensor| tensor.numel() > 1) else { continue };
                let group = by_shape.entry(tensor.shape().to_vec()).or_default();
                if is_second { group.1.push(*position) } else { group.0.push(*position) }
            }
        }
        let (mut tensors, mut places, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for (shape, (in_a, in_b)) in &by_shape {
            if in_a.is_empty() || in_b.is_empty() {
                continue;
            }
            for (is_second, own, own_list, other, other_list) in
                [(false, self.a, in_a, self.b, in_b), (true, self.b, in_b, self.a, in_a)]
            {
                let dtypes = distinct_dtypes(other, other_list);
                for position in own_list {
                    let Some((_, tensor)) = own.get_index(*position) else { continue };
                    for dtype in &dtypes {
                        // A cast to integers can fail, and says little.
                        let is_number = *dtype == tensor.dtype()
                            || (dtype.is_floating_point()
                                && DtypeConversion::new(tensor.dtype(), *dtype).is_some());
                        if let Some(cast) = tensor.cast(*dtype).filter(|_| is_number) {
                            tensors.push(cast);
                            places.push((is_second, *position));
                            rows.push((shape, *dtype, *dtype != tensor.dtype()));
                        }
                    }
                    tensors.push(tensor.clone());
                    places.push((is_second, *position));
                    rows.push((shape, tensor.dtype(), false));
                }
            }
        }
        let found = self.fingerprints(&tensors, &places)?;
        let mut by_contents: HashMap<_, Vec<(bool, usize, bool)>> = HashMap::new();
        for (((shape, dtype, is_cast), (is_second, position)), fingerprint) in
            rows.iter().zip(&places).zip(&found)
        {
            if !fingerprint.is_constant {
                let key = (*shape, *dtype, fingerprint.unordered, fingerprint.ordered);
                by_contents.entry(key).or_default().push((*is_second, *position, *is_cast));
            }
        }
        let (mut taken_a, mut taken_b) = self.found();
        let mut matches = Vec::new();
        for members in by_contents.values() {
            for (_, a, a_cast) in members.iter().filter(|member| !member.0) {
                let is_free = |(is_second, b, b_cast): &&(bool, usize, bool)| {
                    *is_second && a_cast != b_cast && !taken_b.contains(b)
                };
                let partner = members.iter().find(is_free).filter(|_| !taken_a.contains(a));
                if let Some((_, b, _)) = partner {
                    taken_a.insert(*a);
                    taken_b.insert(*b);
                    matches.push((*a, *b));
                }
            }
        }
        matches.sort_unstable();
        self.moved.extend(matches.into_iter().map(|(a, b)| Moved {
            a,
            b,
            changes: vec![Change::Dtype, Change::Renamed],
            rearrangement: None,
        }));
        Ok(())
    }
}

fn distinct_dtypes(tensors: &Tensors, positions: &[usize]) -> Vec<Dtype> {
    let mut found = Vec::new();
    for position in positions {
        if let Some((_, tensor)) = tensors.get_index(*position)
            && !found.contains(&tensor.dtype())
        {
            found.push(tensor.dtype());
        }
    }
    found
}

/// Returns the candidates whose elements may be those of one of `others`.
fn with_partner(candidates: &[Candidate], others: &[Candidate]) -> Vec<Candidate> {
    if others.iter().any(|other| other.norm.is_none()) {
        return candidates.to_vec();
    }
    let mut norms: Vec<f64> = others.iter().filter_map(|other| other.norm).collect();
    norms.sort_by(f64::total_cmp);
    let has_partner = |candidate: &&Candidate| {
        let Some(norm) = candidate.norm else { return !norms.is_empty() };
        let margin = norm * NORM_TOLERANCE;
        let at = norms.partition_point(|other| *other < norm - margin);
        norms.get(at).is_some_and(|other| *other <= norm + margin)
    };
    candidates.iter().filter(has_partner).copied().collect()
}

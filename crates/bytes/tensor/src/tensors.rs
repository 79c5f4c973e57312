//! Ordered lists of named tensors.

use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::OnceLock;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::{CompoundKind, Dtype, Tensor};

/// Ordered list of named tensors, with an index of the names.
///
/// A compound tensor is stored as its parts, named `NAME.PART`, at consecutive positions, and as a [`CompoundTensor`] that
/// describes the whole.
///
/// ```
/// use tensor::{Dtype, Storage, Tensor, Tensors};
///
/// let bias = Tensor::new(Dtype::UInt8, vec![2], vec![1], 0, Storage::owned(vec![1, 2]))?;
/// let tensors = Tensors::from([("bias".to_owned(), bias)]);
/// assert_eq!(tensors.get("bias").map(Tensor::shape), Some([2].as_slice()));
/// # Ok::<(), tensor::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    list: Vec<(String, Tensor)>,
    compounds: Vec<CompoundTensor>,
    /// Positions by the hashes of the names, built on the first lookup of a name.
    index: OnceLock<NameIndex>,
}

#[derive(Clone, Debug, Default)]
struct NameIndex {
    positions: HashTable<u32>,
    state: RandomState,
}

/// Tensor that consists of several tensors: quantized, sparse, nested, or of a class with several attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompoundTensor {
    pub name: String,
    pub kind: CompoundKind,
    /// Dtype of the elements, as PyTorch reports it.
    pub dtype: Dtype,
    /// Shape in elements; for a nested tensor, the shape of its buffer.
    pub shape: Vec<u64>,
    parts: Range<usize>,
}

/// Entry of [`Tensors`]: a tensor or a compound tensor, with its name.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum TensorEntry<'t> {
    /// Single strided view and its name.
    Tensor(&'t str, &'t Tensor),
    /// Quantized tensor (integers with scales and zero points) and its parts.
    Quantized(&'t CompoundTensor, &'t [(String, Tensor)]),
    /// Any other compound tensor and its parts.
    Compound(&'t CompoundTensor, &'t [(String, Tensor)]),
}

impl Tensors {
    /// Creates an empty list with room for `tensors` tensors.
    pub fn with_capacity(tensors: usize) -> Self {
        Self { list: Vec::with_capacity(tensors), ..Self::default() }
    }

    /// Returns the number of strided tensors, parts of compound tensors included.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns true if there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Iterates over the names and the strided tensors, parts of compound tensors included.
    pub fn iter(&self) -> std::slice::Iter<'_, (String, Tensor)> {
        self.list.iter()
    }

    /// Iterates over the names in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.list.iter().map(|(name, _)| name.as_str())
    }

    /// Returns all strided tensors and their names.
    pub fn as_slice(&self) -> &[(String, Tensor)] {
        &self.list
    }

    /// Returns the tensor called `name`, the first if there are several.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        Some(self.get_index(self.position(name)?)?.1)
    }

    /// Returns the position of the tensor called `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        let NameIndex { positions, state } = self.index.get_or_init(|| NameIndex::new(&self.list));
        let is_called = |position: &u32| name_at(&self.list, *position) == name;
        positions.find(state.hash_one(name), is_called).map(|position| *position as usize)
    }

    /// Returns true if there is a tensor called `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// Returns a name that two tensors share, if any.
    pub fn duplicate_name(&self) -> Option<&str> {
        self.names()
            .enumerate()
            .find(|(position, name)| self.position(name) != Some(*position))
            .map(|(_, name)| name)
    }

    /// Returns the tensor at a position, and its name.
    pub fn get_index(&self, position: usize) -> Option<(&str, &Tensor)> {
        self.list.get(position).map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Returns the compound tensors of the list.
    pub fn compounds(&self) -> &[CompoundTensor] {
        &self.compounds
    }

    /// Returns the parts of a compound tensor of this list.
    pub fn parts(&self, compound: &CompoundTensor) -> &[(String, Tensor)] {
        self.list.get(compound.parts.clone()).unwrap_or_default()
    }

    /// Iterates over the tensors in order; a compound tensor is one entry.
    pub fn entries(&self) -> impl Iterator<Item = TensorEntry<'_>> {
        let mut compounds = self.compounds.iter().peekable();
        let mut position = 0_usize;
        std::iter::from_fn(move || {
            if let Some(compound) = compounds.next_if(|compound| compound.parts.start <= position) {
                position = position.max(compound.parts.end);
                let parts = self.parts(compound);
                return Some(match compound.kind {
                    CompoundKind::Quantized { .. } => TensorEntry::Quantized(compound, parts),
                    _ => TensorEntry::Compound(compound, parts),
                });
            }
            let (name, tensor) = self.get_index(position)?;
            position = position.saturating_add(1);
            Some(TensorEntry::Tensor(name, tensor))
        })
    }

    /// Appends a tensor called `name`.
    pub fn push(&mut self, name: String, tensor: Tensor) {
        self.index = OnceLock::new();
        self.list.push((name, tensor));
    }

    /// Appends a compound tensor and its parts, whose names are complete (`NAME.PART`).
    pub fn push_compound(
        &mut self,
        name: String,
        (kind, dtype, shape): (CompoundKind, Dtype, Vec<u64>),
        parts: impl IntoIterator<Item = (String, Tensor)>,
    ) {
        self.index = OnceLock::new();
        let start = self.list.len();
        self.list.extend(parts);
        self.compounds.push(CompoundTensor { name, kind, dtype, shape, parts: start..self.list.len() });
    }

    /// Iterates mutably over the tensors; their names stay.
    pub fn tensors_mut(&mut self) -> impl Iterator<Item = (&str, &mut Tensor)> {
        self.list.iter_mut().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Iterates mutably over the names, those of compound tensors included.
    pub fn names_mut(&mut self) -> impl Iterator<Item = &mut String> {
        self.index = OnceLock::new();
        let compounds = self.compounds.iter_mut().map(|compound| &mut compound.name);
        self.list.iter_mut().map(|(name, _)| name).chain(compounds)
    }

    /// Iterates over the kinds and the mutable dtypes of the compound tensors.
    pub fn compounds_mut(&mut self) -> impl Iterator<Item = (&CompoundKind, &mut Dtype)> {
        self.compounds.iter_mut().map(|compound| (&compound.kind, &mut compound.dtype))
    }
}

impl NameIndex {
    /// Builds the index. Tensors after the first 2^32 are not indexed.
    fn new(list: &[(String, Tensor)]) -> Self {
        let mut index = Self { positions: HashTable::with_capacity(list.len()), ..Self::default() };
        let Self { positions, state } = &mut index;
        for (position, (name, _)) in (0_u32..).zip(list) {
            let hash = |position: &u32| state.hash_one(name_at(list, *position));
            let is_same = |position: &u32| name_at(list, *position) == name;
            positions.entry(state.hash_one(name.as_str()), is_same, hash).or_insert(position);
        }
        index
    }
}

fn name_at(list: &[(String, Tensor)], position: u32) -> &str {
    list.get(position as usize).map_or("", |(name, _)| name)
}

impl From<Vec<(String, Tensor)>> for Tensors {
    fn from(list: Vec<(String, Tensor)>) -> Self {
        Self { list, ..Self::default() }
    }
}

impl<const COUNT: usize> From<[(String, Tensor); COUNT]> for Tensors {
    fn from(list: [(String, Tensor); COUNT]) -> Self {
        Vec::from(list).into()
    }
}

impl FromIterator<(String, Tensor)> for Tensors {
    fn from_iter<I: IntoIterator<Item = (String, Tensor)>>(tensors: I) -> Self {
        Vec::from_iter(tensors).into()
    }
}

impl Extend<(String, Tensor)> for Tensors {
    fn extend<I: IntoIterator<Item = (String, Tensor)>>(&mut self, tensors: I) {
        self.index = OnceLock::new();
        self.list.extend(tensors);
    }
}

impl IntoIterator for Tensors {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'t> IntoIterator for &'t Tensors {
    type Item = &'t (String, Tensor);
    type IntoIter = std::slice::Iter<'t, (String, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use byte_source::Blob;

    use super::*;
    use crate::Storage;

    fn tensor(byte: u8) -> Tensor {
        Tensor::new(Dtype::UInt8, vec![1], vec![1], 0, Storage::owned(vec![byte])).expect("a byte")
    }

    fn first_byte(tensors: &Tensors, name: &str) -> Option<u8> {
        let mut bytes: Vec<u8> = Vec::new();
        tensors.get(name)?.gathered().write_to(&mut bytes).expect("it is in memory");
        bytes.first().copied()
    }

    #[test]
    fn tensors_are_found_by_name_also_after_changes() {
        let mut tensors: Tensors = (0..9).map(|n| (n.to_string(), tensor(n))).collect();
        assert_eq!((first_byte(&tensors, "7"), tensors.position("8")), (Some(7), Some(8)));
        assert!(tensors.get("9").is_none() && !tensors.contains("") && tensors.duplicate_name().is_none());
        tensors.push("9".to_owned(), tensor(9));
        tensors.extend([("7".to_owned(), tensor(70))]);
        assert_eq!((first_byte(&tensors, "9"), first_byte(&tensors, "7")), (Some(9), Some(7)));
        assert_eq!(tensors.duplicate_name(), Some("7"));
        tensors.names_mut().for_each(|name| name.insert(0, 'x'));
        assert_eq!((first_byte(&tensors, "x9"), tensors.position("9")), (Some(9), None));
        tensors.tensors_mut().for_each(|(_, tensor)| *tensor = self::tensor(1));
        assert_eq!(first_byte(&tensors, "x9"), Some(1));
        assert_eq!(tensors.names().collect::<Vec<_>>()[9..], ["x9", "x7"]);
    }

    #[test]
    fn a_compound_tensor_is_one_entry() {
        let mut tensors = Tensors::default();
        let quantized = CompoundKind::Quantized { scheme: "per_tensor_affine".to_owned(), axis: None };
        tensors.push("a".to_owned(), tensor(0));
        let parts = ["w.int_repr", "w.scale"].map(|name| (name.to_owned(), tensor(1)));
        tensors.push_compound("w".to_owned(), (quantized, Dtype::QInt8, vec![1]), parts);
        // A compound tensor may have no parts.
        tensors.push_compound("none".to_owned(), (CompoundKind::Nested, Dtype::UInt8, vec![0]), []);
        tensors.push_compound(
            "n".to_owned(),
            (CompoundKind::Nested, Dtype::UInt8, vec![1]),
            [("n.values".to_owned(), tensor(2))],
        );
        tensors.push("z".to_owned(), tensor(3));
        let name = |entry| match entry {
            TensorEntry::Tensor(name, _) => name.to_owned(),
            TensorEntry::Quantized(compound, parts) => format!("{} quantized {}", compound.name, parts.len()),
            TensorEntry::Compound(compound, parts) => format!("{} {}", compound.name, parts.len()),
        };
        let entries: Vec<String> = tensors.entries().map(name).collect();
        assert_eq!(entries, ["a", "w quantized 2", "none 0", "n 1", "z"]);
        assert_eq!((tensors.len(), tensors.compounds().len()), (5, 3));
        tensors.compounds_mut().for_each(|(_, dtype)| *dtype = Dtype::Int8);
        assert!(tensors.compounds().iter().all(|compound| compound.dtype == Dtype::Int8));
        tensors.names_mut().for_each(|name| name.push('x'));
        assert_eq!(tensors.compounds()[0].name, "wx");
        assert_eq!(tensors.parts(&tensors.compounds()[2])[0].0, "n.valuesx");
    }
}

//! The tensors of a model as patterns of names: a pattern stands for all layers and experts that have tensors of the same shape.

use std::cell::RefCell;

use crate::indices::Indices;
use crate::size::Size;

/// Names of tensors that are one if embeddings are tied.
pub(crate) type Tie = Vec<String>;

/// Text in a pattern that stands for a number.
pub(crate) const HOLE: &str = "{}";

/// What a tensor is to a quantization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Weight of a linear layer, [out, in].
    Linear,
    /// Weights of the experts of a layer in one tensor, [experts, out, in].
    Stacked,
    Other,
}

/// What a tensor is of one in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Number of the pattern in memory.
    pub(crate) entry: usize,
    /// Hole of the number that is an index of the first dimension in memory; `None` for the whole tensor.
    pub(crate) stack: Option<usize>,
    /// Number of the part of the rows, and number of parts.
    pub(crate) part: [usize; 2],
    /// True if the last two dimensions are exchanged.
    pub(crate) is_transposed: bool,
}

/// Tensors of the same shape whose names differ in numbers.
#[derive(Clone, Debug)]
pub(crate) struct TensorPattern {
    /// Name with a [`HOLE`] for each number.
    pub(crate) name: String,
    /// Numbers that each hole stands for.
    pub(crate) at: Vec<Indices>,
    pub(crate) shape: Vec<u64>,
    pub(crate) kind: Kind,
    /// True if the last two dimensions are [in, out].
    pub(crate) has_columns_first: bool,
    /// False if a folder without the tensors is whole.
    pub(crate) is_required: bool,
    /// Tensors with the same number are one, of which a folder may have any.
    pub(crate) tie: Option<u8>,
    /// Part that a configuration declares, such as `mtp`; empty for the rest of the model.
    pub(crate) part: &'static str,
    pub(crate) origin: Origin,
}

/// Writes numbers into the holes of a pattern.
pub(crate) fn filled(pattern: &str, numbers: &[u32]) -> String {
    let mut parts = pattern.split(HOLE);
    let mut name = parts.next().unwrap_or_default().to_owned();
    for (number, part) in numbers.iter().zip(parts) {
        name.push_str(&number.to_string());
        name.push_str(part);
    }
    name
}

impl TensorPattern {
    /// Returns the number of tensors that the pattern stands for.
    pub(crate) fn count(&self) -> usize {
        self.at.iter().fold(1, |count, indices| count.saturating_mul(indices.len()))
    }

    /// Returns the place of the tensor with these numbers among those of the pattern.
    pub(crate) fn position(&self, numbers: &[u32]) -> Option<usize> {
        let mut place = 0_usize;
        for (indices, number) in self.at.iter().zip(numbers) {
            place = place.checked_mul(indices.len())?.checked_add(indices.position(*number)?)?;
        }
        Some(place)
    }

    /// Returns the numbers of the tensor at a place.
    pub(crate) fn numbers_at(&self, mut place: usize) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(self.at.len());
        for indices in self.at.iter().rev() {
            let len = indices.len().max(1);
            numbers.push(indices.get(place.checked_rem(len).unwrap_or_default()).unwrap_or_default());
            place = place.checked_div(len).unwrap_or_default();
        }
        numbers.reverse();
        numbers
    }

    /// Returns the name of the tensor at a place.
    pub(crate) fn name_at(&self, place: usize) -> String {
        filled(&self.name, &self.numbers_at(place))
    }
}

/// Place in a model under which tensors are added.
pub(crate) struct Scope<'a> {
    entries: &'a RefCell<Vec<TensorPattern>>,
    path: String,
    at: Vec<Indices>,
    part: &'static str,
    has_columns_first: bool,
}

impl<'a> Scope<'a> {
    /// Creates the place of a module. `path` is empty or ends with a dot.
    pub(crate) fn new(entries: &'a RefCell<Vec<TensorPattern>>, path: &str) -> Self {
        Self { entries, path: path.to_owned(), at: Vec::new(), part: "", has_columns_first: false }
    }

    /// Returns the start of the names here: empty, or with a dot at its end.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Adds the tensors whose names after the start of those here pass a test.
    pub(crate) fn extend(&self, entries: Vec<TensorPattern>, passes: impl Fn(&str) -> bool) {
        let is_kept = |entry: &TensorPattern| entry.name.strip_prefix(&self.path).is_none_or(&passes);
        self.entries.borrow_mut().extend(entries.into_iter().filter(is_kept));
    }

    /// Returns the place of a module in this one.
    pub(crate) fn at(&self, module: &str) -> Self {
        let dot = if module.is_empty() { "" } else { "." };
        Self {
            entries: self.entries,
            path: format!("{}{module}{dot}", self.path),
            at: self.at.clone(),
            part: self.part,
            has_columns_first: self.has_columns_first,
        }
    }

    /// Returns the same place, whose tensors are of a part that a configuration declares.
    pub(crate) fn part(self, part: &'static str) -> Self {
        Self { part, ..self }
    }

    /// Returns the same place, whose matrices are [in, out].
    pub(crate) fn columns_first(self) -> Self {
        Self { has_columns_first: true, ..self }
    }

    /// Returns the place of the numbered modules of a list.
    pub(crate) fn each(&self, list: &str, indices: &Indices) -> Self {
        let mut scope = self.at(list).at(HOLE);
        scope.at.push(indices.clone());
        scope
    }

    fn add(&self, name: &str, shape: &[Size], kind: Kind, is_required: bool) {
        if self.at.iter().any(|indices| indices.len() == 0) {
            return;
        }
        let mut at = self.at.clone();
        let mut path = Vec::new();
        // A number that is written in a module's name is a hole too, so that all patterns of a name are equal.
        let mut holes = std::mem::take(&mut at).into_iter();
        for part in self.path.split_terminator('.').chain(name.split('.')) {
            match part.parse() {
                _ if part == HOLE => {
                    at.extend(holes.next());
                    path.push(HOLE);
                }
                Ok(number) => {
                    at.push(Indices::one(number));
                    path.push(HOLE);
                }
                Err(_) => path.push(part),
            }
        }
        let shape = shape.iter().map(|size| size.0).collect();
        self.entries.borrow_mut().push(TensorPattern {
            name: path.join("."),
            at,
            shape,
            kind,
            has_columns_first: self.has_columns_first,
            is_required,
            tie: None,
            part: self.part,
            origin: Origin::default(),
        });
    }

    /// Adds a tensor.
    pub(crate) fn tensor(&self, name: &str, shape: &[Size]) {
        self.add(name, shape, Kind::Other, true);
    }

    /// Adds a tensor that a whole model may lack.
    pub(crate) fn optional(&self, name: &str, shape: &[Size]) {
        self.add(name, shape, Kind::Other, false);
    }

    /// Adds the weights of the experts of a layer in one tensor.
    pub(crate) fn stacked(&self, name: &str, shape: &[Size]) {
        self.add(name, shape, Kind::Stacked, true);
    }

    /// Adds a linear layer.
    pub(crate) fn linear(&self, module: &str, [out, input]: [Size; 2], bias: bool) {
        self.add(&format!("{module}.weight"), &[out, input], Kind::Linear, true);
        if bias {
            self.tensor(&format!("{module}.bias"), &[out]);
        }
    }

    /// Adds a norm, a convolution or another module with a weight, whose bias has its first dimension. An empty name is the
    /// place itself.
    pub(crate) fn module(&self, module: &str, shape: &[Size], bias: bool) {
        let m = self.at(module);
        m.tensor("weight", shape);
        if bias {
            m.tensor("bias", shape.get(..1).unwrap_or_default());
        }
    }
}

//! Tensors by name, in an order.

use std::collections::HashMap;
use std::sync::Arc;

use tensor::Tensor;

/// Named tensors in the order of their file. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    named: Arc<[(String, Tensor)]>,
    /// Where each name is in `named`.
    places: Arc<HashMap<String, usize>>,
}

impl Tensors {
    /// The number of names.
    pub fn len(&self) -> usize {
        self.named.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the tensor with this name; `None` if no tensor has it.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        let place = self.places.get(name)?;
        self.named.get(*place).map(|(_, tensor)| tensor)
    }

    /// The names and tensors, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.named.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }
}

/// Indexes tensors by their names. If two have the same name, `get` returns the first.
impl FromIterator<(String, Tensor)> for Tensors {
    fn from_iter<I: IntoIterator<Item = (String, Tensor)>>(tensors: I) -> Self {
        let named: Arc<[(String, Tensor)]> = tensors.into_iter().collect();
        let mut places = HashMap::with_capacity(named.len());
        for (place, (name, _)) in named.iter().enumerate() {
            places.entry(name.clone()).or_insert(place);
        }
        Self { named, places: Arc::new(places) }
    }
}

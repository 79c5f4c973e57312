//! Tensors of one name, of which a selection takes one.

use std::borrow::Cow;

use torch_import::{CheckpointItem, TwinName};

use crate::{Problem, Result};

/// The tensors whose name an earlier one has, and which tensors of their names are selected.
pub(super) struct SelectedTwins<'c> {
    all: &'c [TwinName],
    selected: Vec<&'c str>,
}

impl<'c> SelectedTwins<'c> {
    pub(super) fn new(all: &'c [TwinName]) -> Self {
        Self { all, selected: Vec::new() }
    }

    /// Records that an item is selected.
    pub(super) fn select(&mut self, item: &'c str) {
        if self.all.iter().any(|twin| twin.name == item || twin.listed == item) {
            self.selected.push(item);
        }
    }

    /// Checks that at most one tensor of each name is selected.
    ///
    /// # Errors
    /// When two tensors of one name are selected.
    pub(super) fn refuse_pairs(&self) -> Result<()> {
        let is_selected = |name: &str| self.selected.contains(&name);
        let earlier = |twin: &TwinName| {
            let before = self.all.iter().take_while(|it| it.listed != twin.listed);
            is_selected(&twin.name)
                || before.filter(|it| it.name == twin.name).any(|it| is_selected(&it.listed))
        };
        let mut pairs = self.all.iter().filter(|twin| is_selected(&twin.listed) && earlier(twin));
        pairs.next().cloned().map_or(Ok(()), |TwinName { name, listed, first, second }| {
            Err(Problem::TwoOfOneName { name, first, second, listed }.into())
        })
    }
}

/// Returns the end of a name in an item without the number that tells it from an earlier item.
pub(super) fn original_name<'n>(twins: &[TwinName], below: &'n str, item: &CheckpointItem) -> Cow<'n, str> {
    let twin = twins.iter().find(|twin| twin.listed == item.name);
    let number = twin.and_then(|twin| twin.listed.strip_prefix(twin.name.as_str()));
    number.map_or(Cow::Borrowed(below), |number| below.replacen(number, "", 1).into())
}

//! Archives in an archive: pickled parts of an exported program.

use std::sync::Arc;

use byte_source::Source;

/// An archive of `torch.save` in the file, which is read with the checkpoint.
#[derive(Debug)]
pub(crate) struct PickledPart {
    /// Prefix of the names of its tensors, or the name of the tensor that it holds.
    pub(crate) name: String,
    /// Name of the record.
    pub(crate) record: String,
    pub(crate) file: Arc<dyn Source>,
    pub(crate) content: PartContent,
}

impl PickledPart {
    /// Returns the names of the tensors that it is known to hold, or its own name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let (own, views) = match &self.content {
            PartContent::Views(views) => (None, views.as_slice()),
            PartContent::Tensor => (Some(self.name.as_str()), [].as_slice()),
            PartContent::StateDict | PartContent::Constants => (Some(self.record.as_str()), [].as_slice()),
        };
        own.into_iter().chain(views.iter().map(|view| view.name.as_str()))
    }
}

/// What a [`PickledPart`] holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PartContent {
    /// The dict of the weights, without which there is no checkpoint.
    StateDict,
    /// Dict of tensors and objects.
    Constants,
    /// One tensor.
    Tensor,
    /// One tensor, of whose storage these are views.
    Views(Vec<PartView>),
}

/// View of the storage of a tensor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PartView {
    pub(crate) name: String,
    /// Shape, stride and storage offset, in elements.
    pub(crate) shape: Vec<u64>,
    pub(crate) stride: Vec<u64>,
    pub(crate) offset: u64,
}

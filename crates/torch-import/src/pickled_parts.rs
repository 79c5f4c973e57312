//! Names the tensors of the archives in an exported program.

use crate::container::{PartContent, PickledPart};
use crate::item::{CheckpointItem, ItemContent, KeyEnds};
use crate::omission::{Omission, OmissionKind, OmissionReason};
use crate::{CheckpointNote, Problem};

/// Items that an archive adds to a checkpoint.
#[derive(Default)]
pub(crate) struct PartItems {
    pub(crate) items: Vec<CheckpointItem>,
    pub(crate) unread: Vec<(String, Problem)>,
    /// Names of what is no tensor.
    pub(crate) objects: Vec<String>,
}

/// Gives the items of an archive their names in the checkpoint.
pub(crate) fn named_items(part: &PickledPart, items: Vec<CheckpointItem>) -> PartItems {
    let mut added = PartItems::default();
    let is_dict = matches!(part.content, PartContent::StateDict | PartContent::Constants);
    let root = items.first().filter(|item| item.name.is_empty() && items.len() == 1);
    match (&part.content, root.and_then(CheckpointItem::tensor)) {
        (PartContent::Views(views), Some(whole)) => {
            for view in views {
                let (shape, stride) = (view.shape.clone(), view.stride.clone());
                let tensor =
                    tensor::Tensor::new(whole.dtype(), shape, stride, view.offset, whole.storage().clone());
                match tensor {
                    Ok(tensor) => added.items.push(CheckpointItem::from_tensor(view.name.clone(), tensor)),
                    Err(error) => {
                        let reason = format!("record `{}`: {error}", part.record.escape_debug());
                        let problem = Problem::DamagedTensor { tensor: view.name.clone(), reason };
                        added.unread.push((view.name.clone(), problem));
                    }
                }
            }
            return added;
        }
        (PartContent::Tensor, _) if root.is_some() => {}
        _ if is_dict => {}
        _ => {
            added.objects.extend(part.names().map(str::to_owned));
            return added;
        }
    }
    for mut item in items {
        item.name.insert_str(0, &part.name);
        item.keys = KeyEnds::NONE;
        if matches!(item.content, ItemContent::Value(_)) {
            added.objects.push(item.name);
        } else {
            added.items.push(item);
        }
    }
    added
}

/// Returns the note that a pickled part is not among the tensors.
pub(crate) fn left_out_note(name: &str, why: &str) -> CheckpointNote {
    CheckpointNote::Format { text: format!("`{}` is left out: {why}", name.escape_debug()) }
}

pub(crate) fn omission(name: &str) -> Omission {
    let (name, reason) = (name.to_owned(), OmissionReason::Pickled);
    Omission { file: None, kind: OmissionKind::Object, name, nbytes: None, reason, object: None }
}

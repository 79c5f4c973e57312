//! Opens a bare pickle, protocols 0 to 5.

use std::sync::Arc;

use byte_source::{Checks, Observer, Source};
use pickle_vm::{Instruction, Machine, Opcode, PickleLimits, Reader};

use tensor::StorageRecords;

use crate::container::contents::{ContainerContents, PickledTensors};
use crate::container::format::ContainerFormat;
use crate::container::inflate::RecordBytes;
use crate::{CheckpointNote, Result};

/// Number of instructions that must run before bytes count as a pickle. A text or an image fails earlier.
const CONVINCING_INSTRUCTIONS: usize = 8;

/// Bare pickle without storages.
#[derive(Debug)]
pub(super) struct PickleFormat;

impl ContainerFormat for PickleFormat {
    fn name(&self) -> &'static str {
        "pickle"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["pkl", "pickle"]
    }

    fn recognises(&self, head: &[u8]) -> bool {
        recognises(head)
    }

    fn open(&self, file: Arc<dyn Source>, _: Checks, _: &dyn Observer) -> Result<ContainerContents> {
        let pickle = RecordBytes::read(&file, 0..file.len())?;
        let mut reader = Reader::new(&pickle);
        // Errors are reported when the objects are read.
        let whole = reader.by_ref().all(|instruction| instruction.is_ok());
        let left = file.len().saturating_sub(reader.offset());
        let mut notes = Vec::new();
        if whole && left > 0 {
            notes.push(CheckpointNote::TrailingAfterPickle { bytes: left });
        }
        let pickled = PickledTensors { pickle_record: "pickle".to_owned(), ..PickledTensors::new(pickle) };
        Ok(ContainerContents {
            notes,
            ..ContainerContents::pickled(file, StorageRecords::default(), pickled)
        })
    }
}

/// Returns true if a file starts with a pickle. Protocols 2 and up start with PROTO. Earlier protocols have no magic
/// number, so the first instructions are run: in a pickle, they find their operands on the stack.
pub(crate) fn recognises(bytes: &[u8]) -> bool {
    let mut machine = Machine::new(PickleLimits::default());
    for (index, instruction) in Reader::new(bytes).enumerate() {
        let Ok(instruction) = instruction else { return false };
        if matches!(instruction, Instruction { opcode: Opcode::Proto, .. }) && index == 0 {
            return true;
        }
        match machine.step(instruction) {
            Ok(Some(_)) => return true,
            Ok(None) if index >= CONVINCING_INSTRUCTIONS => return true,
            Ok(None) => {}
            Err(_) => return false,
        }
    }
    false
}
